"""Passes calls in JSON-RPC to the library of the protocol."""

from __future__ import annotations

from a2a.server.context import ServerCallContext
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.requests import Request
from starlette.responses import Response

from .....engine.engine import Engine
from ...dependencies import Caller
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


async def answered(request: Request, engine: Engine, caller: Caller) -> Response:
    """Return the answer to a call."""
    answer: Response = await JsonRpcDispatcher(TurnTasks(engine), _CallsOf(caller)).handle_requests(request)
    return answer
