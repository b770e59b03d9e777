"""What people and the assistant said to each other, as texts that may be found again later.

Only conversations with a user have a dialogue: background agents and sub-agents get their tasks from other agents, and
what they write reaches no user. A text of a person counts when a turn takes it up, so a message that was withdrawn
never does. Of the assistant only that counts which was delivered to the user, whatever the rules of the conversation
are: a thought, or a text that the rules keep from the user, reached nobody. An answer that the user stopped was shown
while it came. A question counts together with its answer.
The results of tools, the mail of agents and the system prompt were said by no one in the dialogue; a message of an
agent that was passed on to the user was said by the assistant.

A voice assistant that is asked something new should not be misled by what was said this morning. Under the rule
`Recent` a request holds the whole turn under way, and of everything before it only the texts of the owner's last
minutes, from all conversations.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Literal

from .context import Context
from .effects import DeliverToUser, PersistMessage
from .events import Event, LlmStopped, Opened, RecentText, UserMessage, UserQuestionResponse
from .replies import text_of_delivery, text_rule
from .step import LogEntry
from .transcript import given_messages
from .values.messages import Heard, Joined, Made, Message, Outcomes, Said, Usage

EventAt = Callable[[int], Event | None]
"""Returns the event of an earlier step of the same log, or None if it cannot be read."""


@dataclass(frozen=True)
class SaidText:
    """A text of the dialogue, the turn in which it was said, and the moment. `source` refers to the text of an event
    that is exactly this one, so that a store need not hold it twice; it is None if there is no such text."""

    turn: int
    at: datetime
    role: Literal["user", "assistant"]
    text: str
    source: Heard | None = None


def said_texts(entry: LogEntry, context: Context, event_at: EventAt) -> tuple[SaidText, ...]:
    """Return what this step adds to the dialogue, in order. A log gives each text once.

    `context` is the context after the step. A message that waited in the inbox has the moment at which it was sent. The
    messages of a given history have the moment at which the conversation began, and the turn 0. Blank texts are left
    out, and so is a text whose event cannot be read. `Pure.`
    """
    step = _Step(entry, context, event_at)
    if context.role != "foreground":
        return ()
    found = (*step.given(), *step.answers(), *step.effects())
    # In the step that ends a turn and begins the next one, the message of the next one comes behind the reply.
    return tuple(sorted((text for text in found if text.text.strip()), key=lambda text: text.turn))


def may_say(entry_type: str, effects: str | None) -> bool:
    """Whether a step may add to the dialogue or changes how it is read, judged by the type of its event and its effects
    as JSON: others need not be decoded. `Pure.`"""
    if entry_type in _TYPES:
        return True
    return effects is not None and any(name in effects for name in _EFFECTS)


_TYPES = frozenset({"opened", "policy_changed", "user_question_response"})
_EFFECTS = tuple(f'"{kind.model_fields["type"].default}"' for kind in (PersistMessage, DeliverToUser))


class _Step:
    """One step, and what may be read beside it."""

    def __init__(self, entry: LogEntry, context: Context, event_at: EventAt) -> None:
        self._entry = entry
        self._context = context
        self._policy = context.policy
        self._event_at = event_at

    def given(self) -> Iterator[SaidText]:
        """What people and the assistant said in the history that the conversation was given."""
        event = self._entry.event
        if isinstance(event, Opened):
            for message in given_messages(event.messages, self._entry.seq):
                if message.role == "user" or message.role == "assistant":
                    yield SaidText(0, event.at, message.role, message.text)

    def answers(self) -> Iterator[SaidText]:
        """Each question that a person answered, and the answer with its notes."""
        event, turn = self._entry.event, self._entry.turn
        if not isinstance(event, UserQuestionResponse):
            return
        for question, answer in event.answers.items():
            yield SaidText(turn, event.at, "assistant", question)
            chosen = (answer,) if isinstance(answer, str) else answer
            notes = (event.annotations[question].notes,) if question in event.annotations else ()
            yield SaidText(turn, event.at, "user", "\n".join(filter(str.strip, (*chosen, *notes))))

    def effects(self) -> Iterator[SaidText]:
        """The messages of people that this step took up, and what it delivered to the user."""
        for effect in self._entry.effects:
            match effect:
                case PersistMessage(said=Heard(seq=seq) as said):
                    event = self._event(seq)
                    if isinstance(event, UserMessage):
                        yield SaidText(self._entry.turn, event.at, "user", event.text, said)
                    elif isinstance(event, LlmStopped):
                        yield from self._stopped(event, said)
                case DeliverToUser(said=said, turn=turn, relayed=relayed):
                    yield from self._delivered(said, turn, relayed)
                case _:
                    pass

    def _stopped(self, event: LlmStopped, said: Heard) -> Iterator[SaidText]:
        """What the model had written when it was stopped, if people were shown it as what is said to them."""
        if event.spoken or text_rule(self._context, speaks=event.speaks) == "reply":
            yield from self._delivered(said, self._entry.turn, relayed=False)

    def _delivered(self, said: Said, turn: int, relayed: bool) -> Iterator[SaidText]:
        """A text that was delivered, without what the rules remove from it."""
        text = self._words(said)
        if text is not None:
            shown = text_of_delivery(text, self._policy, relayed=relayed)
            source = said if isinstance(said, Heard) and shown == text else None
            yield SaidText(turn, self._entry.event.at, "assistant", shown, source)

    def _words(self, said: Said) -> str | None:
        match said:
            case Made(text=text):
                return text
            case Joined(parts=parts):
                texts = [self._words(part) for part in parts]
                return Joined.text_of(text for text in texts if text is not None)
            case Outcomes():
                return None  # sub-agents report to the model
            case Heard(seq=seq, index=index):
                event = self._event(seq)
                return event.texts[index] if event is not None and 0 <= index < len(event.texts) else None

    def _event(self, seq: int) -> Event | None:
        return self._entry.event if seq == self._entry.seq else self._event_at(seq)


@dataclass(frozen=True)
class DatedText:
    """A text, and the moment at which it was said."""

    at: datetime
    said: RecentText


def recent_texts(texts: Iterable[DatedText], now: datetime, seconds: float) -> tuple[RecentText, ...]:
    """The texts that are not older than `seconds` at the moment `now`, oldest first. A text that is exactly this old is
    included.

    Texts of the same moment keep the order in which they are given. The caller passes the current time and leaves out
    the turn under way, which a request holds anyway. `Pure.`
    """
    within = [text for text in texts if (now - text.at).total_seconds() <= seconds]
    return tuple(text.said for text in sorted(within, key=lambda text: text.at))


def of_turn(messages: Sequence[Message], turn: int) -> Sequence[Message]:
    """The messages from this turn on, with the messages of other agents that stand directly in front of it.

    These arrived while nothing was under way and started no turn; the next turn is the one to see them. `messages` are
    in the order of their turns. They are searched from the end, in strides that double, so this takes a few steps
    however many messages there are. `Pure.`
    """
    count, stride = len(messages), 1
    while stride <= count and messages[count - stride].turn >= turn:
        stride *= 2
    start = bisect_left(messages, turn, max(0, count - stride), count - stride // 2, key=attrgetter("turn"))
    while start > 0 and messages[start - 1].audience is not None:
        start -= 1
    return messages[start:]


def user_text(messages: Sequence[Message], turn: int) -> str:
    """What the user wrote from this turn on, with blank lines between messages; empty if all of them are. `Pure.`"""
    texts = (message.text for message in of_turn(messages, turn) if message.role == "user" and message.text.strip())
    return "\n\n".join(texts)


def usage(log: Iterable[LogEntry]) -> Usage:
    """What a conversation has cost: the sum of what every answer in its log has cost, whether or not its turn has
    ended. `Pure.`"""
    total = Usage()
    for entry in log:
        cost = getattr(entry.event, "usage", None)
        if isinstance(cost, Usage):
            total += cost
    return total
