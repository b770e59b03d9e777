"""What a refusal of a provider means, in one `FailureKind`, and how long it asks to wait.

The machine asks only what can be done about an error, so each gets exactly one kind. What the provider said decides
first, by the rules in `refusals.py`, then the HTTP status.

A refusal that gives no reason at all, of a request larger than any that the model has accepted before, is taken for
one of a request that is too long: nothing else about it is new.

Of the ways in which a provider says how long to wait, the most exact one counts: first the header of RFC 9110, then
the body, then the time at which the limit that was reached is reset. That of a limit which was not reached says only
when it is full again, so it says nothing about this request.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ....states.values.value import FailureKind
from ..keys import without_keys
from ..port import LlmFailure, ModelRequest, make_failure
from .refusals import Refusal, gives_no_reason, kind_of_refusal


class BrokenAnswer(Exception):
    """A stream has no answer that can be used. `error` is what the provider sent in place of one, if that is why."""

    def __init__(self, kind: FailureKind, detail: str, error: Any = None) -> None:
        super().__init__(detail)
        self.kind: FailureKind = kind
        self.detail = detail
        self.error = error


class MalformedChunk(BrokenAnswer):
    """A chunk does not follow the protocol."""

    def __init__(self) -> None:
        super().__init__("malformed_response", "a piece of the stream does not follow the protocol")


_STATUSES: dict[int, FailureKind] = {
    401: "authentication",
    402: "no_credit",
    403: "authentication",
    404: "unknown_model",
    408: "timeout",
    409: "server_error",
    413: "context_window",
    429: "rate_limit",
    451: "content_filter",
    504: "timeout",
}
"""HTTP statuses with a kind of their own. The other 4xx are `invalid_request`, the other 5xx `server_error`."""

_ENDINGS: dict[str, FailureKind] = {
    **dict.fromkeys(
        ("content_filter", "content_filtered", "refusal", "sensitive", "guardrail_intervened"), "content_filter"
    ),
    **dict.fromkeys(
        ("safety", "image_safety", "prohibited_content", "blocklist", "spii", "recitation"), "content_filter"
    ),
    **dict.fromkeys(("malformed_function_call", "unexpected_tool_call", "too_many_tool_calls"), "malformed_response"),
    **dict.fromkeys(("error", "server_error", "insufficient_system_resource", "abort"), "server_error"),
    "network_error": "network",
}
"""Finish reasons that say that an answer failed: of OpenAI, Anthropic, Zhipu, Gemini, Bedrock, OpenRouter, DeepSeek and
SGLang."""

_FULL = frozenset({"model_context_window_exceeded", "context_length_exceeded", "length", "max_tokens"})
"""Finish reasons that, without any output, say that the request left no room for an answer."""

_FIRST_BOUND = 100_000
"""Characters of a request that a model is expected to accept until it has accepted one."""


def failure_of_refusal(
    refusal: Refusal,
    model: str,
    detail: str | None = None,
    request: ModelRequest | None = None,
    largest: int | None = None,
) -> LlmFailure:
    """The failure that a refusal stands for: that of a request, or an error in place of a chunk.

    `detail` is logged, and must hold no secrets; without it the text of the refusal is. `request` is what was sent, and
    `largest` the size of the largest request that this model has accepted; None if it has accepted none.
    """
    kind = kind_of_response(refusal, request is not None and bool(request.shows))
    kind = kind_by_size(kind, refusal, request, largest)
    return make_failure(kind, model, refusal.text if detail is None else detail, retry_after(refusal, kind))


def kind_of_response(refusal: Refusal, has_media: bool = False) -> FailureKind:
    """The kind of a refusal: by what it says, else by its status. `has_media` says whether the request held an image, a
    sound or a file. `Pure.`"""
    kind = kind_of_refusal(refusal, has_media) or kind_of_status(refusal.status)
    return kind or ("invalid_request" if "invalid_request_error" in refusal.words else "server_error")


def failure_of_answer(broken: BrokenAnswer, model: str, secrets: Iterable[str] = ()) -> LlmFailure:
    """The failure that an answer stands for which cannot be used. What the provider sent in its place is logged without
    any of the `secrets`."""
    if broken.error is None:
        failure = make_failure(broken.kind, model, broken.detail)
        failure.of_answer = broken.kind == "content_filter"
        return failure
    said = without_keys(json.dumps(broken.error, ensure_ascii=False, default=str), secrets)
    return failure_of_refusal(Refusal.of_body(said), model)


def kind_by_size(kind: FailureKind, refusal: Refusal, request: ModelRequest | None, largest: int | None) -> FailureKind:
    """The kind of a refusal, or that of a request that is too long, where nothing is said of what else is wrong with an
    invalid one that is larger than any before. `Pure.`"""
    if kind != "invalid_request" or request is None or not gives_no_reason(refusal):
        return kind
    return "context_window" if request.size > (_FIRST_BOUND if largest is None else largest) else kind


def kind_of_ending(finish_reason: str, is_empty: bool) -> FailureKind | None:
    """The kind of failure that a finish reason stands for, as the provider wrote it; None if the answer has just ended.
    `is_empty` says that nothing came before it, no thinking either. `Pure.`"""
    reason = finish_reason.lower()
    return "context_window" if is_empty and reason in _FULL else _ENDINGS.get(reason)


def kind_of_status(status: int | None) -> FailureKind | None:
    """The kind of failure that an HTTP status stands for; None for one that is no error. `Pure.`"""
    if status is None or status < 400:
        return None
    return _STATUSES.get(status) or ("server_error" if status >= 500 else "invalid_request")


_WAITS = {"retry-after-ms": 0.001, "x-ms-retry-after-ms": 0.001, "retry-after": 1.0, "x-retry-after": 1.0}
"""The headers that say how long to wait, and the seconds in their unit."""

_RESET = re.compile(r"(?:.+-)?rate-?limit-(?:.+-)?reset(?:-.+)?")
"""The headers that say when a limit is reset: `x-ratelimit-reset-tokens`, `anthropic-ratelimit-requests-reset`,
`ratelimit-reset`. With `remaining` in place of `reset` they say how much of it is left."""

_IN_ONE = re.compile(r"\b(?:t|reset)=(\d+)")
"""The seconds until a reset in the header `ratelimit`, in the two forms of its drafts: `"default";r=0;t=41` and
`limit=100, remaining=0, reset=41`."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT = r"milliseconds?|millis|msecs?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|秒钟?|分钟?|小时"
_PIECE = re.compile(rf"(\d+(?:\.\d+)?)\s*({_UNIT})(?![a-z])")
_PIECES = re.compile(rf"(?:\d+(?:\.\d+)?\s*(?:{_UNIT})(?:\s*,?\s*(?:and\s+)?)?)+", re.IGNORECASE)
_LATIN = {"秒": "s", "分": "m", "小": "h"}

