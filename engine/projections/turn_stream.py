"""The updates of one turn, cut out of those of its conversation.

They begin with the message that the turn took, and end where the turn ends, or waits for a person for the first time
after that message.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from .updates.snapshot import SnapshotUpdate
from .updates.stored import MessageUpdate, StateChangeUpdate, TurnEndedUpdate
from .updates.update import Update


async def updates_of_turn(
    updates: AsyncGenerator[Update, None], message_id: str, stopped: Callable[[], Awaitable[object]]
) -> AsyncGenerator[Update, None]:
    """Yield those of `updates` that belong to the turn which takes this message, and close `updates`.

    If they end before the turn stops, or begin anew with a snapshot because some cannot be shown, `stopped` is awaited:
    it returns when the turn has stopped, or raises why it never will.
    """
    turn: int | None = None
    async with aclosing(updates):
        async for update in updates:
            if isinstance(update, SnapshotUpdate):
                break
            if turn is None and isinstance(update, MessageUpdate) and update.message_id == message_id:
                turn = update.turn
            if turn is None or _turn_of(update) != turn:
                continue
            yield update
            if _stops(update):
                return
    await stopped()


def _turn_of(update: Update) -> int:
    return update.state.turn if isinstance(update, SnapshotUpdate | StateChangeUpdate) else update.turn


def _stops(update: Update) -> bool:
    """Whether the turn of this update ends with it, or waits for a person."""
    if isinstance(update, StateChangeUpdate):
        return update.state.waits_for_person
    return isinstance(update, TurnEndedUpdate)
