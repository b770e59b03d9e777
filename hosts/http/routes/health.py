"""Whether the server can do its work, for what starts and watches servers."""

from __future__ import annotations

from fastapi import APIRouter

from ....states.errors import EngineClosed
from ..dependencies import CurrentEngine
from ..schemas.document import NEEDS_NO_TOKEN
from ..schemas.engine import Health

router = APIRouter(tags=["server"])


@router.get("/health", operation_id="getHealth", openapi_extra=NEEDS_NO_TOKEN)
async def get_health(engine: CurrentEngine) -> Health:
    """Tell whether the engine is open. It needs no token and shows nothing of any conversation."""
    if not engine.is_open:
        raise EngineClosed
    return Health(status="ok")
