"""The tokens of a request are read from whatever a provider says of them, and have a cost where prices are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from turnwise.effects.model.openai.tokens import Tokens, cost_by, tokens_in
from turnwise.states.values.messages import Usage

from ....support.cases import holds_for

NAMES: dict[str, tuple[dict[str, Any], Tokens]] = {
    "OpenAI": (
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "total_tokens": 1100,
            "prompt_tokens_details": {"cached_tokens": 800},
            "completion_tokens_details": {"reasoning_tokens": 60},
        },
        Tokens(1000, 100, 800, 0, 60),
    ),
    "OpenAI's responses": (
        {
            "input_tokens": 1000,
            "output_tokens": 100,
            "input_tokens_details": {"cached_tokens": 800},
            "output_tokens_details": {"reasoning_tokens": 60},
        },
        Tokens(1000, 100, 800, 0, 60),
    ),
    "Anthropic": (
        {
            "input_tokens": 100,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 300,
            "output_tokens": 50,
        },
        Tokens(1200, 50, 800, 300),
    ),
    "Anthropic, of which litellm has counted all": (
        {
            "prompt_tokens": 1200,
            "completion_tokens": 50,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 300,
        },
        Tokens(1200, 50, 800, 300),
    ),
    "Anthropic, renamed by a proxy": (
        {"prompt_tokens": 4, "completion_tokens": 50, "cache_read_input_tokens": 800},
        Tokens(804, 50, 800),
    ),
    "Bedrock": (
        {"inputTokens": 100, "outputTokens": 50, "totalTokens": 1250, "cacheReadInputTokens": 800},
        Tokens(900, 50, 800),
    ),
    "Gemini": (
        {
            "promptTokenCount": 1000,
            "candidatesTokenCount": 40,
            "thoughtsTokenCount": 60,
            "cachedContentTokenCount": 800,
            "totalTokenCount": 1100,
        },
        Tokens(1000, 100, 800, 0, 60),
    ),
    "Cohere, what was used and what was billed": (
        {
            "billed_units": {"input_tokens": 100, "output_tokens": 20},
            "tokens": {"input_tokens": 171, "output_tokens": 22},
        },
        Tokens(100, 20),
    ),
    "clients in other languages": (
        {"promptTokens": 100, "completionTokens": 20, "promptTokensDetails": {"cachedTokens": 30}},
        Tokens(100, 20, 30),
    ),
    "Bedrock, as its metrics": ({"InputTokenCount": 100, "OutputTokenCount": 20}, Tokens(100, 20)),
    "Anthropic, written for a time": (
        {
            "input_tokens": 50,
            "output_tokens": 20,
            "cache_creation": {"ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 20},
        },
        Tokens(100, 20, 0, 50),
    ),
    "only the input and the total": ({"prompt_tokens": 100, "total_tokens": 120}, Tokens(100, 20)),
    "in a field of its own": ({"usage": {"total_input_tokens": 100, "total_output_tokens": 20}}, Tokens(100, 20)),
    "Ollama": ({"prompt_eval_count": 26, "eval_count": 298}, Tokens(26, 298)),
    "DeepSeek": (
        {
            "prompt_tokens": 1000,
            "completion_tokens": 100,
            "prompt_cache_hit_tokens": 700,
            "prompt_cache_miss_tokens": 300,
        },
        Tokens(1000, 100, 700),
    ),
    "Moonshot": ({"prompt_tokens": 1000, "completion_tokens": 100, "cached_tokens": 700}, Tokens(1000, 100, 700)),
    "OpenRouter, written": (
        {"prompt_tokens": 1000, "completion_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 300}},
        Tokens(1000, 9, 0, 300),
    ),
    "xAI, whose thinking stands apart": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 75,
            "completion_tokens_details": {"reasoning_tokens": 60},
        },
        Tokens(10, 65, reasoning=60),
    ),
    "floats": ({"prompt_tokens": 10.0, "completion_tokens": 5.0}, Tokens(10, 5)),
    "only the total": ({"total_tokens": 15}, Tokens(15)),
    "the total and the output": ({"total_tokens": 15, "completion_tokens": 5}, Tokens(10, 5)),
}


@holds_for(
    ("told", "expected"),
    [
        (None, Tokens()),
        ({}, Tokens()),
        ({"prompt_tokens": None, "completion_tokens": "7"}, Tokens()),
        ({"prompt_tokens": -5, "completion_tokens": 3}, Tokens(output=3)),
        ({"prompt_tokens": True, "completion_tokens": float("nan")}, Tokens()),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}, Tokens(5, cached=4)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, Tokens(5, cached=5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": None}, Tokens(5)),
        ({"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 9}}, Tokens(0, 5, reasoning=5)),
    ],
)
def test_what_is_missing_or_no_number_counts_as_nothing(told: Any, expected: Tokens) -> None:
    """And no part is more than the tokens that it is a part of."""
    assert tokens_in(told) == expected


@holds_for("provider", NAMES)
def test_every_provider_is_understood(provider: str) -> None:
    """Whatever it calls its tokens, and whatever it includes in them, in a mapping or in an object."""
    told, expected = NAMES[provider]

    assert tokens_in(told) == expected
    assert tokens_in(SimpleNamespace(**told)) == expected


def test_the_usage_has_the_cost() -> None:
    """It comes from a price list."""
    assert Tokens(1).usage(0.5) == Usage(input_tokens=1, cost=0.5)


def test_a_sum_is_estimated_if_a_part_of_it_is() -> None:
    """Whoever is billed by it knows."""
    assert (Usage(input_tokens=1) + Usage(input_tokens=1, estimated=True)).estimated
    assert not (Usage(input_tokens=1) + Usage(input_tokens=1)).estimated


def test_a_price_that_is_no_number_is_none() -> None:
    """An application may keep notes of its own beside the prices."""
    prices = {"input_cost_per_token": 0.001, "output_cost_per_token": "free", "cache_read_input_token_cost": None}

    assert cost_by(prices, Tokens(10, 5, 4)) == pytest.approx(0.01)
    assert cost_by({"output_cost_per_token": "free"}, Tokens(10, 5)) is None
