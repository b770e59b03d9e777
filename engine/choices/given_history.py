"""The history that a new conversation is given to begin with, as the application hands it over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import BaseModel

from ...states.errors import InvalidInput
from ...states.openai_reading import MAX_MESSAGES, RepairedHistory, repair_history

GivenMessages = Iterable[Mapping[str, Any] | BaseModel]
"""Messages in OpenAI's chat format: dictionaries, or the objects that the libraries of providers return."""

_LOGGED = 10
"""How many repairs the log names."""

logger = logging.getLogger("turnwise.engine")


async def read_history(messages: GivenMessages | None, system: str) -> RepairedHistory:
    """Return the history of these messages, checked and repaired, and the system prompt: `system`, if it is not empty,
    or that of the history. A long history takes a second, in which other conversations go on. Raises `InvalidInput`."""
    if not isinstance(system, str):
        raise InvalidInput("system: The system prompt is a text.")
    if messages is None:
        return RepairedHistory(system, (), ())
    if isinstance(messages, Iterator):
        messages = list(islice(messages, MAX_MESSAGES + 1))
    return await asyncio.to_thread(repair_history, messages, system)


def log_repairs(conversation_id: str, repairs: tuple[str, ...]) -> None:
    """Write one warning that names the first repairs, if there are any."""
    if repairs:
        first = " ".join(repairs[:_LOGGED])
        rest = "" if len(repairs) <= _LOGGED else f" Conversation.repairs() names {len(repairs) - _LOGGED} more."
        logger.warning("The history of the conversation %s was repaired: %s%s", conversation_id, first, rest)
