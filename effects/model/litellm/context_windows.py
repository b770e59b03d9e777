"""The context windows of models, by the names under which litellm knows them.

litellm knows the windows of thousands of models, but takes seconds to import, and a conversation needs its model's
window before the first request. The list is a JSON file in litellm's package, so it is read from there without
importing litellm: tens of milliseconds, once in a process, and only when a window is asked for.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

logger = logging.getLogger("turnwise.model")

_FILE = "model_prices_and_context_window_backup.json"
_RULES = "fallback_generalizations"
"""The entry of the list that is not a model: patterns for names that the list does not have."""


@dataclass(frozen=True)
class WindowList:
    """The windows in a list: provider and window by name, in lower case, and patterns for names, in their order."""

    models: Mapping[str, tuple[str, int | None]]
    rules: tuple[tuple[re.Pattern[str], int], ...]

    @classmethod
    def read(cls, path: Path) -> WindowList:
        """The list in this file; empty, with a warning in the log, if the file cannot be read."""
        try:
            entries = json.loads(path.read_bytes())
            models = {
                name.lower(): (str(entry.get("litellm_provider") or ""), _window_in(entry))
                for name, entry in entries.items()
                if name != _RULES
            }
            return cls(models, tuple(_rules_in(entries.get(_RULES) or {})))
        except Exception as error:  # another version of litellm may write its list in another way
            logger.warning("The context windows of models are unknown: litellm's list cannot be read: %s", error)
            return cls({}, ())

    def find(self, name: str) -> int | None:
        """The tokens that a request to the model of this name may hold; None if that is not known.

        Names are looked up as litellm does: first as they are, then without the provider in front if the list has the
        name for that provider, then by the patterns for families of models. `Pure.`
        """
        wanted = name.lower()
        if wanted in self.models:
            return self.models[wanted][1]
        provider, _, model = wanted.partition("/")
        if model in self.models:
            known_for, window = self.models[model]
            # The list has several names for one provider, such as bedrock and bedrock_converse.
            return window if known_for.startswith(provider) else None
        return next((window for pattern, window in reversed(self.rules) if pattern.search(wanted)), None)


def window_of(name: str) -> int | None:
    """The tokens that a request to the model of this name may hold; None if litellm's list does not say. Raises
    nothing."""
    return _litellm_list().find(name)


@functools.cache
def _litellm_list() -> WindowList:
    package = find_spec("litellm")
    return WindowList({}, ()) if package is None else WindowList.read(Path(package.origin or "").with_name(_FILE))


def _window_in(entry: Mapping[str, Any]) -> int | None:
    """The number of input tokens. An entry without it may have `max_tokens`, but that often limits the output; a window
    that is too small would end turns needlessly, so such a window counts as unknown."""
    tokens = entry.get("max_input_tokens")
    return int(tokens) if isinstance(tokens, int | float) and tokens >= 1 else None


def _rules_in(entry: Mapping[str, Any]) -> Iterator[tuple[re.Pattern[str], int]]:
    for rule in entry.get("rules") or ():
        if (window := _window_in(rule["model_info"])) is not None:
            yield re.compile(rule["pattern"], re.IGNORECASE), window
