"""What a request holds of the past if it looks back only some minutes.

A voice assistant that is asked something new should not be misled by what was said this morning. Under the rule
`Recent` a request holds the whole turn under way, and of everything before it only the texts of the owner's last
minutes, from all conversations. The caller passes the current time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter

from ..events import RecentText
from ..values.messages import Message


@dataclass(frozen=True)
class DatedText:
    """A text, and the moment at which it was said."""

    at: datetime
    said: RecentText


def recent_texts(texts: Iterable[DatedText], now: datetime, seconds: float) -> tuple[RecentText, ...]:
    """The texts that are not older than `seconds`, oldest first. A text that is exactly this old is included.

    Texts of the same moment keep the order in which they are given. The caller leaves out the turn under way, which a
    request holds anyway. `Pure.`
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
