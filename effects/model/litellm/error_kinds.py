"""Turns an error of litellm into an `LlmFailure` of one kind.

Providers and their client libraries raise dozens of errors. The machine asks only what can be done about them, so each
gets exactly one `FailureKind`. What the provider said decides first, by the rules in `refusal_rules`: litellm's classes
follow from phrases that it looks for, and are sometimes wrong. Then the HTTP status decides, then the class.

A refusal that gives no reason at all, of a request larger than any that the model has accepted before, is taken for one
of a request that is too long: nothing else about it is new.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pkgutil import resolve_name

from ....states.values.value import FailureKind
from ..failure_sentences import make_failure
from ..port import LlmFailure, ModelRequest
from .loading import load_litellm
from .redaction import redact
from .refusal_rules import gives_no_reason, kind_of_refusal
from .refusals import Refusal, chain_of, refusal_of
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

_WRAPPERS = (
    "litellm.exceptions:InternalServerError",
    "litellm.exceptions:APIConnectionError",
    "litellm.exceptions:MidStreamFallbackError",
)
"""Classes that litellm also raises around errors of other kinds: a server that cannot be reached, one that sends
garbage, and one that breaks off in the middle of an answer. For these the error inside decides."""

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

FIRST_BOUND = 100_000
"""Characters of a request that a model is expected to accept until it has accepted one."""


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
    kind = kind_of(error, request is not None and request.has_images)
    if kind == "invalid_request" and request is not None and gives_no_reason(refusal):
        kind = "context_window" if request.size > (FIRST_BOUND if largest is None else largest) else kind
    return make_failure(kind, model, redact(f"{type(error).__name__}: {error}", secrets), retry_after(refusal, kind))


def failure_of_refusal(refusal: Refusal, model: str) -> LlmFailure:
    """The failure that a refusal stands for which is no exception: an error in place of a chunk, for example."""
    kind = kind_of_refusal(refusal) or _kind_of_status(refusal.status)
    if kind is None:
        kind = "invalid_request" if "invalid_request_error" in refusal.words else "server_error"
    return make_failure(kind, model, refusal.text, retry_after(refusal, kind))


def kind_of_ending(finish_reason: str, is_empty: bool) -> FailureKind | None:
    """The kind of failure that a finish reason stands for, as the provider wrote it; None if the answer has just ended.
    `is_empty` says that nothing came before it, no thinking either. `Pure.`"""
    reason = finish_reason.lower()
    return "context_window" if is_empty and reason in _FULL else _ENDINGS.get(reason)


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
    by_status = _kind_of_status(refusal.status)
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


def _kind_of_status(status: int | None) -> FailureKind | None:
    if status is None or status < 400:
        return None
    return _STATUSES.get(status) or ("server_error" if status >= 500 else "invalid_request")
