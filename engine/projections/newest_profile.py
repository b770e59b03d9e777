"""Finds the profile of the last turn of a conversation, which a log holds in the end of that turn."""

from __future__ import annotations

from ...states.context import Context
from ...states.states import State
from .projection import ReadEntries

FEW_STEPS = 4
"""How many of the newest steps are read first. A turn has mostly ended in the very last one."""


async def profile_of_last_turn(state: State, context: Context, read: ReadEntries) -> str:
    """Return the profile of the turn that ended last; "" without profiles, and before the first turn has ended.

    Reads as few of the newest steps as it can. Raises `StoreError`.
    """
    last, count = state.book.seq, FEW_STEPS
    while context.policy.profiles and state.book.turn > 0 and last > 0:
        first = max(0, last - count)
        for entry in reversed(await read(first, last)):
            if entry.ended is not None:
                return entry.ended.profile
        last, count = first, count * 4
    return ""
