"""What conversations may choose, models and tools, and what the caller may do with them."""

from __future__ import annotations

from fastapi import APIRouter

from ..dependencies import CurrentCaller, CurrentEngine
from ..permissions import PERMISSIONS
from ..schemas.engine import ModelsAnswer, PermissionsAnswer, ShownTool, ToolsAnswer

router = APIRouter(tags=["engine"])


@router.get("/models", operation_id="listModels")
async def list_models(engine: CurrentEngine, caller: CurrentCaller) -> ModelsAnswer:
    """List the models that conversations may choose."""
    return ModelsAnswer(models=list(engine.model_names))


@router.get("/tools", operation_id="listTools")
async def list_tools(engine: CurrentEngine, caller: CurrentCaller) -> ToolsAnswer:
    """List the tools that conversations may choose."""
    return ToolsAnswer(tools=[ShownTool.of(tool) for tool in engine.tools])


@router.get("/permissions", operation_id="listPermissions")
async def list_permissions(caller: CurrentCaller) -> PermissionsAnswer:
    """List what the caller may do, so that a client offers nothing else."""
    return PermissionsAnswer(owner=caller.owner, permissions=[name for name in PERMISSIONS if caller.may(name)])
