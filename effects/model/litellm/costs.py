"""What the answers of a model cost: by the prices that its application gives, else as far as litellm knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .model_list import listed_model
from .usage import Tokens

_INPUT_PRICE, _OUTPUT_PRICE = "input_cost_per_token", "output_cost_per_token"
_CACHED_PRICE, _WRITTEN_PRICE = "cache_read_input_token_cost", "cache_creation_input_token_cost"

OWN_PRICES = frozenset({_INPUT_PRICE, _OUTPUT_PRICE, _CACHED_PRICE, _WRITTEN_PRICE})
"""The options that are prices of a model. litellm does not get them: it would take them for the prices of every model
of that name in the process."""


class Costs:
    """Tells the costs of the answers of one model.

    `options` are those of the model. Prices among them win, in US dollars a token: `input_cost_per_token` and
    `output_cost_per_token`, of which a missing one is 0, and `cache_read_input_token_cost` and
    `cache_creation_input_token_cost`, of which a missing one is that of the input.

    litellm looks through its whole list before it says that a model has no price. So that answer is remembered, until
    the list has changed: an application may add prices to it at any time.
    """

    def __init__(self, model: str, options: Mapping[str, Any] | None = None) -> None:
        self._model = model
        prices = {name: value for name, value in (options or {}).items() if isinstance(value, int | float)}
        self._own = prices if {_INPUT_PRICE, _OUTPUT_PRICE} & prices.keys() else None
        self._prices_without_it = -1
        """How many models litellm had prices for when this one was not among them; -1 if that has not happened."""

    def cost_of(self, tokens: Tokens, litellm: Any) -> float | None:
        """The cost of an answer in US dollars; None if the price is not known."""
        if self._own is not None:
            return _by_own_prices(tokens, self._own)
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


def _by_own_prices(tokens: Tokens, prices: Mapping[str, float]) -> float:
    price = prices.get(_INPUT_PRICE, 0.0)
    fresh = tokens.input - tokens.cached - tokens.written
    kept = tokens.cached * prices.get(_CACHED_PRICE, price) + tokens.written * prices.get(_WRITTEN_PRICE, price)
    return fresh * price + kept + tokens.output * prices.get(_OUTPUT_PRICE, 0.0)


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
