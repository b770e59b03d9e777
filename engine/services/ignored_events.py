"""Logs the events by which nothing happens."""

from __future__ import annotations

import logging

from ...states.events import Answer, Event
from ...states.states import State, pending

logger = logging.getLogger("turnwise.loop")


def log_ignored(event: Event, state: State) -> None:
    """Log that the conversation, which rests in `state`, has nothing to do about this event."""
    if isinstance(event, Answer) and event.effect_id in pending(state):
        # Nobody else will answer the effect, so this is a fault of whoever carries it out.
        logger.warning("The answer %s is not one that %s waits for.", event.type, state.type)
    else:
        logger.debug("Nothing to do about %s in %s", event.type, state.type)
