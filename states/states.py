"""The states in which a conversation can rest.

A state says what the conversation waits for: for nothing (`Idle`), for an effect, or for a person. It carries
everything that the next step needs, except for texts, which stand once in the event that brought them. All states share
the book, which counts steps, turns and effects; and each tells the effects that it has in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from .effects import (
    AwaitedEffect,
    AwaitedTypes,
    CompactHistory,
    ExecuteTool,
    RecallMemory,
    ReconcileTool,
    RequestLlm,
    ResumeTool,
    SelectProfile,
    SpawnSubAgent,
    StartTimer,
    SummarizeTurn,
    VerifyWork,
)
from .events import (
    AnswerType,
    AnswerTypes,
    CallRestricted,
    DeadlineReached,
    Report,
    Resumed,
    RetryDue,
    SubAgentAsked,
    ToolInterrupted,
)
from .values.questions import OpenQuestion, QuestionSet
from .values.round import ChildQuestion, Round, RoundCall
from .values.turn import BranchPoint, Owed, TurnEnded, TurnRecord, Waiting
from .values.value import FailureKind, Instant, Record, Tagged, Text, members, sooner

if TYPE_CHECKING:
    from .policy import Policy

InFlight: TypeAlias = Mapping[int, type[AwaitedEffect]]
"""The effects in flight: the type of each, by its id."""

ReportTypes: TypeAlias = tuple[type[Report], ...]
"""Types of reports."""


@dataclass(frozen=True, kw_only=True)
class Book(Record):
    """The counters that every state carries: steps and turns so far, the id of the next effect, and the tokens of the
    last model request. `clearable` is about how many of these are old results of tools that need not be shown again.

    `branch` is the step in which the conversation went to another branch last, or 0.
    `wake` is the next moment of the conversation's schedule. `profile` is the profile that the conversation was handed
    to, which all its turns have from then on; empty if it was handed to none. `owed` are the messages for the user that
    have yet to be passed on, oldest first, also those that the turn under way is to pass on.
    """

    seq: int = 0
    turn: int = 0
    next_effect: int = 1
    window_used: int = 0
    clearable: int = 0
    branch: int = 0
    wake: Instant | None = None
    profile: Text = ""
    owed: tuple[Owed, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Timer(Record):
    """A timer that was started: the effect that runs it, and when it is due."""

    effect_id: int
    due: Instant

    def set_right(self, at: datetime, seconds: float | None) -> Timer:
        """This timer as of the moment `at`, by which it is to wait for so many seconds at most. It waits longer if a
        clock that ran ahead has set it, and was set back. `Pure.`"""
        due = sooner(self.due, at, seconds)
        return self if due == self.due else self.replace(due=due)


class State(Tagged):
    """Where a conversation rests until the next event."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = ()
    """The types of effect that a state of this type can have in flight."""

    TIMER_ANSWER: ClassVar[AnswerType] = DeadlineReached
    """The answer of the timers that a state of this type starts."""

    REPORTS: ClassVar[ReportTypes] = ()
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


def _timer_in_flight(timer: Timer | None) -> InFlight:
    """The effect in flight of a timer, if there is one. `Pure.`"""
    return {} if timer is None else {timer.effect_id: StartTimer}


def _round_in_flight(round_: Round) -> InFlight:
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


def _round_concerned_by(round_: Round, report: Report) -> bool:
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

    REPORTS: ClassVar[ReportTypes] = (Resumed,)

    inbox: tuple[Waiting, ...] = ()
    resumes: int = 0

    def concerned_by(self, report: Report) -> bool:
        """Whether it is a report that a state of this type takes. `Pure.`"""
        return type(report) in self.REPORTS


class InTurn(Busy):
    """A busy state within a turn."""

    turn: TurnRecord


class InEffect(InTurn):
    """A busy state within a turn that waits for one effect, of the type in `IN_FLIGHT`."""

    effect_id: int

    def in_flight(self) -> InFlight:
        """The effect. `Pure.`"""
        return {self.effect_id: self.IN_FLIGHT[0]}


class InRound(InTurn):
    """A busy state within a round of tool calls."""

    REPORTS: ClassVar[ReportTypes] = (Resumed, ToolInterrupted, CallRestricted)

    round: Round

    def in_flight(self) -> InFlight:
        """The calls that run or are asked about, and the sub-agents that work. `Pure.`"""
        return _round_in_flight(self.round)

    def concerned_by(self, report: Report) -> bool:
        """A report about a call must be about one of the round. `Pure.`"""
        return isinstance(report, Resumed) or _round_concerned_by(self.round, report)


