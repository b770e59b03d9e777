"""What a request cost is read from whatever a provider says of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.effects.model.litellm.usage import read_usage
from turnwise.states.values.messages import Usage


def response(**usage: Any) -> SimpleNamespace:
    """A response with this usage."""
    return SimpleNamespace(usage=SimpleNamespace(**usage))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (SimpleNamespace(), Usage()),
        (SimpleNamespace(usage=None), Usage()),
        (response(prompt_tokens=None, completion_tokens="7"), Usage()),
        (response(prompt_tokens=-5, completion_tokens=3), Usage(output_tokens=3)),
        (response(prompt_tokens=5, prompt_tokens_details={"cached_tokens": 4}), Usage(input_tokens=5, cached_tokens=4)),
        (response(prompt_tokens=5, prompt_tokens_details={"cached_tokens": 9}), Usage(input_tokens=5, cached_tokens=5)),
        (
            response(completion_tokens=5, completion_tokens_details=SimpleNamespace(reasoning_tokens=None)),
            Usage(output_tokens=5),
        ),
    ],
)
def test_what_is_missing_or_no_number_counts_as_nothing(given: Any, expected: Usage) -> None:
    """And no part is more than the tokens that it is a part of."""
    assert read_usage(given, None) == expected


def test_the_cost_is_given() -> None:
    """It comes from a price list."""
    assert read_usage(response(prompt_tokens=1), 0.5) == Usage(input_tokens=1, cost=0.5)
