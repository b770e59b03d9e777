"""What an answer costs is asked of litellm, once for a model of which it has no price."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.effects.model.litellm.costs import Costs, Tokens


class PriceList:
    """Takes the place of litellm: a list of prices, and a count of how often it was searched."""

    def __init__(self, **prices: float | None) -> None:
        self.model_cost = prices
        self.searches = 0

    Usage = SimpleNamespace

    def cost_per_token(self, model: str, usage_object: Any) -> tuple[float, float]:
        """The price of the model, also under its name without the provider. Raises a plain Exception if there is none,
        as litellm does."""
        self.searches += 1
        price = self.model_cost.get(model, self.model_cost.get(model.partition("/")[2]))
        if price is None:
            raise Exception(f"This model isn't mapped yet: {model}")
        return price, 0.0


def test_a_model_without_a_price_is_looked_for_once() -> None:
    """Until the list has changed, because an application has added prices."""
    prices, costs = PriceList(), Costs("measured")

    assert [costs.cost_of(Tokens(), prices) for _ in range(3)] == [None] * 3
    assert prices.searches == 1
    prices.model_cost["measured"] = 0.5
    assert [costs.cost_of(Tokens(), prices) for _ in range(2)] == [0.5] * 2


@pytest.mark.parametrize("name", ["measured", "own/measured"])
def test_a_price_may_be_added_to_a_model_that_the_list_has(name: str) -> None:
    """An application may have told the context window of its model first. The list does not grow with the price."""
    prices, costs = PriceList(measured=None, own=1.0), Costs(name)

    assert costs.cost_of(Tokens(), prices) is None
    prices.model_cost |= {name.partition("/")[2] or name: 0.5}
    assert costs.cost_of(Tokens(), prices) == 0.5


@pytest.mark.parametrize("model", ["openai/gpt-4.1-mini"])
def test_a_model_with_a_price_is_asked_for_again_after_a_failure(model: str) -> None:
    """A response whose cost cannot be computed says nothing about the next one."""
    prices, costs = PriceList(), Costs(model)

    assert [costs.cost_of(Tokens(), prices) for _ in range(2)] == [None, None]
    assert prices.searches == 2


OWN = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        (OWN, 1000e-6 + 200e-6),
        (OWN | {"cache_read_input_token_cost": 1e-7}, 80e-6 + 200e-6 + 200e-6),
        (OWN | {"cache_read_input_token_cost": 1e-7, "cache_creation_input_token_cost": 2e-6}, 80e-6 + 300e-6 + 200e-6),
        ({"input_cost_per_token": 1e-6}, 1000e-6),
        ({"input_cost_per_token": 0, "output_cost_per_token": 0}, 0.0),
    ],
)
def test_own_prices_win(prices: dict[str, float], cost: float) -> None:
    """Over those of the list, which is not even searched; a price that is not given for cached tokens is that of the
    input."""
    known = PriceList(**{"gpt-4.1-mini": 1.0})

    found = Costs("openai/gpt-4.1-mini", {"api_key": "none", **prices}).cost_of(Tokens(1000, 100, 800, 100), known)

    assert found == pytest.approx(cost)
    assert known.searches == 0
