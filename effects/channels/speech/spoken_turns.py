"""Finds out when everything that was said in a turn has been spoken.

An assistant listens for a follow-up question then. It needs both: the end of the turn, after which nothing more is
said, and the end of each of its texts. They come in any order, because a turn can end while its first text is still
being spoken.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ....states.values.turn import TurnEnded
from ..port import Delivery

KEPT = 256
"""How many turns are remembered. A turn that ended in another process is never told to have ended here, so the oldest
turns have to be forgotten."""


@dataclass
class _Turn:
    """The texts of a turn that are over, by their ordinals, whether each was spoken, and how the turn ended, if it
    has."""

    texts: dict[int, Delivery] = field(default_factory=dict)
    was_spoken: bool = True
    ended: TurnEnded | None = None

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended, and each of its texts is over."""
        return self.ended is not None and len(self.texts) >= len(self.ended.deliveries)


class SpokenTurns:
    """The turns whose texts are being spoken."""

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[str, int], _Turn] = OrderedDict()

    def note_text(self, delivery: Delivery, *, spoken: bool) -> Delivery | None:
        """Take note that a text was spoken, or was not spoken to its end.

        Returns the last delivery of its turn if now everything that was said in the turn has been spoken.
        """
        turn = self._turn(delivery.conversation_id, delivery.turn)
        turn.texts[delivery.ordinal] = delivery
        turn.was_spoken = turn.was_spoken and spoken
        return self._finish(delivery.conversation_id, delivery.turn)

    def note_end(self, conversation_id: str, ended: TurnEnded) -> Delivery | None:
        """Take note that a turn ended. Returns what `note_text` returns."""
        self._turn(conversation_id, ended.turn).ended = ended
        return self._finish(conversation_id, ended.turn)

    def _turn(self, conversation_id: str, number: int) -> _Turn:
        turn = self._turns.setdefault((conversation_id, number), _Turn())
        if len(self._turns) > KEPT:
            self._turns.popitem(last=False)
        return turn

    def _finish(self, conversation_id: str, number: int) -> Delivery | None:
        """Forget the turn if it is over. Returns its last delivery if all of it was spoken: there is nothing to listen
        for behind a silent turn, or one that the user cancelled."""
        turn = self._turns[conversation_id, number]
        if turn.ended is None or not turn.is_over:
            return None
        del self._turns[conversation_id, number]
        if not turn.texts or not turn.was_spoken or turn.ended.status == "cancelled":
            return None
        return turn.texts[max(turn.texts)]
