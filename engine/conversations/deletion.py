"""Deletes a conversation, and with it the sub-agents that its turns have started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...persistence.errors import TracesLeft
from ...states.errors import StoreError, UnknownConversation
from ...states.states import Busy, Failed
from ...states.values.turn import Owed, Waiting
from ..handles.children import children_of
from .registry import ConversationRegistry

if TYPE_CHECKING:
    from ...persistence.ports import Store
    from ...persistence.summaries import Summary

Forget = Callable[[str], Awaitable[None]]
"""Forgets whatever is kept of a conversation that is gone."""

ReturnMail = Callable[[str, Sequence[Waiting | Owed], bytes], Awaitable[None]]
"""Tells the agents whose messages waited in a conversation that is gone, or had yet to be passed on. It is given the
link of the newest step, too. Must not raise."""


class Deletion:
    """Deletes conversations from a store. `forget` is called for each, then `return_mail`."""

    def __init__(self, store: Store, registry: ConversationRegistry, forget: Forget, return_mail: ReturnMail) -> None:
        self._store = store
        self._registry = registry
        self._forget = forget
        self._return_mail = return_mail
        self._traces: TracesLeft | None = None

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation. Its sub-agents go first, so that one whose deletion fails is found again. It starts
        none meanwhile; those that another engine has it start go last, and once it is gone the store takes none.

        A conversation that waits for sub-agents is not driven meanwhile: their end would have it go on. Its callers
        learn that it is gone once it is; if it cannot be deleted, they go on waiting. A caller of this method that is
        cancelled stops waiting. Raises `UnknownConversation` and `StoreError`.
        """
        await asyncio.shield(asyncio.ensure_future(self._delete(conversation_id)))
        if self._traces is not None:
            raise self._traces

    async def _delete(self, conversation_id: str) -> None:
        async with self._registry.family(conversation_id):
            await self._delete_family(conversation_id)
        await self._delete_all(await children_of(self._store, conversation_id))

    async def _delete_family(self, conversation_id: str) -> None:
        children = await children_of(self._store, conversation_id)
        is_waiting = any(child.state != "closed" for child in children)
        if is_waiting:
            await self._registry.halt(conversation_id)
        try:
            await self._delete_all(children)
            await self._delete_one(conversation_id)
        except UnknownConversation as error:  # another engine has deleted it
            if is_waiting:
                await self._registry.drop(conversation_id, error)
            raise
        except Exception:  # a store of the application may raise anything
            if is_waiting:
                await self._registry.take_over(conversation_id)
            raise

    async def _delete_one(self, conversation_id: str) -> None:
        unread, link = await self._unread(conversation_id)
        try:
            await self._store.delete(conversation_id)
        except TracesLeft as error:  # it is gone all the same
            self._traces = error
        await self._registry.drop(conversation_id, UnknownConversation(conversation_id))
        await self._forget(conversation_id)
        await self._return_mail(conversation_id, unread, link)

    async def _unread(self, conversation_id: str) -> tuple[Sequence[Waiting | Owed], bytes]:
        """Return the messages that wait or have yet to be passed on, and the link of the newest step; none if the
        conversation cannot be read: what is damaged can be deleted, too."""
        try:
            loaded = await self._store.load(conversation_id)
        except (StoreError, UnknownConversation):
            return (), b""
        state = loaded.state
        return (*state.book.owed, *(state.inbox if isinstance(state, Busy | Failed) else ())), loaded.log.chain

    async def _delete_all(self, conversations: Iterable[Summary]) -> None:
        for conversation in conversations:
            with suppress(UnknownConversation):  # somebody else has deleted it
                await self._delete(conversation.id)
