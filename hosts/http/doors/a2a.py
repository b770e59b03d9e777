"""The endpoints of A2A, which exist only where its library is installed."""

from __future__ import annotations

from importlib.util import find_spec

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..dependencies import CurrentCaller, CurrentEngine, CurrentHost

IS_INSTALLED = find_spec("a2a") is not None
"""Whether the extra `a2a` is installed."""

router: APIRouter = APIRouter(tags=["a2a"], include_in_schema=False)
"""The protocol describes its own endpoints: they are not part of the OpenAPI document."""


@router.get("/.well-known/agent-card.json")
async def show_agent_card(request: Request, host: CurrentHost) -> Response:
    """Show what other agents read first, at the address under which this was asked for."""
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict

    from .a2a_tasks import agent_card

    address = str(request.base_url).rstrip("/")
    return JSONResponse(agent_card_to_dict(agent_card(address, needs_token=host.token is not None)))


@router.post("/a2a")
async def call_agent(request: Request, engine: CurrentEngine, caller: CurrentCaller, host: CurrentHost) -> Response:
    """Carry out a request in JSON-RPC."""
    from .a2a_tasks import answered

    return await answered(request, engine, caller, host.limits)
