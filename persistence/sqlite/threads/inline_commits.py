"""Decides which steps are committed on the event loop's own thread.

To hand a step to the writing thread and to come back takes two changes of threads, and while both threads run Python
they wait for each other's turn at the interpreter. On a quick disk that costs more than the commit itself: 100
conversations at once took 2.0 ms of processor time a turn through the thread, and 1.4 ms without it. Where the disk is
slow, the event loop must not wait for it.

So where recent commits were quick, the event loop's thread makes them. A step of a conversation that has had the store
to itself for a while is committed at once, within the call that hands it in. The steps of many conversations are
gathered during one iteration of the event loop and committed together, because a commit waits as long for one step as
for a hundred. A database in memory has no disk to wait for.

How long a commit took in the writing thread says little while the event loop is busy: the thread waits for the
interpreter lock after each statement, which takes longer than a quick disk. Such a commit proves nothing. After a few
of them, one is made inline to find out. If that was slow, the next one is tried after twice as many.
"""

from __future__ import annotations

LONE = 4
"""How many steps in a row a conversation hands in before its steps are committed at once. Chosen as long as a turn with
one tool, so that conversations that take turns share their commits."""

LONGEST = 0.002
"""The mean wait for the disk, in seconds, up to which it counts as quick. Chosen as a quarter of the time for which a
model client holds up the event loop for one request."""

WORK = 0.000_05
"""Seconds of a commit that each step adds as work of the processor, which is no wait for the disk."""

TRIED_AFTER = 4
"""After how many commits in the thread that prove nothing one is made inline. Few, because a quick disk is left unused
until then."""

_LATEST = 4096
"""After so many at the latest, however many tries were in vain. So many that a slow disk hardly holds up the loop."""

_WEIGHT = 1 / 8
"""The share of the newest commit in the mean. One slow commit counts no more after ten to twenty quick ones."""


class InlineCommits:
    """Which conversation hands in steps, and how long their commits take. With `always`, each is committed at once."""

    __slots__ = ("_always", "_conversation", "_in_a_row", "_mean", "_tried_after", "_undisturbed", "_unproven")

    def __init__(self, *, always: bool = False) -> None:
        self._always = always
        self._conversation: int | None = None
        self._in_a_row = 0
        self._undisturbed = 0
        """How many steps were handed in since the thread did something else."""
        self._mean: float | None = None
        self._unproven = 0
        """How many commits in a row have proved nothing."""
        self._tried_after = TRIED_AFTER

    def allow(self, conversation: int) -> bool:
        """Note that a step of this conversation is handed in. Returns whether it may be committed at once."""
        if conversation != self._conversation:
            self._conversation, self._in_a_row = conversation, 0
        self._in_a_row += 1
        self._undisturbed += 1
        return self._always or (self._in_a_row > LONE and self.is_worthwhile)

    @property
    def is_worthwhile(self) -> bool:
        """Whether the event loop may commit what it gathers: recent commits were quick, or nothing is known of them for
        long, and the thread is left alone.

        The connection is set for one thread or the other (`commit_mode`), which costs as much as a commit.
        """
        is_quick = self._mean is not None and self._mean <= LONGEST
        return self._undisturbed > LONE and (is_quick or self._is_tried)

    @property
    def _is_tried(self) -> bool:
        return self._unproven >= self._tried_after

    def disturb(self) -> None:
        """Note that the thread does something else than to store steps."""
        self._undisturbed = 0

    def measured(self, seconds: float, steps: int, *, at_most: bool = False) -> None:
        """Note how long a commit of so many steps took. `at_most`: in the thread, which may have waited for the
        interpreter lock as well."""
        wait = max(seconds - steps * WORK, 0.0)
        if at_most and wait > LONGEST:
            self._unproven += 1
            return
        if self._is_tried:
            self._tried_after = TRIED_AFTER if wait <= LONGEST else min(2 * self._tried_after, _LATEST)
            self._mean = None
        self._unproven = 0
        mean = wait if self._mean is None else self._mean
        self._mean = mean + _WEIGHT * (wait - mean)
