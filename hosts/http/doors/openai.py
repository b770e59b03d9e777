"""The endpoints of the OpenAI API that clients of chat models use: chat completions and the list of models.

A completion is made of a turn, at once or in chunks. Its conversation is a durable one by the id that the client chose,
or one that is gone afterwards. Of the messages of a request the last one is answered, and those before it are what came
before.

Of a request this door reads what it can carry out. A parameter that it does not know is refused, as the OpenAI API
does. One that it knows and cannot carry out is refused unless it has its neutral value; one that only concerns OpenAI's
own service has no effect. What is answered has the shapes of the OpenAI API, with one field more (`TurnReport`).

A refusal has a message, a type, the parameter at fault and a code. Every one below `/v1/` gets that shape, whoever made
it: a guard, the router, the validation of the body, or the engine.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from weakref import WeakSet

from fastapi import APIRouter, Header, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....engine.turns import FailedTurn, Turn
from ....persistence.summaries import LONGEST_ID
from ....states.errors import TurnwiseError
from ....states.events import DoubtResolved, Resolution, ToolApproval, UserCancel, UserQuestionResponse
from ....states.openai_files import AttachedFile, attached_file
from ....states.policy import ModelSettings
from ....states.values.acts import MARK
from ....states.values.messages import Usage
from ....states.values.output import OutputSchema
from ....states.values.value import shortened
from ..dependencies import CurrentCaller, CurrentEngine, CurrentHost
from ..permissions import Act, Caller
from ..problems import MEDIA_TYPE, Problem, http_problem, problem_of
from ..schemas import Body, TurnJson
from ..security import HttpLimits
from ..streams import EventStream, data_line
from .turns import (
    ActTurn,
    RequestedTurn,
    Said,
    Stamp,
    given_file,
    opened,
    request_turn,
    spoken_turn,
    stop_abandoned,
    stored,
)

logger: logging.Logger = logging.getLogger("turnwise.http")

T = TypeVar("T")

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class ChatMessage(BaseModel):
    """A message of the history, or, as the last one, the message to answer."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    role: Role
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(Body):
    """What a stream has besides the text."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Metadata(BaseModel):
    """What the request notes. Besides the two names that the door reads, a new durable conversation keeps it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow", strict=True)
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


class JsonSchema(Body):
    """The form of an answer."""

    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: Annotated[str, Field(max_length=1_000)] = ""
    strict: bool | None = None


class ResponseFormat(Body):
    """Whether the answer is text, a JSON object of any content, or one that a JSON schema describes."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @property
    def output(self) -> OutputSchema | None:
        """The form that the answer must have; None for a text. Raises `OpenAiRefusal`."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return OutputSchema(name="object", json_schema={"type": "object"}, strict=False)
        if self.json_schema is None:
            sentence = "A response_format of the type json_schema has a json_schema."
            raise OpenAiRefusal("invalid_input", sentence, "response_format")
        given = self.json_schema
        try:
            return OutputSchema(
                name=given.name,
                json_schema=given.schema_,
                description=given.description,
                strict=bool(given.strict),
            )
        except ValidationError as error:
            sentence = f"The schema cannot be used: {error.errors()[0]['msg']}."
            raise OpenAiRefusal("invalid_input", sentence, "response_format") from None


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
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    stop: Any = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    # The answer has this form.
    response_format: ResponseFormat | None = None

    # Refused, unless they have their neutral value.
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    function_call: Any = None
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
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prediction: Any = None

    @property
    def settings(self) -> ModelSettings | None:
        """The parameters with which the model is asked in the turn of this message; None if there are none. Those that
        ask for nothing are left to the rules of the conversation. Raises `OpenAiRefusal`."""
        most = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        if self.top_logprobs and not self.logprobs:
            raise OpenAiRefusal("invalid_input", "top_logprobs are told together with logprobs only.", "top_logprobs")
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": most,
            "seed": self.seed,
            "reasoning_effort": self.reasoning_effort,
            "tool_choice": _tool_choice(self.tool_choice),
            "parallel_tool_calls": False if self.parallel_tool_calls is False else None,
            "stop": _stop(self.stop),
            "logprobs": self.logprobs or None,
            "top_logprobs": self.top_logprobs or None,
        }
        settings = {name: value for name, value in given.items() if value is not None}
        return ModelSettings.model_validate(settings) if settings else None


