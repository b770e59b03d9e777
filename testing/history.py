"""What can be known of a conversation from its events and effects alone, and what a law of conversations is.

A `History` is given every event and its outcome, and keeps ledgers: which effects are in flight, what was said, what
the turn has used up. It takes none of this from a state, so the laws can compare the states with it. A law is an
invariant of conversations, as a function that raises where it does not hold. Some invariants hold however a
conversation was disturbed, by processes that are killed or by simulations; the functions for these yield a sentence for
each place where they do not hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..states.context import Context
from ..states.effects import Effect, ExecuteTool
from ..states.errors import Refused
from ..states.events import DoubtResolved, Event, Opened, ToolApproval
from ..states.machine import begin, transition
from ..states.states import AnyState, Closed, Failed, Idle, State, pending
from ..states.step import LogEntry, Step
from ..states.transcript import Transcript
from ..states.values.messages import Message
from .ledgers import (
    BranchLedger,
    EffectLedger,
    MessageLedger,
    OutputLedger,
    RefusalLedger,
    SpeechLedger,
    SpendingLedger,
    SubAgentLedger,
)

__all__ = ["NOTHING", "History", "Observation", "Trace", "histories", "observe"]

NOTHING = Idle()
"""The state of a conversation that has not begun: step 0, to which no conversation returns."""


class History:
    """A conversation, seen from outside. `add` each observation in turn."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.log: list[LogEntry] = []
        self.effects: EffectLedger = EffectLedger()
        self.spending: SpendingLedger = SpendingLedger()
        self.messages: MessageLedger = MessageLedger()
        self.branches: BranchLedger = BranchLedger()
        self.refusals: RefusalLedger = RefusalLedger()
        self.outputs: OutputLedger = OutputLedger()
        self.speech: SpeechLedger = SpeechLedger()
        self.sub_agents: SubAgentLedger = SubAgentLedger()
        self.allowed: set[str] = set()
        """The calls that a person allowed."""
        self.context: Context = Context()
        """The context in which the next event is taken."""
        self.said: Transcript = Transcript()
        """What was said, as requests to models are built from it. It grows with the conversation."""

    @property
    def newest(self) -> Observation:
        """The newest observation."""
        return self.observations[-1]

    @property
    def state(self) -> AnyState:
        """The state of the conversation."""
        return self.newest.after if self.observations else NOTHING

    @property
    def in_flight(self) -> Mapping[int, Effect]:
        """The awaited effects that were started and have not ended, by id."""
        return self.effects.in_flight

    @property
    def withdrawn(self) -> Counter[str]:
        """How often each message was withdrawn, by its id."""
        return self.messages.withdrawn

    @property
    def transcript(self) -> tuple[Message, ...]:
        """What was said."""
        return tuple(self.said.messages)

    @property
    def current(self) -> tuple[Message, ...]:
        """What was said and is not condensed; model requests are built from it."""
        return tuple(self.said.current)

    def take(self, event: Event) -> Observation:
        """Put the next event to the machine, and add the observation."""
        observation = observe(self.state, event, self.context)
        self.add(observation)
        return observation

    def add(self, observation: Observation) -> None:
        """Add the next observation."""
        self.observations.append(observation)
        self.context = observation.context
        step = observation.step
        self.effects.answered = None
        if step is not None:
            self.context = observation.context.after(observation.event)
            self._write(observation.event, step)

    def _write(self, event: Event, step: Step) -> None:
        entry = LogEntry.of(event, step)
        self.log.append(entry)
        self.branches.add(step, self.said.add(entry))
        self.effects.add(event, step)
        self.messages.add(event, step)
        self.refusals.add(event, step)
        self.outputs.add(event, step, self.effects)
        self.spending.add(event, step, self.effects, self.context)
        self.speech.add(event, step, self.effects, self.messages, self.context)
        self.sub_agents.add(event, step, self.effects)
        if isinstance(event, ToolApproval) and event.allowed:
            self.allowed.add(event.call_id)


def histories(trace: Iterable[Observation]) -> Iterator[History]:
    """The history of a trace after each of its events: one object, which grows."""
    history = History()
    for observation in trace:
        history.add(observation)
        yield history


@dataclass(frozen=True, repr=False)
class Observation:
    """An event, the state and context that it met, and the outcome. The repr is short, since a failing test shows a
    whole trace."""

    before: AnyState
    event: Event
    context: Context
    outcome: Step | Refused

    @property
    def step(self) -> Step | None:
        """The step that was taken: None if the event was refused or ignored."""
        return None if isinstance(self.outcome, Refused) or self.outcome.ignored else self.outcome

    @property
    def after(self) -> AnyState:
        """The state after the event."""
        return self.before if isinstance(self.outcome, Refused) else self.outcome.state

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects that the step asks for."""
        return () if isinstance(self.outcome, Refused) else self.outcome.effects

    def __repr__(self) -> str:
        became = "refused" if isinstance(self.outcome, Refused) else "ignored" if self.step is None else self.after.type
        return f"<{self.before.type}, {self.event.to_json()} -> {became}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # Hypothesis would print all fields of a dataclass.
        printer.text(repr(self))


Trace = tuple[Observation, ...]
"""A conversation from its first event on, with everything that was refused or ignored."""


def observe(before: AnyState, event: Event, context: Context) -> Observation:
    """Put the event to the machine: to `transition`, or to `begin` where there is `NOTHING` yet. `Pure.`"""
    try:
        if before == NOTHING and isinstance(event, Opened):
            return Observation(before, event, context, begin(event))
        return Observation(before, event, context, transition(before, event, context))
    except Refused as refused:
        return Observation(before, event, context, refused)


Law: TypeAlias = Callable[[History], None]
"""Checks the newest step of a conversation. Raises `LawBroken`, or any other exception, if the law does not hold."""


class LawBroken(AssertionError):
    """A conversation does not keep a law."""


def require(holds: bool, sentence: str, history: History) -> None:
    """Raise `LawBroken` unless `holds`: with the sentence, and where in the conversation it is."""
    if not holds:
        newest = history.newest
        raise LawBroken(f"{newest.event.type} in {newest.before.type}, step {len(history.observations)}: {sentence}")


def runs_beyond_contract(entries: Sequence[LogEntry], times_begun: Callable[[int], int]) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so. `times_begun`
    returns how often an effect was begun, as seen from outside."""
    verdicts = (entry.event for entry in entries if isinstance(entry.event, DoubtResolved))
    again = Counter(event.call_id for event in verdicts if event.verdict == "again")
    runs = {one.effect_id: one.call for entry in entries for one in entry.effects if isinstance(one, ExecuteTool)}
    for call in dict.fromkeys(runs.values()):
        times = sum(times_begun(effect_id) for effect_id, run in runs.items() if run == call)
        if call.crash == "at_most_once" and times > 1 + again[call.call_id]:
            yield f"{call.name} must run at most once, and was begun {times} times for the call {call.call_id}"


def open_work(state: State) -> Iterator[str]:
    """A conversation in which nothing is left to be done rests, and waits for nothing."""
    if pending(state) or not isinstance(state, Idle | Failed | Closed):
        yield f"it rests in {state.type} and waits for {sorted(pending(state))}"
