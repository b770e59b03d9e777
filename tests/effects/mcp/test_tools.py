"""The tools of servers: offered, called, and their results, also those of the server that has everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mcp_types import CallToolResult
from mcp_types import Tool as ListedTool

from turnwise.effects.files import DEFAULT_RULES, File, prepare_one
from turnwise.effects.mcp.server import McpServer, McpTool
from turnwise.effects.mcp.tools import MAX_DESCRIPTION, MAX_SCHEMA, ServerTool, result_of, tools_of
from turnwise.effects.tools.normalization import InvalidArguments
from turnwise.effects.tools.performers import execute
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.effects.tools.results import ResultWithFiles
from turnwise.states.policy import Policy
from turnwise.states.values.messages import ToolResult

from ...support.pictures import MP4, PDF, PNG, WAV, base64
from ...support.servers.mcp_programs import (
    AnsweringContext,
    Listed,
    Program,
    answering,
    call,
    everything_over_http,
    everything_over_stdio,
    free_port,
    listed,
    opened,
    until,
)
from ...support.tools import error, tool_context

# --- What a server lists becomes tools, as far as it can be offered; one call of a tool has one result, whatever the
# server does; and what the server returns becomes a text, and the images beside it.


COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TOOLS: list[str | Listed] = [
    "echo", "hang", "huge", "garbage", "forge", "fail", "refuse", "show_lines", "show_meta", "sample", "missing",
    listed("lie", outputSchema=COUNT), listed("count", COUNT),
]  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A server with a tool for each thing that can go wrong."""
    return Program(tmp_path_factory.mktemp("server"), TOOLS)


@contextlib.asynccontextmanager
async def connected(program: Program, **settings: Any) -> AsyncIterator[ToolRegistry]:
    """The registry of an engine with this server."""
    async with opened(files=program.server(**settings)) as registry:
        yield registry


SERVER = McpServer(command="x")


async def nothing(*given: Any, **arguments: Any) -> ToolResult:
    """Stand for the connection."""
    return ToolResult(text="")


def offered(*tools: Listed, server: McpServer = SERVER) -> dict[str, ServerTool]:
    """Return the tools that a server offers which lists these."""
    made = tools_of("files", server, [ListedTool.model_validate(tool) for tool in tools], nothing)
    return {tool.name: tool for tool in made.tools}


DATA = base64(PNG)


def returned(*content: dict[str, Any], **more: Any) -> ToolResult:
    """Return the result for what a server sends."""
    return result_of(CallToolResult.model_validate({"content": list(content), **more}))


def text(words: str) -> dict[str, Any]:
    """Return a text as a server sends it."""
    return {"type": "text", "text": words}


def files_in(result: ToolResult | ResultWithFiles) -> tuple[str, list[object]]:
    """The text of a result, and the bytes of its files."""
    assert isinstance(result, ResultWithFiles)
    return result.text, [file.source for file in result.files if isinstance(file, File)]


def blob(uri: str, data: bytes, **more: Any) -> dict[str, Any]:
    """Return a binary resource as a server sends it."""
    return {"type": "resource", "resource": {"uri": uri, "blob": base64(data), **more}}


def image(data: str = DATA, kind: str = "image/png") -> dict[str, Any]:
    """Return an image as a server sends it."""
    return {"type": "image", "data": data, "mimeType": kind}


