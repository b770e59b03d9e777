"""What an endpoint is given besides its input: the engine, the caller, and the conversation that its path names.

The aliases stand at module level, because FastAPI looks annotations up among a module's globals.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Path, Request

from ...engine.conversation import Conversation
from ...engine.engine import Engine
from ...engine.requests import LONGEST_ID, chosen_id, owned_id
from ...states.errors import InvalidInput, UnknownConversation
from .problems import UnknownCaller
from .security.limits import HttpLimits, WrongTokens

FindOwner: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
"""Says whose conversations a caller sees. It raises `PermissionError`, or returns None or "", for a caller that it does
not know."""

_MADE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:/.*)?")
"""An id that an engine has made, or that of a sub-agent of such a conversation."""


@dataclass(frozen=True)
class HostState:
    """What the endpoints of one application share. At `login_url` people sign in whom `find_owner` does not know.
    Whoever reads a text as Markdown holds `reading_markdown`."""

    engine: Engine
    find_owner: FindOwner | None
    token: str | None
    limits: HttpLimits
    wrong_tokens: WrongTokens
    login_url: str | None = None
    reading_markdown: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True)
class Caller:
    """Whose conversations a request may concern. Without an `owner` it may concern all of them."""

    owner: str | None

    def may_see(self, owner: str | None) -> bool:
        """Return whether this is the caller's own conversation, by its owner."""
        return self.owner is None or self.owner == owner

    def chosen_owner(self, wanted: str | None) -> str | None:
        """Return the owner that a new conversation has, or that a list selects by. Raises `InvalidInput` for another
        owner than the caller."""
        if self.owner is not None and wanted not in (None, self.owner):
            raise InvalidInput("owner: You may name yourself only.")
        return wanted if self.owner is None else self.owner

    async def open(self, engine: Engine, conversation_id: str) -> Conversation:
        """Return the conversation that the caller calls by this id. Raises `UnknownConversation` if there is none that
        the caller may see."""
        conversation = await self.find(engine, conversation_id)
        if conversation is None:
            raise UnknownConversation(conversation_id)
        return conversation

    async def find(self, engine: Engine, conversation_id: str) -> Conversation | None:
        """Return the conversation that the caller calls by this id, None if there is none that the caller may see.

        First comes one whose id a caller with this owner has chosen, and then one that is stored under the id itself:
        the engine or the application has made it, or a version that did not tell owners apart.
        """
        for stored in dict.fromkeys((self.new_id(conversation_id), conversation_id)):
            try:
                conversation = await engine.get(stored)
            except (InvalidInput, UnknownConversation):  # no conversation has this id, or can have it
                continue
            if self.may_see(conversation.owner):
                return conversation
        return None

    async def stored_id(self, engine: Engine, conversation_id: str) -> str:
        """Return the id under which the conversation is stored that the caller calls by this one, which may have been
        deleted."""
        conversation = await self.find(engine, conversation_id)
        if conversation is not None:
            return conversation.id
        return conversation_id if _MADE_ID.fullmatch(conversation_id) else self.new_id(conversation_id)

    def new_id(self, chosen: str) -> str:
        """Return the id under which a new conversation is stored whose id the caller has chosen."""
        return chosen if self.owner is None else owned_id(self.owner, chosen)

    def shown_id(self, stored: str) -> str:
        """Return what the caller calls the conversation that is stored under this id."""
        return stored if self.owner is None else chosen_id(self.owner, stored)

    def shown(self, data: Any) -> Any:
        """Return JSON in which ids of conversations stand as the caller calls them."""
        if self.owner is None:
            return data
        if isinstance(data, str):
            return self.shown_id(data) if len(data) <= LONGEST_ID and "~" in data else data
        if isinstance(data, dict):
            return {name: self.shown(value) for name, value in data.items()}
        return [self.shown(value) for value in data] if isinstance(data, list | tuple) else data


def host_state(request: Request) -> HostState:
    """Return what the endpoints of this application share."""
    state: HostState = request.app.state.host
    return state


CurrentHost = Annotated[HostState, Depends(host_state)]


def current_engine(host: CurrentHost) -> Engine:
    """Return the engine that the application was made with."""
    return host.engine


CurrentEngine = Annotated[Engine, Depends(current_engine)]


async def current_caller(request: Request, host: CurrentHost) -> Caller:
    """Ask the application whose conversations this caller sees. Raises `UnknownCaller` for one that it does not
    know."""
    if host.find_owner is None:
        return Caller(owner=None)
    try:
        found = host.find_owner(request)
        owner = await found if inspect.isawaitable(found) else found
    except PermissionError:
        owner = None
    if not isinstance(owner, str) or not owner:
        raise UnknownCaller(host.login_url)
    return Caller(owner=owner)


CurrentCaller = Annotated[Caller, Depends(current_caller)]

ConversationId = Annotated[str, Path(description="The id of a conversation; a slash in it is written as %2F.")]


async def conversation_of_path(
    conversation_id: ConversationId, engine: CurrentEngine, caller: CurrentCaller
) -> Conversation:
    """Return a handle of its own for this request. Raises `UnknownConversation`."""
    return await caller.open(engine, conversation_id)


TheConversation = Annotated[Conversation, Depends(conversation_of_path)]
