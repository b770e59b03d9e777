"""Checks the invariants of a log, which hold whatever the rules of the machine were when it was written.

A replay checks whether the machine would take the same steps today. An audit checks less, and of every log: each answer
belongs to an effect that a step asked for, and comes once; nothing is open when a turn ends; each tool call has its
result; and a call that must not run twice did not, unless a person said so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...states.effects import (
    TOOL_RUNS,
    AwaitedEffect,
    ControlEffect,
    Effect,
    ExecuteTool,
    OutgoingEffect,
    RecordedEffect,
    ResumeTool,
)
from ...states.events import Answer, DeadlineReached, DoubtResolved, Event, Request, ToolInterrupted
from ...states.states import State, pending
from ...states.step import LogEntry
from ...states.transcript import transcript
from ...states.values.messages import Message


class Fault(NamedTuple):
    """A broken invariant, in a sentence; the log breaks it at the step `seq`."""

    seq: int
    sentence: str


def audit(entries: Sequence[LogEntry], state: State) -> Iterator[Fault]:
    """Yield what is wrong with an undamaged log, and with the state after its newest step. `Pure.`"""
    effects = _EffectLedger()
    for entry in entries:
        yield from (Fault(entry.seq, sentence) for sentence in effects.take(entry))
    if pending(state) != effects.open.keys():
        awaited, unanswered = _named(pending(state)), _named(effects.open.keys())
        yield Fault(state.book.seq, f"The conversation waits for {awaited}, and what was not answered is {unanswered}.")
    yield from _unpaired(entries)


class _EffectLedger:
    """The effects that the steps asked for, and what came of each, recorded step by step."""

    def __init__(self) -> None:
        self.open: dict[int, AwaitedEffect] = {}
        self._requests: set[str] = set()
        self._ids: set[int] = set()
        """The ids of all effects that a step asked for."""
        self._answered: set[int] = set()
        self._stopping: set[int] = set()
        """The effects that were aborted and have still to acknowledge it."""
        self._run: set[str] = set()
        """The calls that ran and must not run again."""

    def take(self, entry: LogEntry) -> Iterator[str]:
        """Record a step, and yield what is wrong with it."""
        yield from self._record_event(entry.event)
        asked_for = [effect.effect_id for effect in entry.effects if isinstance(effect, AwaitedEffect)]
        for effect in entry.effects:
            yield from self._record_effect(effect)
        if entry.ended is not None:
            self._give_up_stopping()
            if left := self.open.keys() - set(asked_for):
                yield f"The turn {entry.ended.turn} ended while {_named(left)} was open."
        if isinstance(entry.event, DeadlineReached):
            self._give_up_stopping()

    def _record_event(self, event: Event) -> Iterator[str]:
        if isinstance(event, Request):
            if event.event_id in self._requests:
                yield "The request was taken before."
            self._requests.add(event.event_id)
        if isinstance(event, Answer):
            yield from self._answer(event.effect_id)
        elif isinstance(event, ToolInterrupted):
            self._interrupt(event.call_id)
        elif isinstance(event, DoubtResolved) and event.verdict == "again":
            self._run.discard(event.call_id)

    def _answer(self, effect_id: int) -> Iterator[str]:
        if effect_id in self._answered:
            yield f"The effect {effect_id} is answered a second time."
        elif effect_id not in self._ids:
            yield f"The effect {effect_id} is answered, and no step asked for it."
        elif effect_id not in self.open:
            yield f"The effect {effect_id} is answered, and was no longer awaited."
        self._answered.add(effect_id)
        self._close(effect_id)

    def _interrupt(self, call_id: str) -> None:
        for effect_id, effect in list(self.open.items()):
            if isinstance(effect, TOOL_RUNS) and effect.call.call_id == call_id:
                self._close(effect_id)

    def _record_effect(self, effect: Effect) -> Iterator[str]:
        if isinstance(effect, ControlEffect):
            self._stop(effect.effect_id)
        elif isinstance(effect, OutgoingEffect | RecordedEffect):
            if effect.effect_id in self._ids:
                yield f"Two effects have the id {effect.effect_id}."
            self._ids.add(effect.effect_id)
        elif isinstance(effect, AwaitedEffect):
            if effect.effect_id in self._answered:
                yield f"The effect {effect.effect_id} is asked for again, and was answered before."
            if isinstance(effect, ExecuteTool):
                yield from self._run_once(effect)
            if isinstance(effect, ResumeTool) and effect.reply == "cancelled":
                self._stopping.add(effect.effect_id)
            self._ids.add(effect.effect_id)
            self.open[effect.effect_id] = effect

    def _run_once(self, effect: ExecuteTool) -> Iterator[str]:
        call_id = effect.call.call_id
        if effect.call.crash != "at_most_once":
            return
        if call_id in self._run:
            yield f"The call {call_id} runs again, and must not run twice."
        self._run.add(call_id)

    def _stop(self, effect_id: int) -> None:
        """Keep an effect open that acknowledges an abort; every other one is closed."""
        effect = self.open.get(effect_id)
        if effect is not None and effect.ACKNOWLEDGES is not None:
            self._stopping.add(effect_id)
        else:
            self._close(effect_id)

    def _give_up_stopping(self) -> None:
        """Close the effects that did not stop in time."""
        for effect_id in list(self._stopping):
            self._close(effect_id)

    def _close(self, effect_id: int) -> None:
        self.open.pop(effect_id, None)
        self._stopping.discard(effect_id)


def _unpaired(entries: Sequence[LogEntry]) -> Iterator[Fault]:
    """Yield the calls without a result and the results without a call, in the turns that have ended."""
    ends = [index for index, entry in enumerate(entries, start=1) if entry.ended is not None]
    if not ends:
        return
    seq = entries[ends[-1] - 1].seq
    try:
        messages = transcript(entries[: ends[-1]])
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError):
        yield Fault(seq, "What was said cannot be read from the steps.")
        return
    for call_id, sentence in _calls_without_result(messages):
        yield Fault(seq, sentence.format(call_id))


def _calls_without_result(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                yield call_id, "The result of the call {} has no call, or is not the only one."
        else:
            yield from ((call_id, "The call {} has no result.") for call_id in waiting)
            waiting = [call.call_id for call in message.tool_calls]
    yield from ((call_id, "The call {} has no result.") for call_id in waiting)


def _named(effect_ids: Iterable[int]) -> str:
    ids = sorted(effect_ids)
    return " and ".join(f"the effect {each}" for each in ids) if ids else "nothing"
