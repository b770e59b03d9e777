"""What went wrong with a model request, told in a handful of kinds.

Providers and their client libraries raise dozens of errors. The machine asks two things only: is it worth trying
again, and would another model fare better? So every error that litellm raises, or lets through from the libraries
below it, is given exactly one `FailureKind` by the table here (case P11), and every kind has one sentence for people.
What the provider itself said is for the log alone, since it may hold a prompt, and never with a key in it.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pkgutil import resolve_name

from ....states.values.failures import FailureKind
from ..port import LlmFailure
from .library import load_litellm

logger = logging.getLogger("turnwise.model")

SENTENCES: dict[FailureKind, str] = {
    "rate_limit": "The model's provider takes no more requests for now.",
    "server_error": "The model's provider has trouble of its own.",
    "timeout": "The model took too long to answer.",
    "network": "The connection to the model failed.",
    "malformed_response": "The model's provider sent an answer that cannot be read.",
    "authentication": "The model's provider refused the key or the account.",
    "unknown_model": "The model's provider does not know this model.",
    "invalid_request": "The model's provider refused the request as invalid.",
    "context_window": "The conversation is too long for the model.",
    "content_filter": "The model's provider refused the content.",
    "internal": "The model could not be asked.",
}
"""What people are told."""

_CLASSES: dict[FailureKind, tuple[str, ...]] = {
    "rate_limit": (
        "litellm.exceptions:RateLimitError",
        "litellm.exceptions:BudgetExceededError",
        "openai:RateLimitError",
    ),
    "server_error": (
        "litellm.exceptions:InternalServerError",
        "litellm.exceptions:ServiceUnavailableError",
        "litellm.exceptions:BadGatewayError",
        "litellm.exceptions:APIError",
        "litellm.exceptions:MockException",
        "litellm.exceptions:OpenAIError",
        "openai:InternalServerError",
        "openai:ConflictError",
        "openai:APIStatusError",
        "openai:APIError",
        "openai:OpenAIError",
        "httpx:HTTPStatusError",
    ),
    "timeout": (
        "litellm.exceptions:Timeout",
        "openai:APITimeoutError",
        "httpx:TimeoutException",
        "builtins:TimeoutError",
    ),
    "network": (
        "litellm.exceptions:APIConnectionError",
        "litellm.exceptions:MidStreamFallbackError",
        "openai:APIConnectionError",
        "httpx:HTTPError",
        "httpx:StreamError",
        "aiohttp:ClientError",
        "builtins:ConnectionError",
        "socket:gaierror",
        "ssl:SSLError",
    ),
    "malformed_response": (
        "litellm.exceptions:APIResponseValidationError",
        "litellm.exceptions:JSONSchemaValidationError",
        "openai:APIResponseValidationError",
        "httpx:DecodingError",
        "json:JSONDecodeError",
        "builtins:UnicodeDecodeError",
    ),
    "authentication": (
        "litellm.exceptions:AuthenticationError",
        "litellm.exceptions:PermissionDeniedError",
        "openai:AuthenticationError",
        "openai:PermissionDeniedError",
    ),
    "unknown_model": (
        "litellm.exceptions:NotFoundError",
        "litellm.exceptions:LiteLLMUnknownProvider",
        "openai:NotFoundError",
    ),
    "invalid_request": (
        "litellm.exceptions:BadRequestError",
        "litellm.exceptions:InvalidRequestError",
        "litellm.exceptions:UnprocessableEntityError",
        "litellm.exceptions:UnsupportedParamsError",
        "litellm.exceptions:ImageFetchError",
        "openai:BadRequestError",
        "openai:UnprocessableEntityError",
        "httpx:InvalidURL",
    ),
    "context_window": ("litellm.exceptions:ContextWindowExceededError",),
    "content_filter": (
        "litellm.exceptions:ContentPolicyViolationError",
        "litellm.exceptions:RejectedRequestError",
        "litellm.exceptions:GuardrailRaisedException",
        "litellm.exceptions:BlockedPiiEntityError",
        "litellm.exceptions:ModifyResponseException",
        "litellm.exceptions:SensitiveDataRouteException",
        "openai:ContentFilterFinishReasonError",
    ),
}
"""The table, by the places of the classes: they cost seconds to import, so that waits for the first failure."""

_BROAD = (
    "litellm.exceptions:BadRequestError",
    "litellm.exceptions:APIError",
    "litellm.exceptions:MockException",
    "openai:BadRequestError",
    "openai:APIStatusError",
    "openai:APIError",
)
"""Classes that litellm raises for several HTTP statuses (a 401 or a 403 among them): here the status says more."""

_WRAPPERS = (
    "litellm.exceptions:InternalServerError",
    "litellm.exceptions:APIConnectionError",
    "litellm.exceptions:MidStreamFallbackError",
)
"""Classes that litellm also wraps around errors of quite another kind: to it, a server that is not there, one that
sends garbage and one that breaks off in the middle are the same. What it caught says more."""

_STATUSES: dict[int, FailureKind] = {
    401: "authentication",
    402: "authentication",
    403: "authentication",
    404: "unknown_model",
    408: "timeout",
    409: "server_error",
    413: "context_window",
    429: "rate_limit",
    504: "timeout",
}
"""HTTP statuses that are not simply "your fault" (the other 4xx) or "our fault" (the other 5xx)."""

_KEYS = re.compile(r"\b(?:Bearer\s+\S+|(?:sk|pk|rk|gsk|hf|xai|AIza|key)[-_]?[\w*-]{8,})", re.IGNORECASE)
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_SHORTEST_SECRET = 6
"""What is shorter is no secret, and blotting it out would make the log unreadable."""

LONGEST_DETAIL = 500
"""Characters of an error that are logged: an error may hold the whole prompt."""


@functools.cache
def kinds() -> Mapping[type, FailureKind]:
    """The kind of each class in the table. A class that is not listed has the kind of its nearest listed parent."""
    load_litellm()
    return {resolve_name(place): kind for kind, places in _CLASSES.items() for place in places}


@functools.cache
def _resolved(places: tuple[str, ...]) -> frozenset[type]:
    return frozenset(map(resolve_name, places))


def kind_of(error: BaseException) -> FailureKind:
    """The one kind of an error: by its class, else by its HTTP status, else `internal`."""
    error = _unwrapped(error)
    listed = _listed(error)
    by_status = _kind_of_status(getattr(error, "status_code", None))
    if listed is None:
        return by_status or "internal"
    return (by_status if listed in _resolved(_BROAD) else None) or kinds()[listed]


def _unwrapped(error: BaseException) -> BaseException:
    """The first error below a wrapper that the table knows, or the wrapper if there is none."""
    wrappers = _resolved(_WRAPPERS)
    below = error.__context__ if type(error) in wrappers else None
    while below is not None and (type(below) in wrappers or _listed(below) is None):
        below = below.__context__
    return below or error


def _listed(error: BaseException) -> type | None:
    return next((parent for parent in type(error).__mro__ if parent in kinds()), None)


def _kind_of_status(status: object) -> FailureKind | None:
    if not isinstance(status, int) or status < 400:
        return None
    return _STATUSES.get(status) or ("server_error" if status >= 500 else "invalid_request")


def failure(kind: FailureKind, model: str, detail: str, retry_after: float | None = None) -> LlmFailure:
    """A failure of this kind, with the kind's sentence; the detail goes to the log `turnwise.model`, as a warning."""
    logger.warning("%s failed (%s): %s", model, kind, " ".join(detail.split())[:LONGEST_DETAIL])
    return LlmFailure(kind, SENTENCES[kind], retry_after)


def failure_of(error: BaseException, model: str, secrets: Iterable[str] = ()) -> LlmFailure:
    """The failure that an error of litellm amounts to.

    `secrets` are texts that must not reach the log; the values of environment variables that are named like secrets
    are kept out of it too.
    """
    detail = without_secrets(f"{type(error).__name__}: {error}", secrets)
    return failure(kind_of(error), model, detail, retry_after(error))


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with secrets, those of the environment and whatever looks like a key blotted out."""
    known = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)} | set(secrets)
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return _KEYS.sub("***", text)


def retry_after(error: BaseException) -> float | None:
    """The wait in seconds that the provider asks for (RFC 9110, 10.2.3), or None. A moment gone by is no wait."""
    for headers in _headers(error):
        if (value := headers.get("retry-after")) is not None:
            return _seconds(str(value))
    return None


def _headers(error: BaseException) -> list[Mapping[str, str]]:
    # litellm puts them aside on the exception and gives its `response` none.
    response = getattr(error, "response", None)
    found = (getattr(error, "litellm_response_headers", None), getattr(response, "headers", None))
    return [headers for headers in found if headers]


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
