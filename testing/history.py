"""What an onlooker knows of a conversation who sees only what comes in and what goes out.

A `History` is told every event and what became of it, and keeps its own books: which effects are in flight, what was
said, what the turn has used up. It asks no state for any of this, so the laws can hold the states to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from ..states.context import Context
from ..states.effects import Abort, Effect, ExecuteTool, PersistMessage, RequestLlm, StartTimer
from ..states.errors import Refused
from ..states.events import (
    Answer,
    DeadlineReached,
    EffectFailed,
    Event,
    LlmFailed,
    LlmResponse,
    Opened,
    RetryDue,
    ToolApproval,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
)
from ..states.log import LogEntry
from ..states.machine import begin, transition
from ..states.messages import Heard, Message, Usage
from ..states.states import Idle, State
from ..states.step import Step
from ..states.transcript import Transcript

NOTHING = Idle()
"""Where a conversation rests that has not begun: at step 0, which no conversation reaches again."""


@dataclass(frozen=True, repr=False)
class Observation:
    """One event that met a state, and what became of it. Its repr is short: a failing test shows a trace."""

    before: State
    event: Event
    context: Context
    outcome: Step | Refused

    @property
    def step(self) -> Step | None:
        """The step that was taken: None if the event was refused or ignored."""
        return None if isinstance(self.outcome, Refused) or self.outcome.ignored else self.outcome

    @property
    def after(self) -> State:
        """The state in which the conversation rests now."""
        return self.before if isinstance(self.outcome, Refused) else self.outcome.state

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What was wanted."""
        return () if isinstance(self.outcome, Refused) else self.outcome.effects

    def __repr__(self) -> str:
        became = "refused" if isinstance(self.outcome, Refused) else "ignored" if self.step is None else self.after.type
        return f"<{self.before.type}, {self.event.to_json()} -> {became}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # Hypothesis would print all fields of a dataclass.
        printer.text(repr(self))


Trace = tuple[Observation, ...]
"""A conversation from its first event on, with all that was refused or ignored."""


def observe(before: State, event: Event, context: Context) -> Observation:
    """Let the event happen: by `transition`, or where there is `NOTHING` yet by `begin`. `Pure.`"""
    try:
        if before == NOTHING and isinstance(event, Opened):
            return Observation(before, event, context, begin(event))
        return Observation(before, event, context, transition(before, event, context))
    except Refused as refused:
        return Observation(before, event, context, refused)


@dataclass
class Spent:
    """What a turn has used up since a person last did something."""

    since: datetime
    requests: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)


