"""Replays a stored conversation, and reports the first step that comes out differently today.

The machine is pure, so the same events must lead to the same effects and states as before. If they do not, either the
rules have changed since or the log is damaged. A database of real conversations is therefore a test of every change of
the rules.

Equal texts are equal values. So only the event of a row is decoded: what it leads to is written as JSON and compared
with the row. This is done stage by stage for a page of rows, so that the code of a stage stays in the caches of the
processor, which takes a sixth less time. Only a page that differs is taken step by step: its rows are decoded in full,
compared as values, and the first one that differs is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...states.context import Context
from ...states.effects import DeliverToUser, Effect
from ...states.errors import Refused
from ...states.events import Event, Opened
from ...states.machine import begin, transition
from ...states.replies import text_of_delivery
from ...states.states import Idle, State
from ...states.step import Step
from ...states.transcript import HeardTexts
from ...states.values.turn import TurnEnded
from ..codec import (
    GENESIS,
    check_end,
    check_link,
    content_of,
    decode,
    decode_event,
    decode_state,
    digest,
    effects_text,
    link,
)
from ..errors import Damaged
from ..ports import Store
from ..records import ConversationRecord, EventRow, HeadRow, StoredEntry

PAGE = 32
"""How many rows are taken together. Chosen by measurement: from 30 to 130 rows take the same time, fewer and more take
longer."""


@dataclass(frozen=True)
class StepOutcome:
    """What an event led to. `digest` is the digest of the state; `state` is None where only its digest is known. An
    empty outcome stands for a step that is missing or cannot be read."""

    effects: tuple[Effect, ...] = ()
    ended: TurnEnded | None = None
    digest: bytes | None = None
    state: State | None = None


@dataclass(frozen=True)
class Divergence:
    """The first step that does not come out as it was stored, and why, in one sentence.

    `expected` is what was stored, `actual` what the event leads to now. `event` is None if it is missing or cannot be
    read.
    """

    seq: int
    event: Event | None = None
    expected: StepOutcome = StepOutcome()
    actual: StepOutcome = StepOutcome()
    reason: str = ""


@dataclass(frozen=True)
class ReplayReport:
    """How many steps came out as they were stored, and the first that did not, if there is one. `deliveries` are the
    texts that these steps said to the user, in order; a replay delivers nothing."""

    events: int
    divergence: Divergence | None = None
    deliveries: tuple[str, ...] = ()


def replay(log: Iterable[StoredEntry]) -> ReplayReport:
    """Replay a log from its first step.

    At each step the effects, the end of a turn, the digest of the state and the chain are compared. An event that is
    refused or ignored now is a divergence too. `Pure.`
    """
    fold = Fold()
    return _run(fold, map(fold.take, log))


async def replay_conversation(store: Store, conversation_id: str) -> ReplayReport:
    """Replay a stored conversation, and compare the state at its end with the one that it rests in.

    A step that is missing or cannot be read is a divergence. Raises `UnknownConversation`.
    """
    return await asyncio.to_thread(replay_record, await store.read_record(conversation_id))


@dataclass(slots=True)
class Fold:
    """A replay under way. `take` or `take_rows` must be given every step, in order."""

    seq: int = 0
    chain: bytes = GENESIS
    state: State | None = None
    context: Context = field(default_factory=Context)
    deliveries: list[str] = field(default_factory=list)
    _heard: HeardTexts = field(default_factory=HeardTexts)
    """The texts that may still be delivered. A conversation in `Idle` refers to none, unless it owes some."""

    def take_rows(self, rows: Sequence[EventRow]) -> Divergence | None:
        """Take steps as they are stored, up to the first that comes out differently. Returns that divergence.

        Raises `Damaged` at a row that cannot be read; the steps before it are taken then. The rows are in memory
        together with what they lead to, so a long log is to be given page by page.
        """
        steps = self._steps(rows)
        if steps is None or not _are_stored(rows, [step for _, step in steps]):
            return next(filter(None, map(self.take, map(decode, rows))), None)
        for row, (event, step) in zip(rows, steps, strict=True):
            self._advance(event, step, row.chain)
        return None

    def take(self, entry: StoredEntry) -> Divergence | None:
        """Take one step, unless it comes out differently. Returns the divergence."""
        step, reason = self._outcome(entry)
        actual = StepOutcome() if step is None else _outcome_of(step)
        try:
            check_link(entry, self.seq, self.chain)
        except Damaged as damaged:
            if damaged.seq != entry.seq:
                return Divergence(damaged.seq, reason=damaged.sentence)
            reason = damaged.sentence
        reason = reason or _difference(entry, actual)
        if step is None or reason is not None:
            return Divergence(entry.seq, entry.event, _stored(entry), actual, reason or "")
        self._advance(entry.event, step, entry.chain)
        return None

    def end(self, head: HeadRow) -> Divergence | None:
        """Compare the head row with the last step and with the state that the log leads to. Returns the divergence."""
        try:
            check_end(head, self.seq, self.chain)
            stored = decode_state(head)
        except Damaged as damaged:
            return Divergence(damaged.seq, reason=damaged.sentence)
        if stored == self.state:
            return None
        reason = f"The conversation does not rest in the state that step {self.seq} leads to."
        return Divergence(self.seq, expected=_outcome_at(stored), actual=_outcome_at(self.state), reason=reason)

    def report(self, divergence: Divergence | None = None) -> ReplayReport:
        """Return the report of the steps so far."""
        return ReplayReport(self.seq, divergence, tuple(self.deliveries))

    def _steps(self, rows: Sequence[EventRow]) -> list[tuple[Event, Step]] | None:
        """Return the events of rows that follow this step, and what they lead to. None if a row is missing, damaged or
        cannot be read, or if one leads to nothing.

        Behind a step that differs, events meet states that they do not belong to. Whatever is raised there must not
        hide that step.
        """
        if not self._are_linked(rows):
            return None
        steps: list[tuple[Event, Step]] = []
        state, context = self.state, self.context
        try:
            for event in list(map(decode_event, rows)):
                step = _step(state, event, context)
                if step is None or step.ignored:
                    return None
                steps.append((event, step))
                state, context = step.state, context.after(event)
        except Exception:
            return None
        return steps

    def _are_linked(self, rows: Sequence[EventRow]) -> bool:
        """Whether these are the next rows of the log, undamaged."""
        seq, chain = self.seq, self.chain
        for row, content in zip(rows, list(map(content_of, rows)), strict=True):
            seq, chain = seq + 1, link(chain, content)
            if row.seq != seq or row.chain != chain:
                return False
        return True

    def _advance(self, event: Event, step: Step, chain: bytes) -> None:
        self.seq, self.chain, self.state = self.seq + 1, chain, step.state
        self.context = self.context.after(event)
        self._heard.note(self.seq, event)
        for effect in step.effects:
            if type(effect) is DeliverToUser:
                words, policy = self._heard.words(effect.said), self.context.policy
                self.deliveries.append(text_of_delivery(words, policy, relayed=effect.relayed))
        if type(step.state) is Idle and not step.state.book.owed:
            self._heard = HeardTexts()

    def _outcome(self, entry: StoredEntry) -> tuple[Step | None, str | None]:
        """Return what the event leads to now, or why it leads to nothing."""
        try:
            step = _step(self.state, entry.event, self.context)
        except Refused as refused:
            return None, f"Step {entry.seq} is refused now, with the code {refused.code}."
        if step is None:
            return None, "The log does not begin with the opening of a conversation."
        if step.ignored:
            return None, f"Step {entry.seq} is ignored now."
        return step, None


def _step(state: State | None, event: Event, context: Context) -> Step | None:
    """Return what an event leads to; None for a first event that does not open a conversation. Raises `Refused`."""
    if state is not None:
        return transition(state, event, context)
    return begin(event) if isinstance(event, Opened) else None


def _are_stored(rows: Sequence[EventRow], steps: Sequence[Step]) -> bool:
    """Whether the rows say the same as these steps, in the same words."""
    return (
        [row.effects for row in rows] == [effects_text(step.effects) for step in steps]
        and [row.ended for row in rows] == [None if step.ended is None else step.ended.to_json() for step in steps]
        and [row.state for row in rows] == list(map(digest, [step.state.to_json() for step in steps]))
    )


def _run(fold: Fold, divergences: Iterable[Divergence | None]) -> ReplayReport:
    try:
        return fold.report(next(filter(None, divergences), None))
    except Damaged as damaged:
        return fold.report(Divergence(damaged.seq, reason=damaged.sentence))


def replay_record(record: ConversationRecord) -> ReplayReport:
    """Replay a conversation by its rows, as `replay_conversation` does. `Pure.`"""
    fold = Fold()
    pages = (record.steps[start : start + PAGE] for start in range(0, len(record.steps), PAGE))
    report = _run(fold, map(fold.take_rows, pages))
    if report.divergence is None:
        return fold.report(fold.end(record.head))
    return fold.report(_in_full(report.divergence, record.head))


def _in_full(divergence: Divergence, head: HeadRow) -> Divergence:
    """Add the stored state in full to a divergence at the newest step."""
    expected = divergence.expected
    if divergence.seq != head.seq or type(head.state) is not str or expected.digest != digest(head.state):
        return divergence
    try:
        return replace(divergence, expected=replace(expected, state=decode_state(head)))
    except Damaged:
        return divergence


def _difference(entry: StoredEntry, actual: StepOutcome) -> str | None:
    """Return how the step differs from what was stored, in one sentence."""
    if actual.effects != entry.effects:
        return f"Step {entry.seq} has other effects now."
    if actual.ended != entry.ended:
        return f"Step {entry.seq} ends the turn in another way now."
    if actual.digest != entry.digest:
        return f"Step {entry.seq} leads to another state now."
    return None


def _stored(entry: StoredEntry) -> StepOutcome:
    return StepOutcome(entry.effects, entry.ended, entry.digest)


def _outcome_of(step: Step) -> StepOutcome:
    return StepOutcome(step.effects, step.ended, digest(step.state.to_json()), step.state)


def _outcome_at(state: State | None) -> StepOutcome:
    return StepOutcome() if state is None else StepOutcome(digest=digest(state.to_json()), state=state)
