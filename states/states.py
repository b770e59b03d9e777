"""Where a conversation can rest.

A state says why nothing happens right now: because nothing is asked (`Idle`), because a model, a tool or a timer has
not answered yet, or because a person has not. It carries all that the next step needs, and no text that an event
already holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from .effects import (
    AwaitedEffect,
    CompactHistory,
    ExecuteTool,
    RecallMemory,
    ReconcileTool,
    RequestLlm,
    SelectProfile,
    SpawnSubAgent,
    StartTimer,
    SummarizeTurn,
    VerifyWork,
)
from .events import Answer, AnswerTypes, DeadlineReached, Report, Resumed, RetryDue, ToolInterrupted
from .values.failures import FailureKind
from .values.inbox import Waiting
from .values.messages import Heard
from .values.questions import QuestionSet
from .values.round import Round, RoundCall
from .values.turn import TurnEnded, TurnRecord
from .values.value import Instant, Part, TaggedPart, members

InFlight: TypeAlias = Mapping[int, type[AwaitedEffect]]
"""The effects in flight: the type of each, by its id."""


class Book(Part):
    """What every state remembers of its conversation: steps and turns so far, the id of the next effect, and the
    tokens of the last model request."""

    seq: int = 0
    turn: int = 0
    next_effect: int = 1
    window_used: int = 0


class Timer(Part):
    """A timer that was started: the effect that runs it, and when it is due."""

    effect_id: int
    due: Instant


class State(TaggedPart):
    """Where a conversation rests."""

    IN_FLIGHT: ClassVar[tuple[type[AwaitedEffect], ...]] = ()
    """The types of effect that a state of this type can have in flight."""

    TIMER_ANSWER: ClassVar[type[Answer]] = DeadlineReached
    """What a timer of a state of this type answers."""

    HEEDS: ClassVar[tuple[type[Report], ...]] = ()
    """The reports that can concern a state of this type."""

    ANSWERS: ClassVar[Mapping[type[AwaitedEffect], AnswerTypes]] = {}
    """The answers that a state of this type takes, by the type of effect. Follows from `IN_FLIGHT`."""

    AWAITS: ClassVar[AnswerTypes] = ()
    """All answers that a state of this type can wait for. Follows from `IN_FLIGHT`."""

    book: Book = Book()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Derive, once for each type of state, what follows from the effects that it can have in flight."""
        super().__pydantic_init_subclass__(**options)
        cls.ANSWERS = {kind: (cls.TIMER_ANSWER,) if kind is StartTimer else kind.ANSWERS for kind in cls.IN_FLIGHT}
        cls.AWAITS = tuple(dict.fromkeys(answer for answers in cls.ANSWERS.values() for answer in answers))

    def in_flight(self) -> InFlight:
        """The effects that were asked for and have no answer yet. `Pure.`"""
        return {}

    def awaited(self) -> Mapping[int, AnswerTypes]:
        """For each effect in flight, the answers that it can have. `Pure.`"""
        return {effect_id: self.ANSWERS[kind] for effect_id, kind in self.in_flight().items()}

    def concerned_by(self, report: Report) -> bool:
        """Whether this report is about something that goes on here. `Pure.`"""
        return False

    @property
    def works(self) -> bool:
        """Whether the world, and not a person, moves it next: what a process that dies takes with it. `Pure.`"""
        return bool(self.in_flight())


def _timer(timer: Timer | None) -> InFlight:
    return {} if timer is None else {timer.effect_id: StartTimer}


def _at_work(round_: Round) -> InFlight:
    """The sub-agents that work, the calls that run, and those that are asked about."""
    calls = {one.awaited: ExecuteTool if one.reconciling is None else ReconcileTool for one in round_.running}
    children = {child.effect_id: SpawnSubAgent for child in round_.unfinished}
    return {**children, **calls}


class Busy(State):
    """A state in which something is under way; `inbox` holds what was said meanwhile. `resumes` counts the processes
    that took it up after another had died, and died themselves."""

    HEEDS: ClassVar[tuple[type[Report], ...]] = (Resumed,)

    inbox: tuple[Waiting, ...] = ()
    resumes: int = 0

    def concerned_by(self, report: Report) -> bool:
        """Whatever is under way is taken up again. `Pure.`"""
        return type(report) in self.HEEDS


class InTurn(Busy):
    """A busy state within a turn."""

    turn: TurnRecord


class InRound(InTurn):
    """A busy state within a round of tools."""

    HEEDS: ClassVar[tuple[type[Report], ...]] = (Resumed, ToolInterrupted)

    round: Round

    def in_flight(self) -> InFlight:
        """The tools that run and the sub-agents that work. `Pure.`"""
        return _at_work(self.round)

    def concerned_by(self, report: Report) -> bool:
        """A call can be interrupted only while it runs, and not while its tool is asked about it. `Pure.`"""
        if not isinstance(report, ToolInterrupted):
            return super().concerned_by(report)
        return any(one.call_id == report.call_id and one.reconciling is None for one in self.round.running)


class Idle(State):
    """Nothing is being answered."""

    type: Literal["idle"] = "idle"


class ProfileSelecting(InTurn):
    """The router chooses a profile for the turn."""

    IN_FLIGHT: ClassVar = (SelectProfile,)

    type: Literal["profile_selecting"] = "profile_selecting"
    effect_id: int

    def in_flight(self) -> InFlight:
        """The choice. `Pure.`"""
        return {self.effect_id: SelectProfile}


