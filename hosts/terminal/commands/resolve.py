"""Says what became of a tool that was running when a program died."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

from ....engine.resolving import calls_in_doubt, resolve
from ....states.events import Resolution
from ..configuration.databases import store_for, store_to_change
from ..configuration.settings import Settings
from ..output.printable import one_line
from .show import LONGEST_CALL

VERDICTS: Mapping[str, Resolution] = {verdict: verdict for verdict in get_args(Resolution)}
"""What can be said of a call in doubt, as it is typed."""


async def list_doubts(settings: Settings, conversation_id: str) -> int:
    """Print the calls of a conversation that are in doubt."""
    async with store_for(settings) as store:
        doubtful = await calls_in_doubt(store, conversation_id, datetime.now(UTC))
    for call in doubtful:
        print(f"{call.call_id}  {one_line(f'{call.name}({call.arguments})', LONGEST_CALL)}")
    if not doubtful:
        print("Nothing is in doubt.")
    return 0


async def settle(settings: Settings, conversation_id: str, call_id: str | None, verdict: str) -> int:
    """Store what became of a call, one of `VERDICTS`. The database must not be open in a program."""
    async with store_to_change(settings) as store:
        state = await resolve(store, conversation_id, call_id, VERDICTS[verdict], datetime.now(UTC))
    goes_on = "; its program, or turnwise chat, goes on" if state.works else ""
    print(f"Settled; the conversation is in {state.type}{goes_on}.")
    return 0
