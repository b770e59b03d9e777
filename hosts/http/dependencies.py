"""What an endpoint is given besides its input: the engine, the caller, and the conversation that its path names.

The aliases stand at module level, because FastAPI looks annotations up among a module's globals.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from fastapi import Depends, Path, Request
from starlette.convertors import Convertor, register_url_convertor

from ...engine.conversation import Conversation
from ...engine.engine import Engine
from .permissions import Caller, Permission
from .problems import UnknownCaller
from .security import HttpLimits, WrongTokens

FindOwner: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
"""Says whose conversations a caller sees. It raises `PermissionError`, or returns None or "", for a caller that it does
not know."""


@dataclass(frozen=True)
class HostState:
    """What the endpoints of one application share. At `login_url` people sign in whom `find_owner` does not know; those
    whom it knows have the permissions that are `allowed`. Whoever reads a text as Markdown holds `reading_markdown`."""

    engine: Engine
    find_owner: FindOwner | None
    token: str | None
    limits: HttpLimits
    wrong_tokens: WrongTokens
    login_url: str | None = None
    allowed: frozenset[Permission] = frozenset()
    reading_markdown: asyncio.Lock = field(default_factory=asyncio.Lock)


def _host_state(request: Request) -> HostState:
    """Return what the endpoints of this application share."""
    state: HostState = request.app.state.host
    return state


CurrentHost = Annotated[HostState, Depends(_host_state)]


def _current_engine(host: CurrentHost) -> Engine:
    """Return the engine that the application was made with."""
    return host.engine


CurrentEngine = Annotated[Engine, Depends(_current_engine)]


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
    return Caller(owner, host.allowed)


CurrentCaller = Annotated[Caller, Depends(current_caller)]

ConversationId = Annotated[str, Path(description="The id of a conversation; a slash in it is written as %2F.")]


async def _conversation_of_path(
    conversation_id: ConversationId, engine: CurrentEngine, caller: CurrentCaller
) -> Conversation:
    """Return a handle of its own for this request. Raises `UnknownConversation`."""
    return await caller.open(engine, conversation_id)


TheConversation = Annotated[Conversation, Depends(_conversation_of_path)]


class _ConversationIdConvertor(Convertor[str]):
    """Takes an id in a path, with the slashes of a sub-agent's id: that of its parent, a number and a mark, behind
    slashes."""

    regex = "[^/]+(?:/[0-9]+(?:/[0-9a-f]{12})?)*"

    def convert(self, value: str) -> str:
        """Return the id as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return the id as it is."""
        return value


register_url_convertor("conversation_id", _ConversationIdConvertor())

CONVERSATION = "/conversations/{conversation_id:conversation_id}"
"""The path of a conversation."""
