"""Turns an error of litellm into an `LlmFailure` of one kind.

The machine asks only what can be done about an error, so each gets exactly one `FailureKind`. What the provider said
decides first, by the rules in `openai/refusals.py`: litellm's classes follow from phrases that it looks for, and are
sometimes wrong. Then the HTTP status decides, then the class.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pkgutil import resolve_name

from ....states.values.value import FailureKind
from ..keys import without_keys
from ..openai.failures import kind_by_size, kind_of_status, retry_after
from ..openai.refusals import Refusal, chain_of, kind_of_refusal, refusal_of
from ..port import LlmFailure, ModelRequest, make_failure
from .loading import load_litellm

_CLASSES: dict[FailureKind, tuple[str, ...]] = {
    "rate_limit": ("openai:RateLimitError", "litellm.exceptions:BudgetExceededError"),
    "server_error": ("openai:OpenAIError", "httpx:HTTPStatusError"),
    "timeout": ("openai:APITimeoutError", "httpx:TimeoutException", "builtins:TimeoutError"),
    "network": (
        *("openai:APIConnectionError", "litellm.exceptions:MidStreamFallbackError", "httpx:HTTPError"),
        *("httpx:StreamError", "aiohttp:ClientError", "builtins:ConnectionError", "socket:gaierror", "ssl:SSLError"),
    ),
    "malformed_response": (
        *("openai:APIResponseValidationError", "httpx:DecodingError", "json:JSONDecodeError"),
        "builtins:UnicodeDecodeError",
    ),
    "authentication": ("openai:AuthenticationError", "openai:PermissionDeniedError"),
    "unknown_model": ("openai:NotFoundError", "litellm.exceptions:LiteLLMUnknownProvider"),
    "invalid_request": ("openai:BadRequestError", "openai:UnprocessableEntityError", "httpx:InvalidURL"),
    "context_window": ("litellm.exceptions:ContextWindowExceededError",),
    "content_filter": (
        *("openai:ContentFilterFinishReasonError", "litellm.exceptions:ContentPolicyViolationError"),
        *("litellm.exceptions:RejectedRequestError", "litellm.exceptions:GuardrailRaisedException"),
        *("litellm.exceptions:BlockedPiiEntityError", "litellm.exceptions:ModifyResponseException"),
        "litellm.exceptions:SensitiveDataRouteException",
    ),
}
"""The classes by kind, each as `module:name`; most of litellm's have a parent of openai's. They are imported when the
first error has to be classified."""

_WRAPPERS = (
    "litellm.exceptions:InternalServerError",
    "litellm.exceptions:APIConnectionError",
    "litellm.exceptions:MidStreamFallbackError",
)
"""Classes that litellm also raises around errors of other kinds: a server that cannot be reached, one that sends
garbage, and one that breaks off in the middle of an answer. For these the error inside decides."""


def failure_of(
    error: BaseException,
    model: str,
    secrets: Iterable[str] = (),
    request: ModelRequest | None = None,
    largest: int | None = None,
) -> LlmFailure:
    """The failure that an error of litellm stands for. The error message is logged without any of the `secrets`.

    `request` is what was sent, and `largest` the size of the largest request that this model has accepted;
    None if it has accepted none.
    """
    refusal = refusal_of(error)
    kind = kind_of(error, request is not None and bool(request.shows))
    kind = kind_by_size(kind, refusal, request, largest)
    detail = without_keys(f"{type(error).__name__}: {error}", secrets)
    return make_failure(kind, model, detail, retry_after(refusal, kind))


@functools.cache
def kinds() -> Mapping[type, FailureKind]:
    """The kind of each class in the table. A class that is not in it has the kind of its nearest parent that is."""
    return {cls: kind for kind, paths in _CLASSES.items() for cls in _resolve(paths)}


@functools.cache
def _resolve(paths: tuple[str, ...]) -> frozenset[type]:
    load_litellm()
    return frozenset(map(resolve_name, paths))


def kind_of(error: BaseException, has_media: bool = False) -> FailureKind:
    """The kind of an error: by what the provider said, else by its status or its class, else `internal`. `has_media`
    says whether the request held an image, a sound or a file."""
    refusal, by_class = refusal_of(error), _kind_of_class(error)
    if _is_answered(error, by_class, refusal) and (said := kind_of_refusal(refusal, has_media)) is not None:
        return said
    by_status = kind_of_status(refusal.status)
    return by_class if by_class in _TELLING or by_status is None else by_status


_TELLING: frozenset[FailureKind] = frozenset(
    {"context_window", "content_filter", "unknown_model", "malformed_response", "network", "timeout"}
)
"""Kinds of classes that say more than the status that comes with them."""


def _is_answered(error: BaseException, by_class: FailureKind, refusal: Refusal) -> bool:
    """Whether there is an answer of the provider to read, and not only what a library says of the connection."""
    if refusal.is_whole:
        return True
    if by_class in {"malformed_response", "internal"}:
        return "error" in refusal.text and by_class == "malformed_response"
    wrappers = _resolve(_WRAPPERS)
    inner = (_find_listed_class(one) for one in chain_of(error) if type(one) not in wrappers)
    return not any(cls is not None and kinds()[cls] in {"network", "timeout"} for cls in inner)


def _kind_of_class(error: BaseException) -> FailureKind:
    listed = _find_listed_class(_unwrap(error))
    return "internal" if listed is None else kinds()[listed]


def _unwrap(error: BaseException) -> BaseException:
    """The first error inside a wrapper that the table knows, or the error itself."""
    wrappers = _resolve(_WRAPPERS)
    inner = error.__context__ if type(error) in wrappers else None
    while inner is not None and (type(inner) in wrappers or _find_listed_class(inner) is None):
        inner = inner.__context__
    return inner or error


def _find_listed_class(error: BaseException) -> type | None:
    return next((parent for parent in type(error).__mro__ if parent in kinds()), None)
