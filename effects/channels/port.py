"""The port behind which a way to the user stands: a loudspeaker, a chat window, a webhook, a list in a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class NotTaken(Exception):
    """A channel did not take a delivery. Why not stands in the error: a sentence without secrets, for watchers."""


@dataclass(frozen=True)
class Delivery:
    """Something to hand over to the user.

    It is the `ordinal`-th of its turn, counted from 1. `key` is the same each time this delivery is tried, so whoever
    receives it can recognise a repeated one. `origin` names the agent that wrote the text, where it is passed on as it
    was; else it is empty.
    """

    text: str
    conversation_id: str
    turn: int
    ordinal: int
    key: str
    origin: str = ""


@runtime_checkable
class Channel(Protocol):
    """A way to the user. It has a name, and one method."""

    @property
    def name(self) -> str:
        """Under which its failures are told; no two channels of an engine share one."""
        ...

    async def deliver(self, delivery: Delivery) -> None:
        """Hand it over; return when the user has it, or will have it without fail.

        Whatever this raises says that it was not delivered; `NotTaken` tells watchers why. It is given two seconds: a
        channel that takes longer to reach its user takes the text over and returns. Do not wait here for the same
        conversation (`send`, `compact`): it waits for this; say `wait=False`.
        """
        ...