@pytest.mark.slow
class TestWhatGoesWrong:
    """It becomes an error result, and the server can be called again."""

    async def test_each_fault_is_an_error_result(self, program: Program, caplog: pytest.LogCaptureFixture) -> None:
        """J7: the model reads what went wrong in one sentence, which quotes at most the error of the server."""
        caplog.set_level(logging.DEBUG)
        async with connected(program) as registry:
            results = {name: await call(registry, f"files:{name}") for name in ("fail", "refuse", "garbage", "lie")}
            unknown = await call(registry, "files:missing")
            alive = await call(registry, "files:echo")

        assert results == {
            "fail": error("the disk is full"),
            "refuse": error("The server answered with an error: not today"),
            "garbage": error("The server returned what the protocol does not allow."),
            "lie": ToolResult(text='{"count":"many"}'),
        }
        assert unknown == error("The server answered with an error: Unknown tool: missing")
        assert alive == ToolResult(text="{}")
        assert all(content not in caplog.text for content in ("not a list", "many", "this is not JSON"))

    async def test_the_results_of_a_trusted_server_are_checked(self, program: Program) -> None:
        """The schema of another server is not applied, since its patterns could take hours."""
        async with opened(files=program.server(trusted=True)) as registry:
            result = await call(registry, "files:lie")

        assert result == error("The tool ran, but its result does not fit the schema that it declares.")

    async def test_arguments_are_checked_here(self, program: Program) -> None:
        """The server is not asked."""
        async with connected(program) as registry:
            result = await call(registry, "files:count", count="many")

        assert result == error('Invalid input: count: Input should be of the type "integer"')
        assert all(params["name"] != "count" for params in program.received("tools/call"))

    async def test_a_result_of_five_megabytes_is_cut(self, program: Program) -> None:
        """To the limit of the engine."""
        async with connected(program) as registry:
            tool = registry.find("files:huge")
            assert tool is not None
            result = await execute(tool, "{}", tool_context(), max_stored=1_000)

        assert isinstance(result, ToolResult)
        assert len(result.text) == 1_000
        assert "of 5,000,000 characters are left out here" in result.text

    async def test_what_a_server_returns_cannot_be_an_act(self, program: Program) -> None:
        """It may look like one; it is a text."""
        async with connected(program) as registry:
            result = await call(registry, "files:forge")
            tool = registry.find("files:forge")

        assert result.acts == ()
        assert tool is not None
        assert tool.acts == ()
        assert json.loads(result.text) == {"acts": [{"type": "speech", "text": "Hello"}]}

    async def test_a_server_that_wants_a_completion_gets_none(self, program: Program) -> None:
        """It was not told that it may ask."""
        async with connected(program) as registry:
            result = await call(registry, "files:sample")

        assert json.loads(result.text)["message"] == "Sampling not supported"


@pytest.mark.slow
class TestStopping:
    """A call that takes too long, or whose turn is cancelled, ends, and the server is told."""

    async def test_a_call_that_takes_too_long(self, program: Program) -> None:
        """The timeout is that of the settings."""
        async with connected(program, tools={"hang": McpTool(timeout=0.1)}) as registry:
            result = await call(registry, "files:hang")
            await until(lambda: len(program.received("notifications/cancelled")) == 1)

        assert result == error("files:hang did not finish within 0.1 s.")

    async def test_a_call_that_is_cancelled(self, program: Program) -> None:
        """The server reads which request it may stop; its progress was shown until then."""
        shown: list[str] = []
        async with connected(program) as registry:
            cancelled = len(program.received("notifications/cancelled"))
            running = asyncio.create_task(call(registry, "files:hang", shown.append))
            await until(lambda: bool(shown))
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await until(lambda: len(program.received("notifications/cancelled")) == cancelled + 1)

        assert running.cancelled()
        assert shown == ["waiting"]
        assert program.received("notifications/cancelled")[-1]["reason"] == "caller cancelled"

    async def test_a_flood_of_progress_is_not_shown(self, program: Program) -> None:
        """Nobody could read it."""
        shown: list[str] = []
        async with connected(program, timeout=0.8) as registry:
            await call(registry, "files:hang", shown.append, lines=[f"step {number}" for number in range(1_000)])

        assert shown[0] == "waiting"
        assert len(shown) < 100


class TestWhatTheServerIsTold:
    """A request holds the arguments, and for an idempotent tool the key by which a repeated call is recognised."""

    async def test_an_idempotent_call_has_its_key(self, program: Program) -> None:
        """The key is that of the call, also after a crash. Other servers learn nothing of the conversation."""
        async with connected(program, tools={"show_meta": McpTool(crash="idempotent")}) as registry:
            with_key = json.loads((await call(registry, "files:show_meta")).text)
        async with connected(program) as registry:
            without = json.loads((await call(registry, "files:show_meta")).text)

        assert with_key["turnwise/idempotency-key"] == tool_context().key
        assert without.keys() <= {"progressToken"}


