"""What a handle on a conversation has last seen: its next answer is meant for that question, and for no newer one."""

from __future__ import annotations

from ...states.states import State
from ..projections.turn import Turn
from ..projections.updates.snapshot import SnapshotUpdate
from ..projections.updates.stored import StateChangeUpdate
from ..projections.updates.update import Update


class LastSeen:
    """The call that waits for a person, as of the step `seq`."""

    __slots__ = ("call_id", "seq")

    def __init__(self, state: State) -> None:
        self.note_state(state)

    def note_state(self, state: State) -> None:
        """The handle was given this state."""
        self.seq = state.book.seq
        self.call_id = state.waiting_call_id

    def note_turn(self, turn: Turn, seq: int) -> Turn:
        """The handle returns this turn to its caller, as of the step `seq`. Returns the turn."""
        if turn.number:
            self.seq, self.call_id = seq, turn.call_id
        return turn

    def note_update(self, update: Update) -> None:
        """The handle shows this update to a watcher, which may lag behind. It counts unless something newer was
        seen."""
        if isinstance(update, SnapshotUpdate | StateChangeUpdate):
            seq, _ = update.position
            if isinstance(update, SnapshotUpdate):
                seq -= 1  # its id is that of the step after the one that it shows
            if seq >= self.seq:
                self.seq, self.call_id = seq, update.state.call_id