def _tool_choice(given: object) -> str | None:
    """What is said of the tools of the server: whether they may be called, or the name of the one that must be."""
    match given:
        case None | "auto":
            return None
        case "none" | "required":
            return given
        case {"type": "function", "function": {"name": str(name)}} if name:
            return name
        case _:
            sentence = (
                "The parameter tool_choice is not supported with this value: it is auto, none, required or a tool."
            )
            raise OpenAiRefusal("unsupported_parameter", sentence, "tool_choice")


def _stop(given: object) -> tuple[str, ...] | None:
    texts = [given] if isinstance(given, str) else [] if given is None else given
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise OpenAiRefusal("invalid_input", "stop is a text or a list of texts, none of which is empty.", "stop")
    return tuple(texts) or None


_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""The values under which a parameter that cannot be carried out asks for nothing."""

_TOOLS = ("tools", "functions", "function_call")


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
    """The one answer. `logprobs`, if they were asked for, are those of all that the model wrote in the turn."""

    index: Literal[0] = 0
    message: AnswerMessage
    logprobs: dict[str, Any] | None = None
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
    logprobs: dict[str, Any] | None = None
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


_CLIENT_CLOSED = 499
"""The status that logs show for a request whose client has gone; nobody receives it."""

router: APIRouter = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAiRoute)

_IdempotencyKey = Annotated[
    Annotated[str, Field(min_length=1, max_length=LONGEST_ID)] | None,
    Header(description="The same as `metadata.message_id`: a durable completion is carried out once under it."),
]

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The completion; with `stream`, chunks of it as Server-Sent Events.",
        "content": {"text/event-stream": {}},
    }
}


@router.post(
    "/chat/completions",
    operation_id="createChatCompletion",
    response_model=Completion,
    responses={**_STREAM, **refusals(400, 401, 403, 404, 408, 409, 413, 415, 429, 502, 503)},
)
async def create_chat_completion(
    body: CompletionBody,
    request: Request,
    engine: CurrentEngine,
    caller: CurrentCaller,
    host: CurrentHost,
    idempotency_key: _IdempotencyKey = None,
) -> Completion | Response:
    """Answer the last message.

    With `metadata.conversation_id` the conversation is kept: it is created from the messages before the last one, and
    later only the last message is read. Without it the conversation is gone when this request ends. A client that
    disconnects stops the turn, unless it has given an id under which it can send the request again.
    """
    check_supported(body)
    _check_model(engine, body.model)
    read = read_messages(body.messages)
    output = None if body.response_format is None else body.response_format.output
    settings = body.settings
    caller.require("settings", unless=settings is None)
    read = replace(read, said=replace(read.said, output=output, settings=settings))
    async with AsyncExitStack() as stack:
        message_id = (body.metadata.message_id if body.metadata else None) or idempotency_key
        conversation, is_durable = await _conversation(engine, caller, body, read, message_id, stack)
        _check_tool_choice(engine, conversation, settings)
        requested = await _request(caller, conversation, body, read, message_id if is_durable else None)
        shown_id = caller.shown_id(conversation.id) if is_durable else None
        stops = is_durable and message_id is None  # nobody can ask for this turn again
        asked = _Asked(
            requested, body.model, int(engine.now().timestamp()), shown_id, output is not None, bool(body.logprobs)
        )
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            kept = stack.pop_all()
            chunks = _chunks_of(asked, usage=usage, at_end=kept.aclose)
            return _ClosingStream(chunks, host.limits, kept, partial(stop_abandoned, requested) if stops else None)
        try:
            return await _unless_disconnected(request, _completion_of(asked))
        except ClientDisconnect:
            if stops:
                await stop_abandoned(requested)
            return Response(status_code=_CLIENT_CLOSED)


@router.get("/models", operation_id="listChatModels", responses=refusals(401, 403, 429, 503))
async def list_chat_models(engine: CurrentEngine) -> ModelList:
    """List the models that the engine was opened with."""
    return ModelList(data=[ModelEntry(id=name) for name in engine.model_names])


@router.get("/models/{model:path}", operation_id="getChatModel", responses=refusals(401, 403, 404, 429, 503))
async def get_chat_model(model: str, engine: CurrentEngine) -> ModelEntry:
    """Show one of them."""
    _check_model(engine, model)
    return ModelEntry(id=model)


def _check_model(engine: Engine, model: str) -> None:
    if model not in engine.model_names:
        names = ", ".join(engine.model_names)
        raise OpenAiRefusal("model_not_found", f"There is no such model; there are: {names}.", "model", status=404)


def _check_tool_choice(engine: Engine, conversation: Conversation, settings: ModelSettings | None) -> None:
    """Raise `OpenAiRefusal` for a tool that the conversation does not have."""
    chosen = None if settings is None else settings.tool_choice
    tools = engine.tool_names if conversation.tools is None else conversation.tools
    if chosen not in (None, "none", "required", *tools):
        raise OpenAiRefusal("invalid_input", f"There is no tool {shortened(str(chosen))} here.", "tool_choice")


async def _conversation(
    engine: Engine,
    caller: Caller,
    body: CompletionBody,
    read: _ReadMessages,
    message_id: str | None,
    stack: AsyncExitStack,
) -> tuple[Conversation, bool]:
    """Return the conversation, and whether it is kept."""
    conversation_id = body.metadata.conversation_id if body.metadata is not None else None
    if conversation_id is not None:
        return await _durable(engine, caller, conversation_id, body, read, message_id or str(uuid.uuid4())), True
    if body.turnwise is not None:
        sentence = "Only a conversation that is kept, by metadata.conversation_id, can wait for a person."
        raise OpenAiRefusal("unsupported_parameter", sentence, "turnwise")
    return await _stateless(engine, caller, body, read, stack), False


async def _request(
    caller: Caller, conversation: Conversation, body: CompletionBody, read: _ReadMessages, message_id: str | None
) -> RequestedTurn:
    if body.turnwise is None:
        return await request_turn(caller, conversation, read.said, message_id, read.shown)
    act = body.turnwise.act(Stamp(message_id or str(uuid.uuid4()), conversation.now()))
    return await stored(ActTurn(caller, conversation, act))


class _ClosingStream(EventStream):
    """A stream after which a stack is closed, also if the client disconnects before the stream begins."""

    def __init__(
        self,
        events: AsyncIterator[bytes],
        limits: HttpLimits,
        stack: AsyncExitStack,
        on_disconnect: Callable[[], Awaitable[None]] | None,
    ) -> None:
        super().__init__(events, limits, on_disconnect)
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._stack:
            await super().__call__(scope, receive, send)


DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True)
class _Asked:
    """A completion that a client asked for: the turn, the model that it named, when it asked, in seconds since 1970,
    and what it calls the conversation, None if that is not kept. A typed one has the JSON of the answer as its text,
    whatever the user would receive."""

    requested: RequestedTurn
    model: str
    created: int
    conversation_id: str | None
    is_typed: bool = False
    tells_logprobs: bool = False

    @property
    def completion_id(self) -> str:
        """The id of the completion: the same if the request is repeated."""
        return f"chatcmpl-{self.requested.request_id}"

    async def logprobs(self, turn: Turn) -> dict[str, Any] | None:
        """Return the probabilities of the tokens of the turn, if they were asked for and the provider told them."""
        if not self.tells_logprobs:
            return None
        said = await self.requested.conversation.transcript()
        told = [message.logprobs.get("content") for message in said if message.turn == turn.number and message.logprobs]
        tokens = [token for one in told if isinstance(one, list) for token in one]
        return {"content": tokens, "refusal": None} if tokens else None

    def report(self, turn: Turn) -> TurnReport:
        """Return what is told of the turn besides its text."""
        return TurnReport(conversation_id=self.conversation_id, turn=turn.data)


async def _completion_of(asked: _Asked) -> Completion:
    """Wait for the turn, and return it as a completion. Raises `OpenAiRefusal` if it failed, and what the engine
    raises."""
    texts: list[str] = []
    turn: Turn | None = None
    async with aclosing(spoken_turn(asked.requested, live=False)) as spoken:
        async for piece in spoken:
            if isinstance(piece, str):
                texts.append(piece)
            else:
                turn = piece
    assert turn is not None, "a spoken turn ends with the turn"
    if isinstance(turn, FailedTurn):
        raise _failed(turn)
    text = turn.output_json if asked.is_typed and turn.output_json is not None else "".join(texts)
    choice = Choice(
        message=AnswerMessage(content=text),
        logprobs=await asked.logprobs(turn),
        finish_reason=finish_reason_of(turn),
    )
    return Completion(
        id=asked.completion_id,
        created=asked.created,
        model=asked.model,
        choices=[choice],
        usage=counts_of(turn.usage),
        turnwise=asked.report(turn),
    )


async def _chunks_of(asked: _Asked, *, usage: bool, at_end: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    """Yield a completion as Server-Sent Events. `at_end` is awaited before the last one. An error in the middle is the
    last event, in the shape of the OpenAI API."""
    last = DONE
    try:
        async with aclosing(_chunks(asked, usage=usage)) as chunks:
            async for chunk in chunks:
                yield _event(chunk)
    except OpenAiRefusal as refusal:
        last = _event(error_answer(refusal.status, refusal.code, refusal.message))
    except TurnwiseError as error:
        last = _event(error_of(problem_of(error))[1])
    except Exception:
        logger.exception("A completion failed in the middle of its stream.")
        last = _event(error_of(http_problem("internal_error"))[1])
    await at_end()
    yield last


async def _chunks(asked: _Asked, *, usage: bool) -> AsyncGenerator[CompletionChunk, None]:
    def chunk(delta: Delta) -> CompletionChunk:
        return _chunk(asked, [ChunkChoice(index=0, delta=delta, logprobs=None, finish_reason=None)])

    yield chunk(Delta(role="assistant", content=""))
    async with aclosing(_typed(asked) if asked.is_typed else spoken_turn(asked.requested, live=True)) as spoken:
        async for piece in spoken:
            if isinstance(piece, str):
                if piece:
                    yield chunk(Delta(content=piece))
                continue
            if isinstance(piece, FailedTurn):
                raise _failed(piece)
            told = await asked.logprobs(piece)
            choice = ChunkChoice(index=0, delta=Delta(), logprobs=told, finish_reason=finish_reason_of(piece))
            yield _chunk(asked, [choice]).model_copy(update={"turnwise": asked.report(piece)})
            if usage:
                yield _chunk(asked, []).model_copy(update={"usage": counts_of(piece.usage)})


async def _typed(asked: _Asked) -> AsyncGenerator[str | Turn, None]:
    """Yield the typed answer of a turn, or what was said in one without, and then the turn. An answer that was not
    valid is no part of the completion, so nothing is shown before it was checked."""
    texts: list[str] = []
    async with aclosing(spoken_turn(asked.requested, live=False)) as spoken:
        async for piece in spoken:
            if isinstance(piece, str):
                texts.append(piece)
                continue
            yield piece.output_json or "".join(texts)
            yield piece


def _chunk(asked: _Asked, choices: list[ChunkChoice]) -> CompletionChunk:
    return CompletionChunk(
        id=asked.completion_id,
        object="chat.completion.chunk",
        created=asked.created,
        model=asked.model,
        choices=choices,
    )


def _failed(turn: FailedTurn) -> OpenAiRefusal:
    return OpenAiRefusal("turn_failed", turn.failure, status=502)


def _event(data: BaseModel) -> bytes:
    """Return a chunk or an error as an event, with those of its fields that were given: clients of the OpenAI API tell
    a field that is null from one that is missing."""
    return data_line(data.model_dump(exclude_unset=True)) + b"\n"


_STATELESS = {"completion": "stateless"}
"""The mark by which conversations are found that a process left behind. Nobody can set it from outside."""

_PROCESS = uuid.uuid4().hex
"""Tells the conversations of this process from those of one that has ended."""

_tidied: WeakSet[Engine] = WeakSet()


async def _durable(
    engine: Engine, caller: Caller, conversation_id: str, body: CompletionBody, read: _ReadMessages, message_id: str
) -> Conversation:
    """Return the conversation with this id, created from the messages before the last one if there is none. Only one
    that exists can wait for a person. Raises `OpenAiRefusal` if it uses another model, `UnknownConversation`, and what
    `Engine.create` raises."""
    if body.turnwise is not None:
        conversation = await caller.open(engine, conversation_id)
    else:
        noted = body.metadata.model_extra if body.metadata is not None else None
        conversation = await opened(
            engine,
            caller,
            conversation_id,
            read.said,
            message_id,
            messages=read.history,
            model=body.model,
            metadata=noted,
        )
    models = {model.name for model in conversation.policy.models}
    if body.model not in models:
        sentence = f"The conversation uses the model {conversation.policy.models[0].name}."
        raise OpenAiRefusal("model_mismatch", sentence, "model")
    return conversation


async def _stateless(
    engine: Engine, caller: Caller, body: CompletionBody, read: _ReadMessages, stack: AsyncExitStack
) -> Conversation:
    """Return a new conversation that the stack deletes, with whatever runs in it, when it is closed."""
    if engine not in _tidied:
        await delete_abandoned(engine)
    marks = {**_STATELESS, "process": _PROCESS}
    conversation = await caller.create(engine, model=body.model, messages=read.history, marks=marks)
    stack.push_async_callback(_delete, engine, conversation.id)
    return conversation


async def delete_abandoned(engine: Engine) -> None:
    """Delete the stateless conversations that a process left behind when it was killed. One process uses a store, as
    with SQLite; a store that several share keeps what they have under way."""
    _tidied.add(engine)
    for summary in await engine.list(metadata={f"{MARK}{name}": value for name, value in _STATELESS.items()}):
        if summary.metadata.get(f"{MARK}process") != _PROCESS:
            await _delete(engine, summary.id)


async def _delete(engine: Engine, conversation_id: str) -> None:
    """Delete a conversation. If that fails now, the next process does it."""
    with suppress(TurnwiseError):
        await engine.delete(conversation_id)


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns. If the client disconnects before, `work` is cancelled and `ClientDisconnect` raised.
    The body of the request must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


_FILES = ("image_url", "input_audio", "file")

_PARTS = {
    "user": ("text", *_FILES),
    "tool": ("text", *_FILES),
    "assistant": ("text", "refusal"),
}
"""The types of part that a message of each role may have; of all other roles, text alone."""


@dataclass(frozen=True)
class _ReadMessages:
    """`history` is what came before, as `Engine.create` takes it; `said` the message to answer; `shown` the text of
    the assistant's last message before that, None if there is none."""

    history: list[dict[str, Any]]
    said: Said
    shown: str | None


