"""`turnwise fork`: copies a conversation within its database."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from ....persistence.maintenance.fork import fork as fork_in
from ....states.errors import InvalidInput
from ....states.values.value import MAX_QUOTED, shortened
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_writing
from ..configuration.settings import Settings
from ..output.printable import counted


async def fork(settings: Settings, given_id: str, at: str | None) -> int:
    """Copy a conversation up to the step `at`, or up to its newest rest, and print the id of the copy."""
    step = None if at is None else _step_number(at)
    new_id = str(uuid.uuid4())
    async with open_for_writing(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        landing = await fork_in(store, conversation_id, new_id, step, datetime.now(UTC))
    left_out = len(landing.withdrawn)
    without = f", without {counted(left_out, 'message')} that waited there" if left_out else ""
    print(f"{new_id}  forked from {conversation_id} at step {landing.seq}, {landing.state.type}{without}")
    return 0


def _step_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"--at takes the number of a step, not {shortened(text, MAX_QUOTED)}.") from None
