"""The port of channels: a loudspeaker, a chat window, a webhook, a list in a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from ...states.values.turn import TurnEnded


class NotTaken(Exception):
    """A channel did not take a delivery. The message says why, in a sentence without secrets: watchers read it."""


@dataclass(frozen=True)
class Delivery:
    """Something to deliver to the user.

    It is the `ordinal`-th delivery of its turn, counted from 1. `key` is the same at each attempt, so a receiver can
    recognise a repeated delivery. `origin` names the agent that wrote the text if it is passed on unchanged; otherwise
    it is empty.
    """

    text: str
    conversation_id: str
    turn: int
    ordinal: int
    key: str
    origin: str = ""


@runtime_checkable
class Channel(Protocol):
    """Delivers texts to the user, for example to a terminal, a voice or a webhook.

    A channel that speaks has the attribute `is_speech`, which is true: an engine whose setting `tts_enabled` is false
    does not use it.
    """

    @property
    def name(self) -> str:
        """The name under which failures are reported. No two channels of an engine have the same name."""
        ...

    async def deliver(self, delivery: Delivery) -> None:
        """Deliver it, and return when the user has it or is certain to receive it.

        Any exception means that it was not delivered; the message of `NotTaken` is shown to watchers. An attempt may
        take two seconds. A channel that needs longer takes the text over and returns. Do not wait here for the same
        conversation (`send`, `compact`), because it waits for this attempt; use `wait=False`.
        """
        ...


@runtime_checkable
class TurnEndListener(Protocol):
    """A channel may also have this method. The engine then tells it how each turn ended that ended in this process."""

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Take note that a turn ended. Called in the event loop of the engine when this is stored; must not wait.

        The deliveries of the turn (`ended.deliveries`) may arrive before or after this call.
        """
        ...


class SpeechPiece(NamedTuple):
    """A piece of what a tool is to say to the user, while the model writes it: not said before its delivery.

    A blank line stands between the words of two calls of one response. A response that fails is asked for again as
    another `request`, and written from the beginning. With `is_last` the response is complete; the text is empty then.
    """

    text: str
    conversation_id: str
    turn: int
    request: int
    is_last: bool = False


WhyUnsaid = Literal["failed", "cancelled", "unsaid"]
"""Why words that a model has written are not said: the response failed, the turn was cancelled, or nothing delivers
them, because the call was refused or not valid, its tool failed, or a later speech took its place."""


class SpeechSettled(NamedTuple):
    """What was written in this turn up to now is said by the first `deliveries` deliveries of the turn. What of it is
    in none of them is not said; `why` says for what reason. With `request` only what was written in answer to that
    request is meant: what was written before it may yet be delivered at the end of the turn."""

    conversation_id: str
    turn: int
    deliveries: int
    why: WhyUnsaid
    request: int | None = None


@runtime_checkable
class SpeechListener(Protocol):
    """A channel may also have these methods. The engine then tells it what tools are to say while the models of this
    process write it. Both are called in the event loop of the engine, and must not wait."""

    def speech_written(self, piece: SpeechPiece) -> None:
        """Take note that a piece was written."""
        ...

    def speech_settled(self, settled: SpeechSettled) -> None:
        """Take note of what becomes of the pieces. The deliveries may arrive before or after this call."""
        ...
