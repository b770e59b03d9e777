"""Where a conversation can rest.

A state says why nothing happens right now: because nothing is asked (`Idle`), because a model, a tool or a timer has
not answered yet, or because a person has not. It carries all that the next step needs, and no text that an event
already holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from .events import DEADLINE_TIMER, MODEL_ANSWERS, RETRY_TIMER, TOOL_ANSWERS, Answer
from .failures import FailureKind
from .inbox import Waiting
from .questions import QuestionSet
from .round import Round, RoundCall
from .turn import TurnRecord
from .value import Instant, Tagged, Value

Awaited = Mapping[int, tuple[type[Answer], ...]]
"""The effects that a state waits for, by id, each with the answers that it can have."""


class Book(Value):
    """What every state remembers of its conversation: steps and turns so far, the id of the next effect, and the
    tokens of the last model request."""

    seq: int = 0
    turn: int = 0
    next_effect: int = 1
    window_used: int = 0


class Timer(Value):
    """A timer that was started: the effect that runs it, and when it is due."""

    effect_id: int
    due: Instant


class State(Tagged):
    """Where a conversation rests."""

    AWAITS: ClassVar[tuple[type[Answer], ...]] = ()
    """All answers that a state of this type can wait for."""

    book: Book = Book()

    def awaited(self) -> Awaited:
        """The effects in flight. `Pure.`"""
        return {}

    @property
    def works(self) -> bool:
        """Whether the world, and not a person, moves it next: what a process that dies takes with it. `Pure.`"""
        return bool(self.awaited())


class Busy(State):
    """A state within a turn; `inbox` holds what was said meanwhile."""

    turn: TurnRecord
    inbox: tuple[Waiting, ...] = ()


class Idle(State):
    """Nothing is being answered."""

    type: Literal["idle"] = "idle"


class LlmRequesting(Busy):
    """One model request is in flight, the `attempt`-th to this model."""

    AWAITS: ClassVar = MODEL_ANSWERS

    type: Literal["llm_requesting"] = "llm_requesting"
    effect_id: int
    attempt: int = 1
    tools_off: bool = False
    """Whether this is the last request of the turn's budget, sent without tools."""

    def awaited(self) -> Awaited:
        """The model request. `Pure.`"""
        return {self.effect_id: MODEL_ANSWERS}


class RetryWaiting(Busy):
    """A failed request backs off; the `attempt`-th follows when the timer is due."""

    AWAITS: ClassVar = RETRY_TIMER

    type: Literal["retry_waiting"] = "retry_waiting"
    timer: Timer
    attempt: int
    tools_off: bool = False

    def awaited(self) -> Awaited:
        """The timer. `Pure.`"""
        return {self.timer.effect_id: RETRY_TIMER}


class ToolExecuting(Busy):
    """Tools of one response are running."""

    AWAITS: ClassVar = TOOL_ANSWERS

    type: Literal["tool_executing"] = "tool_executing"
    round: Round

    def awaited(self) -> Awaited:
        """The tools that run. `Pure.`"""
        return {running.effect_id: TOOL_ANSWERS for running in self.round.running}


class AwaitingPerson(Busy):
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


class Cancelling(Busy):
    """Tools that were running must acknowledge that they stopped, or the deadline passes."""

    AWAITS: ClassVar = (*TOOL_ANSWERS, *DEADLINE_TIMER)

    type: Literal["cancelling"] = "cancelling"
    round: Round
    deadline: Timer
    closing: bool = False

    def awaited(self) -> Awaited:
        """The tools that have not stopped, and the deadline. `Pure.`"""
        tools = {running.effect_id: TOOL_ANSWERS for running in self.round.running}
        return {**tools, self.deadline.effect_id: DEADLINE_TIMER}


class Failed(State):
    """The turn failed; a message or a retry goes on."""

    type: Literal["failed"] = "failed"
    kind: FailureKind
    sentence: str
    turn: int
    inbox: tuple[Waiting, ...] = ()


class Closed(State):
    """The end: nothing leads out of here."""

    type: Literal["closed"] = "closed"


AnyState = Annotated[
    Idle
    | LlmRequesting
    | RetryWaiting
    | ToolExecuting
    | AwaitingUserResponse
    | AwaitingApproval
    | Cancelling
    | Failed
    | Closed,
    Field(discriminator="type"),
]
"""Every state, for reading one back by its `type`."""

STATES: tuple[type[State], ...] = (
    Idle,
    LlmRequesting,
    RetryWaiting,
    ToolExecuting,
    AwaitingUserResponse,
    AwaitingApproval,
    Cancelling,
    Failed,
    Closed,
)


def pending(state: State) -> frozenset[int]:
    """The ids of the effects that this state waits for. `Pure.`"""
    return frozenset(state.awaited())
