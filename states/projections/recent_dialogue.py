"""What of the past belongs to a request that looks back only some minutes.

A voice assistant that is asked something new should not be led astray by what was said this morning. Under the rule
`Recent` a request holds the turn under way, whole, and of everything before it only the texts of the owner's last
minutes, in whatever conversation they were said. The clock stays outside: whoever asks says what time it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..events import RecentText
from ..values.messages import Message


@dataclass(frozen=True)
class DatedText:
    """A text, and the moment at which it was said."""

    at: datetime
    said: RecentText


def lately(texts: Iterable[DatedText], now: datetime, seconds: float) -> tuple[RecentText, ...]:
    """The texts not older than `seconds`, oldest first; one that is just this old is still in.

    Texts of one moment keep the order in which they are given. Whoever calls leaves out the turn under way, which a
    request holds anyhow. `Pure.`
    """
    within = [text for text in texts if (now - text.at).total_seconds() <= seconds]
    return tuple(text.said for text in sorted(within, key=lambda text: text.at))


def of_turn(messages: Sequence[Message], turn: int) -> Sequence[Message]:
    """The messages from this turn on, with those of other agents that stand directly in front of it.

    These came while nothing was under way and woke nobody: the next turn is the one to see them. `Pure.`
    """
    start = next((place for place, message in enumerate(messages) if message.turn >= turn), len(messages))
    while start > 0 and messages[start - 1].audience is not None:
        start -= 1
    return messages[start:]
