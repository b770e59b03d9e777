"""Carries out the requests of A2A, in which other agents send messages: each turn of a conversation is a task.

Nothing is kept beside the log. The id of a task names its conversation, the history that the conversation has under
that id, and the number of the turn: a reply to a task of a conversation that was deleted and created again is not taken
for another.

The library of the protocol reads and writes JSON-RPC; what it would fail to read is refused before it gets it.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    HTTPAuthSecurityScheme,
    Message,
    Part,
    Role,
    SecurityRequirement,
    SecurityScheme,
    SendMessageRequest,
    StringList,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from ....effects.files import File
from ....effects.media_types import UNKNOWN, canonical
from ....effects.version import __version__
from ....engine.conversation import Conversation
from ....engine.engine import Engine
from ....engine.turns import RunningTurn, Turn, TurnStatus
from ....states.errors import InvalidInput, Refused, TurnwiseError, UnknownConversation
from ....states.values.files import DOCUMENTS, IMAGES, kind_of
from ....states.values.value import DEEPEST, is_nested_deeper
from ..permissions import Caller
from ..problems import HttpError, problem_of
from ..security import HttpLimits
from ..streams import EventStream, text_line
from .turns import (
    ActTurn,
    MessageTurn,
    RequestedTurn,
    Said,
    Stamp,
    act_of_payload,
    awaited_by,
    earlier_request,
    opened,
    prompt_of,
    spoken_turn,
    stored,
)

logger: logging.Logger = logging.getLogger("turnwise.http")

_CALLER = "caller"
"""Where the context of a call has the caller."""


async def answered(request: Request, engine: Engine, caller: Caller, limits: HttpLimits) -> Response:
    """Return the answer to a call. Raises `HttpError`. A stream is written as those of all protocols are."""
    await _check(request)
    answer: Response = await JsonRpcDispatcher(_TurnTasks(engine), _CallsOf(caller)).handle_requests(request)
    return EventStream(_events(answer.body_iterator), limits) if isinstance(answer, EventSourceResponse) else answer


async def _events(events: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    """Yield the events of the library, each of which has its data as JSON, and perhaps a name."""
    async for event in events:
        name = f"event: {event['event']}\n" if "event" in event else ""
        yield name.encode() + text_line(event["data"]) + b"\n"


async def _check(request: Request) -> None:
    """Raise `HttpError` for a body that the library fails to read, or to quote in its answer. What is no JSON at all it
    refuses itself."""
    try:
        call = await request.json()
        if is_nested_deeper(call, DEEPEST):
            raise HttpError("malformed_json", "The body is nested more than 100 levels deep.")
        json.dumps(call, ensure_ascii=False).encode()
    except json.JSONDecodeError:
        return
    except (ValueError, RecursionError):  # a number of thousands of digits, or half a character (a lone surrogate)
        raise HttpError("malformed_json") from None


class _CallsOf(DefaultServerCallContextBuilder):
    """Tells the handler who calls."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def build(self, request: Request) -> ServerCallContext:
        """Return the context of a call."""
        context = super().build(request)
        context.state[_CALLER] = self._caller
        return context


_TAKES_NOTHING = frozenset({"closed", "busy", "wrong_state", "not_waiting"})
"""The codes of refusals of a conversation that takes no such message now, whatever it says."""


@contextmanager
def _as_protocol_errors() -> Iterator[None]:
    """Turn errors into those of the protocol (section 3.3.2 of its specification). What the program did not raise on
    purpose says nothing of itself."""
    try:
        yield
    except A2AError:
        raise
    except UnknownConversation:
        raise TaskNotFoundError from None
    except (TurnwiseError, HttpError) as error:
        problem = problem_of(error)
        fault: type[A2AError] = InternalError if problem.status >= 500 else InvalidParamsError
        if isinstance(error, Refused) and error.code in _TAKES_NOTHING:
            fault = UnsupportedOperationError
        raise fault(message=problem.detail, data={"code": problem.code}) from None
    except Exception:
        logger.exception("A request of an A2A client failed.")
        raise InternalError from None


