"""The endpoint of AG-UI."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import ConfigDict, ValidationError
from starlette.responses import Response

from ....states.errors import faults_of
from ..dependencies import CurrentCaller, CurrentEngine, CurrentHost
from ..problems import problems
from ..schemas import Body
from ..streams import EventStream

router: APIRouter = APIRouter(tags=["agui"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "The events of the run.", "content": {"text/event-stream": {}}}
}


class RunBody(Body):
    """A `RunAgentInput` of AG-UI 1.0; https://docs.ag-ui.com describes its other members."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    threadId: str
    runId: str
    messages: list[dict[str, Any]]


@router.post(
    "/agui",
    operation_id="runAgent",
    response_class=Response,
    responses={**_STREAM, **problems(400, 401, 403, 408, 413, 415, 422, 429, 503)},
)
async def run_agent(body: RunBody, engine: CurrentEngine, caller: CurrentCaller, host: CurrentHost) -> Response:
    """Run the agent once: answer the last message, or go on after an interrupt.

    The thread is the conversation; it is created with its first message. The turn goes on if the client disconnects,
    unless `forwardedProps.turnwise.stopOnDisconnect` is true: then what was written is kept as a stopped answer.
    """
    await asyncio.to_thread(_load)
    from ag_ui.core import RunAgentInput

    from .agui_runs import AgentRun

    try:
        run = RunAgentInput.model_validate(body.model_dump())
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in faults_of(error)]
        raise RequestValidationError(faults) from None
    begun = AgentRun(run, engine, caller)
    return EventStream(begun.events(), host.limits, begun.abandon)


def _load() -> None:
    """Import what takes a quarter of a second, once, so that the other clients need not wait for it."""
