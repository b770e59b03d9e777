"""What each turn said to the user by tool, what it delivered, and what it was to relay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from ...states.context import Context
from ...states.effects import DeliverToUser, PersistToolResults
from ...states.events import AgentMessage, Event, LlmResponse, ToolComplete, ToolReconciled
from ...states.states import Closed, Failed, State
from ...states.step import Step
from ...states.values.acts import Speech
from ...states.values.messages import Heard, ToolResult
from ...states.values.turn import TurnEnded
from ...states.values.value import KEEPS_RELAYS
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
    speaks: bool = False
    """Whether the newest request offered a tool that speaks."""


class SpeechLedger:
    """What each turn said, delivered and was to relay, by its number."""

    def __init__(self) -> None:
        self.turns: defaultdict[int, TurnSpeech] = defaultdict(TurnSpeech)
        self.said_now: list[Spoken] = []
        """The speeches that the newest step accepted, in the order of its result."""
        self._places: dict[str, tuple[int, int]] = {}
        """Of each call of the newest round, the step of its response and its place in it."""
        self.owed: dict[Heard, datetime] = {}
        """The messages for the user that are still to be passed on, each with the moment at which a turn took it up."""
        self.given_up: list[Heard] = []
        """Those that are no longer to be passed on since the newest step, although they were not."""
        self._turn = 0

    def add(self, event: Event, step: Step, effects: EffectLedger, messages: MessageLedger, context: Context) -> None:
        """Add a step, after it was added to `effects` and `messages`; `context` is the context after it."""
        seq = step.state.book.seq
        if isinstance(event, LlmResponse):
            self._places = {call.call_id: (seq, place) for place, call in enumerate(event.tool_calls)}
        self.said_now = list(self._accepted(event, step, effects))
        turn = self.turns[self._turn]
        if isinstance(event, LlmResponse):
            turn.speaks = event.speaks
        turn.spoken = sorted((*turn.spoken, *self.said_now))
        for effect in step.effects:
            if isinstance(effect, DeliverToUser):
                self.turns[effect.turn].delivered.append(effect)
        self.given_up = []
        if step.ended is not None:
            self._end(step.ended, step.state, context)
        if step.state.book.turn > self._turn:
            self._begin(event.at, step, messages, context)
        if isinstance(step.state, Closed):
            self._give_up(list(self.owed))

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

    def _end(self, ended: TurnEnded, state: State, context: Context) -> None:
        """A turn that completed has passed on what it was to, and so has one that stayed incomplete and delivered words
        of its agent. Otherwise only that is done which was delivered unchanged. In logs of earlier revisions a turn
        that left the conversation failed left all of it to the next one, and any other one nothing."""
        delivered = self.turns[ended.turn].delivered
        if context.revision < KEEPS_RELAYS:
            is_done = ended.status != "failed" or not isinstance(state, Failed)
        else:
            speaks = any(isinstance(one.said, Heard) and not one.relayed for one in delivered)
            is_done = ended.status == "completed" or (ended.status == "incomplete" and speaks)
        passed_on = [one.said for one in delivered if one.relayed]
        self.owed = {said: since for said, since in self.owed.items() if not (is_done or said in passed_on)}

    def _begin(self, at: datetime, step: Step, messages: MessageLedger, context: Context) -> None:
        """A turn is to relay what is owed and has not lapsed, and the messages for the user that begin it."""
        deadline = context.policy.relay_deadline
        self.owed = {said: min(since, at) for said, since in self.owed.items()}
        if deadline is not None and context.revision >= KEEPS_RELAYS:
            self._give_up([said for said, since in self.owed.items() if (at - since).total_seconds() > deadline])
        self._turn = step.state.book.turn
        if context.role == "foreground":
            mine = [Heard(seq=seq) for seq in messages.entering_now if _is_for_user(messages.taken[seq])]
            self.owed |= dict.fromkeys(mine, at)
        self.turns[self._turn].relay = list(self.owed)

    def _give_up(self, owed: list[Heard]) -> None:
        self.given_up += owed
        self.owed = {said: since for said, since in self.owed.items() if said not in owed}


def _is_for_user(message: object) -> bool:
    return isinstance(message, AgentMessage) and message.audience == "user" and not message.silent


def _speeches(result: ToolResult) -> Iterator[tuple[int, Speech]]:
    """The speeches of a result, each with the index of its text."""
    index = 1
    for act in result.acts:
        if isinstance(act, Speech):
            yield index, act
        index += len(act.texts)