_BEFORE = r"(?:in|after|for|within|at least|about|approximately|another)\W+"
_LENGTH = rf"(?:\d+(?:\.\d+)?\s*(?:{_UNIT})(?![a-z])(?:\s*,?\s*(?:and\s+)?)?)+"
_NUMBER = r"\d+(?:\.\d+)?(?![\w:.-])(?!\s*(?:attempts?|times|tries|retries|requests?|tokens?|calls?)\b)"
_TOLD = re.compile(
    r"(?:retry[ _-]?(?:after|delay)(?P<unit>[ _-]?(?:in[ _-])?(?:ms|millis\w*))?\w*|"
    r"wait|quotaresetdelay|estimated_time)"
    rf"\W{{0,3}}(?:seconds:\W*)?(?:{_BEFORE}){{0,3}}(?P<named>{_LENGTH}|{_NUMBER})"
    r"|(?:try(?: it| your request)? again|retry[a-z ]{0,25}|resets?|available(?: again)?)"
    rf"\W{{0,3}}(?:seconds:\W*)?(?:(?:{_BEFORE}){{0,3}}(?P<told>{_LENGTH})|(?:\b{_BEFORE}){{1,3}}(?P<bare>{_NUMBER}))"
)
"""Where a refusal tells a wait. A number without a unit is one only behind a name for it, or behind `in` or `after`:
others count attempts, for example."""
_TOLD_IN_CHINESE = re.compile(rf"(?P<time>(?:\d+(?:\.\d+)?\s*(?:{_UNIT})\s*)+)(?:之?后|以后|内)")
_TOLD_MOMENT = re.compile(
    r"(?:try again|retry|resets?|available|access)\b\W{0,3}(?:(?:after|at|on|until)\W+){1,2}"
    r"(\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?\s*(?:z|utc|[+-]\d\d:?\d\d)?)"
)


