"""Reads how many tokens a request took, in whatever names its provider tells them.

Providers count alike and name differently. They also differ in what a number includes: the tokens that were read from
a cache are a part of OpenAI's input tokens and not of Anthropic's, and the tokens of thinking are a part of OpenAI's
output tokens and not of Gemini's. Here the input holds all that was sent, and the output all that was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....states.values.messages import Usage
from ..port import ModelRequest, tokens_of

_INPUT = ("prompt_tokens", "promptTokenCount", "prompt_eval_count", "prompt_token_count", "input_token_count")
_INPUT_BESIDE_CACHE = ("input_tokens", "inputTokens")
"""Names of Anthropic and Bedrock. They count the input apart from what the cache read and wrote, unless they list what
was cached among its details, as OpenAI's responses do."""
_OUTPUT = (
    "completion_tokens",
    "output_tokens",
    "candidatesTokenCount",
    "eval_count",
    "outputTokens",
    "completion_token_count",
    "output_token_count",
)
_TOTAL = ("total_tokens", "totalTokenCount", "totalTokens", "total_token_count")
_CACHED = ("prompt_cache_hit_tokens", "cachedContentTokenCount", "cached_content_token_count", "cached_tokens")
_READ = ("cache_read_input_tokens", "cacheReadInputTokens", "cacheReadInputTokenCount")
_WRITTEN = ("cache_creation_input_tokens", "cacheWriteInputTokens", "cacheWriteInputTokenCount")
_THOUGHT = ("reasoning_tokens",)
_THOUGHT_BESIDE = ("thoughtsTokenCount", "thoughts_token_count")
"""Names of Gemini, which counts thinking apart from the output."""
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details", "promptTokensDetails")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
_USED_BY_TOOLS = ("toolUsePromptTokenCount",)


@dataclass(frozen=True)
class Tokens:
    """The tokens of one request: all of the input and of the output, and, as parts of them, those that were read from a
    cache, those that were written to it, and those of thinking."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    reasoning: int = 0

    def usage(self, cost: float | None, *, estimated: bool = False) -> Usage:
        """The usage, with this cost in US dollars. `Pure.`"""
        return Usage(
            input_tokens=self.input,
            output_tokens=self.output,
            cost=cost,
            cached_tokens=self.cached,
            reasoning_tokens=self.reasoning,
            estimated=estimated,
        )


def tokens_in(told: Any) -> Tokens:
    """The tokens that are told by a mapping or an object, in the names of any provider. What is missing, or is no
    number of tokens, counts as 0; no part is more than what it is a part of. `Pure.`"""
    details, thoughts = _first_part(told, _INPUT_DETAILS), _first_part(told, _OUTPUT_DETAILS)
    inside = _count(details, "cached_tokens") or _first(told, _CACHED)
    read, written = _first(told, _READ), _first(told, _WRITTEN)
    sent, beside = _first(told, _INPUT), _first(told, _INPUT_BESIDE_CACHE)
    if not sent:
        outside = read + written if not inside else 0
        sent = beside + outside
    elif read + written > sent:  # a proxy that renames Anthropic's numbers
        sent += read + written
    written = written or _count(details, "cache_creation_tokens") or _count(details, "cache_write_tokens")
    apart, reasoning = _first(told, _THOUGHT_BESIDE), _count(thoughts, "reasoning_tokens") or _first(told, _THOUGHT)
    output, total = _first(told, _OUTPUT) + apart, _first(told, _TOTAL)
    sent += _first(told, _USED_BY_TOOLS)
    if reasoning and total == sent + output + reasoning:  # xAI counts thinking apart, in OpenAI's names
        output += reasoning
    if not sent:
        sent = max(total - output, 0)
    cached = min(inside or read, sent)
    return Tokens(sent, output, cached, min(written, sent - cached), min(reasoning or apart, output))


def estimated_tokens(request: ModelRequest, written: int) -> Tokens:
    """About how many tokens a request took of whose answer so many characters had come, if nobody has told. `Pure.`"""
    return Tokens(tokens_of(request.size), tokens_of(written))


def _first(told: Any, names: Iterable[str]) -> int:
    return next((count for name in names if (count := _count(told, name))), 0)


def _first_part(told: Any, names: Iterable[str]) -> Any:
    return next((part for name in names if (part := _member(told, name)) is not None), None)


def _count(told: Any, name: str) -> int:
    count = _member(told, name)
    is_count = isinstance(count, int | float) and not isinstance(count, bool) and 0 < count < float("inf")
    return int(count) if is_count else 0


def _member(told: Any, name: str) -> Any:
    return told.get(name) if isinstance(told, Mapping) else getattr(told, name, None)
