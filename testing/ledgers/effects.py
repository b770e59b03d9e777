"""Which effects are in flight: asked for, and not answered, stopped or lost."""

from __future__ import annotations

from datetime import datetime
from types import NoneType
from typing import Any

from ...states.effects import (
    TOOL_RUNS,
    AwaitedEffect,
    CancelSubAgent,
    ControlEffect,
    Effect,
    ExecuteTool,
    OutgoingEffect,
    ReconcileTool,
    RecordedEffect,
    ResumeTool,
    SpawnSubAgent,
)
from ...states.events import (
    Answer,
    AskUserQuestionPending,
    CallRestricted,
    DeadlineReached,
    DoubtResolved,
    Event,
    Opened,
    Report,
    Resumed,
    ToolInterrupted,
    ToolReconciled,
)
from ...states.step import Step
from ...states.values.messages import REPEATABLE, CrashContract
from ...states.values.round import RoundCall
from ...states.values.value import NAMES_WHAT_WAS_LEFT

ANSWERED = 0
"""Stands for the id of an effect that was answered, and so cannot be used again."""


class EffectLedger:
    """The effects in flight by id, and what is known of all effects so far."""

    def __init__(self) -> None:
        self.in_flight: dict[int, AwaitedEffect] = {}
        self.stopping: set[int] = set()
        """The effects in flight that were told to stop and have not acknowledged it."""
        self.suspended: dict[str, ExecuteTool | ResumeTool] = {}
        """Calls that have asked a person and wait, with the effect by which they asked."""
        self.interrupted: dict[int, ExecuteTool | ResumeTool] = {}
        """What a crash interrupted, by the effect as which the call was first started; the contract of the tool decides
        whether the call runs again."""
        self.started: set[int] = set()
        """The ids of all effects so far."""
        self.began: dict[int, datetime] = {}
        """When each of them was started first."""
        self.waits_from: dict[int, datetime] = {}
        """From when each of them waits: since it was started, or since a resume by a clock that was set back."""
        self.answered: AwaitedEffect | None = None
        """The effect that the newest event answered."""
        self.faults: list[str] = []
        """What was asked for and makes no sense."""
        self._executed: set[str] = set()
        """The calls that were started and must not be started again."""
        self.begun_unasked: set[int] = set()
        """The effects of calls that had begun when it became known that a person must allow them."""
        self._unapproved: set[str] = set()
        """The calls that nobody approved, and that a person must approve before they run again."""
        self._names_what_was_left = True
        """Whether a resume in this log names what was left; in older ones everything was asked for again."""
        self._lost: set[int] = set()
        """What was lost with a dead process, until it is asked for again."""

    def add(self, event: Event, step: Step) -> None:
        """Add a step."""
        self.answered = None
        if isinstance(event, Opened):
            self._names_what_was_left = event.revision >= NAMES_WHAT_WAS_LEFT
        elif isinstance(event, Answer):
            self._end(event)
        elif isinstance(event, Report):
            self._report(event)
        elif isinstance(event, DoubtResolved) and event.verdict == "again":
            self._executed.discard(event.call_id)
        for effect in step.effects:
            self._start(effect, event)
        if step.ended is not None:
            self._forget_stopping()
        self.faults += [f"the effect {each} was lost with its process" for each in self._lost & self.in_flight.keys()]
        self._lost.clear()

    def _end(self, answer: Answer) -> None:
        ended = self.answered = self.in_flight.pop(answer.effect_id, None)
        self.stopping.discard(answer.effect_id)
        if isinstance(ended, TOOL_RUNS) and isinstance(answer, AskUserQuestionPending) and answer.suspends:
            self.suspended[ended.call.call_id] = ended
        if isinstance(ended, ResumeTool) and isinstance(answer, ToolReconciled):
            self.interrupted[ended.first_id] = ended
        if isinstance(ended, ResumeTool | ReconcileTool) and isinstance(answer, ToolReconciled):
            self._wait_for_approval(ended.call, "pure", "reconcile")
        if isinstance(answer, DeadlineReached):
            self._forget_stopping()

    def _forget_stopping(self) -> None:
        """Drop the effects that had their time to stop: nobody waits for them any longer."""
        for effect_id in self.stopping:
            del self.in_flight[effect_id]
        self.stopping.clear()

    def _report(self, report: Report) -> None:
        if isinstance(report, Resumed):
            left = report.open if report.open and self._names_what_was_left else self.in_flight
            self._lost = {each for each in left if not isinstance(self.in_flight.get(each), (NoneType, *TOOL_RUNS))}
        elif isinstance(report, CallRestricted):
            self._restrict(report)
        elif isinstance(report, ToolInterrupted):
            self._interrupt(report)

    def _restrict(self, report: CallRestricted) -> None:
        """Know the effects of a call by its stricter declarations, which the next effects of it have."""
        known: tuple[dict[Any, Any], ...] = (self.in_flight, self.interrupted, self.suspended)
        for effects in known:
            for key, effect in effects.items():
                if isinstance(effect, (*TOOL_RUNS, ReconcileTool)) and effect.call.call_id == report.call_id:
                    if report.approval and not effect.call.approval:
                        self._unapproved.add(report.call_id)
                        self.begun_unasked.add(effect.effect_id)
                    approval, by = report.approval, report.approval_by
                    call = effect.call.restricted(report.crash, approval=approval, approval_by=by)
                    effects[key] = effect.model_copy(update={"call": call})

    def _interrupt(self, report: ToolInterrupted) -> None:
        call_id = report.call_id
        for effect_id, effect in list(self.in_flight.items()):
            if isinstance(effect, TOOL_RUNS) and effect.call.call_id == call_id:
                self._wait_for_approval(effect.call, "pure")
                self.interrupted[effect.first_id] = effect
                del self.in_flight[effect_id]
                self.stopping.discard(effect_id)
                return
        if (waiting := self.suspended.pop(call_id, None)) is not None:
            self._wait_for_approval(waiting.call, "pure")
            self.interrupted[waiting.first_id] = waiting.model_copy(update={"effect_id": ANSWERED})
            return
        self.faults.append(f"the call {call_id} does not run, and its interruption was taken")

    def _wait_for_approval(self, call: RoundCall, *crash: CrashContract) -> None:
        """A call of such a contract that must be approved now runs again as another effect, if a person allows it."""
        if call.call_id in self._unapproved and call.crash in crash:
            self._executed.discard(call.call_id)

    def _start(self, effect: Effect, event: Event) -> None:
        if isinstance(effect, ControlEffect):
            self._stop(effect, event)
        elif isinstance(effect, AwaitedEffect):
            self._fly(effect, event)
        elif isinstance(effect, OutgoingEffect | RecordedEffect):
            self._give_id(effect.effect_id)

    def _fly(self, effect: AwaitedEffect, event: Event) -> None:
        effect_id = effect.effect_id
        if effect_id in self._lost:
            self._lost.discard(effect_id)
            if not _is_same(effect, self.in_flight[effect_id]):
                self.faults.append(f"the effect {effect_id} is not asked for again as it was")
        elif isinstance(effect, ExecuteTool) and effect.first_id in self.interrupted:
            self._run_again(effect, event)
        else:
            self._give_id(effect_id)
            self._begin(effect)
        self.began.setdefault(effect_id, event.at)
        self.waits_from[effect_id] = min(event.at, self.waits_from.get(effect_id, event.at))
        self.in_flight[effect_id] = effect

    def _give_id(self, effect_id: int) -> None:
        if effect_id in self.started:
            self.faults.append(f"the id {effect_id} was given to two effects")
        self.started.add(effect_id)

    def _begin(self, effect: Effect) -> None:
        if isinstance(effect, ResumeTool):
            self._resume(effect)
        elif isinstance(effect, ExecuteTool):
            if effect.call.call_id in self._executed:
                self.faults.append(f"the call {effect.call.call_id} was started twice")
            self._executed.add(effect.call.call_id)
        elif isinstance(effect, ReconcileTool):
            asked = self.interrupted.get(effect.started_as)
            if asked is None or asked.call != effect.call or effect.call.crash != "reconcile":
                self.faults.append(f"a tool is asked about the effect {effect.started_as}, which no crash interrupted")

    def _resume(self, effect: ResumeTool) -> None:
        if effect.reply == "cancelled":
            self.stopping.add(effect.effect_id)
        waiting = self.suspended.pop(effect.call.call_id, None)
        if waiting is None or (waiting.call, waiting.first_id) != (effect.call, effect.started_as):
            self.faults.append(f"the call {effect.call.call_id} is resumed, and does not wait")
        elif waiting.effect_id in self.begun_unasked:
            self.begun_unasked.add(effect.effect_id)

    def _run_again(self, effect: ExecuteTool, event: Event) -> None:
        before = self.interrupted.pop(effect.first_id)
        if effect.effect_id != before.effect_id:
            self._give_id(effect.effect_id)
        harmless = isinstance(event, ToolInterrupted) and before.call.crash in REPEATABLE
        did_not_run = isinstance(event, ToolReconciled) and event.verdict == "did_not_run"
        has_asked = isinstance(before, ResumeTool) or before.effect_id == ANSWERED
        is_same = effect.call == before.call if has_asked else effect == before
        if not is_same or not (harmless or did_not_run):
            self.faults.append(f"the call {before.call.call_id} runs again, though it may have run")

    def _stop(self, effect: ControlEffect, event: Event) -> None:
        stopped = self.in_flight.get(effect.effect_id)
        if isinstance(event, Resumed) and effect.effect_id in self.stopping:
            return  # the process may have died before it was told to
        if stopped is None or effect.effect_id in self.stopping:
            self.faults.append(f"the effect {effect.effect_id} is told to stop, and is not in flight")
            return
        if isinstance(effect, CancelSubAgent) != isinstance(stopped, SpawnSubAgent):
            self.faults.append(f"the effect {effect.effect_id} is stopped as something that it is not")
        if stopped.ACKNOWLEDGES is not None and not isinstance(event, DeadlineReached):
            self.stopping.add(effect.effect_id)
        else:
            del self.in_flight[effect.effect_id]


def _is_same(again: Effect, before: Effect) -> bool:
    """Whether this is the same effect, apart from the moment that a model request tells, and from one that is waited
    for and comes earlier, since a clock that ran ahead has set it."""
    same_time = {"at": getattr(before, "at", None)} if hasattr(before, "at") else {}
    due, was_due = getattr(again, "due", None), getattr(before, "due", None)
    if due is not None and was_due is not None and due < was_due:
        same_time["due"] = was_due
    return again.model_copy(update=same_time) == before
