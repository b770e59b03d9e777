"""Passes calls in JSON-RPC to the library of the protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import Response

from .....engine.engine import Engine
from .....states.values.value import DEEPEST, is_nested_deeper
from ...permissions import Caller
from ...problems import HttpError
from ...security.limits import HttpLimits
from ...streams.events import text_line
from ...streams.sse import EventStream
from .handler import CALLER, TurnTasks


class _CallsOf(DefaultServerCallContextBuilder):
    """Tells the handler who calls."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def build(self, request: Request) -> ServerCallContext:
        """Return the context of a call."""
        context = super().build(request)
        context.state[CALLER] = self._caller
        return context


async def answered(request: Request, engine: Engine, caller: Caller, limits: HttpLimits) -> Response:
    """Return the answer to a call. Raises `HttpError`. A stream is written as those of all protocols are."""
    await _check(request)
    answer: Response = await JsonRpcDispatcher(TurnTasks(engine), _CallsOf(caller)).handle_requests(request)
    return EventStream(_events(answer.body_iterator), limits) if isinstance(answer, EventSourceResponse) else answer


async def _events(events: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    """Yield the events of the library, each of which has its data as JSON, and perhaps a name."""
    async for event in events:
        name = f"event: {event['event']}\n" if "event" in event else ""
        yield name.encode() + text_line(event["data"]) + b"\n"


async def _check(request: Request) -> None:
    """Raise `HttpError` for a body that the library fails to read, or to quote in its answer. What is no JSON at all it
    refuses itself."""
    try:
        call = await request.json()
        if is_nested_deeper(call, DEEPEST):
            raise HttpError("malformed_json", "The body is nested more than 100 levels deep.")
        json.dumps(call, ensure_ascii=False).encode()
    except json.JSONDecodeError:
        return
    except (ValueError, RecursionError):  # a number of thousands of digits, or half a character (a lone surrogate)
        raise HttpError("malformed_json") from None