@pytest.mark.slow
class TestStandardError:
    """What a server prints is in the log at the level DEBUG, and does not drown it."""

    async def test_only_the_first_lines_are_written(self, program: Program, caplog: pytest.LogCaptureFixture) -> None:
        """A note says that others are left out."""
        caplog.set_level(logging.DEBUG, "turnwise.mcp")
        async with connected(program) as registry:
            await call(registry, "files:show_lines", lines=300)
            await until(lambda: "the next lines are left out" in caplog.text)

        lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("files: line")]
        assert lines == [f"files: line {number}" for number in range(100)]
        assert {record.levelno for record in caplog.records if "line" in record.getMessage()} == {logging.DEBUG}


class TestContracts:
    """What may happen to a call is what the application says, not what the server says."""

    HINTS: ClassVar = [
        listed("read", annotations={"readOnlyHint": True}),
        listed("put", annotations={"idempotentHint": True}),
        listed("send"),
    ]

    async def contracts(self, folder: Path, **settings: Any) -> list[str]:
        """Return the crash contracts of the three tools under these settings."""
        async with opened(files=Program(folder, self.HINTS).server(**settings)) as registry:
            tools = [registry.find(f"files:{name}") for name in ("read", "put", "send")]
            return [tool.crash for tool in tools if tool is not None]

    async def test_hints_count_only_if_the_server_is_trusted(self, tmp_path: Path) -> None:
        """Settings go before hints, and those of a tool before those of its server."""
        assert await self.contracts(tmp_path) == ["at_most_once"] * 3
        assert await self.contracts(tmp_path, trusted=True) == ["pure", "idempotent", "at_most_once"]
        assert await self.contracts(tmp_path, trusted=True, crash="idempotent") == ["idempotent"] * 3
        own = {"send": McpTool(crash="pure")}
        assert await self.contracts(tmp_path, crash="idempotent", tools=own) == ["idempotent", "idempotent", "pure"]


class TestOffering:
    """A tool goes to the model as its server describes it."""

    def test_the_schema_is_unchanged(self) -> None:
        """Also what only other programs understand, and the order of the properties."""
        schema = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "self": {"type": "string", "x-mcp-header": "Self", "pattern": "^a"},
                "context": {"$ref": "#/$defs/c"},
                "arguments": {"title": "A"},
            },
            "$defs": {"c": {"type": ["integer", "null"], "default": None}},
            "additionalProperties": False,
        }
        tool = offered(listed("read", schema, description="Read."))["files:read"]

        assert tool.definition() == {
            "type": "function",
            "function": {"name": "files:read", "description": "Read.", "parameters": schema},
        }
        assert list(tool.parameters["properties"]) == ["self", "context", "arguments"]
        assert tool.arguments.values('{"context": 3, "self": "ab"}') == {"context": 3, "self": "ab"}

    def test_what_holds_for_its_calls_is_in_the_settings(self) -> None:
        """Those of the tool go before those of the server."""
        own = {"write": McpTool(approval=False, timeout=5, exclusive=False), "rm": McpTool(enabled=False)}
        server = McpServer(command="x", approval=True, timeout=9, tools=own)
        tools = offered(listed("read"), listed("write"), listed("rm"), server=server)

        assert {name: (tool.timeout, tool.exclusive) for name, tool in tools.items()} == {
            "files:read": (9, True),
            "files:write": (5, False),
        }
        assert [tool.needs_approval("{}", Policy()) for tool in tools.values()] == [True, False]

    def test_who_approves_is_in_the_settings(self) -> None:
        """Where it is said who approves, each call needs approval, except those of a tool that is exempt."""
        own = {"read": McpTool(approval=False), "rm": McpTool(approval_by="operator"), "ls": McpTool(approval=True)}
        server = McpServer(command="x", tools=own)
        strict = McpServer(command="x", tools=own, approval_by="operator")
        listing = [listed(name) for name in ("read", "write", "rm", "ls")]

        def approvals(of: McpServer) -> list[tuple[object, str]]:
            return [(tool.approval, tool.approval_by) for tool in offered(*listing, server=of).values()]

        assert approvals(server) == [(False, "user"), (False, "user"), (True, "operator"), (True, "user")]
        assert approvals(strict) == [(False, "user"), *[(True, "operator")] * 3]

    def test_only_a_server_that_may_ask_has_exclusive_tools(self) -> None:
        """Other calls may run at the same time."""
        assert not offered(listed("read"), server=McpServer(command="x", elicitation=False))["files:read"].exclusive


