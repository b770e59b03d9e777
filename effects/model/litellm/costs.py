"""What the answers of a model cost, as far as litellm knows its prices."""

from __future__ import annotations

from typing import Any

from .model_list import listed_model


class Costs:
    """Tells the costs of the answers of one model.

    litellm looks through its whole list before it says that a model has no price. So that answer is remembered, until
    the list has changed: an application may add prices to it at any time.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._prices_without_it = -1
        """How many models litellm had prices for when this one was not among them; -1 if that has not happened."""

    def cost_of(self, response: Any, litellm: Any) -> float | None:
        """The cost of a response of litellm in US dollars; None if the price is not known."""
        prices = len(litellm.model_cost)
        if prices == self._prices_without_it:
            return None
        try:
            return float(litellm.completion_cost(completion_response=response, model=self._model))
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
