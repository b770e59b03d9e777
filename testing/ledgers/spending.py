"""What a turn has used up: since a person last acted, which its limits count, and in all, which is its cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ...states.effects import Effect, ExecuteTool, PersistMessage, RequestLlm, SpawnSubAgent, StartTimer
from ...states.events import (
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmFailed,
    Resumed,
    RetryDue,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ...states.step import Step
from ...states.values.messages import Heard, Usage
from .effects import EffectLedger

HUMAN = (UserQuestionResponse, ToolApproval, DoubtResolved, UserCancel)
"""What a person does within a turn. A cancel counts where the turn goes on: where it declines a question."""


@dataclass
class Spent:
    """What a turn has used up since a person last acted."""

    since: datetime
    requests: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)


class SpendingLedger:
    """What the turn has used up, and what each turn has cost. `sends_again` says that a model request of the newest
    step was sent before."""

    def __init__(self) -> None:
        self.spent = Spent(since=datetime.min.replace(tzinfo=UTC))
        self.at_end = self.spent
        """What the turn had used up that ended last."""
        self.costs: dict[int, Usage] = {}
        self.turn: int | None = None
        """The number of the turn under way."""
        self.sends_again = False
        self._turns = 0
        self._user_messages: set[int] = set()
        """The steps that took messages of people."""
        self._counted: set[int] = set()
        """The tools that were started; one that runs again after a crash counts once."""
        self._waits: set[int] = set()
        """The timers that limit a wait for a person."""

    def add(self, event: Event, step: Step, effects: EffectLedger) -> None:
        """Add a step, after it was added to `effects`."""
        if isinstance(event, UserMessage):
            self._user_messages.add(step.state.book.seq)
        self._pay(event)
        self._hear(event, effects)
        self._begin(event, step)
        failed = isinstance(event, LlmFailed | EffectFailed) and isinstance(effects.answered, RequestLlm)
        self.sends_again = step.ended is None and (failed or isinstance(event, RetryDue | Resumed))
        for effect in step.effects:
            self._start(effect, event, step, effects)

    def _pay(self, event: Event) -> None:
        usage = getattr(event, "usage", None)
        if usage is not None and self.turn is not None:
            self.costs[self.turn] = self.costs.get(self.turn, Usage()) + usage
            self.spent.usage += usage

    def _hear(self, event: Event, effects: EffectLedger) -> None:
        if isinstance(event, HUMAN):
            self.spent = Spent(since=event.at)
        elif isinstance(event, DeadlineReached) and event.effect_id in self._waits:
            self.spent.since = _later(self.spent.since, event.at - effects.began[event.effect_id])

    def _begin(self, event: Event, step: Step) -> None:
        """A turn may have ended, and in the same step the next one may have begun."""
        if step.ended is not None:
            self.turn, self.at_end = None, self.spent
        if step.state.book.turn > self._turns:
            self._turns = self.turn = step.state.book.turn
            self.spent = Spent(since=event.at)

    def _start(self, effect: Effect, event: Event, step: Step, effects: EffectLedger) -> None:
        match effect:
            case PersistMessage(said=Heard(seq=seq)) if seq in self._user_messages:
                self.spent = Spent(since=event.at)
            case RequestLlm():
                self.spent.requests += not self.sends_again
            case ExecuteTool(first_id=first_id) if first_id not in self._counted:
                self._counted.add(first_id)
                self.spent.tool_calls += 1
            case StartTimer(effect_id=effect_id, wakes="deadline_reached"):
                spawns = any(isinstance(other, SpawnSubAgent) for other in step.effects)
                if not (spawns or effects.stopping or isinstance(event, Resumed)):
                    self._waits.add(effect_id)
            case _:
                pass


def _later(at: datetime, by: timedelta) -> datetime:
    try:
        return at + max(by, timedelta(0))
    except OverflowError:
        return datetime.max.replace(tzinfo=at.tzinfo)
