"""An engine with MCP servers: what its conversations are offered, and what becomes of their calls."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, McpServer, McpTool, Policy, Profile, Settings, tool
from turnwise.states.openai_writing import legal_name
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, reply

from ..support.engine_scenarios import results
from ..support.pages import Page
from ..support.servers.mcp_programs import Program, is_alive, listed, until

ECHO = legal_name("files:echo")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def offered(request: Any) -> list[str]:
    """Return the names of the tools that a request offers."""
    return [definition["function"]["name"] for definition in request.tools]


class Model(FunctionLlm):
    """A model that notes what it is offered, and answers with a text, or as a test says."""

    def __init__(self, *answers: Any) -> None:
        self.offers: list[list[str]] = []
        self._answers = list(answers)
        super().__init__(self._answer)

    def _answer(self, request: Any) -> Any:
        self.offers.append(offered(request))
        return self._answers.pop(0) if self._answers else reply("Done.")


@tool
def look() -> str:
    """Look."""
    return "seen"


class TestTurns:
    """The model calls the tools of a server like any other."""

    async def test_a_call(self, database: Path, tmp_path: Path) -> None:
        """The schema goes to the provider unchanged, and the log replays without the server."""
        requests: list[Any] = []

        def answer(request: Any) -> Any:
            requests.append(request)
            return call(ECHO, path="a") if len(requests) == 1 else reply("It says a.")

        program = Program(tmp_path / "server", [listed("echo", SCHEMA, description="Repeat.")])
        async with Engine.open(database, model=FunctionLlm(answer), mcps={"files": program.server()}) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Read a")
            messages = await conversation.transcript()
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            replayed = await (await engine.get(conversation.id)).replay()

        function = {"name": ECHO, "description": "Repeat.", "parameters": SCHEMA}
        assert requests[0].tools == ({"type": "function", "function": function},)
        assert [made.name for message in messages for made in message.tool_calls] == ["files:echo"]
        assert results(messages) == ['{"path": "a"}']
        assert turn.reply == "It says a."
        assert replayed.divergence is None

    @pytest.mark.slow
    async def test_every_call_of_a_response_is_answered(self, database: Path, tmp_path: Path) -> None:
        """J7: also those that fail, are not known, or do not fit the schema; the turn goes on."""
        asked = calls(
            call(ECHO, path="a"), call(ECHO), call(legal_name("files:fail")), call("files:gone"), call("files:die")
        )
        program = Program(tmp_path / "server", [listed("echo", SCHEMA), "fail", "die"])
        model = ScriptedLlm([asked, reply("Done.")])
        async with Engine.open(database, model=model, mcps={"files": program.server()}) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Go")
            messages = await conversation.transcript()

        assert turn.reply == "Done."
        assert results(messages) == [
            '{"path": "a"}',
            "Invalid input: path: Field required",
            "the disk is full",
            "files:gone is not available now: its server is not connected, or no longer offers it.",
            "The connection to files was lost, so it is not known whether the call ran.",
        ]
        sent = [message["content"] for message in model.requests[-1].messages if message["role"] == "tool"]
        assert sent[1:3] == ["Error: Invalid input: path: Field required", "Error: the disk is full"]

    @pytest.mark.slow
    async def test_a_person_approves_calls(self, database: Path, tmp_path: Path) -> None:
        """If the settings say so."""
        server = Program(tmp_path / "server", ["echo"]).server(approval=True)
        model = ScriptedLlm([call(ECHO), reply("Done.")])
        async with Engine.open(database, model=model, mcps={"files": server}) as engine:
            conversation = await engine.create()
            waiting = await conversation.send("Go")
            done = await conversation.approve(str(waiting.call_id), allowed=True)

        assert (waiting.status, done.reply) == ("awaiting_approval", "Done.")


@pytest.mark.slow
class TestComingAndGoing:
    """What a turn is offered follows what the servers offer."""

    async def test_a_server_vanishes_between_turns(self, database: Path, tmp_path: Path) -> None:
        """J17: its tools are no longer offered, a call has an error result, and the turn goes on. When the server is
        back, they are offered again."""
        program = Program(tmp_path / "server", ["echo", "pid"])
        model = Model(call("files:pid"), reply("One."), call(ECHO), reply("Two."))
        async with Engine.open(database, model=model, mcps={"files": program.server()}) as engine:
            conversation = await engine.create()
            await conversation.send("First")
            program.mark("silent")
            os.kill(int(results(await conversation.transcript())[0]), signal.SIGKILL)
            await until(lambda: not is_connected(engine))
            second = await conversation.send("Second")
            (program.folder / "silent").unlink()
            await until(lambda: is_connected(engine))
            await conversation.send("Third")
            last = results(await conversation.transcript())[-1]

        names = [ECHO, legal_name("files:pid")]
        assert model.offers[0] == names
        assert ECHO not in model.offers[2]
        assert model.offers[-1] == names
        assert second.reply == "Two."
        assert last == "files:echo is not available now: its server is not connected, or no longer offers it."


def is_connected(engine: Engine) -> bool:
    """Whether the engine knows a tool of a server now."""
    return engine.choices.checks.tools.find(ECHO) is not None


@pytest.mark.slow
class TestChoosing:
    """Which conversations are offered the tools of servers."""

    async def test_every_profile_has_them(self, database: Path, tmp_path: Path) -> None:
        """J9: a profile's allow-list is about the tools of the application."""
        model = Model(calls(call(ECHO), call("look")), reply("Done."))
        policy = Policy(profiles=(Profile(name="quiet", tools=()),))
        server = Program(tmp_path / "server", ["echo"]).server()
        async with Engine.open(database, model=model, tools=[look], mcps={"files": server}) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send("Go")
            found = results(await conversation.transcript())

        assert model.offers[0] == [ECHO]
        assert found == ["{}", f"look is not available here. Available: {ECHO}."]

    async def test_a_conversation_chooses(self, database: Path, tmp_path: Path) -> None:
        """By name, or all of a server; other conversations have all."""
        model = Model()
        server = Program(tmp_path / "server", ["echo", "pid"]).server()
        async with Engine.open(database, model=model, tools=[look], mcps={"files": server}) as engine:
            for chosen in (None, ["look"], ["files:echo"], ["files:*"]):
                await (await engine.create(tools=chosen)).send("Go")

        both = [ECHO, legal_name("files:pid")]
        assert model.offers == [["look", *both], ["look"], [ECHO], both]

    async def test_a_choice_before_the_server_is_there(self, database: Path) -> None:
        """The name of the server is enough; that of an unknown server is refused."""
        server = McpServer(command="/no/such/program")
        policy = Policy(profiles=(Profile(name="reader", tools=("files:read",)),))
        async with Engine.open(database, model=Model(), mcps={"files": server}) as engine:
            conversation = await engine.create(policy=policy, tools=["files:read", "files:*"])
            turn = await conversation.send("Go")
            with pytest.raises(ConfigurationError) as refused:
                await engine.create(tools=["git:*"])

        assert turn.reply == "Done."
        assert refused.value.sentence == "There is no tool called git:*. There are no tools."