def retry_after(refusal: Refusal, kind: FailureKind = "rate_limit") -> float | None:
    """The wait in seconds that a refusal of this kind asks for, or None. A moment in the past means 0 seconds."""
    waits = (_wait_in(refusal.headers), _wait_told(refusal.text))
    known = [wait for wait in waits if wait is not None]
    return known[0] if known else _reset_in(refusal.headers) if kind == "rate_limit" else None


def _wait_in(headers: Mapping[str, str]) -> float | None:
    for name, unit in _WAITS.items():
        if (value := headers.get(name)) is not None and (wait := _seconds(value, unit)) is not None:
            return wait
    return None


def _wait_told(text: str) -> float | None:
    if (found := _TOLD.search(text)) is not None:
        return _seconds(found["named"] or found["told"] or found["bare"], 0.001 if found["unit"] else 1.0)
    if (found := _TOLD_IN_CHINESE.search(text)) is not None:
        return _seconds(found["time"])
    return None if (found := _TOLD_MOMENT.search(text)) is None else _seconds_until(found[1])


def _reset_in(headers: Mapping[str, str]) -> float | None:
    """The wait for the limits in headers of their own, or in one header for all."""
    wait = _reset_of_limits(headers)
    return _seconds(found[1]) if wait is None and (found := _IN_ONE.search(headers.get("ratelimit", ""))) else wait


def _reset_of_limits(headers: Mapping[str, str]) -> float | None:
    """The longest wait for a limit of which nothing is left; where no header says what is left, the shortest one."""
    resets = {name: wait for name, value in headers.items() if _RESET.fullmatch(name) and (wait := _seconds(value))}
    left = {name: headers.get(name.replace("reset", "remaining")) for name in resets}
    if reached := [resets[name] for name in resets if _is_nothing(left[name])]:
        return max(reached)
    return min((resets[name] for name in resets if left[name] is None), default=None)


def _is_nothing(left: str | None) -> bool:
    try:
        return left is not None and float(left) <= 0
    except ValueError:
        return False


def _seconds(value: str, unit: float = 1.0) -> float | None:
    """The seconds that a value stands for: a number in this unit, a moment in seconds or milliseconds since 1970, a
    duration such as `1m2.5s`, or a date."""
    value = value.strip()
    try:
        number = float(value)
    except ValueError:
        return _duration(value) if _PIECES.fullmatch(value) else _seconds_until(value)
    if not math.isfinite(number):
        return None
    since_1970 = number / 1000 if number > 1e12 else number
    return max(since_1970 - datetime.now(UTC).timestamp() if number > 1e9 else number * unit, 0.0)


def _duration(value: str) -> float | None:
    length = sum(_lengths_in(value.lower()))
    return length if math.isfinite(length) else None


def _lengths_in(value: str) -> Iterator[float]:
    for number, unit in _PIECE.findall(value):
        short = "ms" if unit.startswith(("ms", "milli")) else _LATIN.get(unit[0], unit[0])
        yield float(number) * _SECONDS[short]


def _seconds_until(date: str) -> float | None:
    moment = _moment(date)
    if moment is None:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def _moment(date: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(date.strip().upper().replace(" UTC", "+00:00").removesuffix("UTC"))
    with suppress(ValueError, OverflowError):
        return parsedate_to_datetime(date)
    return None
