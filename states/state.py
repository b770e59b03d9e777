"""What all states have in common: the book, timers, and the effects in flight.

The states themselves are in `states`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .effects import AwaitedEffect, ExecuteTool, ReconcileTool, ResumeTool, SpawnSubAgent, StartTimer
from .events import Answer, AnswerTypes, CallRestricted, DeadlineReached, Report, Resumed, ToolInterrupted
from .values.inbox import Owed, Waiting
from .values.part import Part, TaggedPart
from .values.questions import OpenQuestion
from .values.round import Round, RoundCall
from .values.turn import TurnRecord
from .values.value import Instant, Text, sooner

if TYPE_CHECKING:
    from .policy.policy import Policy

InFlight: TypeAlias = Mapping[int, type[AwaitedEffect]]
"""The effects in flight: the type of each, by its id."""

ReportTypes: TypeAlias = tuple[type[Report], ...]
"""Types of reports."""


class Book(Part):
    """The counters that every state carries: steps and turns so far, the id of the next effect, and the tokens of the
    last model request.

    `wake` is the next moment of the conversation's schedule. `profile` is the profile that the conversation was handed
    to, which all its turns have from then on; empty if it was handed to none. `owed` are the messages for the user that
    have yet to be passed on, oldest first, also those that the turn under way is to pass on.
    """

    seq: int = 0
    turn: int = 0
    next_effect: int = 1
    window_used: int = 0
    wake: Instant | None = None
    profile: Text = ""
    owed: tuple[Owed, ...] = ()


class Timer(Part):
    """A timer that was started: the effect that runs it, and when it is due."""

    effect_id: int
    due: Instant

    def set_right(self, at: datetime, seconds: float | None) -> Timer:
        """This timer as of the moment `at`, by which it is to wait for so many seconds at most. It waits longer if a
        clock that ran ahead has set it, and was set back. `Pure.`"""
        due = sooner(self.due, at, seconds)
        return self if due == self.due else self.replace(due=due)


class State(TaggedPart):
    """Where a conversation rests until the next event."""

    IN_FLIGHT: ClassVar[tuple[type[AwaitedEffect], ...]] = ()
    """The types of effect that a state of this type can have in flight."""

    TIMER_ANSWER: ClassVar[type[Answer]] = DeadlineReached
    """The answer of the timers that a state of this type starts."""

    REPORTS: ClassVar[tuple[type[Report], ...]] = ()
    """The reports that can concern a state of this type."""

    ANSWERS: ClassVar[Mapping[type[AwaitedEffect], AnswerTypes]] = {}
    """For each type of effect in flight, the answers that a state of this type takes. Derived from `IN_FLIGHT`."""

    AWAITS: ClassVar[AnswerTypes] = ()
    """All answers that a state of this type can wait for. Derived from `IN_FLIGHT`."""

    book: Book = Book()

    def agreed_wait(self, policy: Policy) -> float | None:
        """How many seconds the timer of a state of this type waits at most; None if nothing is agreed. `Pure.`"""
        return None

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Derive `ANSWERS` and `AWAITS`, once for each type of state."""
        super().__pydantic_init_subclass__(**options)
        cls.ANSWERS = {kind: (cls.TIMER_ANSWER,) if kind is StartTimer else kind.ANSWERS for kind in cls.IN_FLIGHT}
        cls.AWAITS = tuple(dict.fromkeys(answer for answers in cls.ANSWERS.values() for answer in answers))

    def in_flight(self) -> InFlight:
        """The effects that were started and have no answer yet. `Pure.`"""
        return {}

    def awaited(self) -> Mapping[int, AnswerTypes]:
        """For each effect in flight, the answers that it can have. `Pure.`"""
        return {effect_id: self.ANSWERS[kind] for effect_id, kind in self.in_flight().items()}

    def reports(self) -> ReportTypes:
        """The reports that can concern this state. `Pure.`"""
        return self.REPORTS

    def concerned_by(self, report: Report) -> bool:
        """Whether the report is about something that is under way in this state. `Pure.`"""
        return False

    @property
    def works(self) -> bool:
        """Whether this state waits for an effect, and not for a person. If the process dies, that effect is lost.
        `Pure.`"""
        return bool(self.in_flight())

    @property
    def open_question(self) -> OpenQuestion | None:
        """The questions that a person can answer now. `Pure.`"""
        return None

    @property
    def waiting_call_id(self) -> str | None:
        """The id of the call that waits for a person, if one does. `Pure.`"""
        return None if self.open_question is None else self.open_question.call_id

    @property
    def ends_with_process(self) -> bool:
        """Whether something is lost if the process dies: an effect in flight, or a call that waits for the answer of a
        person. Another process then has to take the conversation over. `Pure.`"""
        return self.works


