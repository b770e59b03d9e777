"""The sub-agents of a conversation, found by their ids, which are the keys of the effects that started them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects.context import effect_of_key
from ...persistence.summaries import ConversationFilter

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.summaries import Summary

PAGE = 100
"""How many sub-agents are looked up at once: more than a conversation usually has."""


async def children_of(store: Store, conversation_id: str) -> tuple[Summary, ...]:
    """Return the sub-agents that this conversation has started, the first one first. A copy that somebody made of one
    has an id of its own and is left out. Raises `StoreError`."""
    found: dict[str, Summary] = {}
    before: str | None = None
    while page := await store.list(ConversationFilter(parent=conversation_id, limit=PAGE, before=before)):
        found.update((summary.id, summary) for summary in page if effect_of_key(summary.id)[0] == conversation_id)
        before = page[-1].cursor
    return tuple(found[each] for each in sorted(found, key=lambda child_id: effect_of_key(child_id)[1]))


async def child_of(store: Store, parent_id: str, effect_id: int) -> str | None:
    """Return the id of the sub-agent that this effect has started, or None. Of several, the newest is that of the
    conversation that has the id of the parent now. Raises `StoreError`."""
    candidates = await store.ids(f"{parent_id}/{effect_id}")
    return next((each for each in reversed(candidates) if effect_of_key(each) == (parent_id, effect_id)), None)
