"""The state machine as a map, for pages that draw it."""

from __future__ import annotations

from fastapi import APIRouter

from ...diagrams.machine_map import MachineMap, machine_map
from ..dependencies import CurrentCaller

router = APIRouter(tags=["engine"])


@router.get("/machine", operation_id="getMachine")
async def get_machine(caller: CurrentCaller) -> MachineMap:
    """Return the states, the junctions and the ways between them, each with its place in a drawing."""
    return machine_map()