def timer_in_flight(timer: Timer | None) -> InFlight:
    """The effect in flight of a timer, if there is one. `Pure.`"""
    return {} if timer is None else {timer.effect_id: StartTimer}


def round_in_flight(round_: Round) -> InFlight:
    """The effects in flight of a round: sub-agents that work, calls that run, and calls that are asked about.
    `Pure.`"""
    in_flight: dict[int, type[AwaitedEffect]] = {}
    if round_.children:
        in_flight.update((child.effect_id, SpawnSubAgent) for child in round_.unfinished)
    for one in round_.running:
        if (reconciling := one.reconciling) is not None:
            in_flight[reconciling] = ReconcileTool
        else:
            in_flight[one.effect_id] = ResumeTool if one.asked else ExecuteTool
    return in_flight


def restricted(round_: Round, report: CallRestricted) -> Round | None:
    """The round after this report; None if the report changes nothing. `Pure.`"""
    crash, approval, by = report.crash, report.approval, report.approval_by
    return round_.restrict(report.call_id, crash, approval=approval, approval_by=by)


def round_concerned_by(round_: Round, report: Report) -> bool:
    """Whether the report is about a call of the round: it restricts one that may still run, or interrupts one that
    runs. A call whose tool is asked about it cannot be interrupted. `Pure.`"""
    if isinstance(report, CallRestricted):
        return restricted(round_, report) is not None
    if isinstance(report, ToolInterrupted):
        return any(one.call_id == report.call_id and one.reconciling is None for one in round_.running)
    return False


class Busy(State):
    """A state in which something is under way. `inbox` holds the messages that came meanwhile; `resumes` counts the
    processes that took the conversation over in this state and died in turn."""

    REPORTS: ClassVar[tuple[type[Report], ...]] = (Resumed,)

    inbox: tuple[Waiting, ...] = ()
    resumes: int = 0

    def concerned_by(self, report: Report) -> bool:
        """Whether it is a report that a state of this type takes. `Pure.`"""
        return type(report) in self.REPORTS


class InTurn(Busy):
    """A busy state within a turn."""

    turn: TurnRecord


class InRound(InTurn):
    """A busy state within a round of tool calls."""

    REPORTS: ClassVar[tuple[type[Report], ...]] = (Resumed, ToolInterrupted, CallRestricted)

    round: Round

    def in_flight(self) -> InFlight:
        """The calls that run or are asked about, and the sub-agents that work. `Pure.`"""
        return round_in_flight(self.round)

    def concerned_by(self, report: Report) -> bool:
        """A report about a call must be about one of the round. `Pure.`"""
        return isinstance(report, Resumed) or round_concerned_by(self.round, report)


class AwaitingPerson(InTurn):
    """A person must act on `call`, which was asked about at `since`. The calls behind it keep their places."""

    IN_FLIGHT: ClassVar = (StartTimer,)
    REPORTS: ClassVar[tuple[type[Report], ...]] = (Resumed, CallRestricted)

    call: RoundCall
    round: Round
    since: Instant
    deadline: Timer | None = None

    def concerned_by(self, report: Report) -> bool:
        """A report about a call must be about one of the round. `Pure.`"""
        return isinstance(report, Resumed) or round_concerned_by(self.round, report)

    def in_flight(self) -> InFlight:
        """The deadline, if there is one. `Pure.`"""
        return timer_in_flight(self.deadline)

    @property
    def waiting_call_id(self) -> str | None:
        """The id of the call. `Pure.`"""
        return self.call.call_id

    @property
    def works(self) -> bool:
        """False: the wait for a person outlives the process, and a deadline is no work. `Pure.`"""
        return False