def read_messages(messages: Sequence[ChatMessage]) -> _ReadMessages:
    """Return the messages of a request, read. Raises `OpenAiRefusal` if the last one is not a user's, and for a part
    that cannot be sent to a model. `Pure.`"""
    for place, message in enumerate(messages):
        _check_parts(place, message)
    *before, last = messages
    if last.role != "user":
        sentence = "The last message must be one of the user: the server runs tools itself and continues no text."
        raise OpenAiRefusal("unsupported_messages", sentence, f"messages.{len(before)}.role")
    answers = [_text(message) for message in before if message.role == "assistant"]
    return _ReadMessages(
        history=[message.model_dump(exclude_unset=True) for message in before],
        said=Said(_text(last), tuple(map(given_file, _files_in(last)))),
        shown=answers[-1] if answers else None,
    )


def _check_parts(place: int, message: ChatMessage) -> None:
    if not isinstance(message.content, list):
        return
    allowed = _PARTS.get(message.role, ("text",))
    for number, part in enumerate(message.content):
        kind = part.get("type")
        if kind not in allowed:
            sentence = f"A message of the role {message.role} can have parts of the type {' or '.join(allowed)} only."
            raise OpenAiRefusal("unsupported_content", sentence, f"messages.{place}.content.{number}.type")
        if kind in _FILES and attached_file(part) is None:
            what = "An image needs a URL." if kind == "image_url" else "A file needs its bytes, in base64."
            raise OpenAiRefusal("invalid_input", what, f"messages.{place}.content.{number}.{kind}")


def _text(message: ChatMessage) -> str:
    if not isinstance(message.content, list):
        return message.content or ""
    texts = (part.get(part["type"]) for part in message.content if part["type"] not in _FILES)
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _files_in(message: ChatMessage) -> Iterator[AttachedFile]:
    parts = message.content if isinstance(message.content, list) else ()
    attached = (attached_file(part) for part in parts if part["type"] in _FILES)
    return (file for file in attached if file is not None)
