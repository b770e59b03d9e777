"""Makes one call of a tool of a server, from its arguments to the result that the model reads.

What can go wrong outside of this process goes wrong in a call: the connection is lost, the server answers with what the
protocol does not allow, or with an error. Each of these becomes an error result, and none of them ends the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

from ...states.values.messages import ToolResult
from ...states.values.value import encodable, shortened
from ..logs import performer_logger
from ..tools.context import ToolContext
from .elicitation import Asker, NotOffered, answer_requests
from .listing import list_tools
from .results import result_of

MAX_ROUNDS = 10
"""How often a server may ask for something more before it answers a call."""

KEY = "turnwise/idempotency-key"
"""The name under which the idempotency key of a call stands in the `_meta` of its request."""

_PAUSE = 0.1
"""Seconds until a server is asked again that needs nothing but time, and between two lines of progress."""

_LOST = ("Connection closed", "SSE stream ")
"""How the messages of the SDK's errors for a lost connection begin. A server may use their code for its own errors."""

_LOGGER = performer_logger("turnwise.mcp")


class ConnectionLost(Exception):
    """The connection ended while a call ran."""


class McpCall:
    """One call of a listed tool. `key` is its idempotency key if the server is to know it."""

    def __init__(
        self, client: Client, listed: mcp_types.Tool, asker: Asker, context: ToolContext, key: str | None
    ) -> None:
        self._client = client
        self._tool = listed.name
        self._asker = asker
        self._meta: Any = None if key is None else {KEY: key}
        self._progress = _Progress(context.progress)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Return the result of the call. Raises `ConnectionLost`. If the task is cancelled, the server is told."""
        try:
            return result_of(await self._answer(arguments))
        except MCPError as error:
            if error.code == mcp_types.CONNECTION_CLOSED and error.message.startswith(_LOST):
                raise ConnectionLost from error
            return _failure(f"The server answered with an error: {error.message}")
        except (OSError, httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise ConnectionLost from error
        except NotOffered as error:
            return _failure(f"The server asks for {error}, which it cannot have here.")
        except ValidationError:
            _LOGGER.warning("%s returned what the protocol does not allow", self._tool)
            return _failure("The server returned what the protocol does not allow.")
        except RuntimeError:  # so the SDK says that the structured content does not fit the schema of the output
            _LOGGER.warning("%s returned what its own schema does not allow", self._tool)
            return _failure("The tool ran, but its result does not fit the schema that it declares.")

    async def _answer(self, arguments: dict[str, Any]) -> CallToolResult:
        """The final answer of the server, which may need answers of the user before."""
        responses: mcp_types.InputResponses | None = None
        state: str | None = None
        for _ in range(MAX_ROUNDS):
            answer = await self._listed_again(partial(self._send, arguments, responses, state))
            if not isinstance(answer, InputRequiredResult):
                return answer
            responses, state = None, answer.request_state
            if answer.input_requests:
                responses = await answer_requests(answer.input_requests, self._asker)
            else:
                await asyncio.sleep(_PAUSE)
        raise NotOffered(f"more than {MAX_ROUNDS} answers")

    async def _send(
        self, arguments: dict[str, Any], responses: mcp_types.InputResponses | None, state: str | None
    ) -> CallToolResult | InputRequiredResult:
        return await self._client.session.call_tool(
            self._tool,
            arguments,
            progress_callback=self._progress.show,
            input_responses=responses,
            request_state=state,
            meta=self._meta,
            allow_input_required=True,
        )

    async def _listed_again(
        self, send: Callable[[], Awaitable[CallToolResult | InputRequiredResult]]
    ) -> CallToolResult | InputRequiredResult:
        """Send the request, and once more if the server refused it because the tool has changed since it was listed."""
        try:
            return await send()
        except MCPError as error:
            if error.code != mcp_types.HEADER_MISMATCH:
                raise
            await list_tools(self._client)
            return await send()


class _Progress:
    """Shows the progress of a call, but not more of it than somebody could read."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._next = 0.0

    async def show(self, progress: float, total: float | None, message: str | None) -> None:
        """Show the message, or else how far the call is."""
        if (now := asyncio.get_running_loop().time()) < self._next:
            return
        self._next = now + _PAUSE
        of_total = "" if total is None else f" of {total:g}"
        self._show(shortened(encodable(message or f"{progress:g}{of_total}")))


def _failure(sentence: str) -> ToolResult:
    return ToolResult(text=shortened(encodable(sentence)), error=True)
