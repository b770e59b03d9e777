"""The sub-agents that were started, their outcomes and questions, and the results that the outcomes became part of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...states.effects import AnswerSubAgent, PersistToolResults, SettledCall, SpawnSubAgent
from ...states.events import Answer, Event, SubAgentAsked, SubAgentFinished, ToolComplete
from ...states.step import Step
from ...states.values.messages import Heard, Joined, Outcomes
from .effects import EffectLedger


@dataclass
class ChildOf:
    """A sub-agent: the call that started it, and, once it has ended, how, where its outcome stands, and the outcome."""

    call_id: str
    status: str = "cancelled"
    outcome: Heard | None = None
    text: str = ""


@dataclass
class Asked:
    """A question of a sub-agent: the call that asks, and whether it has its answer."""

    call_id: str
    settled: bool


class SubAgentLedger:
    """The sub-agents of a conversation, by the effects that started them."""

    def __init__(self) -> None:
        self.children: dict[int, ChildOf] = {}
        self.reported: Counter[Heard] = Counter()
        """How often each outcome became part of a result."""
        self.results: dict[str, SettledCall] = {}
        """The results of the calls that started sub-agents."""
        self.asked: dict[int, Asked] = {}
        """The newest question of each sub-agent that asks, in the order in which they began to."""
        self.faults: list[str] = []
        """What was answered although nothing was asked."""

    def add(self, event: Event, step: Step, effects: EffectLedger) -> None:
        """Add a step, after it was added to `effects`."""
        if isinstance(effects.answered, SpawnSubAgent):
            self._end(event, step)
        elif isinstance(event, SubAgentAsked):
            self._ask(event)
        for effect in step.effects:
            if isinstance(effect, SpawnSubAgent) and effect.effect_id not in self.children:
                self.children[effect.effect_id] = ChildOf(self._spawning(event, step, effects))
            elif isinstance(effect, AnswerSubAgent):
                self._answer(effect)
            elif isinstance(effect, PersistToolResults):
                self._settle(effect)

    def of(self, call_id: str) -> dict[int, ChildOf]:
        """The sub-agents that a call started, in the order of their tasks. `Pure.`"""
        return {effect_id: child for effect_id, child in self.children.items() if child.call_id == call_id}

    def _end(self, event: Event, step: Step) -> None:
        assert isinstance(event, Answer)
        child = self.children[event.effect_id]
        child.status = event.status if isinstance(event, SubAgentFinished) else "failed"
        child.outcome, child.text = Heard(seq=step.state.book.seq), event.texts[0]
        self.asked.pop(event.effect_id, None)

    def _ask(self, report: SubAgentAsked) -> None:
        self.asked.pop(report.effect_id, None)
        if report.questions is not None:
            self.asked[report.effect_id] = Asked(report.call_id, settled=False)

    def _answer(self, effect: AnswerSubAgent) -> None:
        asked = self.asked.get(effect.child)
        if asked is None or asked.settled or asked.call_id != effect.call_id:
            self.faults.append(f"the sub-agent {effect.child} gets an answer, and has asked nothing")
        else:
            asked.settled = True

    def _spawning(self, event: Event, step: Step, effects: EffectLedger) -> str:
        assert isinstance(event, ToolComplete), "only a tool's result starts sub-agents"
        return str(getattr(getattr(effects.answered, "call", None), "call_id", ""))

    def _settle(self, effect: PersistToolResults) -> None:
        parents = {child.call_id for child in self.children.values()}
        for result in effect.results:
            if result.call_id in parents:
                self.results[result.call_id] = result
                self.asked.clear()
            if isinstance(result.said, Joined | Outcomes):
                self.reported.update(part for part in result.said.parts if isinstance(part, Heard))
