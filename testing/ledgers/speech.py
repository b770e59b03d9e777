"""What each turn said to the user by tool, what it delivered, and what it was to relay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...states.effects import DeliverToUser, PersistToolResults
from ...states.events import AgentMessage, Event, LlmResponse, ToolComplete, ToolReconciled
from ...states.step import Step
from ...states.values.acts import Speech
from ...states.values.messages import Heard, ToolResult
from .effects import EffectLedger
from .messages import MessageLedger


@dataclass(frozen=True, order=True)
class Spoken:
    """A speech that was accepted: where its call was made, where its text stands, and whether it is for now."""

    place: tuple[int, int, int]
    seq: int
    index: int
    now: bool

    @property
    def said(self) -> Heard:
        """Where its text stands."""
        return Heard(seq=self.seq, index=self.index)


@dataclass
class TurnSpeech:
    """The speeches of one turn in the order of their calls, its deliveries, and what it is to relay."""

    spoken: list[Spoken] = field(default_factory=list)
    delivered: list[DeliverToUser] = field(default_factory=list)
    relay: list[Heard] = field(default_factory=list)


class SpeechLedger:
    """What each turn said, delivered and was to relay, by its number."""

    def __init__(self) -> None:
        self.turns: defaultdict[int, TurnSpeech] = defaultdict(TurnSpeech)
        self.said_now: list[Spoken] = []
        """The speeches that the newest step accepted, in the order of its result."""
        self._places: dict[str, tuple[int, int]] = {}
        """Of each call of the newest round, the step of its response and its place in it."""
        self._turn = 0
        self._left_over: list[Heard] = []
        """What a turn that failed was to relay."""

    def add(self, event: Event, step: Step, effects: EffectLedger, messages: MessageLedger) -> None:
        """Add a step, after it was added to `effects` and `messages`."""
        seq = step.state.book.seq
        if isinstance(event, LlmResponse):
            self._places = {call.call_id: (seq, place) for place, call in enumerate(event.tool_calls)}
        self.said_now = list(self._accepted(event, step, effects))
        turn = self.turns[self._turn]
        turn.spoken = sorted((*turn.spoken, *self.said_now))
        for effect in step.effects:
            if isinstance(effect, DeliverToUser):
                self.turns[effect.turn].delivered.append(effect)
        self._pass_on(step, messages)

    def _accepted(self, event: Event, step: Step, effects: EffectLedger) -> Iterator[Spoken]:
        """The speeches of a result that the machine accepted unchanged."""
        result = event.result if isinstance(event, ToolComplete | ToolReconciled) else None
        call_id = getattr(getattr(effects.answered, "call", None), "call_id", "")
        message = Heard(seq=step.state.book.seq)
        settled = [one for effect in step.effects if isinstance(effect, PersistToolResults) for one in effect.results]
        if result is not None and any(
            one.call_id == call_id and one.said == message and not one.error for one in settled
        ):
            for index, speech in _speeches(result):
                yield Spoken((*self._places[call_id], index), message.seq, index, speech.when == "now")

    def _pass_on(self, step: Step, messages: MessageLedger) -> None:
        """A turn is to relay the messages for the user that begin it, and those of a turn that failed before."""
        if step.ended is not None and step.ended.status == "failed":
            replied = any(isinstance(effect, DeliverToUser) for effect in step.effects)
            self._left_over = [] if replied else self.turns[step.ended.turn].relay
        if step.state.book.turn > self._turn:
            self._turn = step.state.book.turn
            mine = [Heard(seq=seq) for seq in messages.entering_now if _is_for_user(messages.taken[seq])]
            self.turns[self._turn].relay = [*self._left_over, *mine]
            self._left_over = []


def _is_for_user(message: object) -> bool:
    return isinstance(message, AgentMessage) and message.audience == "user" and not message.silent


def _speeches(result: ToolResult) -> Iterator[tuple[int, Speech]]:
    """The speeches of a result, each with the index of its text."""
    index = 1
    for act in result.acts:
        if isinstance(act, Speech):
            yield index, act
        index += len(act.texts)
