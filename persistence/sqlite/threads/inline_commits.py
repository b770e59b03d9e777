"""Decides which steps are committed on the event loop's own thread.

To hand a step to the writing thread and to come back takes two changes of threads. On a quick disk that is longer than
the commit: 0.2 ms to commit a step of one conversation inline, 0.5 ms through the thread. Where many conversations
write it is the other way round: their steps share one wait for the disk in the thread, and would each have one of their
own here. Where the disk is slow, the event loop must not wait for it.

So a step is committed inline if its conversation has had the store to itself for a while and recent commits were
quick. A database in memory has no disk to wait for.
"""

from __future__ import annotations

LONE = 4
"""How many steps in a row a conversation hands in before its steps are committed inline. Chosen as long as a turn with
one tool, so that conversations that take turns share their commits."""

LONGEST = 0.002
"""The mean duration of a commit, in seconds, up to which the disk counts as quick. Chosen as a quarter of the time for
which a model client holds up the event loop for one request."""

_WEIGHT = 1 / 8
"""The share of the newest commit in the mean. One hiccup of the disk is forgotten after ten to twenty commits."""


class InlineCommits:
    """Which conversation hands in steps, and how long their commits take. With `always`, every step is inline."""

    __slots__ = ("_always", "_conversation", "_in_a_row", "_mean")

    def __init__(self, *, always: bool = False) -> None:
        self._always = always
        self._conversation: int | None = None
        self._in_a_row = 0
        self._mean: float | None = None

    def allow(self, conversation: int) -> bool:
        """Note that a step of this conversation is handed in. Returns whether it may be committed inline."""
        if conversation != self._conversation:
            self._conversation, self._in_a_row = conversation, 0
        self._in_a_row += 1
        return self._always or (self._in_a_row > LONE and self._mean is not None and self._mean <= LONGEST)

    def measured(self, seconds: float) -> None:
        """Note how long a commit took, wherever it was made."""
        mean = seconds if self._mean is None else self._mean
        self._mean = mean + _WEIGHT * (seconds - mean)
