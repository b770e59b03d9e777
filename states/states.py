"""Where a conversation can rest.

A state says why nothing happens right now: because nothing is asked (`Idle`), because a model, a tool or a timer has
not answered yet, or because a person has not. It carries all that the next step needs, and no text that an event
already holds.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .events import (
    CHILD_ANSWERS,
    COMPACTION_ANSWERS,
    DEADLINE_TIMER,
    MEMORY_ANSWERS,
    MODEL_ANSWERS,
    PROFILE_ANSWERS,
    RECONCILE_ANSWERS,
    RETRY_TIMER,
    SUMMARY_ANSWERS,
    TOOL_ANSWERS,
    VERDICTS,
    Answer,
    Report,
    Resumed,
    ToolInterrupted,
)
from .values.failures import FailureKind
from .values.inbox import Waiting
from .values.messages import Heard
from .values.questions import QuestionSet
from .values.round import Awaited, Round, RoundCall
from .values.turn import TurnEnded, TurnRecord
from .values.value import Instant, Part, TaggedPart


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

    AWAITS: ClassVar[tuple[type[Answer], ...]] = ()
    """All answers that a state of this type can wait for."""

    HEEDS: ClassVar[tuple[type[Report], ...]] = ()
    """The reports that can concern a state of this type."""

    book: Book = Book()

    def awaited(self) -> Awaited:
        """The effects in flight. `Pure.`"""
        return {}

    def concerned_by(self, report: Report) -> bool:
        """Whether this report is about something that goes on here. `Pure.`"""
        return False

    @property
    def works(self) -> bool:
        """Whether the world, and not a person, moves it next: what a process that dies takes with it. `Pure.`"""
        return bool(self.awaited())


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

    def awaited(self) -> Awaited:
        """The tools that run and the sub-agents that work. `Pure.`"""
        return self.round.awaited

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

    AWAITS: ClassVar = PROFILE_ANSWERS

    type: Literal["profile_selecting"] = "profile_selecting"
    effect_id: int

    def awaited(self) -> Awaited:
        """The choice. `Pure.`"""
        return {self.effect_id: PROFILE_ANSWERS}


class MemoryRecalling(InTurn):
    """What belongs to the turn is looked for in older conversations."""

    AWAITS: ClassVar = MEMORY_ANSWERS

    type: Literal["memory_recalling"] = "memory_recalling"
    effect_id: int

    def awaited(self) -> Awaited:
        """The search. `Pure.`"""
        return {self.effect_id: MEMORY_ANSWERS}


class LlmRequesting(InTurn):
    """One model request is in flight, the `attempt`-th to this model."""

    AWAITS: ClassVar = MODEL_ANSWERS

    type: Literal["llm_requesting"] = "llm_requesting"
    effect_id: int
    attempt: int = 1

    def awaited(self) -> Awaited:
        """The model request. `Pure.`"""
        return {self.effect_id: MODEL_ANSWERS}


class RetryWaiting(InTurn):
    """A failed request backs off; the `attempt`-th follows when the timer is due."""

    AWAITS: ClassVar = RETRY_TIMER

    type: Literal["retry_waiting"] = "retry_waiting"
    timer: Timer
    attempt: int

    def awaited(self) -> Awaited:
        """The timer. `Pure.`"""
        return {self.timer.effect_id: RETRY_TIMER}


class ToolExecuting(InRound):
    """Tools of one response are running."""

    AWAITS: ClassVar = tuple(dict.fromkeys((*TOOL_ANSWERS, *RECONCILE_ANSWERS)))

    type: Literal["tool_executing"] = "tool_executing"


class AwaitingPerson(InTurn):
    """A person must do something about `call`, asked for at `since`; the calls behind it keep their place."""

    AWAITS: ClassVar = DEADLINE_TIMER

    call: RoundCall
    round: Round
    since: Instant
    deadline: Timer | None = None

    def awaited(self) -> Awaited:
        """The deadline, if there is one. `Pure.`"""
        return {} if self.deadline is None else {self.deadline.effect_id: DEADLINE_TIMER}

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

    AWAITS: ClassVar = (*CHILD_ANSWERS, *DEADLINE_TIMER)

    type: Literal["awaiting_sub_agents"] = "awaiting_sub_agents"
    call: RoundCall
    round: Round
    deadline: Timer | None = None

    def awaited(self) -> Awaited:
        """The sub-agents that still work, and the deadline, if there is one. `Pure.`"""
        timer = {} if self.deadline is None else {self.deadline.effect_id: DEADLINE_TIMER}
        return {**self.round.awaited, **timer}


class Verifying(InTurn):
    """The claim that the work is complete is checked."""

    AWAITS: ClassVar = VERDICTS

    type: Literal["verifying"] = "verifying"
    effect_id: int

    def awaited(self) -> Awaited:
        """The check. `Pure.`"""
        return {self.effect_id: VERDICTS}


class Summarizing(InTurn):
    """The turn has come to its end, and a summary of it is written for display."""

    AWAITS: ClassVar = SUMMARY_ANSWERS

    type: Literal["summarizing"] = "summarizing"
    effect_id: int
    ending: TurnEnded

    def awaited(self) -> Awaited:
        """The summary. `Pure.`"""
        return {self.effect_id: SUMMARY_ANSWERS}


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

    AWAITS: ClassVar = COMPACTION_ANSWERS

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

    def awaited(self) -> Awaited:
        """The condensing. `Pure.`"""
        return {self.effect_id: COMPACTION_ANSWERS}


class Cancelling(InRound):
    """Tools and sub-agents that were at work must acknowledge that they stopped, or the deadline passes."""

    AWAITS: ClassVar = tuple(dict.fromkeys((*TOOL_ANSWERS, *RECONCILE_ANSWERS, *CHILD_ANSWERS, *DEADLINE_TIMER)))

    type: Literal["cancelling"] = "cancelling"
    deadline: Timer
    closing: bool = False

    def awaited(self) -> Awaited:
        """Whatever has not stopped, and the deadline. `Pure.`"""
        return {**self.round.awaited, self.deadline.effect_id: DEADLINE_TIMER}


class InDoubt(InRound):
    """The process died while tools ran that must not run twice, and nobody knows whether they did what they do. A
    person has to say; other tools of the round may still be running."""

    AWAITS: ClassVar = tuple(dict.fromkeys((*TOOL_ANSWERS, *RECONCILE_ANSWERS)))

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

STATES: tuple[type[State], ...] = (
    Idle,
    ProfileSelecting,
    MemoryRecalling,
    LlmRequesting,
    RetryWaiting,
    ToolExecuting,
    AwaitingUserResponse,
    AwaitingApproval,
    AwaitingSubAgents,
    Verifying,
    Summarizing,
    Compacting,
    Cancelling,
    InDoubt,
    Failed,
    Closed,
)


def pending(state: State) -> frozenset[int]:
    """The ids of the effects that this state waits for. `Pure.`"""
    return frozenset(state.awaited())
