"""Sessions of browsers, which cannot send a token with every request: they exchange it for a cookie."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ..dependencies import CurrentHost
from ..problems import problems
from ..schemas.body import BODY_REFUSALS
from ..schemas.document import NEEDS_NO_TOKEN
from ..schemas.engine import GivenToken
from ..security.session_cookie import clear_session, set_session

router = APIRouter(tags=["server"])


@router.post(
    "/session",
    status_code=204,
    operation_id="openSession",
    responses=problems(*BODY_REFUSALS),
    openapi_extra=NEEDS_NO_TOKEN,
)
async def open_session(body: GivenToken, request: Request, response: Response, host: CurrentHost) -> None:
    """Exchange the token for a cookie that no script can read."""
    set_session(response, request, body.token, host.token, host.wrong_tokens)


@router.delete("/session", status_code=204, operation_id="closeSession", openapi_extra=NEEDS_NO_TOKEN)
async def close_session(request: Request, response: Response) -> None:
    """Remove the cookie."""
    clear_session(response, request)