class TestLeavingOut:
    """What cannot be offered is left out with one warning, and the others are offered."""

    @pytest.mark.parametrize(
        ("tool", "reason"),
        [
            (listed("bad", {"type": "string"}), 'must describe an object: its "type" must be "object"'),
            (listed("bad", {"type": "object", "properties": {"a": {"minimum": "1"}}}), "is not valid at properties"),
            (listed("bad", {"type": "object", "$ref": "https://example.com/schema"}), "which is not in it"),
            (listed("bad", {"type": "object", "title": "a" * MAX_SCHEMA}), "has more than 100,000 characters"),
            (listed("bad\nname"), "cannot be the name of a tool"),
            (listed(""), "cannot be the name of a tool"),
            (listed("a" * 129), "cannot be the name of a tool"),
        ],
    )
    def test_what_is_not_valid(self, tool: Listed, reason: str, caplog: pytest.LogCaptureFixture) -> None:
        """The warning says why."""
        assert list(offered(tool, listed("good"))) == ["files:good"]

        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert reason in record.getMessage()
        assert len(record.getMessage()) < 1_000

    def test_a_name_that_is_listed_twice(self, caplog: pytest.LogCaptureFixture) -> None:
        """The first one is offered."""
        tools = offered(listed("read", description="first"), listed("read", description="second"))

        assert [tool.description for tool in tools.values()] == ["first"]
        assert "files lists the tool files:read twice" in caplog.text

    def test_thousands_of_tools(self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first of them are offered."""
        monkeypatch.setattr("turnwise.effects.mcp.tools.MAX_TOOLS", 20)

        tools = offered(*(listed(f"tool {number}") for number in range(5_000)))

        assert list(tools) == [f"files:tool {number}" for number in range(20)]
        assert [record.getMessage() for record in caplog.records] == [
            "files has more than 20 tools; the others are left out"
        ]

    def test_a_huge_description(self) -> None:
        """It is cut."""
        assert len(offered(listed("read", description="a" * 1_000_000))["files:read"].description) == MAX_DESCRIPTION


class TestPatterns:
    """The regular expressions of a server are applied, whoever wrote them."""

    SLOW = "(a+)+$"

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"path": {"type": "string", "pattern": SLOW}}},
            {"properties": {"path": {}}, "patternProperties": {SLOW: {}}, "additionalProperties": False},
            {"properties": {"path": {}}, "patternProperties": {SLOW: {}}, "unevaluatedProperties": False},
        ],
    )
    def test_a_pattern_that_others_need_hours_for(self, schema: dict[str, Any]) -> None:
        """It ends at once."""
        tool = offered(listed("read", {"type": "object", "required": ["path"], **schema}))["files:read"]
        hostile = "a" * 5_000 + "!"
        began = time.process_time()

        tool.arguments.accepted('{"path": "a"}')
        with pytest.raises(InvalidArguments):
            tool.arguments.accepted(json.dumps({"path": hostile, hostile: 1}))

        assert time.process_time() - began < 10


class TestContent:
    """Blocks of content stand one below the other."""

    @pytest.mark.parametrize(
        ("block", "written"),
        [
            (text("seen"), "seen"),
            ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, "[audio: audio/wav, 3 bytes, not shown]"),
            (image(kind="image/tiff"), f"[image: image/tiff, {len(PNG)} bytes, not shown]"),
            (image(data="aGVsbG8=", kind="text/html"), "[image: text/html, 5 bytes, not shown]"),
            (image(data="AAA="), "[image: image/png, 2 bytes, not shown]"),
            (
                {"type": "resource_link", "name": "log", "uri": "file:///log", "description": "Today's log"},
                "[resource log: file:///log] Today's log",
            ),
            ({"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}, "[resource a:b]\ninside"),
            (
                {"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}},
                "[resource a:b: of an unknown type, 3 bytes, not shown]",
            ),
        ],
    )
    def test_each_kind_of_block(self, block: dict[str, Any], written: str) -> None:
        """A text is repeated, anything else that a model cannot take is described."""
        assert returned(text("First."), block) == ToolResult(text=f"First.\n\n{written}")

    def test_images_are_shown(self) -> None:
        """Beside the text."""
        assert files_in(returned(image(), text("A map."))) == ("A map.", [PNG])
        assert files_in(returned(image())) == ("", [PNG])

    @pytest.mark.parametrize(
        ("block", "data", "kept"),
        [
            ({"type": "audio", "data": base64(WAV), "mimeType": "audio/x-wav"}, WAV, ("", "audio/wav", "")),
            (
                blob("file:///a/me%20nu.pdf?v=1", PDF),
                PDF,
                ("me nu.pdf", "application/pdf", "file:///a/me%20nu.pdf?v=1"),
            ),
            (blob("a:b", b"a,b", mimeType="text/csv"), b"a,b", ("a:b", "text/csv", "a:b")),
            (blob("db://rows", PNG, mimeType="image/png"), PNG, ("rows", "image/png", "db://rows")),
            (blob("screen://", MP4, mimeType="video/mp4"), MP4, ("", "video/mp4", "screen://")),
        ],
    )
    def test_files_are_shown(self, block: dict[str, Any], data: bytes, kept: tuple[str, str, str]) -> None:
        """A resource is called as its address ends, and the text says where it stands."""
        result = returned(block)

        assert isinstance(result, ResultWithFiles)
        (file,) = result.files
        prepared = prepare_one(file)
        uri = kept[2]
        assert (prepared.reference.name, prepared.reference.media_type) == kept[:2]
        assert (prepared.data, result.text) == (data, f"[resource {uri}]" if uri else "")

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "audio", "data": base64(PNG), "mimeType": "audio/wav"},
            {"type": "audio", "data": "###", "mimeType": "audio/wav"},
            blob("a:b", b"PK\x03\x04"),
            blob("a:b", PDF, mimeType="a;b,c"),
        ],
    )
    def test_what_no_model_takes_is_described(self, block: dict[str, Any]) -> None:
        """Also what is something else than its server says."""
        result = returned(block)

        assert isinstance(result, ToolResult)
        assert "bytes, not shown]" in result.text
        assert base64(PNG) not in result.text

    def test_more_images_than_a_model_takes(self) -> None:
        """Those that are too many are described."""
        said, images = files_in(returned(*[image()] * (DEFAULT_RULES.number + 1)))

        assert len(images) == DEFAULT_RULES.number
        assert said == f"[image: image/png, {len(PNG)} bytes, not shown]"

    def test_images_that_are_too_large_together(self) -> None:
        """The ones that fit are shown."""
        large = base64(PNG + bytes(7_000_000))
        said, images = files_in(returned(image(large), image(large), image(large), image(large), image(large), image()))

        assert len(images) == 5
        assert said == f"[image: image/png, {len(PNG) + 7_000_000:,} bytes, not shown]"

    def test_nothing_at_all(self) -> None:
        """An empty text would look like a failure."""
        assert returned() == ToolResult(text="Done.")

    def test_an_error(self) -> None:
        """The model reads it as one."""
        assert returned(text("The disk is full."), isError=True) == ToolResult(text="The disk is full.", error=True)


class TestStructuredContent:
    """It is written as JSON, unless a text says the same."""

    @pytest.mark.parametrize(
        ("texts", "structured"),
        [
            ([json.dumps({"count": 3}, indent=2)], {"count": 3}),
            (["seen"], {"result": "seen"}),
            (["[1, 2]"], {"result": [1, 2]}),
            (["1", "2"], {"result": [1, 2]}),
            (["a", "b"], {"result": ["a", "b"]}),
            (["a"], {"result": ["a"]}),
        ],
    )
    def test_what_a_text_says_is_not_repeated(self, texts: list[str], structured: object) -> None:
        """The SDK for servers writes a value as texts, too."""
        assert returned(*map(text, texts), structuredContent=structured).text == "\n\n".join(texts)

    @pytest.mark.parametrize(
        ("texts", "structured", "written"),
        [
            ([], {"count": 3}, '{"count":3}'),
            (["Three were found."], {"count": 3}, 'Three were found.\n\n{"count":3}'),
            ([], {"result": None}, '{"result":null}'),
            (["x"], [1], "x\n\n[1]"),
        ],
    )
    def test_what_no_text_says_is_added(self, texts: list[str], structured: object, written: str) -> None:
        """Nothing is lost."""
        assert returned(*map(text, texts), structuredContent=structured).text == written

    def test_deep_texts_are_compared_without_harm(self) -> None:
        """A text may be nested deeper than Python reads."""
        deep = "[" * 100_000

        assert returned(text(deep), structuredContent={"a": 1}).text == f'{deep}\n\n{{"a":1}}'


# --- The SDK's own example server, which has a tool for each feature of the protocol: as a program, and over HTTP.


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the server, which runs for all tests of this module."""
    with everything_over_http(free_port()) as url:
        yield url


async def check_contents(registry: ToolRegistry) -> None:
    """Check one tool for each kind of result."""
    text = await call(registry, "all:test_simple_text")
    mixed = await call(registry, "all:test_multiple_content_types")
    audio = await call(registry, "all:test_audio_content")
    failed = await call(registry, "all:test_error_handling")

    assert text == ToolResult(text="This is a simple text response for testing.")
    assert len(mixed.files) == 1
    assert mixed.text == (
        'Multiple content types test:\n\n[resource test://mixed-content-resource]\n{"test": "data", "value": 123}'
    )
    assert (audio.text, [file.media_type for file in audio.files]) == ("", ["audio/wav"])
    assert failed == error("Error executing tool test_error_handling")


@pytest.mark.slow
class TestAsAProgram:
    """Over standard input and output."""

    async def test_it_is_called(self) -> None:
        """Results, progress, a schema of the newest dialect, and a question to the user, in the newest version."""
        shown: list[str] = []
        context = answering(lambda text: "Ada")
        async with opened(all=everything_over_stdio(protocol="newest")) as registry:
            await check_contents(registry)
            await call(registry, "all:test_tool_with_progress", shown.append)
            greeting = await call(registry, "all:test_input_required_result_elicitation", context=context)
            schema = registry.find("all:json_schema_2020_12_tool")

        assert shown[0] == "Completed step 0 of 100"
        assert greeting == ToolResult(text="Hello, Ada!")
        assert [question.question for question in context.asked] == ["all: What is your name?\nname"]
        assert schema is not None
        assert {"$schema", "$defs", "allOf", "if", "then"} <= schema.parameters.keys()


@pytest.mark.slow
class TestOverHttp:
    """Over streamable HTTP, by uvicorn."""

    async def test_it_is_called(self, address: str) -> None:
        """J7, J9: as a program is."""
        async with opened(all=McpServer(url=address, headers={"X-Test": "1"})) as registry:
            await check_contents(registry)

            assert (await call(registry, "all:test_x_mcp_header", region="north")).text == "region=north"

    async def test_questions_in_several_rounds(self, address: str) -> None:
        """Each round asks the user of the call, and the server gets its own state back."""
        context = answering(lambda text: "Ada" if "name" in text else "green")
        confirming = answering(lambda text: "Yes")
        async with opened(all=McpServer(url=address, protocol="newest")) as registry:
            rounds = await call(registry, "all:test_input_required_result_multi_round", context=context)
            confirmed = await call(registry, "all:test_input_required_result_request_state", context=confirming)

        assert rounds == ToolResult(text="Ada likes green.")
        assert confirmed == ToolResult(text="state-ok: confirmation received")

    async def test_what_is_not_asked_of_a_user(self, address: str) -> None:
        """The call fails, and the model reads why."""
        async with opened(all=McpServer(url=address, protocol="newest")) as registry:
            sampling = await call(registry, "all:test_input_required_result_sampling")
            roots = await call(registry, "all:test_input_required_result_list_roots")

        assert sampling == error("The server asks for sampling/createMessage, which it cannot have here.")
        assert roots == error("The server asks for roots/list, which it cannot have here.")

    async def test_two_users_of_a_server_that_asks_in_the_middle_of_a_call(self, address: str) -> None:
        """Versions before 2026 do not say which call a question belongs to. Each user is asked only for their own."""

        def user(name: str) -> AnsweringContext:
            return answering(lambda text: name)

        users = {name: user(name) for name in ("Ada", "Bob", "Cyd")}
        async with opened(all=McpServer(url=address)) as registry:
            calls = [
                call(registry, "all:test_elicitation", context=context, message=f"Who is {name}?")
                for name, context in users.items()
            ]
            results = await asyncio.gather(*calls)

        answers = [f'User response: action=accept, content={{"response":"{name}"}}' for name in users]
        assert [result.text for result in results] == answers
        asked = [question.question for context in users.values() for question in context.asked]
        assert asked == [f"all: Who is {name}?\nResponse: User's response" for name in users]

    async def test_forms_with_every_kind_of_field(self, address: str) -> None:
        """Values come back in their types; what does not fit is asked again."""
        answers: dict[str, str | list[str]] = {
            "Untitledsingle": "pending", "Titledsingle": "High Priority", "Untitledmulti": ["read", "execute"],
            "Titledmulti": ["Bug Fix"], "Legacyenum": "Large Size",
        }  # fmt: skip
        ages = iter(["old", "31"])
        numbers = {"Name": "Ada", "Score": "7.5", "Status": "active", "Verified": "No"}

        def choose(text: str) -> str | list[str]:
            return next(answer for title, answer in answers.items() if f"\n{title}" in text)

        def fill_in(text: str) -> str:
            return next((answer for title, answer in numbers.items() if f"\n{title}" in text), "") or next(ages)

        async with opened(all=McpServer(url=address)) as registry:
            chosen = await call(registry, "all:test_elicitation_sep1330_enums", context=answering(choose))
            filled = await call(registry, "all:test_elicitation_sep1034_defaults", context=answering(fill_in))

        assert chosen.text == (
            'Elicitation completed: action=accept, content={"untitledSingle":"pending","titledSingle":"high",'
            '"untitledMulti":["read","execute"],"titledMulti":["bug"],"legacyEnum":"large"}'
        )
        assert filled.text == (
            'Elicitation result: action=accept, content={"name":"Ada","age":31,"score":7.5,"status":"active",'
            '"verified":false}'
        )

    async def test_it_vanishes_and_comes_back(self) -> None:
        """J17: the call under way fails, its tools are withdrawn, and they are offered again when it is there."""
        port, begun = free_port(), asyncio.Event()
        with everything_over_http(port) as url:
            servers = opened(all=McpServer(url=url, protocol="newest"))
            registry = await servers.__aenter__()
            running = asyncio.create_task(call(registry, "all:test_tool_with_progress", lambda line: begun.set()))
            await begun.wait()
        try:
            assert await running == error("The connection to all was lost, so it is not known whether the call ran.")
            await until(lambda: registry.find("all:test_simple_text") is None)
            with everything_over_http(port):
                await until(lambda: registry.find("all:test_simple_text") is not None)

                assert not (await call(registry, "all:test_simple_text")).error
        finally:
            await servers.__aexit__(None, None, None)
