"""The sub-agents that were started, their outcomes, and the results that the outcomes became part of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...states.effects import PersistToolResults, SettledCall, SpawnSubAgent
from ...states.events import Answer, Event, ToolComplete
from ...states.step import Step
from ...states.values.messages import Heard, Joined
from .effects import EffectLedger


@dataclass
class ChildOf:
    """A sub-agent: the call that started it, and where its outcome stands once it has ended."""

    call_id: str
    outcome: Heard | None = None


class SubAgentLedger:
    """The sub-agents of a conversation, by the effects that started them."""

    def __init__(self) -> None:
        self.children: dict[int, ChildOf] = {}
        self.reported: Counter[Heard] = Counter()
        """How often each outcome became part of a result."""
        self.results: dict[str, SettledCall] = {}
        """The results of the calls that started sub-agents."""

    def add(self, event: Event, step: Step, effects: EffectLedger) -> None:
        """Add a step, after it was added to `effects`."""
        if isinstance(effects.answered, SpawnSubAgent):
            assert isinstance(event, Answer)
            self.children[event.effect_id].outcome = Heard(seq=step.state.book.seq)
        for effect in step.effects:
            if isinstance(effect, SpawnSubAgent) and effect.effect_id not in self.children:
                self.children[effect.effect_id] = ChildOf(self._spawning(event, step, effects))
            elif isinstance(effect, PersistToolResults):
                self._settle(effect)

    def of(self, call_id: str) -> dict[int, ChildOf]:
        """The sub-agents that a call started, in the order of their tasks. `Pure.`"""
        return {effect_id: child for effect_id, child in self.children.items() if child.call_id == call_id}

    def _spawning(self, event: Event, step: Step, effects: EffectLedger) -> str:
        assert isinstance(event, ToolComplete), "only a tool's result starts sub-agents"
        return str(getattr(getattr(effects.answered, "call", None), "call_id", ""))

    def _settle(self, effect: PersistToolResults) -> None:
        parents = {child.call_id for child in self.children.values()}
        for result in effect.results:
            if result.call_id in parents:
                self.results[result.call_id] = result
            if isinstance(result.said, Joined):
                self.reported.update(part for part in result.said.parts if isinstance(part, Heard))
