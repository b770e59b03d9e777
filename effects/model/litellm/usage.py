"""Reads what a request cost from a response of litellm.

Providers report details in different places; litellm brings them into the form of OpenAI. Not every provider tells
them, so whatever is missing, or is no number of tokens, counts as 0.
"""

from __future__ import annotations

from typing import Any

from ....states.values.messages import Usage


def read_usage(response: Any, cost: float | None) -> Usage:
    """Return the usage of a response, with this cost in US dollars. Cached tokens are a part of the input tokens, and
    reasoning tokens of the output tokens, so neither is more than these. `Pure.`"""
    usage = getattr(response, "usage", None)
    input_tokens, output_tokens = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    cached = _count(getattr(usage, "prompt_tokens_details", None), "cached_tokens")
    reasoning = _count(getattr(usage, "completion_tokens_details", None), "reasoning_tokens")
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost=cost,
        cached_tokens=min(cached, input_tokens),
        reasoning_tokens=min(reasoning, output_tokens),
    )


def _count(counts: Any, name: str) -> int:
    count = counts.get(name) if isinstance(counts, dict) else getattr(counts, name, None)
    return count if isinstance(count, int) and count > 0 else 0
