"""What litellm's list says of models: their context windows, and whether their prices are known.

litellm knows thousands of models, but takes seconds to import, and a conversation needs its model's window before the
first request. The list is a JSON file in litellm's package, so it is read from there without importing litellm: tens of
milliseconds, once in a process, and only when a model is looked up.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...logs import performer_logger

logger = performer_logger("turnwise.model")

_FILE = "model_prices_and_context_window_backup.json"
_RULES = "fallback_generalizations"
"""The entry of the list that is not a model: patterns for names that the list does not have."""

PRICES = ("input_cost_per_token", "output_cost_per_token", "tiered_pricing")
"""The members of an entry by which litellm computes what a request costs. Zero is a price, as of local models."""


@dataclass(frozen=True)
class ListedModel:
    """What the list says of a model: its provider, the tokens that a request may hold, if known, whether the list has
    its price, and whether it takes images, if the list says so."""

    provider: str = ""
    window: int | None = None
    is_priced: bool = False
    takes_images: bool | None = None


UNLISTED = ListedModel()
"""A model of which the list says nothing."""


@dataclass(frozen=True)
class ModelList:
    """The models of a list by name, in lower case, and patterns with windows for other names, in their order."""

    models: Mapping[str, ListedModel]
    rules: tuple[tuple[re.Pattern[str], int], ...]

    @classmethod
    def read(cls, path: Path) -> ModelList:
        """The list in this file; empty, with a warning in the log, if the file cannot be read."""
        try:
            entries = json.loads(path.read_bytes())
            models = {name.lower(): _listed(entry) for name, entry in entries.items() if name != _RULES}
            return cls(models, tuple(_rules_in(entries.get(_RULES) or {})))
        except Exception as error:  # another version of litellm may write its list in another way
            logger.warning("Windows and prices of models are unknown: litellm's list cannot be read: %s", error)
            return cls({}, ())

    def find(self, name: str) -> ListedModel:
        """What the list says of the model of this name.

        Names are looked up as litellm does: first as they are, then without the provider in front if the list has the
        name for that provider, then by the patterns for families of models. `Pure.`
        """
        wanted = name.lower()
        if wanted in self.models:
            return self.models[wanted]
        provider, _, model = wanted.partition("/")
        if model in self.models:
            listed = self.models[model]
            # The list has several names for one provider, such as bedrock and bedrock_converse.
            return listed if listed.provider.startswith(provider) else UNLISTED
        windows = (window for pattern, window in reversed(self.rules) if pattern.search(wanted))
        return ListedModel(window=next(windows, None))


def listed_model(name: str) -> ListedModel:
    """What litellm's list says of the model of this name. Raises nothing."""
    return _litellm_list().find(name)


@functools.cache
def _litellm_list() -> ModelList:
    package = find_spec("litellm")
    return ModelList({}, ()) if package is None else ModelList.read(Path(package.origin or "").with_name(_FILE))


def _listed(entry: Mapping[str, Any]) -> ListedModel:
    is_priced = any(entry.get(member) is not None for member in PRICES)
    provider = str(entry.get("litellm_provider") or "")
    return ListedModel(provider, _window_in(entry), is_priced, _takes_images(entry))


def _takes_images(entry: Mapping[str, Any]) -> bool | None:
    """Whether the model takes images. An entry that says nothing of it may be that of a model that does."""
    says, kinds = entry.get("supports_vision"), entry.get("supported_modalities")
    if isinstance(says, bool):
        return says
    return "image" in kinds if isinstance(kinds, list) and kinds else None


def _window_in(entry: Mapping[str, Any]) -> int | None:
    """The number of input tokens. An entry without it may have `max_tokens`, but that often limits the output; a window
    that is too small would end turns needlessly, so such a window counts as unknown."""
    tokens = entry.get("max_input_tokens")
    return int(tokens) if isinstance(tokens, int | float) and tokens >= 1 else None


def _rules_in(entry: Mapping[str, Any]) -> Iterator[tuple[re.Pattern[str], int]]:
    for rule in entry.get("rules") or ():
        if (window := _window_in(rule["model_info"])) is not None:
            yield re.compile(rule["pattern"], re.IGNORECASE), window
