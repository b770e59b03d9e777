"""What the answers of a model cost: by the prices that its application gives, else as far as litellm knows them.

litellm takes seconds to import, and a conversation needs its model's window before the first request. So litellm's
list, a JSON file in its package, is read without importing it: tens of milliseconds, once in a process, and only when a
model is looked up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from ....states.values.files import FileKind
from ...logs import performer_logger
from ..openai.tokens import Tokens, cost_by
from ..port import ModelRequest, tokens_of


class Costs:
    """Tells the costs of the answers of one model. `options` are those of the model; prices among them win, under the
    names in `OWN_PRICES`.

    litellm looks through its whole list before it says that a model has no price. So that answer is remembered, until
    the list has changed: an application may add prices to it at any time.
    """

    def __init__(self, model: str, options: Mapping[str, Any] | None = None) -> None:
        self._model = model
        self._options = options or {}
        self._prices_without_it = -1
        """How many models litellm had prices for when this one was not among them; -1 if that has not happened."""

    def cost_of(self, tokens: Tokens, litellm: Any) -> float | None:
        """The cost of an answer in US dollars; None if the price is not known."""
        if (cost := cost_by(self._options, tokens)) is not None:
            return cost
        prices = len(litellm.model_cost)
        if prices == self._prices_without_it:
            return None
        try:
            return float(sum(litellm.cost_per_token(model=self._model, usage_object=_for_litellm(tokens, litellm))))
        except Exception:  # litellm raises a plain Exception if it has no price for the model
            if not self._is_listed(litellm):
                self._prices_without_it = prices
            return None

    def _is_listed(self, litellm: Any) -> bool:
        """Whether the list has this model, with a price or with an entry that an application may complete. Such a model
        is found without a search."""
        _, _, name = self._model.partition("/")
        has_entry = self._model in litellm.model_cost or name in litellm.model_cost
        return has_entry or listed_model(self._model).is_priced


def _for_litellm(tokens: Tokens, litellm: Any) -> Any:
    return litellm.Usage(
        prompt_tokens=tokens.input,
        completion_tokens=tokens.output,
        total_tokens=tokens.input + tokens.output,
        prompt_tokens_details={"cached_tokens": tokens.cached, "cache_creation_tokens": tokens.written},
        completion_tokens_details={"reasoning_tokens": tokens.reasoning},
        cache_creation_input_tokens=tokens.written,
        cache_read_input_tokens=tokens.cached,
    )


logger: Final = performer_logger("turnwise.model")

_FILE = "model_prices_and_context_window_backup.json"
_RULES = "fallback_generalizations"
"""The entry of the list that is not a model: patterns for names that the list does not have."""

PRICES = ("input_cost_per_token", "output_cost_per_token", "tiered_pricing")
"""The members of an entry by which litellm computes what a request costs. Zero is a price, as of local models."""


@dataclass(frozen=True)
class ListedModel:
    """What the list says of a model: its provider, the tokens that a request may hold, if known, whether the list has
    its price, whether it takes files of each kind, as far as the list says so, and whether it can hold an answer to a
    schema."""

    provider: str = ""
    window: int | None = None
    is_priced: bool = False
    takes: Mapping[FileKind, bool] = field(default_factory=dict)
    takes_schema: bool = False


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


@cache
def _litellm_list() -> ModelList:
    package = find_spec("litellm")
    return ModelList({}, ()) if package is None else ModelList.read(Path(package.origin or "").with_name(_FILE))


def _listed(entry: Mapping[str, Any]) -> ListedModel:
    is_priced = any(entry.get(member) is not None for member in PRICES)
    provider = str(entry.get("litellm_provider") or "")
    takes_schema = entry.get("supports_response_schema") is True
    return ListedModel(provider, _window_in(entry), is_priced, _takes(entry), takes_schema)


_SAYS: Mapping[FileKind, str] = {
    "image": "supports_vision",
    "document": "supports_pdf_input",
    "audio": "supports_audio_input",
    "video": "supports_video_input",
}
"""The member of an entry that says whether a model takes files of a kind."""


def _takes(entry: Mapping[str, Any]) -> Mapping[FileKind, bool]:
    """Which files the model takes. An entry that says nothing of a kind may be that of a model that takes it; only what
    kinds of content it takes says more, where it is listed: documents are never in that list."""
    says = {kind: entry[member] for kind, member in _SAYS.items() if isinstance(entry.get(member), bool)}
    kinds = entry.get("supported_modalities")
    if isinstance(kinds, list) and kinds:
        return {kind: kind in kinds for kind in _SAYS if kind != "document"} | says
    return says


def _window_in(entry: Mapping[str, Any]) -> int | None:
    """The number of input tokens. An entry without it may have `max_tokens`, but that often limits the output; a window
    that is too small would end turns needlessly, so such a window counts as unknown."""
    tokens = entry.get("max_input_tokens")
    return int(tokens) if isinstance(tokens, int | float) and tokens >= 1 else None


def _rules_in(entry: Mapping[str, Any]) -> Iterator[tuple[re.Pattern[str], int]]:
    for rule in entry.get("rules") or ():
        if (window := _window_in(rule["model_info"])) is not None:
            yield re.compile(rule["pattern"], re.IGNORECASE), window


def estimated_tokens(model: str, request: ModelRequest, written: str, litellm: Any) -> Tokens:
    """About how many tokens a request took of whose answer this text had come, if nobody has told.

    litellm counts them with OpenAI's tokenizer, which it brings along: those of other makers it would load from the
    web. What it cannot count is estimated by its length.
    """
    count = partial(litellm.token_counter, model.partition("/")[2], _TOKENIZER, use_default_image_token_count=True)
    try:
        sent = count(messages=list(request.messages), tools=list(request.tools) or None)
        return Tokens(sent or tokens_of(request.size), count(text=written) if written else 0)
    except Exception as error:
        logger.debug("Tokens are estimated by length: %s", error)
        return Tokens(tokens_of(request.size), tokens_of(len(written)))


_TOKENIZER = {"type": "openai_tokenizer", "tokenizer": None}
"""What litellm is given so that it does not choose a tokenizer itself."""
