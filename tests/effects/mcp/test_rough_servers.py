"""Servers that keep to the protocol only roughly: no call of theirs waits for ever, and no answer is lost."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from turnwise.effects.mcp.messages import CallResults, mended, read_messages
from turnwise.effects.mcp.server import McpServer
from turnwise.effects.mcp.tools import NO_REASON
from turnwise.effects.tools.registry import ToolRegistry

from ...support.cases import holds_for
from ...support.servers import rough_mcp_server
from ...support.servers.mcp_programs import call, free_port, opened
from ...support.servers.rough_mcp_server import LINES, RESULTS, answer

PROGRAM = Path(rough_mcp_server.__file__)
NOT_ALLOWED = "The server returned what the protocol does not allow."
WITHOUT_HTTP = {"noisy", "other_ids", "batch", "byte_order_mark", "no_version", "error_is_a_text", "error_without_code"}
"""What the SDK refuses over HTTP, where each answer belongs to its request, and nothing waits for ever."""

TEXTS: dict[str, str | tuple[str, ...]] = {
    "hologram": ('"hologram"', "ok"),
    "number": ("7", "ok"),
    "null_part": ("null", "ok"),
    "text_without_text": ('{"type": "text"}', "ok"),
    "text_is_a_number": ("7", "ok"),
    "image_without_data": ("image/png", "ok"),
    "audio": ("audio/wav", "5 bytes", "ok"),
    "link": ("file:///x", "ok"),
    "link_without_name": ("file:///x", "ok"),
    "blob": ("file:///y", "5 bytes", "ok"),
    "resource": ("inside", "ok"),
    "empty_resource": ("resource", "ok"),
    "nothing": "Done.",
    "null_content": "Done.",
    "empty": "Done.",
    "no_words": NO_REASON,
    "error_without_content": NO_REASON,
    "structured": ("9007199254740993",),
    "structured_list": "[1, 2]",
    "content_is_an_object": NOT_ALLOWED,
    "content_is_a_number": NOT_ALLOWED,
    "result_is_null": "Done.",
    "result_is_a_list": ("ok",),
    "surrogate": "a\ufffd b",
    "pair": "\N{GRINNING FACE}",
    "broken_bytes": "a\ufffd\ufffdb",
    "error_is_a_text": "The server answered with an error: not today",
    "error_without_code": "The server answered with an error: not today",
    "not_a_number": ("NaN",),
}
"""What the model reads of each tool: this text, or a text with these parts; "ok" of all others."""

FAILED = {"no_words", "error_without_content", "error_as_number", "content_is_an_object", "content_is_a_number"}
FAILED |= {"error_is_a_text", "error_without_code"}


def rough_program(**settings: Any) -> McpServer:
    """The server as a program."""
    return McpServer(command=sys.executable, args=["-I", str(PROGRAM)], timeout=20, **settings)


@asynccontextmanager
async def rough_address(*, streams: bool) -> AsyncIterator[McpServer]:
    """The server over HTTP, which answers by an object or by a stream of events."""

    async def reply(request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405)
        body = answer(await request.json())
        if not body:
            return web.Response(status=202)
        if not streams:
            return web.Response(body=body.strip(b"\n").split(b"\n")[-1], content_type="application/json")
        events = b"".join(
            b"event: message\r\ndata: " + line + b"\r\n\r\n" for line in body.split(b"\n") if line.strip()
        )
        return web.Response(body=events, content_type="text/event-stream")

    app, port = web.Application(), free_port()
    app.router.add_route("*", "/mcp", reply)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield McpServer(url=f"http://127.0.0.1:{port}/mcp", timeout=20)
    finally:
        await runner.cleanup()


async def check(registry: ToolRegistry, name: str) -> str | None:
    """What is wrong with the result of this tool, if anything is."""
    result = await call(registry, f"rough:{name}")
    wanted = TEXTS.get(name, "ok")
    fits = result.text == wanted if isinstance(wanted, str) else all(part in result.text for part in wanted)
    return None if fits and result.error == (name in FAILED) else f"{name}: {result.text!r}, error={result.error}"


@pytest.mark.slow
async def test_every_call_over_stdio_is_answered_at_once() -> None:
    """Whatever a program writes around its answers, and in them; one server goes through all of it."""
    async with opened(rough=rough_program()) as registry:
        faults = [await check(registry, name) for name in (*RESULTS, *LINES)]

    assert list(filter(None, faults)) == []


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True], ids=["an object", "a stream"])
async def test_every_call_over_http_is_answered_at_once(streams: bool) -> None:
    """Half a character and unknown parts are read as they are over stdio."""
    names = [name for name in (*RESULTS, *LINES) if name not in WITHOUT_HTTP and not name.startswith("result_is")]
    async with rough_address(streams=streams) as server, opened(rough=server) as registry:
        faults = [await check(registry, name) for name in names]

    assert list(filter(None, faults)) == []


async def test_what_the_sdk_refuses_over_http_is_an_error() -> None:
    """It has an end, too."""
    async with rough_address(streams=False) as server, opened(rough=server) as registry:
        results = [
            await call(registry, f"rough:{name}") for name in ("no_version", "error_is_a_text", "result_is_null")
        ]

    assert all(result.error for result in results)


@pytest.mark.slow
async def test_what_is_listed_badly_is_left_out() -> None:
    """Pages that go in circles, tools without a name, and two tools of one name. A tool without a schema is offered."""
    async with opened(rough=rough_program()) as registry:
        offered = [definition["function"]["name"] for definition in registry.definitions()]

    without_schema = ("no_schema", "schema_is_a_text", "schema_is_null")
    assert offered == [f"rough:{name}" for name in (*RESULTS, *LINES, *without_schema)]


@holds_for("line", [b"", b"42", b"[]", b"null", b'"x"', b"{}", b'{"id": 1}', b"\xff", b"[" * 5_000, b"[42]"])
def test_what_is_no_message_is_an_error(line: bytes) -> None:
    """The SDK ignores it."""
    with pytest.raises(ValueError, match=r".*"):
        list(read_messages(line))


def test_a_line_is_mended_only_where_it_must_be() -> None:
    """Escapes of whole characters and other texts stay as they are."""
    whole = json.dumps({"a": "\N{GRINNING FACE}\\ud83d"}).encode()

    assert mended(whole) == whole
    assert mended(b'{"a": "\\ud83d"}') == b'{"a": "\\ufffd"}'
    assert mended("é".encode()) == "é".encode()


@pytest.mark.parametrize(
    "end",
    [
        JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 7}),
        JSONRPCError(jsonrpc="2.0", id=7, error=ErrorData(code=-32000, message="no")),
    ],
    ids=["cancelled", "refused"],
)
def test_a_call_without_a_result_is_forgotten(end: Any) -> None:
    """A server that lives for months keeps nothing of the calls that were cancelled or refused."""
    results = CallResults()
    results.version = "2025-06-18"
    results.note(JSONRPCRequest(jsonrpc="2.0", id=7, method="tools/call", params={"name": "go"}))

    results.note(end)
    results.take(end)
    late = JSONRPCResponse(jsonrpc="2.0", id=7, result={"content": [{"type": "hologram"}]})
    results.take(late)

    assert late.result == {"content": [{"type": "hologram"}]}