class AwaitingPerson(InTurn):
    """A person must act on `call`, which was asked about at `since`. The calls behind it keep their places."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (StartTimer,)
    REPORTS: ClassVar[ReportTypes] = (Resumed, CallRestricted)

    call: RoundCall
    round: Round
    since: Instant
    deadline: Timer | None = None

    def concerned_by(self, report: Report) -> bool:
        """A report about a call must be about one of the round. `Pure.`"""
        return isinstance(report, Resumed) or _round_concerned_by(self.round, report)

    def in_flight(self) -> InFlight:
        """The deadline, if there is one. `Pure.`"""
        return _timer_in_flight(self.deadline)

    @property
    def waiting_call_id(self) -> str | None:
        """The id of the call. `Pure.`"""
        return self.call.call_id

    @property
    def works(self) -> bool:
        """False: the wait for a person outlives the process, and a deadline is no work. `Pure.`"""
        return False


class Idle(State):
    """No turn is under way."""

    type: Literal["idle"] = "idle"


class ProfileSelecting(InEffect):
    """The router chooses a profile for the turn."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (SelectProfile,)

    type: Literal["profile_selecting"] = "profile_selecting"


class MemoryRecalling(InEffect):
    """What belongs to the turn is looked up: the last minutes, older conversations, documents."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (RecallMemory,)

    type: Literal["memory_recalling"] = "memory_recalling"


class LlmRequesting(InEffect):
    """One model request is in flight: the `attempt`-th to this model."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (RequestLlm,)

    type: Literal["llm_requesting"] = "llm_requesting"
    attempt: int = 1


class RetryWaiting(InTurn):
    """A failed request backs off. The `attempt`-th follows when the timer is due."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (StartTimer,)
    TIMER_ANSWER: ClassVar[AnswerType] = RetryDue

    type: Literal["retry_waiting"] = "retry_waiting"
    timer: Timer
    attempt: int

    def agreed_wait(self, policy: Policy) -> float | None:
        """The longest wait between two attempts. `Pure.`"""
        return policy.retry.cap

    def in_flight(self) -> InFlight:
        """The timer. `Pure.`"""
        return _timer_in_flight(self.timer)


class ToolExecuting(InRound):
    """Tools of one response are running."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (ExecuteTool, ResumeTool, ReconcileTool)

    type: Literal["tool_executing"] = "tool_executing"


class AwaitingUserResponse(AwaitingPerson):
    """A person was asked and has not answered yet."""

    REPORTS: ClassVar[ReportTypes] = (Resumed, ToolInterrupted, CallRestricted)

    type: Literal["awaiting_user_response"] = "awaiting_user_response"
    questions: QuestionSet

    def agreed_wait(self, policy: Policy) -> float | None:
        """The deadline of questions. `Pure.`"""
        return policy.questions.deadline

    @property
    def open_question(self) -> OpenQuestion:
        """The questions that were asked. `Pure.`"""
        return OpenQuestion(self.call.call_id, self.questions, self.since)

    @property
    def suspends(self) -> bool:
        """Whether the call that asks has not ended: it goes on when the wait is over. `Pure.`"""
        return bool(self.round.running)

    @property
    def ends_with_process(self) -> bool:
        """Whether a call waits for the answer. `Pure.`"""
        return self.suspends

    def reports(self) -> ReportTypes:
        """A call can be interrupted while it waits for the answer. `Pure.`"""
        return self.REPORTS if self.suspends else (Resumed, CallRestricted)


Interruptible: TypeAlias = InRound | AwaitingUserResponse
"""The states of a call that has begun: it runs, or waits for the answer of a person."""


class AwaitingApproval(AwaitingPerson):
    """A person must allow a call before it runs."""

    type: Literal["awaiting_approval"] = "awaiting_approval"

    def agreed_wait(self, policy: Policy) -> float | None:
        """The deadline of approvals. `Pure.`"""
        return policy.approval_deadline


class AwaitingSubAgents(InTurn):
    """Sub-agents work. Their outcomes together are the result of `call`, which started them.

    `asked` are their questions to the user, of which a person sees the first that is not settled. The person has been
    waited for since `waits_since`, if there is one.
    """

    IN_FLIGHT: ClassVar[AwaitedTypes] = (SpawnSubAgent, StartTimer)
    REPORTS: ClassVar[ReportTypes] = (Resumed, SubAgentAsked, CallRestricted)

    type: Literal["awaiting_sub_agents"] = "awaiting_sub_agents"
    call: RoundCall
    round: Round
    deadline: Timer | None = None
    asked: tuple[ChildQuestion, ...] = ()
    waits_since: Instant | None = None

    def agreed_wait(self, policy: Policy) -> float | None:
        """The deadline of the sub-agents of a call. `Pure.`"""
        return policy.sub_agent_deadline

    def in_flight(self) -> InFlight:
        """The sub-agents that still work, and the deadline, if there is one. `Pure.`"""
        return {**_round_in_flight(self.round), **_timer_in_flight(self.deadline)}

    @property
    def question(self) -> ChildQuestion | None:
        """The question that a person can answer now. `Pure.`"""
        return next((question for question in self.asked if not question.settled), None)

    @property
    def open_question(self) -> OpenQuestion | None:
        """What a person can answer now, under an id that no other sub-agent's question has. `Pure.`"""
        shown = self.question
        return None if shown is None else OpenQuestion(shown.shown_call_id, shown.questions, shown.since)

    def question_of(self, effect_id: int) -> ChildQuestion | None:
        """The newest question of this sub-agent, as long as it asks. `Pure.`"""
        return next((question for question in self.asked if question.effect_id == effect_id), None)

    def concerned_by(self, report: Report) -> bool:
        """A question must come from a sub-agent that works and be new; that it is no longer asked must concern the
        question that is known. `Pure.`"""
        if isinstance(report, CallRestricted):
            return _round_concerned_by(self.round, report)
        if not isinstance(report, SubAgentAsked):
            return super().concerned_by(report)
        known = self.question_of(report.effect_id)
        if report.questions is None:
            return known is not None and known.call_id == report.call_id
        is_new = known is None or (known.call_id, known.since) != (report.call_id, report.since)
        return is_new and any(child.effect_id == report.effect_id for child in self.round.unfinished)

    @property
    def works(self) -> bool:
        """Whether a sub-agent works that does not wait for a person. `Pure.`"""
        waiting = {question.effect_id for question in self.asked if not question.settled}
        return any(child.effect_id not in waiting for child in self.round.unfinished)

    @property
    def ends_with_process(self) -> bool:
        """True: the sub-agents are awaited by a process. `Pure.`"""
        return True


