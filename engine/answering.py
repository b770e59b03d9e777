"""Hands the answers of a dispatcher to their conversations.

Every answer comes through here, whoever made it, and is validated here once: what is damaged would reach the log, which
could not be read again.

A conversation that is in memory takes its answer at once. Another one is loaded first, which takes a task of its own,
because a dispatcher does not wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..states.errors import EngineClosed, StoreError, UnknownConversation
from ..states.events import Answer
from .conversations.registry import ConversationRegistry
from .requests import checked_answer, checked_id

logger = logging.getLogger("turnwise.engine")


class AnswerIntake:
    """Takes in answers for the conversations of a registry. While its engine `is_closing` it loads none of them."""

    def __init__(self, registry: ConversationRegistry, is_closing: Callable[[], bool]) -> None:
        self._registry = registry
        self._is_closing = is_closing
        self._loading: set[asyncio.Task[None]] = set()

    def take(self, conversation_id: str, answer: Answer) -> None:
        """Hand in an answer, and return at once. Raises `InvalidInput` for what is not an answer, or does not hold what
        it declares; then nothing has happened."""
        asyncio.get_running_loop()  # raises RuntimeError in another thread
        checked_id(conversation_id)
        stored = checked_answer(answer)
        if not self._registry.answer(conversation_id, stored) and not self._is_closing():
            task = asyncio.ensure_future(self._load_and_answer(conversation_id, stored))
            self._loading.add(task)
            task.add_done_callback(self._loading.discard)

    async def wait(self) -> None:
        """Return when every conversation that is being loaded has taken its answer, or cannot."""
        if self._loading:
            await asyncio.wait(self._loading)

    async def _load_and_answer(self, conversation_id: str, answer: Answer) -> None:
        try:
            loop = await self._registry.read(conversation_id)
            loop.answer(answer)
            await loop.handled()
        except (EngineClosed, UnknownConversation, StoreError) as error:
            logger.warning("An answer for the conversation %s could not be taken: %s", conversation_id, error)
