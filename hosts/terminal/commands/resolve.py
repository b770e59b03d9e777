"""`turnwise resolve`: says whether a tool ran that was interrupted when its program ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import get_args

from ....engine.resolving import calls_in_doubt, resolve
from ....states.errors import InvalidInput, Refused
from ....states.events import Resolution
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_reading, open_for_writing
from ..configuration.settings import Settings
from ..output.printable import one_line
from .show import MAX_CALL

VERDICTS: Mapping[str, Resolution] = {verdict: verdict for verdict in get_args(Resolution)}
"""What can be said about an interrupted call, by the word on the command line."""


async def list_doubts(settings: Settings, given_id: str) -> int:
    """Print the interrupted calls of a conversation."""
    async with open_for_reading(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        calls = await calls_in_doubt(store, conversation_id, datetime.now(UTC))
    for call in calls:
        print(f"{call.call_id}  {one_line(f'{call.name}({call.raw_arguments})', MAX_CALL)}")
    if not calls:
        print("No call is in doubt.")
    return 0


async def settle(settings: Settings, given_id: str, call_id: str | None, verdict: str) -> int:
    """Store what became of a call, one of `VERDICTS`. No other program may have the database open. Raises
    `InvalidInput` if the call is not in doubt."""
    async with open_for_writing(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        try:
            state = await resolve(store, conversation_id, call_id, VERDICTS[verdict], datetime.now(UTC))
        except Refused as refused:
            if refused.code != "wrong_state":
                raise
            call = "No call of this conversation is" if call_id is None else "This call is not"
            raise InvalidInput(f"{call} in doubt.") from refused
    next_step = "; it continues in its program or in turnwise chat" if state.works else ""
    print(f"Resolved; the conversation is in {state.type}{next_step}.")
    return 0