@pytest.mark.slow
class TestSettings:
    """Servers come from code, from the environment and from `turnwise.toml`."""

    async def test_the_setting_mcps(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """J19: a server of the file is offered, and one from code replaces it under the same name."""
        server = Program(tmp_path / "server", ["echo"]).server()
        written = f'[mcps.files]\ncommand = "{server.command}"\nargs = {json.dumps(list(server.args))}\n'
        (tmp_path / "turnwise.toml").write_text(f"{written}tools.echo.crash = 'pure'\n")
        monkeypatch.chdir(tmp_path)
        model = Model()

        async with Engine.open("sqlite://", model=model) as engine:
            await (await engine.create()).send("Go")
            echo = engine.choices.checks.tools.find(ECHO)
        async with Engine.open("sqlite://", model=model, mcps={"files": McpServer(command="/no")}) as engine:
            await (await engine.create()).send("Go")
        monkeypatch.setenv("TURNWISE_MCPS", json.dumps({"notes": server.model_dump()}))
        async with Engine.open("sqlite://", model=model) as engine:
            await (await engine.create()).send("Go")

        assert model.offers == [[ECHO], [], [legal_name("notes:echo")]]
        assert echo is not None
        assert echo.crash == "pure"

    def test_the_documented_file_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The example of docs/reply_flow.md names fields that exist."""
        (written,) = re.findall(r"```toml\n(\[mcps\.files\].*?)```", Page("docs/reply_flow.md").text, re.DOTALL)
        (tmp_path / "turnwise.toml").write_text(written)
        monkeypatch.chdir(tmp_path)

        settings = Settings()

        assert settings.mcps["files"].tools["write_file"] == McpTool(approval=True, timeout=10)
        assert settings.mcps["search"].crash == "pure"

    @pytest.mark.parametrize("name", ["a:b", "", "a b", "x" * 41])
    def test_a_name_that_no_server_can_have(self, name: str) -> None:
        """The colon stands between the server and its tool."""
        with pytest.raises(ConfigurationError, match="cannot be the name of an MCP server"):
            Engine.open("sqlite://", mcps={name: McpServer(command="x")})


@pytest.mark.slow
class TestOpeningAndClosing:
    """Servers live as long as the engine."""

    async def test_check_tells_which_servers_cannot_be_reached(self, tmp_path: Path) -> None:
        """Before the engine is open, and while it is."""
        good, bad = Program(tmp_path / "server").server(), McpServer(command="/no/such/program")
        engine = Engine.open("sqlite://", model=ScriptedLlm([]), mcps={"files": good})
        await engine.check()
        async with engine:
            await engine.check()
        async with Engine.open("sqlite://", model=ScriptedLlm([]), mcps={"git": bad}) as engine:
            with pytest.raises(ConfigurationError) as failed:
                await engine.check()
            faults = engine.server_faults
            await engine.check(servers=False)

        assert faults == (failed.value.sentence,)
        assert failed.value.sentence == (
            "The MCP server git cannot be reached: there is no program called /no/such/program."
        )

    async def test_closing_in_the_middle_of_a_call(self, database: Path, tmp_path: Path) -> None:
        """The call is cancelled, the process ends, and the crash contract decides when the engine opens again."""
        program = Program(tmp_path / "server", ["hang", "pid"])
        model = ScriptedLlm([call("files:pid"), call("files:hang")])
        async with Engine.open(database, model=model, mcps={"files": program.server()}) as engine:
            conversation = await engine.create()
            await conversation.send("Go", wait=False)
            await until(lambda: len(program.received("tools/call")) == 2)
            pid = int(results(await conversation.transcript())[0])
        async with Engine.open(database, model=ScriptedLlm([]), mcps={"files": program.server()}) as engine:
            turn = await (await engine.get(conversation.id)).wait()

        assert not is_alive(pid)
        assert len(program.received("notifications/cancelled")) == 1
        assert turn is not None
        assert turn.status == "in_doubt"

    async def test_a_closed_engine_leaves_no_process_of_a_server(self, database: Path, tmp_path: Path) -> None:
        """Neither its children, which nothing else would end: here they ignore SIGTERM, and a call is under way."""
        program = Program(tmp_path / "server", ["hang"])
        program.mark("fertile")
        model = ScriptedLlm([call("files:hang")])
        async with Engine.open(database, model=model, mcps={"files": program.server()}) as engine:
            await (await engine.create()).send("Go", wait=False)
            await until(lambda: len(program.received("tools/call")) == 1)
            family = program.family()
            assert [is_alive(pid) for pid in family] == [True] * 3

        await until(lambda: not any(map(is_alive, family)), 1)

    async def test_a_call_that_may_run_again_waits_for_its_server(self, database: Path, tmp_path: Path) -> None:
        """After a crash the servers are connected before the calls run again, under the same key."""
        program = Program(tmp_path / "server", ["show_meta", "hang"])
        again = {"hang": McpTool(crash="idempotent")}
        first = ScriptedLlm([call("files:hang")])
        async with Engine.open(database, model=first, mcps={"files": program.server(tools=again)}) as engine:
            conversation = await engine.create()
            await conversation.send("Go", wait=False)
            await until(lambda: len(program.received("tools/call")) == 1)
        quick = {"hang": McpTool(crash="idempotent", timeout=0.1)}
        second = ScriptedLlm([reply("Done.")])
        async with Engine.open(database, model=second, mcps={"files": program.server(tools=quick)}) as engine:
            turn = await (await engine.get(conversation.id)).wait()

        keys = [params["_meta"]["turnwise/idempotency-key"] for params in program.received("tools/call")]
        assert turn is not None
        assert turn.reply == "Done."
        assert len(keys) == 2
        assert keys[0] == keys[1]


@pytest.mark.slow
class TestThePackage:
    """The SDK is imported when a server is configured, and only then."""

    PROGRAM = """
import asyncio, sys
{before}
from turnwise import ConfigurationError, Engine, McpServer
from turnwise.testing import ScriptedLlm, reply

async def main():
    async with Engine.open("sqlite://", model=ScriptedLlm([reply("Hi.")]), mcps={mcps}) as engine:
        await (await engine.create()).send("Hi")

try:
    asyncio.run(main())
except ConfigurationError as error:
    print(error.sentence)
print(sorted({{"mcp", "mcp_types", "httpx2"}} & {{name for name in sys.modules if sys.modules[name]}}))
"""

    def run(self, mcps: str, before: str = "") -> list[str]:
        """Return what a new process prints that opens an engine with these servers."""
        program = self.PROGRAM.format(mcps=mcps, before=before)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def test_without_a_server_it_is_not_imported(self) -> None:
        """Neither the package nor what it needs."""
        assert self.run("{}") == ["[]"]

    def test_without_the_package_a_server_is_refused(self) -> None:
        """In one sentence that says what to install."""
        blocked = self.run("{'files': McpServer(command='x')}", before="sys.modules['mcp'] = None")

        assert blocked == ['MCP servers need the package mcp: pip install "turnwise[mcp]".', "[]"]
