"""Forks a conversation: copies it up to one of its steps, so that it can go on from there in another way.

A copy ends where nothing is under way, and holds everything that was said by then. A question that is open, or a tool
that runs, belongs to the original, because two conversations must not both take its answer. Where a turn ended and a
message that waited began the next one in the same step, there is no rest between them; the copy ends with the turn, as
if that message and all behind it had been withdrawn. Anywhere else within a turn it cannot end.

Deliveries that are not acknowledged are not copied, so nothing is said to a user twice. A copy wakes up by no schedule,
so nothing is done twice either. It may have the rules that the original has now. What that takes are steps of its own;
the steps before them and their chain are those of the original, byte for byte, so a replay of the copy has the same
result as a replay of the original.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from uuid import UUID

from ...states.context import CHANGES_CONTEXT, Context
from ...states.errors import CannotForkThere, InvalidInput, Refused, StoreError, UnknownConversation
from ...states.events import (
    DetailsChanged,
    Event,
    MessageWithdrawn,
    PolicyChanged,
    ProfileTransferred,
    ScheduleChanged,
    ToolsChanged,
)
from ...states.machine import transition
from ...states.states import Busy, Failed, Idle, State
from ...states.step import Step
from ..codec import decode_event, decode_state, encode, head_row, to_microseconds
from ..errors import Damaged, StoreConflict
from ..ports import Store
from ..records import ConversationRecord, EventRow, Origin
from ..summaries import is_of_host
from .replay import Fold

RESTS = (Idle, Failed)
"""The states in which nothing is under way and from which a conversation can go on. The copy of a closed conversation
ends before it was closed."""


@dataclass(frozen=True)
class ForkPoint:
    """Where a copy ends: with what the original had said by the step `seq`, in this state. `withdrawn` are the ids of
    the messages that waited there and that the copy leaves out."""

    seq: int
    state: State
    withdrawn: tuple[str, ...] = ()


async def fork(
    store: Store,
    conversation_id: str,
    new_id: str,
    at: int | None,
    now: datetime,
    *,
    keeps_rules: bool = False,
) -> ForkPoint:
    """Copy a conversation under the id `new_id`, up to the step `at`; without `at`, up to the last step that a copy can
    end with, so that a turn under way is left out. With `keeps_rules` the copy has the policy, the system
    prompt, the tools, the profile and the metadata that the original has now.

    The original is not changed, and may be busy meanwhile. Raises `UnknownConversation`; `InvalidInput` if there is no
    such step, for a conversation that a host made for itself, and as `CannotForkThere` if a copy would lose something
    of what was said by then; `Damaged` for a damaged log; `StoreError` for a log that the machine does not follow
    today, so that its state is not known; `StoreConflict` if `new_id` is taken.
    """
    original = await store.read_record(conversation_id)
    _check_step(at, len(original.steps))
    cut = await asyncio.to_thread(find_cut, original.steps, at)
    if is_of_host(original.steps[0]):
        raise InvalidInput("The conversation cannot be forked: a host made it for itself and removes it.")
    rules = await asyncio.to_thread(_Rules.of, original) if keeps_rules else None
    await store.copy(conversation_id, cut.copy_of(original, new_id, now, rules))
    return ForkPoint(cut.seq, cut.state, cut.withdrawn)


async def fork_once(
    store: Store, conversation_id: str, request_id: str, at: int | None, now: datetime, *, keeps_rules: bool = False
) -> str:
    """Copy a conversation like `fork`, once under this id of a request, and return the id of the copy, which follows
    from it: a request that is sent again finds the copy that it has made, also after a restart.

    Raises what `fork` raises, and `Refused` with `event_id_reused` if the copy was made up to another step; an `at`
    that is left out does not count.
    """
    original = await store.read_record(conversation_id)
    copy_id = _id_of_copy(original, request_id)
    origin = await _known_origin(store, copy_id)
    if origin is None:
        try:
            await fork(store, conversation_id, copy_id, at, now, keeps_rules=keeps_rules)
            return copy_id
        except StoreConflict:  # the same request was carried out meanwhile
            origin = await _known_origin(store, copy_id)
    if origin is None or not await asyncio.to_thread(_may_end_there, origin, original, at):
        raise Refused("event_id_reused")
    return copy_id


def _id_of_copy(original: ConversationRecord, request_id: str) -> str:
    """Return an id for the copy that a request makes. Its conversation is named by the id and by its first step, since
    another one may have had the id before."""
    known = json.dumps([original.id, original.steps[0].chain.hex(), request_id])
    return str(UUID(bytes=blake2b(known.encode(), digest_size=16, person=b"turnwise fork").digest()))


async def _known_origin(store: Store, conversation_id: str) -> Origin | None:
    try:
        return await origin_of(store, conversation_id)
    except UnknownConversation:
        return None


def _may_end_there(origin: Origin, original: ConversationRecord, at: int | None) -> bool:
    """Whether a copy with this origin is one up to the step `at`."""
    if origin.conversation_id != original.id:
        return False
    try:
        return at is None or find_cut(original.steps, at).shared == origin.seq
    except InvalidInput:
        return False


async def origin_of(store: Store, conversation_id: str) -> Origin | None:
    """Return where the conversation was copied from, if it is a copy. Raises `UnknownConversation`."""
    return (await store.read_record(conversation_id)).origin


@dataclass(frozen=True)
class Cut:
    """Where a log can be cut: behind its step `seq`, in this state and context.

    `own` are the steps that a copy has in place of the step `seq`, if that one ended a turn and began the next.
    """

    seq: int
    state: State
    context: Context
    own: tuple[tuple[Event, Step], ...] = ()

    @property
    def shared(self) -> int:
        """The newest step that a copy has in common with its original."""
        return self.seq - 1 if self.own else self.seq

    @property
    def withdrawn(self) -> tuple[str, ...]:
        """The ids of the messages that waited and that a copy leaves out."""
        return tuple(event.message_id for event, _ in self.own if isinstance(event, MessageWithdrawn))

    def copy_of(
        self, original: ConversationRecord, new_id: str, now: datetime, rules: _Rules | None = None
    ) -> ConversationRecord:
        """Return a copy of the record up to this cut, with these rules if they are given. `Pure.`"""
        shared = original.steps[: self.shared]
        steps, head = list(shared), head_row(self.state, self.state.to_json(), shared[-1])
        for event, step in (*self.own, *self._changes(original.id, now, rules)):
            row, head = encode(event, step, steps[-1].chain)
            steps.append(row)
        return original._replace(
            id=new_id,
            created_at=to_microseconds(now),
            head=head,
            steps=tuple(steps),
            origin=Origin(original.id, len(shared)),
            outbox=(),
            details=None,
            outbox_checksum=None,
            origin_checksum=None,
        )

    def _changes(self, conversation_id: str, now: datetime, rules: _Rules | None) -> Iterator[tuple[Event, Step]]:
        """Yield the steps that a copy has more: it has no schedule, and the rules that are given."""
        state, context, name = self.state, self.context, f"forked-{conversation_id}"
        schedule = [ScheduleChanged(event_id=name, at=now)] if state.book.wake is not None else []
        for event in (*schedule, *(() if rules is None else rules.changes(state, context, name, now))):
            step = transition(state, event, context)
            state, context = step.state, context.after(event)
            yield event, step


@dataclass(frozen=True)
class _Rules:
    """The rules of a conversation: what holds in its next turn."""

    context: Context
    tools: tuple[str, ...] | None
    profile: str

    @classmethod
    def of(cls, record: ConversationRecord) -> _Rules:
        """Return the rules of a conversation as it is now. `Pure.` Raises `Damaged`."""
        context = Context()
        for row in record.steps:
            if row.type in _CHANGING:
                context = context.after(decode_event(row))
        book = decode_state(record.head).book
        return cls(context, context.tools_in(book.turn + 1), book.profile)

    def changes(self, state: State, context: Context, name: str, now: datetime) -> Iterator[Event]:
        """Yield what gives these rules to a conversation in this state and context."""
        following, new = state.book.turn + 1, self.context
        if context.policy != new.policy:
            yield PolicyChanged(
                event_id=f"{name}-policy",
                at=now,
                policy=new.policy,
                chose_models=new.chose_models,
                chose_profiles=new.chose_profiles,
            )
        if context.tools_in(following) != self.tools:
            yield ToolsChanged(event_id=f"{name}-tools", at=now, tools=self.tools, from_turn=following)
        if context.metadata != new.metadata:
            yield DetailsChanged(event_id=f"{name}-metadata", at=now, metadata=new.metadata)
        if context.system != new.system:
            yield DetailsChanged(event_id=f"{name}-system", at=now, system=new.system)
        if self.profile and self.profile != state.book.profile:
            yield ProfileTransferred(event_id=f"{name}-profile", at=now, profile=self.profile)


_CHANGING = frozenset(kind.model_fields["type"].default for kind in CHANGES_CONTEXT)
"""The types of the events that change a context."""


def find_cut(steps: tuple[EventRow, ...], at: int | None) -> Cut:
    """Return the cut of a log at the step `at`; without it, the last one. The first step leads to a rest. `Pure.`

    Steps that said nothing may be left out: those of a compaction at rest, or a close. Raises `CannotForkThere`,
    `StoreError` and `Damaged` like `fork`.
    """
    cuts = _Cuts()
    for row in steps[:at]:
        cuts.take(row)
    if cuts.last is None:
        raise StoreError("The conversation cannot be forked: it has no step.")
    if cuts.loses_something(newest=at is None):
        before = cuts.last.seq
        raise CannotForkThere(cuts.seq, (before, *cuts.next_after(steps[cuts.seq :])))
    return cuts.last


class _Cuts:
    """Finds the cuts of a log, step by step."""

    def __init__(self) -> None:
        self.last: Cut | None = None
        self._fold = Fold()

    @property
    def seq(self) -> int:
        """The newest step that was taken."""
        return self._fold.seq

    def take(self, row: EventRow) -> None:
        """Take the next step. Raises `StoreError`, and `Damaged`."""
        before, context = self._fold.state, self._fold.context
        divergence = self._fold.take_rows((row,))
        if divergence is not None:
            raise StoreError(f"The conversation cannot be forked there: {divergence.reason}")
        state = self._fold.state
        assert state is not None, "a step that was taken leads to a state"
        if isinstance(state, RESTS):
            self.last = Cut(row.seq, state, self._fold.context)
        elif isinstance(before, Busy) and state.book.turn > before.book.turn:
            self.last = _between_turns(before, decode_event(row), context, row.seq) or self.last

    def loses_something(self, *, newest: bool) -> bool:
        """Whether a copy up to the last cut would lose something that was said behind it. A turn that is under way at
        the `newest` step stays with the original."""
        state, cut = self._fold.state, self.last
        if state is None or cut is None or cut.seq == self.seq:
            return False
        begun = state.book.turn - cut.state.book.turn
        if not isinstance(state, Busy):
            return begun > 0
        return begun > 1 if newest else begun > 0 or bool(state.inbox)

    def next_after(self, rows: tuple[EventRow, ...]) -> Iterator[int]:
        """Yield the step of the first cut in the rows that follow, if there is one that can be read."""
        before = self.last
        try:
            for row in rows:
                self.take(row)
                if self.last is not None and self.last is not before:
                    yield self.last.seq
                    return
        except (StoreError, Damaged):
            return


def _between_turns(before: Busy, event: Event, context: Context, seq: int) -> Cut | None:
    """Return the cut between two turns of which this event ended one and began the other: the messages that waited are
    withdrawn before it. None if that leads to no rest. `Pure.`"""
    own: list[tuple[Event, Step]] = []
    state: State = before
    waiting = [one for one in before.inbox if not one.silent]
    withdrawals = [
        MessageWithdrawn(event_id=f"forked-{one.seq}", at=event.at, message_id=one.event_id) for one in waiting
    ]
    try:
        for each in (*withdrawals, event):
            step = transition(state, each, context)
            own.append((each, step))
            state = step.state
    except Refused:
        return None
    return Cut(seq, state, context, tuple(own)) if isinstance(state, RESTS) else None


def _check_step(at: int | None, newest: int) -> None:
    if at is None:
        return
    if type(at) is not int or at < 1:
        raise InvalidInput("A conversation is forked at one of its steps, which are counted from 1.")
    if at > newest:
        raise InvalidInput(f"The conversation cannot be forked at step {at}: its newest is {newest}.")
