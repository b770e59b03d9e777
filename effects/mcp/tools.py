"""Makes tools for a model of what a server lists, and carries out the calls of them.

A server may list anything: thousands of tools, descriptions of a megabyte, schemas that are not valid. What cannot be
offered is left out, and the log says why; the other tools are offered all the same.

What can go wrong outside of this process goes wrong in a call: the connection is lost, the server answers with what
the protocol does not allow, or with an error. Each of these becomes an error result, and none of them ends the turn.
What a server returned is a text for the model, and the files that it is shown beside it. All of it is data. Whatever a
server returns, nothing is carried out because of it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote

import anyio
import httpx2
import mcp_types
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from ...states.errors import ConfigurationError, InvalidInput
from ...states.values.messages import CrashContract, ToolResult
from ...states.values.value import encodable, shortened
from ..files import DEFAULT_RULES, File, PreparedFile, prepare_one
from ..logs import performer_logger
from ..schemas.repairs import repaired
from ..text import in_thread_if_long
from ..tools.context import ToolContext
from ..tools.results import DONE, ResultWithFiles, text_of
from ..tools.tool import Tool
from .asking import Asker, McpArguments, NotOffered, answer_requests
from .server import McpServer, McpTool

_LOGGER = performer_logger("turnwise.mcp")

MAX_TOOLS = 500
"""The most tools of a server that are offered. Chosen to be more than any provider takes in one request."""

MAX_NAME = 128
"""The most characters of a tool's name, as the protocol recommends."""

MAX_DESCRIPTION = 4_000
"""The most characters of a description; a longer one is cut."""

MAX_SCHEMA = 100_000
"""The most characters of a schema as JSON. A longer one would cost more in each request than a conversation."""

Call = Callable[..., Awaitable[ToolResult | ResultWithFiles]]
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
        arguments=McpArguments(shortened(full_name), _schema_of(listed)),
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


_MAX_PAGES = 100
"""The most pages that are read, so that a server whose list never ends does not hold anybody up."""


async def list_tools(client: Client) -> list[mcp_types.Tool]:
    """Return the tools that the server lists; a few more than are offered at most. Raises what the SDK raises."""
    listed: list[mcp_types.Tool] = []
    cursor: str | None = None
    known: set[str | None] = {None, ""}
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        listed += page.tools
        cursor = page.next_cursor
        if cursor in known or len(listed) > MAX_TOOLS:  # no further page, or one that was read before
            break
        known.add(cursor)
    return listed


class ListingFilter:
    """Removes the tools that the protocol does not allow from what the server called `name` lists, and the schemas of
    results unless it `is_trusted`: the SDK applies them, which may take hours. `version` is that of the protocol, and
    None until the connection is made.

    The SDK refuses a page as a whole if the protocol does not allow one of its tools. So the schema of such a tool is
    repaired before the SDK reads the message; a tool that is not allowed even then is removed, and the others are
    offered.
    """

    def __init__(self, name: str, *, is_trusted: bool) -> None:
        self.version: str | None = None
        self._name = name
        self._is_trusted = is_trusted
        self._is_told = False

    def take(self, message: object) -> None:
        """Take what the server answers to any request, and change it if it is a list with such tools."""
        if self.version is None or not isinstance(message, mcp_types.JSONRPCResponse):
            return
        page, tools = message.result, message.result.get("tools")
        if not isinstance(tools, list):
            return
        if not isinstance(page.get("nextCursor"), str):
            page.pop("nextCursor", None)
        for tool in tools if not self._is_trusted else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
        if self._is_allowed(page, tools) or not self._is_allowed(page, []):
            return
        mended = [tool if self._is_allowed(page, [tool]) else _mended(tool) for tool in tools]
        page["tools"] = [tool for tool in mended if self._is_allowed(page, [tool])]
        left_out = len(tools) - len(page["tools"])
        if left_out and not self._is_told:
            _LOGGER.warning("%s lists tools that the protocol does not allow; %d are left out", self._name, left_out)
            self._is_told = True

    def _is_allowed(self, page: dict[str, Any], tools: list[Any]) -> bool:
        """Whether the protocol allows the page with these tools."""
        assert self.version is not None
        try:
            parse_server_result("tools/list", self.version, {**page, "tools": tools})
        except ValidationError:
            return False
        return True


def _mended(tool: Any) -> Any:
    """The tool with what its server means by its schema."""
    if not isinstance(tool, dict):
        return tool
    try:
        return {**tool, "inputSchema": repaired(tool.get("inputSchema"))}
    except RecursionError:
        return tool


_MAX_ROUNDS = 10
"""How often a server may ask for something more before it answers a call."""

KEY = "turnwise/idempotency-key"
"""The name under which the idempotency key of a call stands in the `_meta` of its request."""

