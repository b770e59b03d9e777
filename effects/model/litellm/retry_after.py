"""How long a provider asks its clients to wait before the next request (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after(error: BaseException) -> float | None:
    """The wait in seconds that the header `retry-after` of a failed request asks for, or None. A date in the past means
    0 seconds."""
    for headers in _headers_of(error):
        if (value := headers.get("retry-after")) is not None:
            return _seconds(str(value))
    return None


def _headers_of(error: BaseException) -> list[Mapping[str, str]]:
    # litellm stores them on the exception and leaves those of its `response` empty.
    response = getattr(error, "response", None)
    candidates = (getattr(error, "litellm_response_headers", None), getattr(response, "headers", None))
    return [headers for headers in candidates if headers]


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value)
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _seconds_until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)
