"""What the OpenAI API sends and receives: the body of a chat completion, its answers, and every refusal in that API's
shape.

Of a request this door reads what it can carry out. A parameter that it does not know is refused, as the OpenAI API
does. One that it knows and cannot carry out is refused unless it has its neutral value; one that only concerns OpenAI's
own service has no effect. What is answered has the shapes of the OpenAI API, with one field more (`TurnReport`).

A refusal has a message, a type, the parameter at fault and a code. Every one below `/v1/` gets that shape, whoever made
it: a guard, the router, the validation of the body, or the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....engine.turns import Turn
from ....persistence.summaries import LONGEST_ID
from ....states.events import DoubtResolved, Resolution, ToolApproval, UserCancel, UserQuestionResponse
from ....states.values.messages import Usage
from ..permissions import Act
from ..problems import MEDIA_TYPE, Problem
from ..schemas import Body, TurnJson
from .turns_text import Stamp

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class ChatMessage(BaseModel):
    """A message of the history, or, as the last one, the message to answer."""

    model_config = ConfigDict(extra="allow")

    role: Role
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(Body):
    """What a stream has besides the text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Metadata(BaseModel):
    """What the request notes. Besides the two names that the door reads, a new durable conversation keeps it."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, str]

    conversation_id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None = None
    message_id: Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None = None


class Decision(Body):
    """Whether the call that waits for approval may run, perhaps with other arguments."""

    allowed: bool
    note: str | None = None
    arguments: dict[str, Any] | None = None


class PersonReply(Body):
    """What a person does about a turn that waits for one, where plain text is not exact enough: exactly one of
    `answers`, `decline`, `approval` and `verdict`. It replaces the last message."""

    call_id: str
    answers: dict[str, str | list[str]] | None = None
    annotations: dict[str, dict[str, str]] = Field(default_factory=dict)
    decline: Literal[True] | None = None
    approval: Decision | None = None
    verdict: Resolution | None = None

    def act(self, stamp: Stamp) -> Act:
        """Return what the person does. Raises `OpenAiRefusal` unless it is exactly one thing, and `InvalidInput`."""
        acts: list[Act] = []
        if self.answers is not None:
            acts.append(
                stamp.on(
                    UserQuestionResponse,
                    call_id=self.call_id,
                    answers=self.answers,
                    annotations=self.annotations,
                )
            )
        if self.decline is not None:
            acts.append(stamp.on(UserCancel, call_id=self.call_id))
        if (decision := self.approval) is not None:
            acts.append(stamp.on(ToolApproval, call_id=self.call_id, **{**dict(decision), "note": decision.note or ""}))
        if self.verdict is not None:
            acts.append(stamp.on(DoubtResolved, call_id=self.call_id, verdict=self.verdict))
        if len(acts) != 1:
            sentence = "Give exactly one of answers, decline, approval and verdict."
            raise OpenAiRefusal("invalid_input", sentence, "turnwise")
        return acts[0]


class CompletionBody(Body):
    """A request for a chat completion."""

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    metadata: Metadata | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    turnwise: PersonReply | None = None

    # The model is asked with these.
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    reasoning_effort: Annotated[str, Field(min_length=1)] | None = None

    # Refused, unless they have their neutral value.
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    response_format: Any = None
    stop: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, Any] | None = None
    modalities: list[str] | None = None
    audio: Any = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    verbosity: str | None = None
    web_search_options: Any = None

    # Without effect.
    user: str | None = None
    store: bool | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prediction: Any = None

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters with which the model is asked, under the names of `ModelSettings`; only those given."""
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": most,
            "seed": self.seed,
            "reasoning_effort": self.reasoning_effort,
        }
        return {name: value for name, value in given.items() if value is not None}


_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "stop": ([],),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""The values under which a parameter that cannot be carried out asks for nothing."""

_TOOLS = ("tools", "tool_choice", "functions", "function_call")


def check_supported(body: CompletionBody) -> None:
    """Raise `OpenAiRefusal` for a parameter that would change the meaning of the request and cannot be carried out."""
    for name, neutral in _NEUTRAL.items():
        given = getattr(body, name)
        if given is None or given in neutral:
            continue
        sentence = f"The parameter {name} is not supported with this value."
        if name in _TOOLS:
            sentence = f"The parameter {name} is not supported: the server runs tools of its own."
        raise OpenAiRefusal("unsupported_parameter", sentence, name)


_FinishReason = Literal["stop", "length"]


class TurnReport(BaseModel):
    """What the format has no place for: the conversation, null if it is not kept, and the turn, with the questions and
    the call that it waits for."""

    conversation_id: str | None
    turn: TurnJson


class CachedTokens(BaseModel):
    """Tokens of the input that the provider read from its cache."""

    cached_tokens: int


class ReasoningTokens(BaseModel):
    """Tokens of the output that the model spent on thinking."""

    reasoning_tokens: int


class TokenCounts(BaseModel):
    """What the turn has used so far, in all its model requests."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: ReasoningTokens


