"""What a turn has used up: since a person last acted, which its limits count, and in all, which is its cost.

The limits of a sub-agent are its share of its parent's, so they count from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ...states.context import Context
from ...states.effects import (
    AnswerSubAgent,
    CancelSubAgent,
    Effect,
    ExecuteTool,
    PersistMessage,
    RequestLlm,
    SpawnSubAgent,
    StartTimer,
)
from ...states.events import (
    Answer,
    DeadlineReached,
    DoubtResolved,
    EffectFailed,
    Event,
    LlmFailed,
    Resumed,
    RetryDue,
    SubAgentAsked,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ...states.step import Step
from ...states.values.messages import Heard, Usage
from ...states.values.value import AGENTS, WAITS_AS_AGREED
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
        self._waits_since: datetime | None = None
        """Since when a person has been waited for, who must act before the turn goes on."""
        self.children = 0
        """How many sub-agents the turn has started."""
        self._shares: dict[int, Usage] = {}
        """What each sub-agent may use up."""
        self._asking: set[int] = set()
        """The sub-agents whose questions wait for a person."""
        self._asked_since = datetime.min.replace(tzinfo=UTC)
        """Since when there has been one."""

    def add(self, event: Event, step: Step, effects: EffectLedger, context: Context) -> None:
        """Add a step, after it was added to `effects`."""
        if isinstance(event, UserMessage):
            self._user_messages.add(step.state.book.seq)
        self._pay(event)
        self._pay_for_lost(event, step)
        self._note_questions(event, step, effects)
        if context.has_one_task:
            self._leave_out_wait(event)
        else:
            self._hear(event)
        if isinstance(event, DeadlineReached) and event.effect_id in self._waits:
            self._leave_out(effects.began[event.effect_id], event.at)
        self._begin(event, step)
        if isinstance(event, Resumed) and context.revision >= WAITS_AS_AGREED:
            self.spent.since = min(self.spent.since, event.at)
        failed = isinstance(event, LlmFailed | EffectFailed) and isinstance(effects.answered, RequestLlm)
        self.sends_again = step.ended is None and (failed or isinstance(event, RetryDue | Resumed))
        for effect in step.effects:
            self._start(effect, event, step, effects, context)
        self._note_wait(event, effects)

    def _pay(self, event: Event) -> None:
        usage = getattr(event, "usage", None)
        if usage is not None and self.turn is not None:
            self.costs[self.turn] = self.costs.get(self.turn, Usage()) + usage
            self.spent.usage += usage

    def _pay_for_lost(self, event: Event, step: Step) -> None:
        """Sub-agents that are given up at their deadline count with their shares."""
        if isinstance(event, DeadlineReached):
            stopped = [effect.effect_id for effect in step.effects if isinstance(effect, CancelSubAgent)]
            self.spent.usage = sum((self._shares[effect_id] for effect_id in stopped), self.spent.usage)

    def _hear(self, event: Event) -> None:
        if isinstance(event, HUMAN):
            self.spent = Spent(since=event.at)
            self._asked_since = event.at

    def _leave_out(self, since: datetime, until: datetime) -> None:
        """A wait for a person does not count."""
        self.spent.since = _later(self.spent.since, until - since)

    def _leave_out_wait(self, event: Event) -> None:
        waited = isinstance(event, UserQuestionResponse | ToolApproval | UserCancel)
        if waited and self._waits_since is not None:
            self._leave_out(self._waits_since, event.at)

    def _note_wait(self, event: Event, effects: EffectLedger) -> None:
        """While only a person can go on, nothing is in flight but the timer that limits the wait."""
        if self.turn is None or not effects.in_flight.keys() <= self._waits:
            self._waits_since = None
        elif self._waits_since is None or isinstance(event, (*HUMAN, DeadlineReached)):
            self._waits_since = event.at

    def _note_questions(self, event: Event, step: Step, effects: EffectLedger) -> None:
        """Sub-agents that ask, are answered, no longer ask or have ended. A wait for the answers does not count."""
        before = set(self._asking)
        if isinstance(event, SubAgentAsked):
            self._asking.discard(event.effect_id)
            if event.questions is not None:
                self._asking.add(event.effect_id)
        elif isinstance(effects.answered, SpawnSubAgent) and isinstance(event, Answer):
            self._asking.discard(event.effect_id)
        answered = {effect.child for effect in step.effects if isinstance(effect, AnswerSubAgent)}
        self._asking -= answered
        if not any(isinstance(effect, SpawnSubAgent) for effect in effects.in_flight.values()):
            self._asking.clear()
        if self._asking and not before:
            self._asked_since = event.at
        elif before and not self._asking:
            self._leave_out(self._asked_since, event.at)

    def _begin(self, event: Event, step: Step) -> None:
        """A turn may have ended, and in the same step the next one may have begun."""
        if step.ended is not None:
            self.turn, self.at_end = None, self.spent
        if step.state.book.turn > self._turns:
            self._turns = self.turn = step.state.book.turn
            self.spent, self.children = Spent(since=event.at), 0

    def _start(self, effect: Effect, event: Event, step: Step, effects: EffectLedger, context: Context) -> None:
        match effect:
            case PersistMessage(said=Heard(seq=seq)) if seq in self._user_messages and not context.has_one_task:
                self.spent = Spent(since=event.at)
            case SpawnSubAgent(effect_id=effect_id, limits=limits) if effect_id not in self._shares:
                self.children += 1
                shares = context.revision >= AGENTS
                self._shares[effect_id] = Usage(input_tokens=limits.tokens or 0, cost=limits.cost if shares else None)
            case RequestLlm():
                self.spent.requests += not self.sends_again
                if context.revision >= WAITS_AS_AGREED and not self.sends_again:
                    self.spent.since = min(self.spent.since, event.at)
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
