"""Where a turn stopped: it waited for a person, possibly several times, and in the end it ended.

A caller that repeats a request gets the turn as it was when it stopped first after that request, even if it has gone on
since. The newest stops are held in memory; an older one is found by reading the log once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...states.errors import Refused
from ...states.step import LogEntry
from ...states.transcript import Transcript
from .projection import ConversationProjection
from .replayed_steps import replayed_steps
from .turn import Turn, WaitingTurn
from .turn_builder import ended_turn, waiting_turn, waits_for_person

REMEMBERED = 64
"""How many waits for a person are remembered: those of the last minutes, within which requests are repeated."""


class _Wait(NamedTuple):
    seq: int
    turn: WaitingTurn


class TurnStops:
    """The stops of the turns of one conversation. Whoever advances the projection must call `note`."""

    __slots__ = ("_begin", "_projection", "_waits")

    def __init__(self, projection: ConversationProjection) -> None:
        self._projection = projection
        self._waits: list[_Wait] = []
        self._begin: int | None = None
        """The step from which on every wait is in memory; None while the contents of the projection are not."""

    def note(self) -> bool:
        """Remember the state in which the conversation now rests, if it waits for a person. Returns whether it does."""
        projection = self._projection
        if not projection.is_read:
            self._begin = None
            self._waits.clear()
            return waits_for_person(projection.state)
        if self._begin is None:
            self._begin = projection.seq
        if (turn := self.current()) is None:
            return False
        self._waits.append(_Wait(projection.seq, turn))
        if len(self._waits) > REMEMBERED:
            self._begin = self._waits.pop(0).seq + 1
        return True

    def current(self) -> WaitingTurn | None:
        """Return the turn that waits for a person now. The contents must have been read."""
        state, projection = self._projection.state, self._projection
        if waits_for_person(state):
            return waiting_turn(state, projection.transcript, projection.context.policy)
        return None

    async def earlier(self, number: int, since: int) -> Turn | None:
        """Return the first stop of a turn at or after the step `since`, if it came before those in memory. None means
        that `remembered` knows it, or that there was none yet. The contents must have been read. Raises `StoreError`.
        """
        if self._begin is None:
            self.note()
        begin = self._begin
        if begin is None or since >= begin:
            return None
        return first_stop(await self._projection.read_entries(0, begin - 1), number, since)

    def remembered(self, number: int, since: int) -> Turn | None:
        """Return the first stop of a turn at or after the step `since`, as far as it is in memory. The contents must
        have been read."""
        for seq, turn in self._waits:
            if seq >= since and turn.number == number:
                return turn
        return self._projection.turns.get(number)


def first_stop(entries: Iterable[LogEntry], number: int, since: int) -> Turn | None:
    """Return the turn with this number as it was when it ended, or waited for a person, at or after the step `since`
    for the first time; None if that is not among `entries`, the first of a log. `Pure.`"""
    transcript = Transcript()
    try:
        for entry, _, state, context, _ in replayed_steps(entries):
            transcript.add(entry)
            if entry.seq < since:
                continue
            if entry.ended is not None and entry.ended.turn == number:
                return ended_turn(entry.ended, transcript, context.policy)
            if waits_for_person(state) and state.turn.number == number:
                return waiting_turn(state, transcript, context.policy)
    except Refused:  # another version of the state machine wrote the log, as a replay reports
        return None
    return None
