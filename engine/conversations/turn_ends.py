"""Tells channels that a turn has ended.

A channel alone cannot know whether more will be said in a turn. One that speaks needs to, because an assistant begins
to listen again when everything was spoken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...effects.channels.port import TurnEndListener
from ...states.events import Event
from ...states.states import State
from ...states.step import Step

logger = logging.getLogger("turnwise.channels")


class TurnEnds:
    """Observes the steps of an engine, and tells each of the `channels` that is a `TurnEndListener` how turns end."""

    def __init__(self, channels: Iterable[object]) -> None:
        self._listeners = [channel for channel in channels if isinstance(channel, TurnEndListener)]

    def __bool__(self) -> bool:
        """Whether any channel listens."""
        return bool(self._listeners)

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """Tell the channels if the turn ended. Every error of a channel is logged."""
        if step.ended is None:
            return
        for listener in self._listeners:
            try:
                listener.turn_ended(conversation_id, step.ended)
            except BaseException:  # nothing here waits, so it is the channel's own, and must not end the event loop
                logger.warning("A channel failed at the end of a turn.", exc_info=True)


if TYPE_CHECKING:
    from ..ports import Observer

    _FILLS: type[Observer] = TurnEnds
