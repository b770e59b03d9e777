"""The connection to a server: how it begins, breaks and comes back, also with rough servers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from gzip import compress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp_types import ErrorData, JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from pydantic import ValidationError

from turnwise.effects.mcp.messages import CallResults, mended, read_messages
from turnwise.effects.mcp.server import McpServer, McpTool
from turnwise.effects.mcp.servers import McpServers
from turnwise.effects.mcp.tools import NO_REASON
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states.errors import ConfigurationError

from ...support.cases import holds_for
from ...support.servers import rough_mcp_server
from ...support.servers.json_server import body, serving
from ...support.servers.mcp_programs import Program, call, free_port, is_alive, listed, opened, until
from ...support.servers.rough_mcp_server import LINES, RESULTS, answer

# --- The connection to a server: kept in the background, opened again, and closed without leaving a process behind.


def names(registry: ToolRegistry) -> list[str]:
    """Return the names of the tools that are offered now."""
    return [definition["function"]["name"] for definition in registry.definitions()]


@pytest.mark.slow
class TestOpening:
    """An engine opens with the servers that are there, and without those that are not."""

    async def test_the_tools_of_a_server_are_offered_when_it_is_open(self, tmp_path: Path) -> None:
        """Each is called by the name of the server, a colon and its own name."""
        async with opened(files=Program(tmp_path).server()) as registry:
            assert names(registry) == ["files:echo", "files:pid"]
            assert (await call(registry, "files:echo", path="ä")).text == '{"path": "ä"}'

    async def test_a_server_that_is_missing_keeps_nobody_up(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is logged, and the others are offered."""
        missing = McpServer(command="/no/such/program")
        refused = McpServer(url="http://127.0.0.1:9/mcp")

        async with opened(missing=missing, refused=refused, files=Program(tmp_path, ["echo"]).server()) as registry:
            assert names(registry) == ["files:echo"]

        assert "The MCP server missing cannot be reached: there is no program called /no/such/program" in caplog.text
        assert "The MCP server refused cannot be reached: nothing answers at its address" in caplog.text

    async def test_tools_that_the_protocol_does_not_allow_are_left_out(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The other tools of the list are offered, also those whose schemas can be repaired. They are told once."""
        texts = [listed(name, {"type": "string"}) for name in ("text", "other")]
        program = Program(tmp_path, ["echo", *texts, listed("bare", {})])
        async with opened(files=program.server()) as registry:
            before = registry.version
            assert names(registry) == ["files:echo", "files:bare"]
            program.offer("echo", listed("pid", description=3), {"name": "fail"}, listed("refuse"))
            await call(registry, "files:echo")
            await until(lambda: registry.version != before)

            assert names(registry) == ["files:echo", "files:fail", "files:refuse"]

        assert caplog.messages.count("files lists tools that the protocol does not allow; 2 are left out") == 1

    async def test_what_is_no_list_is_said(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The server cannot be reached, for a reason that people understand."""
        program = Program(tmp_path)
        (tmp_path / "tools.json").write_text('"nothing"')

        async with opened(files=program.server()) as registry:
            assert names(registry) == []

        sentence = "The MCP server files cannot be reached: it answers with what the protocol does not allow"
        assert sentence in caplog.messages

    @pytest.mark.parametrize("compressed", [b"", b"content-encoding: gzip\r\n"])
    async def test_an_answer_without_an_end_is_given_up(
        self, compressed: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It would fill the memory."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + compressed + b"\r\n")
            sent = compress(bytes(1_000_000)) if compressed else bytes(1_000_000)
            with suppress(ConnectionError):
                while True:
                    writer.write(sent)
                    await writer.drain()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
            async with opened(endless=McpServer(url=address)) as registry:
                assert names(registry) == []

        assert "The MCP server endless cannot be reached" in caplog.text

    async def test_a_server_that_never_answers_is_given_up(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its program is ended."""
        program = Program(tmp_path)
        program.mark("silent")

        async with opened(files=program.server(connect_timeout=0.3)) as registry:
            assert names(registry) == []

        assert "The MCP server files cannot be reached: it did not answer within 0.3 s" in caplog.text


@pytest.mark.slow
class TestVersions:
    """A server that may ask speaks a version in which it may do so in the middle of a call, if it knows one."""

    @pytest.mark.parametrize(
        ("settings", "methods"),
        [
            ({}, ["initialize"]),
            ({"elicitation": False}, ["server/discover", "initialize"]),
            ({"protocol": "newest"}, ["server/discover", "initialize"]),
            ({"protocol": "legacy", "elicitation": False}, ["initialize"]),
        ],
    )
    async def test_how_a_connection_begins(self, tmp_path: Path, settings: dict[str, Any], methods: list[str]) -> None:
        """The settings decide; this server knows no newer version."""
        program = Program(tmp_path, ["echo"])
        async with opened(files=program.server(**settings)) as registry:
            assert names(registry) == ["files:echo"]

        assert [method for method in ("server/discover", "initialize") if program.received(method)] == methods

    async def test_a_server_that_knows_only_newer_versions(self, tmp_path: Path) -> None:
        """It is asked again, before the engine is open."""
        program = Program(tmp_path, ["echo"])
        program.mark("newest")
        async with opened(files=program.server()) as registry:
            assert names(registry) == ["files:echo"]
            assert (await call(registry, "files:echo", a=1)).text == '{"a": 1}'

    async def test_such_a_server_where_the_application_insists(self, tmp_path: Path) -> None:
        """It cannot be reached."""
        program = Program(tmp_path, ["echo"])
        program.mark("newest")
        async with opened(files=program.server(protocol="legacy")) as registry:
            assert names(registry) == []


@pytest.mark.slow
class TestFollowing:
    """The tools of a server come and go while the engine is open."""

    async def test_a_server_changes_its_tools(self, tmp_path: Path) -> None:
        """The version of the registry tells it."""
        program = Program(tmp_path, ["echo"])
        async with opened(files=program.server()) as registry:
            before = registry.version
            program.offer("pid")
            await call(registry, "files:echo")
            await until(lambda: registry.version != before)

            assert names(registry) == ["files:pid"]

    async def test_a_server_vanishes_and_comes_back(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """J17: its tools are no longer offered; when it is back, they are again, by another process."""
        async with opened(files=Program(tmp_path, ["pid", "die"]).server()) as registry:
            first = (await call(registry, "files:pid")).text
            lost = await call(registry, "files:die")
            await until(lambda: names(registry) == [])
            await until(lambda: names(registry) != [])
            second = (await call(registry, "files:pid")).text

        assert lost.error
        assert lost.text == "The connection to files was lost, so it is not known whether the call ran."
        assert first != second
        assert "The MCP server files cannot be reached: the connection was lost" in caplog.text

    async def test_a_call_while_the_server_is_away(self, tmp_path: Path) -> None:
        """A call that was checked before, and runs now, is an error result."""
        async with opened(files=Program(tmp_path, ["echo", "die"]).server()) as registry:
            echo = registry.find("files:echo")
            await call(registry, "files:die")
            await until(lambda: registry.find("files:echo") is None)

            assert echo is not None
            sentence = registry.describe_unknown("files:echo")

        assert sentence == "files:echo is not available now: its server is not connected, or no longer offers it."


@pytest.mark.slow
class TestClosing:
    """A closed engine leaves no process behind."""

    @pytest.mark.parametrize("marks", [(), ("lingering",)])
    async def test_the_program_is_gone(self, tmp_path: Path, marks: tuple[str, ...]) -> None:
        """Also one that does not end when its standard input does."""
        program = Program(tmp_path)
        for mark in marks:
            program.mark(mark)

        async with opened(files=program.server()) as registry:
            pid = int((await call(registry, "files:pid")).text)
            assert is_alive(pid)

        assert not is_alive(pid)

    @pytest.mark.parametrize("marks", [(), ("lingering",)])
    async def test_the_children_of_the_program_are_gone(self, tmp_path: Path, marks: tuple[str, ...]) -> None:
        """Also those that ignore the request to end, and those whose parent has ended before them."""
        program = Program(tmp_path)
        for mark in ("fertile", *marks):
            program.mark(mark)

        async with opened(files=program.server()):
            family = program.family()
            assert [is_alive(pid) for pid in family] == [True] * 3

        await until(lambda: not any(map(is_alive, family)), 1)

    async def test_the_children_of_a_program_that_does_not_connect_are_gone(self, tmp_path: Path) -> None:
        """It is started again and again; none of its processes is left behind."""
        program = Program(tmp_path)
        program.mark("silent")
        program.mark("fertile")
        async with opened(files=program.server(connect_timeout=1)):
            family = program.family()
            await until(lambda: bool(family) and not any(map(is_alive, family)), 10)

    async def test_the_children_of_a_program_that_dies_are_gone(self, tmp_path: Path) -> None:
        """Its end is seen although they hold its pipes, it leaves nothing, and another one is started."""
        program = Program(tmp_path, ["die"])
        program.mark("fertile")
        async with opened(files=program.server()) as registry:
            family = program.family()
            (program.folder / "family").unlink()
            await call(registry, "files:die")
            await until(lambda: bool(program.family()) and registry.find("files:die") is not None)
            assert is_alive(program.family()[2])

        await until(lambda: not any(map(is_alive, [*family, *program.family()])), 1)

    @pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGINT)", "sys.exit(3)", "loop.stop()"])
    def test_a_process_that_exits_without_closing_leaves_nothing(self, tmp_path: Path, end: str) -> None:
        """Its servers end with it, whatever it did with its event loop."""
        program = Program(tmp_path)
        program.mark("fertile")
        server = program.server()
        script = f"""
import asyncio, os, signal, sys
from turnwise.effects.mcp.server import McpServer
from turnwise.effects.mcp.servers import McpServers

servers = McpServers({{"files": McpServer(command={server.command!r}, args={[*server.args]!r})}})
loop = asyncio.new_event_loop()
loop.run_until_complete(servers.open())
loop.call_later(0.1, lambda: {end})
loop.run_forever()
"""
        subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, timeout=60, check=False)

        family = program.family()
        assert len(family) == 3
        assert [pid for pid in family if is_alive(pid)] == []

    async def test_closing_while_it_connects(self, tmp_path: Path) -> None:
        """The program that does not answer is ended, too."""
        program = Program(tmp_path)
        program.mark("silent")
        servers = McpServers({"files": program.server()})
        opening = asyncio.create_task(servers.open())
        await asyncio.sleep(0.3)

        await servers.close()
        await opening

        assert list(servers.tools()) == []


@pytest.mark.slow
class TestCheck:
    """`engine.check()` tells which servers cannot be reached."""

    async def test_it_passes_if_all_are_there(self, tmp_path: Path) -> None:
        """It starts them for the check alone, and ends them again."""
        await McpServers({"files": Program(tmp_path).server()}).check()

    async def test_it_names_the_one_that_is_not(self, tmp_path: Path) -> None:
        """In one sentence."""
        servers = McpServers({"files": Program(tmp_path).server(), "git": McpServer(command="/no/such/program")})

        with pytest.raises(ConfigurationError) as failed:
            await servers.check()

        assert failed.value.sentence == (
            "The MCP server git cannot be reached: there is no program called /no/such/program."
        )

    @pytest.mark.parametrize(
        ("server", "reason"),
        [
            (
                McpServer(command=sys.executable, args=["-c", "import no_such_module"]),
                "its program ended before it answered; what it printed is logged by turnwise.mcp, at the level DEBUG",
            ),
            (McpServer(command=sys.executable, cwd="/no/such/folder"), "there is no folder /no/such/folder"),
        ],
    )
    async def test_it_says_why_a_program_cannot_be_reached(self, server: McpServer, reason: str) -> None:
        """As far as whoever configured it can do something about it."""
        with pytest.raises(ConfigurationError) as failed:
            await McpServers({"git": server}).check()

        assert failed.value.sentence == f"The MCP server git cannot be reached: {reason}."

    async def test_it_names_the_status_that_a_web_server_answers_with(self) -> None:
        """A missing key and a wrong address look alike without it."""
        with serving(body(b"")) as served, pytest.raises(ConfigurationError) as failed:
            await McpServers({"web": McpServer(url=f"{served.url}mcp")}).check()

        assert failed.value.sentence == ("The MCP server web cannot be reached: it answered with the HTTP status 501.")


# --- What an application may configure of an MCP server.


SECRET = "sk-secret-value"


class TestSettings:
    """A server is a command or an address, and its settings are checked where they are made."""

    def test_a_command_and_its_defaults(self) -> None:
        """A server needs nothing but a command; its tools then run at most once and need no approval."""
        server = McpServer(command="uvx", args=["mcp-server-git"])

        assert (server.timeout, server.connect_timeout, server.approval) == (60.0, 30.0, False)
        assert (server.crash, server.trusted, server.elicitation, dict(server.tools)) == (None, False, True, {})

    def test_tools_are_read_from_plain_data(self) -> None:
        """Settings come from TOML, so each part may be given as a dict."""
        server = McpServer.model_validate({"url": "https://a.example", "tools": {"find": {"crash": "pure"}}})

        assert server.tools == {"find": McpTool(crash="pure")}

    @holds_for(
        ("given", "sentence"),
        [
            ({}, "an MCP server takes either a command or a url"),
            ({"command": "a", "url": "http://b"}, "an MCP server takes either a command or a url"),
            ({"url": "http://b", "args": ["c"]}, "args, env and cwd belong to a command, not to a url"),
            ({"command": "a", "headers": {"b": "c"}}, "headers belong to a url, not to a command"),
            ({"url": "ftp://b"}, "the address of an MCP server begins with http:// or https://"),
            ({"command": ""}, "String should have at least 1 character"),
            ({"command": "a", "timeout": 0}, "Input should be greater than 0"),
            ({"command": "a", "connect_timeout": float("inf")}, "Input should be a finite number"),
            ({"command": "a", "crash": "reconcile"}, "Input should be 'pure', 'idempotent' or 'at_most_once'"),
            ({"command": "a", "tools": {"b": {"crush": "pure"}}}, "Extra inputs are not permitted"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, given: dict[str, object], sentence: str) -> None:
        """One sentence says what is wrong."""
        with pytest.raises(ValidationError) as refused:
            McpServer.model_validate(given)

        assert [error["msg"] for error in refused.value.errors()] == [sentence]

    def test_secrets_stand_neither_in_its_repr_nor_in_errors(self) -> None:
        """Keys are passed by variables, headers and addresses."""
        by_command = McpServer(command="a", env={"KEY": SECRET})
        by_url = McpServer(url=f"https://user:{SECRET}@b.example", headers={"Authorization": SECRET})
        with pytest.raises(ValidationError) as refused:
            McpServer(command="a", headers={"Authorization": SECRET})

        assert SECRET not in f"{by_command!r} {by_url!r} {by_url} {refused.value}"


# --- Servers that keep to the protocol only roughly: no call of theirs waits for ever, and no answer is lost.


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
    "blob": ("[resource file:///y]", "ok"),
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
