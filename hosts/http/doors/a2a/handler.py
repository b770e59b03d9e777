"""Carries out the requests of A2A on the conversations of an engine. Nothing is kept beside the log."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
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

from .....engine.conversation import Conversation
from .....engine.engine import Engine
from .....engine.turns import RunningTurn, Turn
from .....engine.updates import MessageUpdate
from .....states.errors import InvalidInput, Refused, TurnwiseError, UnknownConversation
from ...permissions import Caller
from ...problems import HttpError, problem_of
from ..turns.acts import awaited_by
from ..turns.choosing import earlier_request, stored
from ..turns.opening import opened
from ..turns.payloads import act_of_payload
from ..turns.requested_turn import ActTurn, MessageTurn, RequestedTurn
from ..turns.spoken_turn import spoken_turn
from .messages import ReadMessage, read_message
from .tasks import TaskContext, status_event, task_of, text_event, turn_named, working

logger = logging.getLogger("turnwise.http")

CALLER = "caller"
"""Where the context of a call has the caller."""

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


class TurnTasks(RequestHandler):
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
                        return task_of(task_context, piece, "".join(texts))
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
                        yield status_event(task_context, piece)
                    elif piece:
                        yield text_event(task_context, number, piece, first=first)
                        first = False

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Return a turn as it is now, with what was delivered in it."""
        with _as_protocol_errors():
            conversation, number = await self._named(params.id, context)
            turn = await self._turn(conversation, number)
            return task_of(await _context_of(conversation, context), turn, "\n\n".join(turn.deliveries))

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Cancel a turn."""
        with _as_protocol_errors():
            conversation, number = await self._named(params.id, context)
            if (await conversation.cancel(turn=number)).no_op:
                raise TaskNotCancelableError
            turn = await self._turn(conversation, number)
            return task_of(await _context_of(conversation, context), turn, "\n\n".join(turn.deliveries))

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
        read = read_message(message)
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
        self, message: Message, read: ReadMessage, context: ServerCallContext
    ) -> tuple[RequestedTurn, int]:
        conversation, number = await self._named(message.task_id, context)
        if message.context_id not in ("", conversation.id, _caller(context).shown_id(conversation.id)):
            raise InvalidInput("The task belongs to another context.")
        if read.said.images:
            raise ContentTypeNotSupportedError("A reply has no images.")
        earlier = await earlier_request(conversation, message.message_id)
        awaited = None
        if earlier is not None:
            awaited = earlier.awaited
        elif number == conversation.state.book.turn:
            awaited = awaited_by(conversation.state)
        if awaited is None:
            raise UnsupportedOperationError("The task has ended, or waits for nothing.")
        payload = read.said.text if read.payload is None else read.payload
        act = act_of_payload(payload, awaited)
        return await stored(ActTurn(_caller(context), conversation, message.message_id, act)), number

    async def _named(self, given_id: str, context: ServerCallContext) -> tuple[Conversation, int]:
        named = turn_named(given_id)
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
    turn = await requested.store()
    if turn.number:
        return turn.number
    async with aclosing(requested.updates()) as updates:
        taken = await anext(updates)
    assert isinstance(taken, MessageUpdate), "a turn begins with its message"
    return taken.turn


async def _context_of(conversation: Conversation, context: ServerCallContext) -> TaskContext:
    return TaskContext(_caller(context).shown_id(conversation.id), await conversation.history_mark())


def _caller(context: ServerCallContext) -> Caller:
    caller: Caller = context.state[CALLER]
    return caller