class MemoryRecalling(InTurn):
    """What belongs to the turn is looked for in older conversations."""

    IN_FLIGHT: ClassVar = (RecallMemory,)

    type: Literal["memory_recalling"] = "memory_recalling"
    effect_id: int

    def in_flight(self) -> InFlight:
        """The search. `Pure.`"""
        return {self.effect_id: RecallMemory}


class LlmRequesting(InTurn):
    """One model request is in flight, the `attempt`-th to this model."""

    IN_FLIGHT: ClassVar = (RequestLlm,)

    type: Literal["llm_requesting"] = "llm_requesting"
    effect_id: int
    attempt: int = 1

    def in_flight(self) -> InFlight:
        """The model request. `Pure.`"""
        return {self.effect_id: RequestLlm}


class RetryWaiting(InTurn):
    """A failed request backs off; the `attempt`-th follows when the timer is due."""

    IN_FLIGHT: ClassVar = (StartTimer,)
    TIMER_ANSWER: ClassVar = RetryDue

    type: Literal["retry_waiting"] = "retry_waiting"
    timer: Timer
    attempt: int

    def in_flight(self) -> InFlight:
        """The timer. `Pure.`"""
        return _timer(self.timer)


class ToolExecuting(InRound):
    """Tools of one response are running."""

    IN_FLIGHT: ClassVar = (ExecuteTool, ReconcileTool)

    type: Literal["tool_executing"] = "tool_executing"


class AwaitingPerson(InTurn):
    """A person must do something about `call`, asked for at `since`; the calls behind it keep their place."""

    IN_FLIGHT: ClassVar = (StartTimer,)

    call: RoundCall
    round: Round
    since: Instant
    deadline: Timer | None = None

    def in_flight(self) -> InFlight:
        """The deadline, if there is one. `Pure.`"""
        return _timer(self.deadline)

    @property
    def works(self) -> bool:
        """A deadline is no work: the wait for a person outlives the process. `Pure.`"""
        return False


class AwaitingUserResponse(AwaitingPerson):
    """A person was asked."""

    type: Literal["awaiting_user_response"] = "awaiting_user_response"
    questions: QuestionSet


class AwaitingApproval(AwaitingPerson):
    """A person must allow a call before it runs."""

    type: Literal["awaiting_approval"] = "awaiting_approval"


class AwaitingSubAgents(InTurn):
    """Sub-agents work; what they come to is the result of `call`, which started them."""

    IN_FLIGHT: ClassVar = (SpawnSubAgent, StartTimer)

    type: Literal["awaiting_sub_agents"] = "awaiting_sub_agents"
    call: RoundCall
    round: Round
    deadline: Timer | None = None

    def in_flight(self) -> InFlight:
        """The sub-agents that still work, and the deadline, if there is one. `Pure.`"""
        return {**_at_work(self.round), **_timer(self.deadline)}


class Verifying(InTurn):
    """The claim that the work is complete is checked."""

    IN_FLIGHT: ClassVar = (VerifyWork,)

    type: Literal["verifying"] = "verifying"
    effect_id: int

    def in_flight(self) -> InFlight:
        """The check. `Pure.`"""
        return {self.effect_id: VerifyWork}


class Summarizing(InTurn):
    """The turn has come to its end, and a summary of it is written for display."""

    IN_FLIGHT: ClassVar = (SummarizeTurn,)

    type: Literal["summarizing"] = "summarizing"
    effect_id: int
    ending: TurnEnded

    def in_flight(self) -> InFlight:
        """The summary. `Pure.`"""
        return {self.effect_id: SummarizeTurn}


class Failed(State):
    """The turn failed; a message or a retry goes on. `relay` are the messages that it was to pass on to the user,
    `tried_again` is the first of the turns that it had tried again itself."""

    type: Literal["failed"] = "failed"
    kind: FailureKind
    sentence: str
    turn: int
    tried_again: int | None = None
    relay: tuple[Heard, ...] = ()
    inbox: tuple[Waiting, ...] = ()


class Compacting(Busy):
    """The history up to the step `up_to` is condensed, for a request of the turn, or, without a turn, at rest: a failed
    turn that is to be tried again waits in `failed` meanwhile."""

    IN_FLIGHT: ClassVar = (CompactHistory,)

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
        """The condensing. `Pure.`"""
        return {self.effect_id: CompactHistory}


class Cancelling(InRound):
    """Tools and sub-agents that were at work must acknowledge that they stopped, or the deadline passes."""

    IN_FLIGHT: ClassVar = (ExecuteTool, ReconcileTool, SpawnSubAgent, StartTimer)

    type: Literal["cancelling"] = "cancelling"
    deadline: Timer
    closing: bool = False

    def in_flight(self) -> InFlight:
        """Whatever has not stopped, and the deadline. `Pure.`"""
        return {**_at_work(self.round), **_timer(self.deadline)}


class InDoubt(InRound):
    """The process died while tools ran that must not run twice, and nobody knows whether they did what they do. A
    person has to say; other tools of the round may still be running."""

    IN_FLIGHT: ClassVar = (ExecuteTool, ReconcileTool)

    type: Literal["in_doubt"] = "in_doubt"
    since: Instant

    @property
    def call(self) -> RoundCall:
        """The call that has been in doubt for longest. `Pure.`"""
        return self.round.named(self.round.doubtful[0])


class Closed(State):
    """The end: nothing leads out of here."""

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
"""Every state, for reading one back by its `type`."""

STATES = members(AnyState, State)


def pending(state: State) -> frozenset[int]:
    """The ids of the effects that this state waits for. `Pure.`"""
    return frozenset(state.in_flight())
