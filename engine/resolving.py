"""Settles a call that a crash left in doubt, without carrying anything out.

Whoever looks after a database says what became of the call; the program that the conversation belongs to goes on from
there when it opens the database next.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from ..states.effects import OutgoingEffect
from ..states.errors import InvalidInput, Refused
from ..states.events import DoubtResolved, Event, Resolution
from ..states.machine import transition
from ..states.states import InDoubt, State
from ..states.step import Step
from ..states.values.messages import ToolCall
from .projection import ConversationProjection
from .recovery import reports
from .requests import make

if TYPE_CHECKING:
    from ..persistence.ports import LoadedConversation, Store
    from ..persistence.records.entry import StoredEntry


async def calls_in_doubt(store: Store, conversation_id: str, at: datetime) -> tuple[ToolCall, ...]:
    """The calls of which nobody knows whether they ran, also those that no program has found yet. Stores nothing.

    Raises `UnknownConversation`.
    """
    loaded = await store.load(conversation_id)
    memory, _ = _taken_up(loaded, await store.entries(conversation_id), at)
    return tuple(memory.transcript.call(call_id) for call_id in _doubtful(memory.state))


async def resolve(store: Store, conversation_id: str, call_id: str | None, verdict: Resolution, at: datetime) -> State:
    """Store what became of a call in doubt, and return where the conversation rests then. Without a `call_id` it is
    the one that has been in doubt for longest.

    Raises `UnknownConversation`; `Refused` with `wrong_state` unless this call is in doubt; `InvalidInput` where the
    turn would end and something would go out to people, which only the program can do that the conversation belongs to.
    """
    loaded = await store.load(conversation_id)
    memory, steps = _taken_up(loaded, await store.entries(conversation_id), at)
    doubtful = _doubtful(memory.state)
    if not doubtful or call_id not in (None, *doubtful):
        raise Refused("wrong_state")
    event_id = f"resolved-{uuid.uuid4()}"
    said = make(DoubtResolved, event_id=event_id, at=at, call_id=call_id or doubtful[0], verdict=verdict)
    steps.append((said, transition(memory.state, said, memory.context)))
    if any(isinstance(effect, OutgoingEffect) for _, step in steps for effect in step.effects):
        raise InvalidInput("This ends a turn that has something to deliver; resolve it where the conversation runs.")
    for event, step in steps:
        await loaded.log.append(event, step)
    return steps[-1][1].state


def _taken_up(
    loaded: LoadedConversation, entries: Iterable[StoredEntry], at: datetime
) -> tuple[ConversationProjection, list[tuple[Event, Step]]]:
    """The conversation taken up after a crash, and the steps by which it was, which are not stored."""
    memory = ConversationProjection(loaded.state, entries)
    steps: list[tuple[Event, Step]] = []
    for report in reports(loaded.state, at):
        step = transition(memory.state, report, memory.context)
        if not step.ignored:
            memory.advance(report, step)
            steps.append((report, step))
    return memory, steps


def _doubtful(state: State) -> tuple[str, ...]:
    return state.round.doubtful if isinstance(state, InDoubt) else ()
