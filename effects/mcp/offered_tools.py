"""Makes tools for a model of what a server lists.

A server may list anything: thousands of tools, descriptions of a megabyte, schemas that are not valid. What cannot be
offered is left out, and the log says why; the other tools are offered all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import mcp_types

from ...states.errors import ConfigurationError
from ...states.values.messages import CrashContract, ToolResult
from ...states.values.value import encodable, shortened
from ..logs import performer_logger
from ..tools.tool import Tool
from ..wire.repairs import repaired
from .arguments import McpArguments
from .server import McpServer, McpTool

MAX_TOOLS = 500
"""The most tools of a server that are offered. Chosen to be more than any provider takes in one request."""

MAX_NAME = 128
"""The most characters of a tool's name, as the protocol recommends."""

MAX_DESCRIPTION = 4_000
"""The most characters of a description; a longer one is cut."""

MAX_SCHEMA = 100_000
"""The most characters of a schema as JSON. A longer one would cost more in each request than a conversation."""

_LOGGER = performer_logger("turnwise.mcp")

Call = Callable[..., Awaitable[ToolResult]]
"""Calls a tool: takes its listed form, whether it may ask the user, the arguments and the context of the call."""


class ServerTool(Tool[..., Any]):
    """A tool of a server, whose name begins with that of the server and a colon. Providers get another name for it."""

    names: ClassVar[re.Pattern[str]] = re.compile(rf"[A-Za-z0-9_-]+:[^\x00-\x1f\x7f]{{1,{MAX_NAME}}}")


class ServerTools(NamedTuple):
    """The tools that a server offers, and a sentence for each that is left out."""

    tools: tuple[ServerTool, ...] = ()
    left_out: tuple[str, ...] = ()


def tools_of(name: str, server: McpServer, listed: Iterable[mcp_types.Tool], call: Call) -> ServerTools:
    """The tools that the server called `name` offers. A warning in the log tells which are left out."""
    made: dict[str, ServerTool] = {}
    left_out: list[str] = []
    for one in _enabled(server, listed):
        if len(made) == MAX_TOOLS:
            left_out.append(f"{name} has more than {MAX_TOOLS} tools; the others are left out")
            break
        try:
            tool = _tool_of(name, server, one, call)
        except ConfigurationError as error:
            left_out.append(f"A tool of {name} is left out: {error.sentence}")
        else:
            if made.setdefault(tool.name, tool) is not tool:
                left_out.append(f"{name} lists the tool {tool.name} twice; the second one is left out")
    for sentence in left_out:
        _LOGGER.warning("%s", sentence)
    return ServerTools(tuple(made.values()), tuple(left_out))


def _enabled(server: McpServer, listed: Iterable[mcp_types.Tool]) -> Iterator[mcp_types.Tool]:
    return (one for one in listed if server.tools.get(one.name, McpTool()).enabled)


def _tool_of(name: str, server: McpServer, listed: mcp_types.Tool, call: Call) -> ServerTool:
    """Raises ConfigurationError for what cannot be offered."""
    own = server.tools.get(listed.name, McpTool())
    full_name = f"{name}:{encodable(listed.name)}"
    if _length_of(listed.input_schema) > MAX_SCHEMA:
        raise ConfigurationError(f"The schema of {shortened(full_name)} has more than {MAX_SCHEMA:,} characters.")
    approver = server.approver_of(listed.name)
    exclusive = server.elicitation if own.exclusive is None else own.exclusive
    return ServerTool(
        name=full_name,
        description=shortened(encodable(listed.description or listed.title or ""), MAX_DESCRIPTION),
        arguments=McpArguments(shortened(full_name), _schema_of(listed), checks_patterns=server.trusted),
        function=partial(call, listed, server.elicitation and exclusive),
        crash=own.crash or server.crash or _hinted_contract(server, listed),
        approval=approver is not None,
        approval_by=approver or "user",
        exclusive=exclusive,
        timeout=own.timeout or server.timeout,
    )


def _schema_of(listed: mcp_types.Tool) -> dict[str, Any]:
    """What the server means by its schema."""
    try:
        return repaired(listed.input_schema)
    except RecursionError:
        return listed.input_schema


def _hinted_contract(server: McpServer, listed: mcp_types.Tool) -> CrashContract:
    """What the hints of the server say of a call that a crash interrupted. Those of other servers do not count."""
    hints = listed.annotations
    if hints is None or not server.trusted:
        return "at_most_once"
    if hints.read_only_hint:
        return "pure"
    return "idempotent" if hints.idempotent_hint else "at_most_once"


def _length_of(schema: dict[str, Any]) -> int:
    try:
        return len(json.dumps(schema))
    except RecursionError:
        return MAX_SCHEMA + 1