_PAUSE = 0.1
"""Seconds until a server is asked again that needs nothing but time, and between two lines of progress."""

_LOST = ("Connection closed", "SSE stream ")
"""How the messages of the SDK's errors for a lost connection begin. A server may use their code for its own errors."""


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

    async def run(self, arguments: dict[str, Any]) -> ToolResult | ResultWithFiles:
        """Return the result of the call. Raises `ConnectionLost`. If the task is cancelled, the server is told."""
        try:
            answer = await self._answer(arguments)
            encoded = sum(len(_encoded_in(block)) for block in answer.content)
            return await in_thread_if_long(encoded, partial(result_of, answer))
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
        for _ in range(_MAX_ROUNDS):
            answer = await self._listed_again(partial(self._send, arguments, responses, state))
            if not isinstance(answer, InputRequiredResult):
                return answer
            responses, state = None, answer.request_state
            if answer.input_requests:
                responses = await answer_requests(answer.input_requests, self._asker)
            else:
                await asyncio.sleep(_PAUSE)
        raise NotOffered(f"more than {_MAX_ROUNDS} answers")

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


NO_REASON = "The tool failed, and its server does not say why."
"""The result of a call that failed without a word."""

Block = mcp_types.ContentBlock


def result_of(returned: mcp_types.CallToolResult) -> ToolResult | ResultWithFiles:
    """The result for what a server returned.

    Texts stand one below the other, with blank lines between them. Images, recordings and binary resources are files,
    as far as models take them, and otherwise described. Structured content is written as JSON, unless a text says the
    same. `Pure.`
    """
    files: list[File] = []
    texts: list[str] = []
    left = DEFAULT_RULES.together
    for block in returned.content:
        file = _file_of(block) if len(files) < DEFAULT_RULES.number else None
        if file is None or file.reference.size > left:
            texts.append(_written(block))
            continue
        left -= file.reference.size
        files.append(File(file.data or b"", file.reference.name, file.reference.media_type))
        if isinstance(block, mcp_types.EmbeddedResource):
            texts.append(f"[resource {block.resource.uri}]")
    if (structured := returned.structured_content) is not None and not _is_told(structured, _plain_texts(returned)):
        texts.append(text_of(structured))
    text = encodable("\n\n".join(texts))
    if files:
        return ResultWithFiles(text, tuple(files), returned.is_error)
    nothing = NO_REASON if returned.is_error else DONE
    return ToolResult(text=text or nothing, error=returned.is_error)


def _file_of(block: Block) -> PreparedFile | None:
    """The file in the block, or None if there is none that a model can read."""
    match block:
        case (
            mcp_types.ImageContent(data=data, mime_type=media_type)
            | mcp_types.AudioContent(data=data, mime_type=media_type)
        ):
            name = ""
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents(blob=data, mime_type=media_type)):
            name = unquote(re.split(r"[?#]", block.resource.uri, maxsplit=1)[0])  # the last part of it counts
        case _:
            return None
    try:
        file = prepare_one(File(f"data:;base64,{data}", name, media_type or None))
    except InvalidInput:
        return None
    is_as_said = block.type == "resource" or block.type == file.reference.kind
    return file if is_as_said else None


def _encoded_in(block: Block) -> str:
    """The bytes of the block in base64, or an empty text if it has none."""
    match block:
        case mcp_types.ImageContent(data=data) | mcp_types.AudioContent(data=data):
            return data
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents(blob=data)):
            return data
        case _:
            return ""


def _written(block: Block) -> str:
    """The block as a text: its own, or what it is."""
    match block:
        case mcp_types.TextContent():
            return block.text
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return f"[{block.type}: {block.mime_type}, {_bytes_in(block.data):,} bytes, not shown]"
        case mcp_types.ResourceLink():
            return f"[resource {block.name}: {block.uri}]" + (f" {block.description}" if block.description else "")
        case mcp_types.EmbeddedResource(resource=resource):
            if isinstance(resource, mcp_types.TextResourceContents):
                return f"[resource {resource.uri}]\n{resource.text}"
            kind = resource.mime_type or "of an unknown type"
            return f"[resource {resource.uri}: {kind}, {_bytes_in(resource.blob):,} bytes, not shown]"


def _bytes_in(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _plain_texts(returned: mcp_types.CallToolResult) -> list[str]:
    return [block.text for block in returned.content if isinstance(block, mcp_types.TextContent)]


def _is_told(structured: object, texts: Sequence[str]) -> bool:
    """Whether the texts say the same. The SDK for servers writes a value both as a text and as `{"result": value}`, and
    a list as one text for each item."""
    alternatives = [structured]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        alternatives.append(structured["result"])
    text = "\n\n".join(texts)
    told: list[object] = [text, _parsed(text), list(texts), [_parsed(each) for each in texts]]
    return any(each == other for each in alternatives for other in told)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
