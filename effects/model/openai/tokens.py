"""The tokens of a request, as a provider tells them, and what they cost by given prices.

Providers name the tokens differently, and differ in what a number includes: the tokens that were read from a cache are
a part of OpenAI's input tokens and not of Anthropic's, those of thinking a part of OpenAI's output tokens and not of
Gemini's. Here the input holds all that was sent, and the output all that was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....states.values.messages import Usage

_INPUT_PRICE, _OUTPUT_PRICE = "input_cost_per_token", "output_cost_per_token"
_CACHED_PRICE, _WRITTEN_PRICE = "cache_read_input_token_cost", "cache_creation_input_token_cost"

OWN_PRICES = frozenset({_INPUT_PRICE, _OUTPUT_PRICE, _CACHED_PRICE, _WRITTEN_PRICE})
"""The names of the prices of a model, in US dollars a token. Where those of the input or of the output are given, a
missing one is 0; what was read from a cache, or written to it, costs as much as other input unless it has a price."""


_INPUT = ("prompttokens", "prompttokencount", "promptevalcount", "inputtokencount", "totalinputtokens")
"""Names as they are without regard to capitals and underscores: `prompt_tokens`, `promptTokens`."""
_INPUT_BESIDE_CACHE = ("inputtokens",)
"""The name of Anthropic and Bedrock. They count the input apart from what the cache read and wrote, unless they list
what was cached among its details, as OpenAI's responses do."""
_OUTPUT = (
    *("completiontokens", "outputtokens", "candidatestokencount", "evalcount", "completiontokencount"),
    *("outputtokencount", "totaloutputtokens"),
)
_TOTAL = ("totaltokens", "totaltokencount")
_CACHED = ("promptcachehittokens", "cachedcontenttokencount", "cachedtokens", "cachedinputtokens")
_READ = ("cachereadinputtokens", "cachereadinputtokencount")
_WRITTEN = ("cachecreationinputtokens", "cachewriteinputtokens", "cachewriteinputtokencount")
_WRITTEN_FOR_A_TIME = ("ephemeral5minputtokens", "ephemeral1hinputtokens")
_THOUGHT = ("reasoningtokens",)
_THOUGHT_BESIDE = ("thoughtstokencount",)
"""The name of Gemini, which counts thinking apart from the output."""
_INPUT_DETAILS = ("prompttokensdetails", "inputtokensdetails")
_OUTPUT_DETAILS = ("completiontokensdetails", "outputtokensdetails")
_USED_BY_TOOLS = ("tooluseprompttokencount",)
_AROUND = ("billedunits", "tokens", "usage")
"""Where the numbers may stand instead: Cohere tells what was billed, and what was used."""


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
    told = _named(told)
    if not any(isinstance(value, int | float) and value for value in told.values()):
        told = next((inner for name in _AROUND if (inner := _named(told.get(name)))), told)
    details, thoughts = _first_part(told, _INPUT_DETAILS), _first_part(told, _OUTPUT_DETAILS)
    inside = _first(details, _CACHED) or _first(told, _CACHED)
    read, written = _first(told, _READ), _first(told, _WRITTEN)
    written = written or sum(_count(_named(told.get("cachecreation")), name) for name in _WRITTEN_FOR_A_TIME)
    sent, beside = _first(told, _INPUT), _first(told, _INPUT_BESIDE_CACHE)
    if not sent:
        outside = read + written if not inside else 0
        sent = beside + outside
    elif read + written > sent:  # a proxy that renames Anthropic's numbers
        sent += read + written
    written = written or _first(details, ("cachecreationtokens", "cachewritetokens"))
    apart, reasoning = _first(told, _THOUGHT_BESIDE), _first(thoughts, _THOUGHT) or _first(told, _THOUGHT)
    output, total = _first(told, _OUTPUT) + apart, _first(told, _TOTAL)
    sent += _first(told, _USED_BY_TOOLS)
    if reasoning and total == sent + output + reasoning:  # xAI counts thinking apart, in OpenAI's names
        output += reasoning
    sent = sent or max(total - output, 0)
    output = output or max(total - sent, 0)
    cached = min(inside or read, sent)
    return Tokens(sent, output, cached, min(written, sent - cached), min(reasoning or apart, output))


def has_prices(options: Mapping[str, Any]) -> bool:
    """Whether these options hold the price of the input or of the output. `Pure.`"""
    return any(isinstance(options.get(name), int | float) for name in (_INPUT_PRICE, _OUTPUT_PRICE))


def cost_by(options: Mapping[str, Any], tokens: Tokens) -> float | None:
    """The cost in US dollars by the prices among these options, which have the names in `OWN_PRICES`; None if there are
    none. `Pure.`"""
    prices = {name: price for name in OWN_PRICES if isinstance(price := options.get(name), int | float)}
    if not has_prices(prices):
        return None
    price = prices.get(_INPUT_PRICE, 0.0)
    fresh = tokens.input - tokens.cached - tokens.written
    kept = tokens.cached * prices.get(_CACHED_PRICE, price) + tokens.written * prices.get(_WRITTEN_PRICE, price)
    return fresh * price + kept + tokens.output * prices.get(_OUTPUT_PRICE, 0.0)


def _named(told: Any) -> dict[str, Any]:
    """The fields of a mapping or an object, by their names in lower case and without underscores."""
    if isinstance(told, Mapping):
        fields = dict(told)
    else:
        fields = {**getattr(told, "__dict__", {}), **(getattr(told, "model_extra", None) or {})}
    return {str(name).replace("_", "").lower(): value for name, value in fields.items()}


def _first(told: Mapping[str, Any], names: Iterable[str]) -> int:
    return next((count for name in names if (count := _count(told, name))), 0)


def _first_part(told: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return next((_named(part) for name in names if (part := told.get(name)) is not None), {})


def _count(told: Mapping[str, Any], name: str) -> int:
    count = told.get(name)
    if isinstance(count, bool) or not isinstance(count, int | float):
        return 0
    return int(count) if 0 < count < float("inf") else 0
