"""What an answer costs is asked of litellm, once for a model of which it has no price."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.effects.model.litellm.costs import Costs


class PriceList:
    """Takes the place of litellm: a list of prices, and a count of how often it was searched."""

    def __init__(self, **prices: float | None) -> None:
        self.model_cost = prices
        self.searches = 0

    def completion_cost(self, completion_response: Any, model: str) -> float:
        """The price of the model, also under its name without the provider. Raises a plain Exception if there is none,
        as litellm does."""
        self.searches += 1
        price = self.model_cost.get(model, self.model_cost.get(model.partition("/")[2]))
        if price is None:
            raise Exception(f"This model isn't mapped yet: {model}")
        return price


def test_a_model_without_a_price_is_looked_for_once() -> None:
    """Until the list has changed, because an application has added prices."""
    prices, costs = PriceList(), Costs("measured")

    assert [costs.cost_of({}, prices) for _ in range(3)] == [None] * 3
    assert prices.searches == 1
    prices.model_cost["measured"] = 0.5
    assert [costs.cost_of({}, prices) for _ in range(2)] == [0.5] * 2


@pytest.mark.parametrize("name", ["measured", "own/measured"])
def test_a_price_may_be_added_to_a_model_that_the_list_has(name: str) -> None:
    """An application may have told the context window of its model first. The list does not grow with the price."""
    prices, costs = PriceList(measured=None, own=1.0), Costs(name)

    assert costs.cost_of({}, prices) is None
    prices.model_cost |= {name.partition("/")[2] or name: 0.5}
    assert costs.cost_of({}, prices) == 0.5


@pytest.mark.parametrize("model", ["openai/gpt-4.1-mini"])
def test_a_model_with_a_price_is_asked_for_again_after_a_failure(model: str) -> None:
    """A response whose cost cannot be computed says nothing about the next one."""
    prices, costs = PriceList(), Costs(model)

    assert [costs.cost_of({}, prices) for _ in range(2)] == [None, None]
    assert prices.searches == 2
