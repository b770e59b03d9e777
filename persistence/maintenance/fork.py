"""Copies a conversation up to one of its steps, so that it can go on from there in another way.

A copy is made only where nothing is under way: a question that was open, or a tool that ran, belongs to the original,
and two conversations must not both take its answer. What was still to be delivered is not copied either, so nothing is
said to a user twice. The steps are those of the original, to the byte, and so is their chain: a replay of the copy
gives what a replay of the original gave.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from ...states.errors import InvalidInput, StoreError
from ...states.states import Failed, Idle, State
from ..ports import Store
from ..records.codec import decode, head_row, to_microseconds
from ..records.origin import Origin
from ..records.rows import EventRow
from .replay import Fold

RESTS = (Idle, Failed)
"""The states in which nothing is under way, and from which a conversation can go on. A closed one lands before that."""


@dataclass(frozen=True)
class Landing:
    """The rest that a fork lands on: the step `seq`, and the state that the conversation rested in behind it."""

    seq: int
    state: State


async def fork(store: Store, conversation_id: str, new_id: str, at: int | None, now: datetime) -> Landing:
    """Copy a conversation up to its last rest at or before the step `at`, or its newest; the copy is called `new_id`.

    The original is not touched, and may be busy meanwhile. Raises `UnknownConversation`; `InvalidInput` for a step that
    there is not; `Damaged` for a log that is, and `StoreError` for one that the machine of today does not lead there,
    so that nobody knows the state; `StoreConflict` if `new_id` is taken.
    """
    original = await store.read_record(conversation_id)
    _check_step(at, len(original.steps))
    landing = await asyncio.to_thread(last_rest, original.steps[:at])
    steps = original.steps[: landing.seq]
    copy = original._replace(
        id=new_id,
        created_at=to_microseconds(now),
        head=head_row(landing.state, landing.state.to_json(), steps[-1]),
        steps=steps,
        origin=Origin(conversation_id, landing.seq),
        outbox=(),
    )
    await store.copy(conversation_id, copy)
    return landing


async def origin_of(store: Store, conversation_id: str) -> Origin | None:
    """Return where the conversation was copied from, if it is a copy. Raises `UnknownConversation`."""
    return (await store.read_record(conversation_id)).origin


def last_rest(steps: tuple[EventRow, ...]) -> Landing:
    """The last rest of a log, the first step of which is one. `Pure.` Raises `StoreError`, as `fork` does."""
    fold = Fold()
    landing: Landing | None = None
    for row in steps:
        divergence = fold.take(decode(row))
        if divergence is not None:
            raise StoreError(f"The conversation cannot be forked there: {divergence.reason}")
        if isinstance(fold.state, RESTS):
            landing = Landing(fold.seq, fold.state)
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
