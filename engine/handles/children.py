"""The sub-agents of a conversation, found by their ids: `<id of the conversation>/<effect that started them>`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.records.summary import Summary

PAGE = 100
"""How many sub-agents are looked up at once: more than a conversation usually has."""


async def children_of(store: Store, conversation_id: str) -> tuple[Summary, ...]:
    """Return the sub-agents that this conversation has started, the first one first. A copy that somebody made of one
    has an id of its own and is left out. Raises `StoreError`."""
    found: dict[int, Summary] = {}
    before: str | None = None
    while page := await store.list(parent=conversation_id, limit=PAGE, before=before):
        for summary in page:
            parent_id, effect_id = parent_of(summary.id)
            if parent_id == conversation_id:
                found[effect_id] = summary
        before = page[-1].cursor
    return tuple(found[effect_id] for effect_id in sorted(found))


def parent_of(child_id: str) -> tuple[str, int]:
    """Return the parent that a sub-agent's id names, and the effect that started it; ("", 0) for other ids. `Pure.`"""
    parent_id, _, effect_id = child_id.rpartition("/")
    return (parent_id, int(effect_id)) if effect_id.isdecimal() and parent_id else ("", 0)
