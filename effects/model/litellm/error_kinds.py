"""Turns an error of litellm into an `LlmFailure` of one kind.

Providers and their client libraries raise dozens of errors. The machine asks only two questions about them: is it worth
trying again, and might another model succeed? The table here gives exactly one `FailureKind` to every error that
litellm raises or lets through from the libraries below it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pkgutil import resolve_name

from ....states.values.failures import FailureKind
from ..failure_sentences import make_failure
from ..port import LlmFailure
from .loading import load_litellm
from .redaction import redact
from .retry_after import retry_after

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
"""The classes by kind, each as `module:name`. They are imported when the first error has to be classified."""

_BROAD = (
    "litellm.exceptions:BadRequestError",
    "litellm.exceptions:APIError",
    "litellm.exceptions:MockException",
    "openai:BadRequestError",
    "openai:APIStatusError",
    "openai:APIError",
)
"""Classes that litellm raises for several HTTP statuses, 401 and 403 among them. For these the status decides."""

_WRAPPERS = (
    "litellm.exceptions:InternalServerError",
    "litellm.exceptions:APIConnectionError",
    "litellm.exceptions:MidStreamFallbackError",
)
"""Classes that litellm also raises around errors of other kinds: a server that cannot be reached, one that sends
garbage, and one that breaks off in the middle of an answer. For these the error inside decides."""

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
"""HTTP statuses with a kind of their own. The other 4xx are `invalid_request`, the other 5xx `server_error`."""


def failure_of(error: BaseException, model: str, secrets: Iterable[str] = ()) -> LlmFailure:
    """The failure that an error of litellm stands for. The error message is logged without any of the `secrets`."""
    detail = redact(f"{type(error).__name__}: {error}", secrets)
    return make_failure(kind_of(error), model, detail, retry_after(error))


@functools.cache
def kinds() -> Mapping[type, FailureKind]:
    """The kind of each class in the table. A class that is not in it has the kind of its nearest parent that is."""
    return {cls: kind for kind, paths in _CLASSES.items() for cls in _resolve(paths)}


@functools.cache
def _resolve(paths: tuple[str, ...]) -> frozenset[type]:
    load_litellm()
    return frozenset(map(resolve_name, paths))


def kind_of(error: BaseException) -> FailureKind:
    """The kind of an error: by its class, else by its HTTP status, else `internal`."""
    error = _unwrap(error)
    listed = _find_listed_class(error)
    by_status = _kind_of_status(getattr(error, "status_code", None))
    if listed is None:
        return by_status or "internal"
    return (by_status if listed in _resolve(_BROAD) else None) or kinds()[listed]


def _unwrap(error: BaseException) -> BaseException:
    """The first error inside a wrapper that the table knows, or the error itself."""
    wrappers = _resolve(_WRAPPERS)
    inner = error.__context__ if type(error) in wrappers else None
    while inner is not None and (type(inner) in wrappers or _find_listed_class(inner) is None):
        inner = inner.__context__
    return inner or error


def _find_listed_class(error: BaseException) -> type | None:
    return next((parent for parent in type(error).__mro__ if parent in kinds()), None)


def _kind_of_status(status: object) -> FailureKind | None:
    if not isinstance(status, int) or status < 400:
        return None
    return _STATUSES.get(status) or ("server_error" if status >= 500 else "invalid_request")