class _TurnTasks(RequestHandler):
    """The tasks of an engine: its turns."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """Send a message, or a reply to a task that waits for one; return the task when it has stopped."""
        with _as_protocol_errors():
            requested, number = await self._requested(params.message, context)
            task_context = await _context_of(requested.conversation, context)
            if params.configuration.return_immediately:
                return working(task_context, number)
            texts: list[str] = []
            async with aclosing(spoken_turn(requested, live=False, prompts=False)) as spoken:
                async for piece in spoken:
                    if not isinstance(piece, str):
                        return _task_of(task_context, piece, "".join(texts))
                    texts.append(piece)
            raise AssertionError("a spoken turn ends with the turn")

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """Do the same, and yield what happens meanwhile: the task, what is said, and the state in which it stops."""
        with _as_protocol_errors():
            requested, number = await self._requested(params.message, context)
            task_context = await _context_of(requested.conversation, context)
            yield working(task_context, number)
            first = True
            async with aclosing(spoken_turn(requested, live=True, prompts=False)) as spoken:
                async for piece in spoken:
                    if not isinstance(piece, str):
                        yield _status_event(task_context, piece)
                    elif piece:
                        yield _text_event(task_context, number, piece, first=first)
                        first = False

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Return a turn as it is now, with what was delivered in it."""
        with _as_protocol_errors():
            conversation, number = await self._named(params.id, context)
            turn = await self._turn(conversation, number)
            return _task_of(await _context_of(conversation, context), turn, "\n\n".join(turn.deliveries))

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Cancel a turn."""
        with _as_protocol_errors():
            conversation, number = await self._named(params.id, context)
            if (await conversation.cancel(turn=number)).no_op:
                raise TaskNotCancelableError
            turn = await self._turn(conversation, number)
            return _task_of(await _context_of(conversation, context), turn, "\n\n".join(turn.deliveries))

    # --- what this agent does not do

    async def on_list_tasks(self, params: Any, context: ServerCallContext) -> NoReturn:
        """Refuse."""
        raise UnsupportedOperationError

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        """Refuse; a task that is not there is not found."""
        with _as_protocol_errors():
            await self._named(params.id, context)
        raise UnsupportedOperationError
        yield

    async def on_create_task_push_notification_config(self, params: Any, context: ServerCallContext) -> NoReturn:
        """Refuse."""
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(self, params: Any, context: ServerCallContext) -> NoReturn:
        """Refuse."""
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(self, params: Any, context: ServerCallContext) -> NoReturn:
        """Refuse."""
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(self, params: Any, context: ServerCallContext) -> NoReturn:
        """Refuse."""
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(self, params: Any, context: ServerCallContext) -> NoReturn:
        """Refuse."""
        raise UnsupportedOperationError

    # --- requests

    async def _requested(self, message: Message, context: ServerCallContext) -> tuple[RequestedTurn, int]:
        """Hand a message to its conversation; return the turn and its number."""
        read = _read_message(message)
        if message.task_id:
            return await self._replied(message, read, context)
        if read.payload is not None:
            raise InvalidInput("Data replies to a task: name it.")
        context_id = message.context_id or str(uuid.uuid4())
        caller = _caller(context)
        conversation = await opened(self._engine, caller, context_id, read.said, message.message_id, messages=[])
        requested = MessageTurn(conversation, message.message_id, read.said)
        return requested, await _number(requested)

    async def _replied(
        self, message: Message, read: _ReadMessage, context: ServerCallContext
    ) -> tuple[RequestedTurn, int]:
        conversation, number = await self._named(message.task_id, context)
        if message.context_id not in ("", conversation.id, _caller(context).shown_id(conversation.id)):
            raise InvalidInput("The task belongs to another context.")
        if read.said.files:
            raise ContentTypeNotSupportedError("A reply has no files.")
        earlier = await earlier_request(conversation, message.message_id)
        awaited = None
        if earlier is not None:
            awaited = earlier.awaited
        elif number == conversation.state.book.turn:
            awaited = awaited_by(conversation.state)
        if awaited is None:
            raise UnsupportedOperationError("The task has ended, or waits for nothing.")
        payload = read.said.text if read.payload is None else read.payload
        act = act_of_payload(payload, awaited, Stamp(message.message_id, conversation.now()))
        return await stored(ActTurn(_caller(context), conversation, act)), number

    async def _named(self, given_id: str, context: ServerCallContext) -> tuple[Conversation, int]:
        named = _turn_named(given_id)
        if named is None:
            raise TaskNotFoundError
        conversation_id, mark, number = named
        conversation = await _caller(context).open(self._engine, conversation_id)
        if mark != await conversation.history_mark() or not 1 <= number <= conversation.state.book.turn:
            raise TaskNotFoundError
        return conversation, number

    async def _turn(self, conversation: Conversation, number: int) -> Turn:
        """Return a turn as it is now."""
        if number == conversation.state.book.turn and awaited_by(conversation.state) is not None:
            return await conversation.wait()
        ended = {turn.number: turn for turn in await conversation.turns()}
        return ended.get(number, RunningTurn(number=number))


async def _number(requested: RequestedTurn) -> int:
    """Hand a message over, and return the number of the turn that takes it, as soon as one does."""
    await stored(requested)
    if requested.number is None:
        async with aclosing(requested.updates()) as updates:
            requested.note(await anext(updates))
    assert requested.number is not None, "a turn begins with its message"
    return requested.number


async def _context_of(conversation: Conversation, context: ServerCallContext) -> _TaskContext:
    return _TaskContext(_caller(context).shown_id(conversation.id), await conversation.history_mark())


def _caller(context: ServerCallContext) -> Caller:
    caller: Caller = context.state[_CALLER]
    return caller


_MEDIA_TYPES: Mapping[str, tuple[str, ...]] = {
    "text": ("", "text/plain", "text/markdown"),
    "data": ("", "application/json"),
}
"""The media types that a part of each kind may have which is no file; they may be left out."""

_USUAL_FILES = (
    *IMAGES,
    *DOCUMENTS,
    *("audio/mpeg", "audio/wav", "audio/mp4", "audio/ogg", "audio/flac", "audio/webm"),
    *("video/mp4", "video/webm", "video/quicktime"),
    *("text/csv", "text/html", "application/xml", "application/yaml"),
)
"""The media types of files that the card names. Others of these kinds are taken, too."""


@dataclass(frozen=True)
class _ReadMessage:
    """`said` is the text with its files, and `payload` the reply as data, None if there is none."""

    said: Said
    payload: Any


def _read_message(message: Message) -> _ReadMessage:
    """Return a message, read. Raises `ContentTypeNotSupportedError` for parts of a type that no model is sent, and
    `InvalidInput` for more than one part of data, and for a part that has nothing."""
    texts: list[str] = []
    files: list[File] = []
    payloads: list[Any] = []
    for part in message.parts:
        match part.WhichOneof("content"):
            case None:
                raise InvalidInput("A part has a text, data, bytes or an address.")
            case "text" | "data" as kind if canonical(part.media_type) not in _MEDIA_TYPES[kind]:
                known = " or ".join(_MEDIA_TYPES[kind][1:])
                raise ContentTypeNotSupportedError(f"A part with {kind} is of the type {known}.")
            case "text":
                texts.append(part.text)
            case "data":
                payloads.append(MessageToDict(part.data))
            case _:
                files.append(_file(part))
    if len(payloads) > 1:
        raise InvalidInput("A message replies with one part of data at most.")
    return _ReadMessage(Said("\n\n".join(texts), tuple(files)), payloads[0] if payloads else None)


def _file(part: Part) -> File:
    """The file of a part. What its bytes are is found out later."""
    declared = canonical(part.media_type)
    if declared == UNKNOWN:  # as clients say by default
        declared = ""
    if declared and kind_of(declared) is None:
        raise ContentTypeNotSupportedError("A message can have texts, files that models take, and data that replies.")
    source = part.url if part.WhichOneof("content") == "url" else part.raw
    return File(source, part.filename or None, declared or None)


_REPLY = "reply"
"""The id of the artifact that has what was said."""

_STATES: Mapping[TurnStatus, Any] = {
    "completed": TaskState.TASK_STATE_COMPLETED,
    "incomplete": TaskState.TASK_STATE_COMPLETED,
    "failed": TaskState.TASK_STATE_FAILED,
    "cancelled": TaskState.TASK_STATE_CANCELED,
    "awaiting_user": TaskState.TASK_STATE_INPUT_REQUIRED,
    "awaiting_approval": TaskState.TASK_STATE_INPUT_REQUIRED,
    "in_doubt": TaskState.TASK_STATE_INPUT_REQUIRED,
    "running": TaskState.TASK_STATE_WORKING,
    "queued": TaskState.TASK_STATE_SUBMITTED,
}


@dataclass(frozen=True)
class _TaskContext:
    """The context of tasks: the id of a conversation, as its caller knows it, and the mark of its history."""

    id: str
    mark: str

    def task_id(self, number: int) -> str:
        """Return the id of a turn as a task. `Pure.`"""
        return f"{self.id}.{self.mark}.{number}"


def _turn_named(given_id: str) -> tuple[str, str, int] | None:
    """Return the conversation, the mark of its history, and the number of the turn that a task id names; None if it
    names none. `Pure.`"""
    rest, _, number = given_id.rpartition(".")
    conversation_id, _, mark = rest.rpartition(".")
    is_number = number.isascii() and number.isdigit()
    return (conversation_id, mark, int(number)) if conversation_id and is_number else None


def working(context: _TaskContext, number: int) -> Task:
    """Return the task of a turn that is under way."""
    return Task(
        id=context.task_id(number),
        context_id=context.id,
        status=TaskStatus(state=TaskState.TASK_STATE_WORKING),
    )


def _task_of(context: _TaskContext, turn: Turn, text: str) -> Task:
    """Return a turn as a task, with the text that was said in it."""
    artifacts = [Artifact(artifact_id=_REPLY, parts=[Part(text=text)])] if text else []
    return Task(
        id=context.task_id(turn.number),
        context_id=context.id,
        status=_status_of(context, turn),
        artifacts=artifacts,
        metadata=_struct({"turnwise": turn.data}),
    )


def _status_of(context: _TaskContext, turn: Turn) -> TaskStatus:
    """Return the state of a turn: what it asks a person is a message, as text and as data."""
    named = context.task_id(turn.number)
    parts = []
    if (prompt := prompt_of(turn)) is not None:
        parts = [Part(text=prompt), Part(data=ParseDict(turn.data, Value()))]
    elif turn.failure is not None:
        parts = [Part(text=turn.failure)]
    message = Message(
        message_id=f"{named}-{turn.status}-{turn.call_id or ''}",
        context_id=context.id,
        task_id=named,
        role=Role.ROLE_AGENT,
        parts=parts,
    )
    return TaskStatus(state=_STATES[turn.status], message=message if parts else None)


def _status_event(context: _TaskContext, turn: Turn) -> TaskStatusUpdateEvent:
    """Return the event that tells how a turn has stopped."""
    return TaskStatusUpdateEvent(
        task_id=context.task_id(turn.number),
        context_id=context.id,
        status=_status_of(context, turn),
        metadata=_struct({"turnwise": turn.data}),
    )


def _text_event(context: _TaskContext, number: int, text: str, *, first: bool) -> TaskArtifactUpdateEvent:
    """Return the event that adds a text to what was said."""
    return TaskArtifactUpdateEvent(
        task_id=context.task_id(number),
        context_id=context.id,
        artifact=Artifact(artifact_id=_REPLY, parts=[Part(text=text)]),
        append=not first,
    )


def _struct(data: dict[str, Any]) -> Struct:
    return ParseDict(data, Struct())


_PATH = "/a2a"
"""The path of the JSON-RPC endpoint."""


def agent_card(address: str, *, needs_token: bool) -> AgentCard:
    """Return the card of a server at this address, which has no slash at its end. `Pure.`"""
    bearer = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer"))
    skill = AgentSkill(
        id="conversation",
        name="Conversation",
        description="Answers messages, uses its tools, and asks where it needs to know more.",
        tags=["conversation"],
    )
    return AgentCard(
        name="turnwise",
        description="Conversations of an explicit state machine.",
        version=__version__,
        supported_interfaces=[
            AgentInterface(url=f"{address}{_PATH}", protocol_binding="JSONRPC", protocol_version="1.0")
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        default_input_modes=["text/plain", "text/markdown", "application/json", *_USUAL_FILES],
        default_output_modes=["text/plain"],
        skills=[skill],
        security_schemes={"bearer": bearer} if needs_token else None,
        security_requirements=[SecurityRequirement(schemes={"bearer": StringList()})] if needs_token else None,
    )
