"""Forks a conversation: copies it up to one of its steps, so that it can go on from there in another way.

A copy ends where nothing is under way. A question that is open, or a tool that runs, belongs to the original, because
two conversations must not both take its answer. Deliveries that are not acknowledged are not copied either, so nothing
is said to a user twice. A copy wakes up by no schedule, so nothing is done twice either: if the original has one, the
copy has one step more, which takes it away. The other steps and their chain are those of the original, byte for byte,
so a replay of the copy has the same result as a replay of the original.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from ...states.errors import InvalidInput, StoreError
from ...states.events import ScheduleChanged
from ...states.machine import transition
from ...states.states import Failed, Idle, State
from ..ports import Store
from ..records.codec import head_row, to_microseconds
from ..records.details import is_of_host
from ..records.origin import Origin
from ..records.rows import EventRow
from .replay import Fold

RESTS = (Idle, Failed)
"""The states in which nothing is under way and from which a conversation can go on. The copy of a closed conversation
ends before it was closed."""


@dataclass(frozen=True)
class ForkPoint:
    """Where a copy ends: the step `seq`, and the state after it."""

    seq: int
    state: State


async def fork(store: Store, conversation_id: str, new_id: str, at: int | None, now: datetime) -> ForkPoint:
    """Copy a conversation under the id `new_id`, up to the last state of `RESTS` at or before the step `at`.

    Without `at` it is copied up to the last such state of all.

    The original is not changed, and may be busy meanwhile. Raises `UnknownConversation`; `InvalidInput` if there is no
    such step, and for a conversation that a host made for itself; `Damaged` for a damaged log; `StoreError` for a log
    that the machine does not follow today, so that its state is not known; `StoreConflict` if `new_id` is taken.
    """
    original = await store.read_record(conversation_id)
    _check_step(at, len(original.steps))
    landing = await asyncio.to_thread(last_rest, original.steps[:at])
    if is_of_host(original.steps[0]):
        raise InvalidInput("The conversation cannot be forked: a host made it for itself and removes it.")
    steps = original.steps[: landing.seq]
    copy = original._replace(
        id=new_id,
        created_at=to_microseconds(now),
        head=head_row(landing.state, landing.state.to_json(), steps[-1]),
        steps=steps,
        origin=Origin(conversation_id, landing.seq),
        outbox=(),
        details=None,
        outbox_checksum=None,
        origin_checksum=None,
    )
    await store.copy(conversation_id, copy)
    if landing.state.book.wake is not None:
        await _take_schedule_away(store, new_id, now)
    return landing


async def _take_schedule_away(store: Store, conversation_id: str, now: datetime) -> None:
    copy = await store.load(conversation_id)
    event = ScheduleChanged(event_id=f"forked-{conversation_id}", at=now)
    await copy.log.append(event, transition(copy.state, event, copy.context))


async def origin_of(store: Store, conversation_id: str) -> Origin | None:
    """Return where the conversation was copied from, if it is a copy. Raises `UnknownConversation`."""
    return (await store.read_record(conversation_id)).origin


def last_rest(steps: tuple[EventRow, ...]) -> ForkPoint:
    """Return the last state of `RESTS` in a log and its step; the first step leads to one. `Pure.`

    Raises `StoreError` and `Damaged` like `fork`.
    """
    fold = Fold()
    landing: ForkPoint | None = None
    for row in steps:
        divergence = fold.take_rows((row,))
        if divergence is not None:
            raise StoreError(f"The conversation cannot be forked there: {divergence.reason}")
        if isinstance(fold.state, RESTS):
            landing = ForkPoint(fold.seq, fold.state)
    if landing is None:
        raise StoreError("The conversation cannot be forked: it has no step.")
    return landing


def _check_step(at: int | None, newest: int) -> None:
    if at is None:
        return
    if type(at) is not int or at < 1:
        raise InvalidInput("A conversation is forked at one of its steps, which are counted from 1.")
    if at > newest:
        raise InvalidInput(f"The conversation cannot be forked at step {at}: its newest is {newest}.")
