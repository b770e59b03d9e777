"""Deletes a conversation, and with it the sub-agents that its turns have started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...states.errors import StoreError, UnknownConversation
from ..handles.children import children_of
from .registry import ConversationRegistry

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.records.summary import Summary

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
        that it starts meanwhile go last. A conversation that waits for sub-agents is not driven meanwhile: their end
        would have it go on. A caller that is cancelled stops waiting. Raises `UnknownConversation` and `StoreError`."""
        await asyncio.shield(asyncio.ensure_future(self._delete(conversation_id)))

    async def _delete(self, conversation_id: str) -> None:
        children = await children_of(self._store, conversation_id)
        is_waiting = any(child.state != "closed" for child in children)
        if is_waiting:
            await self._registry.drop(conversation_id, UnknownConversation(conversation_id))
        try:
            await self._delete_all(children)
            await self._delete_one(conversation_id)
        except StoreError:
            if is_waiting:
                await self._registry.take_over(conversation_id)
            raise
        await self._delete_all(await children_of(self._store, conversation_id))

    async def _delete_one(self, conversation_id: str) -> None:
        await self._store.delete(conversation_id)
        await self._registry.drop(conversation_id, UnknownConversation(conversation_id))
        await self._forget(conversation_id)

    async def _delete_all(self, conversations: Iterable[Summary]) -> None:
        for conversation in conversations:
            with suppress(UnknownConversation):  # somebody else has deleted it
                await self._delete(conversation.id)
