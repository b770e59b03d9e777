"""What can be known of a conversation from its events and effects alone.

A `History` is given every event and its outcome, and keeps ledgers: which effects are in flight, what was said, what
the turn has used up. It takes none of this from a state, so the laws can compare the states with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..states.context import Context
from ..states.effects import Effect
from ..states.events import Event, ToolApproval
from ..states.states import AnyState
from ..states.step import LogEntry, Step
from ..states.transcript import Transcript
from ..states.values.messages import Message
from .ledgers.effects import EffectLedger
from .ledgers.messages import MessageLedger
from .ledgers.refusals import RefusalLedger
from .ledgers.speech import SpeechLedger
from .ledgers.spending import SpendingLedger
from .ledgers.sub_agents import SubAgentLedger
from .observation import NOTHING, Observation, Trace, observe

__all__ = ["NOTHING", "History", "Observation", "Trace", "histories", "observe"]


class History:
    """A conversation, seen from outside. `add` each observation in turn."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []
        self.log: list[LogEntry] = []
        self.effects = EffectLedger()
        self.spending = SpendingLedger()
        self.messages = MessageLedger()
        self.refusals = RefusalLedger()
        self.speech = SpeechLedger()
        self.sub_agents = SubAgentLedger()
        self.allowed: set[str] = set()
        """The calls that a person allowed."""
        self.context = Context()
        """The context in which the next event is taken."""
        self.said = Transcript()
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
        self.said.add(entry)
        self.effects.add(event, step)
        self.messages.add(event, step)
        self.refusals.add(event, step)
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
