"""Deletes a conversation, and with it the sub-agents that its turns have started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...states.errors import UnknownConversation
from .registry import ConversationRegistry

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.records.summary import Summary

PAGE = 100
"""How many sub-agents are looked up at once: more than a conversation usually has."""

Forget = Callable[[str], Awaitable[None]]
"""Forgets whatever is kept of a conversation that is gone."""


class Deletion:
    """Deletes conversations from a store. `forget` is called for each."""

    def __init__(self, store: Store, registry: ConversationRegistry, forget: Forget) -> None:
        self._store = store
        self._registry = registry
        self._forget = forget

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. Its sub-agents go first, so that one whose deletion fails is found again; and those
        that it starts meanwhile go last. A caller that is cancelled stops waiting. Raises `UnknownConversation` and
        `StoreError`."""
        await asyncio.shield(asyncio.ensure_future(self._delete(conversation_id)))

    async def _delete(self, conversation_id: str) -> None:
        await self._delete_children(conversation_id)
        await self._delete_one(conversation_id)
        await self._delete_children(conversation_id)

    async def _delete_one(self, conversation_id: str) -> None:
        await self._store.delete(conversation_id)
        await self._registry.drop(conversation_id, UnknownConversation(conversation_id))
        await self._forget(conversation_id)

    async def _delete_children(self, conversation_id: str) -> None:
        for child in await children_of(self._store, conversation_id):
            with suppress(UnknownConversation):  # somebody else has deleted it
                await self._delete(child.id)


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
        before = page[-1].id
    return tuple(found[effect_id] for effect_id in sorted(found))


def parent_of(child_id: str) -> tuple[str, int]:
    """Return the parent that a sub-agent's id names, and the effect that started it; ("", 0) for other ids. `Pure.`"""
    parent_id, _, effect_id = child_id.rpartition("/")
    return (parent_id, int(effect_id)) if effect_id.isdecimal() and parent_id else ("", 0)
