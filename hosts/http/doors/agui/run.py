"""A run: one request to a conversation, and the events of the turn that it begins or continues."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ag_ui.core import (
    BaseEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateSnapshotEvent,
    TokenUsage,
)
from ag_ui.core.version import PROTOCOL_VERSION

from .....engine.conversation import Conversation
from .....engine.engine import Engine
from .....engine.turns import CancelledTurn, FailedTurn, Turn, WaitsForApproval, WaitsForResolution
from .....states.errors import TurnwiseError
from ...permissions import Caller
from ...problems import HttpError, http_problem, problem_of
from ...streams.events import data_line
from ..turns.choosing import stored
from ..turns.opening import opened
from ..turns.requested_turn import ActTurn, MessageTurn, RequestedTurn
from .events import RunEvents
from .interrupts import interrupt_of, resumed_turn
from .refusal import RunRefused
from .run_input import check_supported, history_before, message_to_answer
from .shown_messages import ShownMessages

logger = logging.getLogger("turnwise.http")


async def events_of_run(run: RunAgentInput, engine: Engine, caller: Caller) -> AsyncIterator[bytes]:
    """Yield the events of a run as Server-Sent Events. Whatever is wrong with it ends it with a RUN_ERROR."""
    async with aclosing(_events(run, engine, caller)) as events:
        async for event in events:
            yield data_line(event.model_dump(by_alias=True)) + b"\n"


async def _events(run: RunAgentInput, engine: Engine, caller: Caller) -> AsyncGenerator[BaseEvent, None]:
    yield RunStartedEvent(
        thread_id=run.thread_id,
        run_id=run.run_id,
        protocol_version=PROTOCOL_VERSION,
        parent_run_id=run.parent_run_id,
    )
    try:
        requested = await _requested(run, engine, caller)
        async with aclosing(_Run(run, requested).events()) as events:
            async for event in events:
                yield event
    except RunRefused as refused:
        yield RunErrorEvent(message=refused.sentence, code=refused.code)
    except (TurnwiseError, HttpError) as error:
        problem = problem_of(error)
        yield RunErrorEvent(message=problem.detail, code=problem.code)
    except Exception:
        logger.exception("A run of an AG-UI client failed.")
        problem = http_problem("internal_error")
        yield RunErrorEvent(message=problem.detail, code=problem.code)


async def _requested(run: RunAgentInput, engine: Engine, caller: Caller) -> RequestedTurn:
    """Hand the message, or the answer to an interrupt, to the conversation of the thread."""
    check_supported(run)
    if run.resume:
        return await resumed_turn(caller, await caller.open(engine, run.thread_id), run.resume)
    message_id, said = message_to_answer(run)
    conversation = await opened(engine, caller, run.thread_id, said, message_id, messages=history_before(run))
    return await stored(MessageTurn(conversation, message_id, said))


@dataclass(frozen=True)
class _Run:
    """A run that has begun."""

    run: RunAgentInput
    requested: RequestedTurn

    @property
    def conversation(self) -> Conversation:
        return self.requested.conversation

    async def events(self) -> AsyncGenerator[BaseEvent, None]:
        """Yield the state, then what happens in the turn, then how the run ends."""
        is_act = isinstance(self.requested, ActTurn)
        known_call = self.requested.call_id if isinstance(self.requested, ActTurn) else None
        state = self._state()
        shown = ShownMessages(self.run.messages)
        policy = self.conversation.policy
        translated = RunEvents(self.requested.request_id, policy, shown, known_call, has_state=state is not None)
        if state is not None:
            yield StateSnapshotEvent(snapshot=state)
        async with aclosing(self.requested.updates()) as updates:
            async for update in updates:
                for event in translated.read(update):
                    yield event
        turn = await self.requested.turn()
        for event in (*translated.close(), *self._asked(turn, translated)):
            yield event
        yield self._end(turn, translated.waiting_since, usage=None if is_act else _usage(turn))

    def _state(self) -> Any:
        """The agent's state as the client has it, with what is known of the conversation under `turnwise`; None if it
        is no object."""
        given = {} if self.run.state is None else self.run.state
        if not isinstance(given, dict):
            return None
        state = self.conversation.state
        shown = {"conversation": self.run.thread_id, "state": {"type": state.type, "data": {"turn": state.book.turn}}}
        return {**given, "turnwise": shown}

    def _asked(self, turn: Turn, translated: RunEvents) -> Iterator[BaseEvent]:
        """Show the call that waits for a person: an interrupt names a call that was shown."""
        if isinstance(turn, WaitsForApproval | WaitsForResolution):
            yield from translated.call(turn.call)

    def _end(self, turn: Turn, waiting_since: int | None, usage: list[TokenUsage] | None) -> BaseEvent:
        if isinstance(turn, FailedTurn):
            return RunErrorEvent(message=turn.failure, code="turn_failed", usage=usage)
        interrupt = interrupt_of(turn, waiting_since or 0)
        outcome: Any = RunFinishedSuccessOutcome()
        if interrupt is not None:
            outcome = RunFinishedInterruptOutcome(interrupts=[interrupt])
        elif isinstance(turn, CancelledTurn):
            outcome = RunFinishedCancelledOutcome()
        return RunFinishedEvent(
            thread_id=self.run.thread_id, run_id=self.run.run_id, result=turn.data, outcome=outcome, usage=usage
        )


def _usage(turn: Turn) -> list[TokenUsage]:
    """What the turn has used. A run that resumes one reports nothing, as its own part is not known."""
    used = turn.usage
    return [
        TokenUsage(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            total_tokens=used.tokens,
            reasoning_tokens=used.reasoning_tokens,
            cached_input_tokens=used.cached_tokens,
        )
    ]
