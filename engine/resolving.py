"""Settles a call that a crash left in doubt, without carrying anything out.

Whoever looks after a database says what became of the call; the program that the conversation belongs to goes on from
there when it opens the database next.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from ..states.effects import OutgoingEffect
from ..states.errors import NOTHING_WAITS, InvalidInput, Refused
from ..states.events import DoubtResolved, Event, Resolution
from ..states.machine import transition
from ..states.states import InDoubt, State, pending
from ..states.step import Step
from ..states.values.messages import ToolCall
from .projection import read_call
from .recovery import reports
from .requests import make

if TYPE_CHECKING:
    from ..persistence.ports import LoadedConversation, Store


async def calls_in_doubt(store: Store, conversation_id: str, at: datetime) -> tuple[ToolCall, ...]:
    """Return the calls of which nobody knows whether they ran, also those that no program has reported yet. Stores
    nothing. Raises `UnknownConversation`."""
    state, _ = _recover(await store.load(conversation_id), at)
    read = partial(store.entries, conversation_id)
    return tuple([await read_call(read, state.round.named(call_id)) for call_id in _doubtful(state)])  # type: ignore[attr-defined]


async def resolve(store: Store, conversation_id: str, call_id: str | None, verdict: Resolution, at: datetime) -> State:
    """Store what became of a call in doubt, and return where the conversation rests then. Without a `call_id` it is
    the one that has been in doubt for longest.

    Raises `UnknownConversation`; `Refused` with `wrong_state` unless this call is in doubt; `InvalidInput` where the
    turn would end and something would be delivered, which only the program can do that the conversation belongs to.
    """
    loaded = await store.load(conversation_id)
    state, steps = _recover(loaded, at)
    doubtful = _doubtful(state)
    if not doubtful or call_id not in (None, *doubtful):
        raise Refused("wrong_state", sentence=NOTHING_WAITS["doubt_resolved"])
    event_id = f"resolved-{uuid.uuid4()}"
    resolved = make(DoubtResolved, event_id=event_id, at=at, call_id=call_id or doubtful[0], verdict=verdict)
    steps.append((resolved, transition(state, resolved, loaded.context)))
    if any(isinstance(effect, OutgoingEffect) for _, step in steps for effect in step.effects):
        raise InvalidInput("This ends a turn that has something to deliver; resolve it where the conversation runs.")
    for event, step in steps:
        await loaded.log.append(event, step)
    return steps[-1][1].state


def _recover(loaded: LoadedConversation, at: datetime) -> tuple[State, list[tuple[Event, Step]]]:
    """Return where the conversation rests once what was in flight is reported, and the steps to there, which are not
    stored."""
    state = loaded.state
    steps: list[tuple[Event, Step]] = []
    for report in reports(loaded.state, at, pending(loaded.state)):
        step = transition(state, report, loaded.context)
        if not step.ignored:
            state = step.state
            steps.append((report, step))
    return state, steps


def _doubtful(state: State) -> tuple[str, ...]:
    return state.round.doubtful if isinstance(state, InDoubt) else ()