class History:
    """A conversation as its onlooker knows it. `add` each observation in turn, then look."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.log: list[LogEntry] = []
        self.in_flight: dict[int, Effect] = {}
        """Awaited effects that were started and have not ended, by id."""
        self.stopping: set[int] = set()
        """Tools in flight that were told to stop."""
        self.started: set[int] = set()
        """The ids of all effects so far."""
        self.answered: Effect | None = None
        """The effect that the newest event answered."""
        self.faults: list[str] = []
        """What was asked of the world and makes no sense."""
        self.spent = Spent(since=datetime.min.replace(tzinfo=UTC))
        """What the turn has used up."""
        self.costs: dict[int, Usage] = {}
        """What the requests of each turn have cost."""
        self.messages: dict[int, str] = {}
        """The ids of all messages of people that were taken, by the step that brought them."""
        self.entered: Counter[int] = Counter()
        """How often each of them entered the transcript, by that step."""
        self.withdrawn: Counter[str] = Counter()
        """How often each of them was withdrawn, by its id."""
        self.allowed: set[str] = set()
        """The calls that a person allowed."""
        self._said = Transcript()
        self._began: dict[int, datetime] = {}
        self._cancel_deadline: int | None = None

    @property
    def newest(self) -> Observation:
        """What happened last."""
        return self.observations[-1]

    @property
    def state(self) -> State:
        """Where the conversation rests."""
        return self.newest.after if self.observations else NOTHING

    @property
    def context(self) -> Context:
        """The context in which the next event is taken."""
        if not self.observations:
            return Context()
        newest = self.newest
        return newest.context if newest.step is None else newest.context.after(newest.event)

    @property
    def transcript(self) -> tuple[Message, ...]:
        """What was said."""
        return tuple(self._said.messages)

    @property
    def sends_again(self) -> bool:
        """Whether a model request of the newest step is one that failed before."""
        failed = isinstance(self.newest.event, LlmFailed | EffectFailed) and isinstance(self.answered, RequestLlm)
        return failed or isinstance(self.newest.event, RetryDue)

    def take(self, event: Event) -> Observation:
        """Let the next event happen, and add what became of it."""
        observation = observe(self.state, event, self.context)
        self.add(observation)
        return observation

    def add(self, observation: Observation) -> None:
        """Take note of what happened next."""
        self.observations.append(observation)
        self.answered = None
        step = observation.step
        if step is None:
            return
        entry = LogEntry.of(observation.event, step)
        self.log.append(entry)
        self._said.add(entry)
        self._hear(observation.event, step)
        self._count(observation.event, observation.before.book.turn)
        if step.state.book.turn > observation.before.book.turn:
            self.spent = Spent(since=observation.event.at)
        if isinstance(observation.event, Answer):
            self._end(observation.event)
        for effect in step.effects:
            self._start(effect)

    def _hear(self, event: Event, step: Step) -> None:
        if isinstance(event, UserMessage):
            self.messages[step.state.book.seq] = event.event_id
        elif isinstance(event, ToolApproval) and event.allowed:
            self.allowed.add(event.call_id)
        self.withdrawn.update(step.withdrawn)

    def _end(self, answer: Answer) -> None:
        self.answered = self.in_flight.pop(answer.effect_id, None)
        self.stopping.discard(answer.effect_id)
        if isinstance(answer, DeadlineReached) and answer.effect_id == self._cancel_deadline:
            for effect_id in self.stopping:  # these had their time to stop; nobody waits for them any longer
                del self.in_flight[effect_id]
            self.stopping.clear()

    def _start(self, effect: Effect) -> None:
        match effect:
            case Abort(effect_id=effect_id):
                self._stop(effect_id)
            case RequestLlm():
                self._fly(effect.effect_id, effect)
                self.spent.requests += not self.sends_again
            case ExecuteTool():
                self._fly(effect.effect_id, effect)
                self.spent.tool_calls += 1
            case StartTimer():
                self._fly(effect.effect_id, effect)
                self._cancel_deadline = effect.effect_id if self.stopping else None
            case PersistMessage(said=Heard(seq=seq)) if seq in self.messages:
                self.entered[seq] += 1
            case _:
                pass

    def _fly(self, effect_id: int, effect: Effect) -> None:
        if effect_id in self.started:
            self.faults.append(f"the id {effect_id} was given to two effects")
        self.started.add(effect_id)
        self._began[effect_id] = self.newest.event.at
        self.in_flight[effect_id] = effect

    def _stop(self, effect_id: int) -> None:
        effect = self.in_flight.get(effect_id)
        if effect is None or effect_id in self.stopping:
            self.faults.append(f"the effect {effect_id} is told to stop, and is not in flight")
        elif isinstance(effect, ExecuteTool):
            self.stopping.add(effect_id)
        else:
            del self.in_flight[effect_id]

    def _count(self, event: Event, turn: int) -> None:
        match event:
            case UserQuestionResponse() | ToolApproval() | UserCancel():
                self.spent = Spent(since=event.at)
            case LlmResponse():
                self.costs[turn] = self.costs.get(turn, Usage()) + event.usage
                self.spent.usage += event.usage
            case DeadlineReached() if not self.stopping:
                waited = event.at - self._began.get(event.effect_id, event.at)
                self.spent.since = _later(self.spent.since, waited)
            case _:
                pass


def _later(at: datetime, by: timedelta) -> datetime:
    try:
        return at + max(by, timedelta(0))
    except OverflowError:
        return datetime.max.replace(tzinfo=at.tzinfo)


def histories(trace: Iterable[Observation]) -> Iterator[History]:
    """The history of a trace after each of its events: one object, which knows more each time."""
    history = History()
    for observation in trace:
        history.add(observation)
        yield history
