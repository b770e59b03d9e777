"""Looks up the dialogue of the last minutes, from all conversations of the owner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...states.dialogue import DatedText, recent_texts
from ...states.events import RecentText
from ...states.values.acts import MemoryScope
from ..clock import Clock
from ..long_texts import in_thread_if_long
from ..passages import cut_middle
from ..redact import Redact, unchanged
from .parts import STORE_SECONDS, LeftOut, or_else, within
from .port import Memory

MAX_BYTES = 100_000
"""Bytes that the dialogue of the last minutes has at most; of more, the newest texts are kept."""


class RecentDialogue:
    """Looks up the dialogue of the last minutes in a memory."""

    def __init__(self, memory: Memory, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock

    async def look_up(
        self, scope: MemoryScope, seconds: float, redact: Redact = unchanged, left_out: LeftOut | None = None
    ) -> tuple[RecentText, ...]:
        """Return the texts that are at most this old, oldest first, after `redact`; none if they cannot be looked
        up, which is then added to `left_out`."""
        now = self._clock.now()
        look_up = self._memory.recent(scope, _earlier(now, seconds))
        found = await or_else((), "recent dialogue", within(STORE_SECONDS, look_up), left_out)
        dated = [
            DatedText(one.at, RecentText(role=one.role, text=one.text))
            for one in found
            if one.turn and one.text.strip()  # nobody knows when a message of a given history was said
        ]
        texts = recent_texts(dated, now, seconds)
        characters = 0 if redact is unchanged else sum(len(text.text) for text in texts)
        return await in_thread_if_long(characters, lambda: _newest(texts, redact))


def _newest(texts: tuple[RecentText, ...], redact: Redact) -> tuple[RecentText, ...]:
    """The newest texts that are within the limit; the oldest of these is shortened to what is left. Each is redacted
    before it is shortened, since half of a secret is not recognised."""
    kept: list[RecentText] = []
    room = MAX_BYTES
    for text in reversed(texts):
        shortened = cut_middle(redact(text.text), room)
        kept.append(text if shortened == text.text else text.replace(text=shortened))
        room -= len(shortened.encode())
        if room < MAX_BYTES // 100:
            break
    return tuple(reversed(kept))


def _earlier(now: datetime, seconds: float) -> datetime:
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
