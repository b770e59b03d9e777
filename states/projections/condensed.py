"""What a summary stands for, once the history was compacted."""

from __future__ import annotations

from dataclasses import dataclass

from ..values.messages import Message
from ..values.withheld import Withheld


@dataclass(frozen=True)
class Condensed:
    """The summary that replaces the messages up to the step `up_to`, except for what people said since the turn
    `turn`. It was made at the step `seq`, and may be `withheld` from models like a message."""

    summary: str
    up_to: int
    turn: int | None
    seq: int = 0
    withheld: tuple[Withheld, ...] = ()

    def covers(self, message: Message) -> bool:
        """Whether the summary replaces this message. `Pure.`"""
        began_this_turn = message.role == "user" and self.turn is not None and message.turn >= self.turn
        return message.seq <= self.up_to and not began_this_turn

    @property
    def message(self) -> Message:
        """The summary as a message that entered when it was made. `Pure.`"""
        return Message(role="user", text=self.summary, audience="agent", seq=self.seq, withheld=self.withheld)
