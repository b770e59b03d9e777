"""One attempt to hand a delivery to a channel.

A channel is foreign code: it may raise, hang, refuse to stop or cancel itself. None of that may hold up whoever waits
for the attempt, so it is a task of its own, which can be left behind.
"""

from __future__ import annotations

import asyncio
import inspect
import logging

from ..text import encodable, printable
from .port import Channel, Delivery, NotTaken

logger = logging.getLogger("turnwise.channels")

ATTEMPT = 2.0
"""Seconds that one attempt may take. What follows a delivery waits that long at most (case B2), and `GRACE`."""

GRACE = 0.5
"""Seconds that an attempt which was told to stop may clean up before it is left behind. Ours."""


async def attempt(channel: Channel, delivery: Delivery) -> str | None:
    """Try once. Returns None if the channel has taken the delivery, else why not, in a sentence."""
    trying = asyncio.ensure_future(_error_of(channel, delivery))
    try:
        await asyncio.wait({trying}, timeout=ATTEMPT)
        in_time = trying.done()
    finally:
        if not trying.done():
            trying.cancel()
            await asyncio.wait({trying}, timeout=GRACE)
    # A channel may return with a cancel of its own still to come; then its task was cancelled.
    error = trying.result() if trying.done() and not trying.cancelled() else asyncio.CancelledError()
    if error is None:
        return None
    if not in_time:
        return f"The channel {channel.name} did not take a delivery within {ATTEMPT:g} s."
    if isinstance(error, NotTaken) and (reason := _sentence_of(error)):
        return reason
    logger.warning("The channel %s failed on a delivery.", channel.name, exc_info=error)
    return f"The channel {channel.name} failed on a delivery."


async def _error_of(channel: Channel, delivery: Delivery) -> BaseException | None:
    """What the channel raised, or None. Whatever it raises is caught: it must not end the engine's loop."""
    try:
        handed_over: object = channel.deliver(delivery)
        if inspect.isawaitable(handed_over):  # a plain function that returned has delivered, whatever its types say
            await handed_over
    except BaseException as error:
        return error
    return None


def _sentence_of(error: NotTaken) -> str:
    """What a channel says of its failure, on one line; empty if it says nothing that can be read."""
    try:
        return " ".join(printable(encodable(str(error))).split())
    except Exception:
        return ""