Questioning: TypeAlias = AwaitingUserResponse | AwaitingSubAgents
"""The states in which a person may be asked something."""


class Verifying(InEffect):
    """The claim that the work is complete is checked."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (VerifyWork,)

    type: Literal["verifying"] = "verifying"


class Summarizing(InEffect):
    """The turn has ended, and a summary of it is written for display."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (SummarizeTurn,)

    type: Literal["summarizing"] = "summarizing"
    ending: TurnEnded


class Failed(State):
    """The turn failed. A message or a retry continues. `tried_again` is the first of the turns that this turn itself
    had tried again, and `output_from` the step of the message that said which form its answer must have. In an imported
    conversation `inbox` may hold messages that start a turn."""

    type: Literal["failed"] = "failed"
    kind: FailureKind
    sentence: str
    turn: int
    tried_again: int | None = None
    output_from: int | None = None
    inbox: tuple[Waiting, ...] = ()


class Compacting(Busy):
    """The history up to the step `up_to` is compacted: for a request of the turn, or, without a turn, at rest. `failed`
    holds the failed turn that can still be tried again."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (CompactHistory,)

    type: Literal["compacting"] = "compacting"
    effect_id: int
    up_to: int
    attempt: int = 1
    turn: TurnRecord | None = None
    failed: Failed | None = None

    @property
    def resume(self) -> Literal["request", "rest"]:
        """What follows: the request that did not fit, or rest. `Pure.`"""
        return "rest" if self.turn is None else "request"

    def in_flight(self) -> InFlight:
        """The compaction. `Pure.`"""
        return {self.effect_id: CompactHistory}


class Cancelling(InRound):
    """What was under way must confirm that it stopped, or the deadline passes: tools and sub-agents that were running,
    or the model, which was asked by the effect `answering`. In the latter case the round has no calls. Then the
    conversation ends if it is `closing`, and goes on at the point `goes_to` if there is one."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (RequestLlm, ExecuteTool, ResumeTool, ReconcileTool, SpawnSubAgent, StartTimer)

    type: Literal["cancelling"] = "cancelling"
    deadline: Timer
    closing: bool = False
    goes_to: BranchPoint | None = None
    answering: int | None = None

    def agreed_wait(self, policy: Policy) -> float | None:
        """The time in which what runs must have stopped. `Pure.`"""
        return policy.cancel_deadline

    def in_flight(self) -> InFlight:
        """Whatever has not stopped yet, and the deadline. `Pure.`"""
        asked: InFlight = {} if self.answering is None else {self.answering: RequestLlm}
        return {**asked, **_round_in_flight(self.round), **_timer_in_flight(self.deadline)}


class InDoubt(InRound):
    """The process died while tools ran that must not run twice, and nobody knows whether they ran. A person has to
    decide; other tools of the round may still be running."""

    IN_FLIGHT: ClassVar[AwaitedTypes] = (ExecuteTool, ResumeTool, ReconcileTool)

    type: Literal["in_doubt"] = "in_doubt"
    since: Instant

    @property
    def call(self) -> RoundCall:
        """The call that has been in doubt for longest. `Pure.`"""
        return self.round.named(self.round.doubtful[0])


class Closed(State):
    """The end. Nothing leads out of this state."""

    type: Literal["closed"] = "closed"


AnyState = Annotated[
    Idle
    | ProfileSelecting
    | MemoryRecalling
    | LlmRequesting
    | RetryWaiting
    | ToolExecuting
    | AwaitingUserResponse
    | AwaitingApproval
    | AwaitingSubAgents
    | Verifying
    | Summarizing
    | Compacting
    | Cancelling
    | InDoubt
    | Failed
    | Closed,
    Field(discriminator="type"),
]
"""Every state. Used to read one back by its `type`; `STATES` follows from it."""

STATES = members(AnyState, State)


def pending(state: State) -> frozenset[int]:
    """The ids of the effects that this state waits for. `Pure.`"""
    return frozenset(state.in_flight())
