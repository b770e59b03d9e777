"""Makes one attempt to deliver something through a channel.

A channel may be code of the application: it may raise, hang, refuse to stop or cancel itself. So the attempt runs in a
task of its own, which can be abandoned, and takes a bounded time.
"""

from __future__ import annotations

import asyncio
import inspect

from ...states.values.value import encodable
from ..application_functions import pass_on_interrupt
from ..logs import performer_logger
from ..printable import printable
from .port import Channel, Delivery, NotTaken

logger = performer_logger("turnwise.channels")

ATTEMPT_TIMEOUT = 2.0
"""Seconds that one attempt may take. A tool that starts behind a delivery waits at most that long, and `GRACE`."""

GRACE = 0.5
"""Seconds that a cancelled attempt gets to clean up before it is abandoned, so that a tool behind it soon starts."""


async def attempt(channel: Channel, delivery: Delivery) -> str | None:
    """Try once. Returns None if the channel has taken the delivery, otherwise a sentence that says why not."""
    task = asyncio.ensure_future(_error_of(channel, delivery))
    try:
        await asyncio.wait({task}, timeout=ATTEMPT_TIMEOUT)
        is_in_time = task.done()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE)
    # A channel may return while a cancel that it requested itself is still pending. Then its task was cancelled.
    error = task.result() if task.done() and not task.cancelled() else asyncio.CancelledError()
    if error is None:
        return None
    if not is_in_time:
        return f"The channel {channel.name} did not take a delivery within {ATTEMPT_TIMEOUT:g} s."
    if isinstance(error, NotTaken) and (reason := _sentence_of(error)):
        return reason
    logger.warning("The channel %s failed on a delivery.", channel.name, exc_info=error)
    return f"The channel {channel.name} failed on a delivery."


async def _error_of(channel: Channel, delivery: Delivery) -> BaseException | None:
    """The error that the channel raised, or None. Every error is caught: it must not end the event loop."""
    try:
        result: object = channel.deliver(delivery)
        if inspect.isawaitable(result):  # a plain function that has returned has delivered, whatever its types say
            await result
    except BaseException as error:
        pass_on_interrupt(error)
        return error
    return None


def _sentence_of(error: NotTaken) -> str:
    """The message of the error on one line; empty if it has none that can be read."""
    try:
        return " ".join(printable(encodable(str(error))).split())
    except Exception:
        return ""