class AnswerMessage(BaseModel):
    """What the assistant says in the turn."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: _FinishReason


class Completion(BaseModel):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: TokenCounts
    turnwise: TurnReport


class Delta(BaseModel):
    """What a chunk adds."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(BaseModel):
    """A piece of the one answer."""

    index: Literal[0] = 0
    delta: Delta
    logprobs: None = None
    finish_reason: _FinishReason | None = None


class CompletionChunk(BaseModel):
    """A piece of a chat completion. The last one with a choice has a `finish_reason` and the report on the turn."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: TokenCounts | None = None
    turnwise: TurnReport | None = None


class ModelEntry(BaseModel):
    """A model that completions may name. When it was made is not known."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "turnwise"


class ModelList(BaseModel):
    """The models that completions may name."""

    object: Literal["list"] = "list"
    data: list[ModelEntry] = Field(default_factory=list)


def counts_of(usage: Usage) -> TokenCounts:
    """Return a usage as token counts. `Pure.`"""
    return TokenCounts(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
        prompt_tokens_details=CachedTokens(cached_tokens=usage.cached_tokens),
        completion_tokens_details=ReasoningTokens(reasoning_tokens=usage.reasoning_tokens),
    )


def finish_reason_of(turn: Turn) -> _FinishReason:
    """Return why the text ends: a limit cut it off, or it was said. `Pure.`"""
    return "length" if turn.truncated or turn.limit is not None else "stop"


_RETRIED = frozenset({"busy", "storage", "store_error", "engine_closed", "server_stopping"})
"""The codes of refusals that may pass by themselves. Clients of the OpenAI API send every 409 and 5xx again unless the
header `x-should-retry` says otherwise."""

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ErrorBody(BaseModel):
    """What was wrong, as one sentence and for programs."""

    message: str
    type: str
    param: str | None = Field(default=None, description="The parameter of the request that was at fault.")
    code: str | None = Field(default=None, description="The same codes as in the problems of the other endpoints.")


class ErrorAnswer(BaseModel):
    """An error in the shape of the OpenAI API."""

    error: ErrorBody


class OpenAiRefusal(Exception):
    """A refusal that only this door knows. `param` names the parameter of the request that is at fault."""

    def __init__(self, code: str, message: str, param: str | None = None, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.status = status


def error_of(problem: Problem) -> tuple[int, ErrorAnswer]:
    """Return the status and the body of a problem in this API, where invalid input is always a 400. `Pure.`"""
    status = 400 if problem.status == 422 else problem.status
    return status, error_answer(status, problem.code, problem.detail, problem.subject)


def error_answer(status: int, code: str, message: str, param: str | None = None) -> ErrorAnswer:
    """Return the body of a refusal. `Pure.`"""
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    return ErrorAnswer(error=ErrorBody(message=message, type=kind, param=param, code=code))


def _retry_header(code: str) -> dict[str, str]:
    """Return the header that tells a client whether to send the request again by itself. `Pure.`"""
    return {"x-should-retry": "true" if code in _RETRIED else "false"}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return how a route of this door declares these refusals. `Pure.`"""
    return {status: {"model": ErrorAnswer} for status in statuses}


class OpenAiRoute(APIRoute):
    """A route whose own refusals have the shape of the OpenAI API."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of this route, with an answer to each `OpenAiRefusal`."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except OpenAiRefusal as refusal:
                body = error_answer(refusal.status, refusal.code, refusal.message, refusal.param)
                return JSONResponse(body.model_dump(), refusal.status, _retry_header(refusal.code))

        return answer


_PREFIX = "/v1/"


class OpenAiErrors:
    """An ASGI middleware that rewrites problems (RFC 9457) below `/v1/`. It is the outermost, so that it sees what all
    others answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http" or not _path(scope).startswith(_PREFIX):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Rewriter(send))


def _path(scope: Scope) -> str:
    """Return the path below the place where the application is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class _Rewriter:
    """Passes messages on, and holds a problem back until it is complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._answer(self._start)
        else:
            await self._send(message)

    async def _answer(self, start: Message) -> None:
        problem = Problem.model_validate_json(self._body)
        status, error = error_of(problem)
        body = error.model_dump_json().encode()
        headers = MutableHeaders(raw=list(start["headers"]))
        headers.update({"content-type": "application/json", "content-length": str(len(body))})
        headers.update(_retry_header(problem.code))
        self._start = None
        await self._send({**start, "status": status, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})


def _is_problem(start: Message) -> bool:
    media_type = Headers(raw=list(start.get("headers", ()))).get("content-type", "")
    return media_type.partition(";")[0].strip() == MEDIA_TYPE
