"""An engine with MCP servers: what its conversations are offered, and a server that asks the user."""

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

from turnwise import ConfigurationError, Engine, McpServer, McpTool, Policy, Profile, Questions, Settings, tool
from turnwise.states.openai_writing import legal_name
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, reply

from ..support.engine_scenarios import results
from ..support.pages import Page
from ..support.servers.mcp_programs import Program, is_alive, listed, until

# --- An engine with MCP servers: what its conversations are offered, and what becomes of their calls.


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
    return engine.choices.tool_registry.find(ECHO) is not None


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
            echo = engine.choices.tool_registry.find(ECHO)
        async with Engine.open("sqlite://", model=model, mcps={"files": McpServer(command="/no")}) as engine:
            await (await engine.create()).send("Go")
        monkeypatch.setenv("TURNWISE_MCPS", json.dumps({"notes": server.model_dump()}))
        async with Engine.open("sqlite://", model=model) as engine:
            await (await engine.create()).send("Go")

        assert model.offers == [[ECHO], [], [legal_name("notes:echo")]]
        assert echo is not None
        assert echo.crash == "pure"

    def test_the_documented_file_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The example of docs/guides/mcp.md names fields that exist."""
        (written,) = re.findall(r"```toml\n(\[mcps\.files\].*?)```", Page("docs/guides/mcp.md").text, re.DOTALL)
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


# --- A server asks the user in the middle of a call, and the call waits in the conversation.


FORM = {
    "message": "Your trip?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "seats": {"type": "integer", "title": "Seats"},
            "class": {"type": "string", "title": "Class", "enum": ["first", "second"]},
            "extras": {
                "type": "array",
                "title": "Extras",
                "items": {"type": "string", "enum": ["bike", "dog", "meal"]},
            },
            "sleeper": {"type": "boolean", "title": "Sleeper"},
        },
        "required": ["seats", "class", "extras", "sleeper"],
    },
}
QUESTIONS: dict[str, str | list[str]] = {
    "trains: Your trip?\nSeats (a whole number)": "2",
    "trains:\nClass": "second",
    "trains:\nExtras": ["bike", "meal"],
    "trains:\nSleeper": "No",
}
ACCEPTED = {
    "action": "accept",
    "content": {"seats": 2, "class": "second", "extras": ["bike", "meal"], "sleeper": False},
}

WAITS = """
import asyncio, json, sys
from turnwise import Engine, McpServer
from turnwise.testing import ScriptedLlm, call

database, given, form = json.loads(sys.argv[1])

async def main():
    servers = {name: McpServer.model_validate(server) for name, server in given.items()}
    answers = [answer for name in servers for answer in (call(f"{name}:pid"), call(f"{name}:ask", **form))]
    engine = await Engine.open(database, model=ScriptedLlm(answers), mcps=servers)
    for name in servers:
        conversation = await engine.create()
        turn = await conversation.send("Book a trip")
        assert turn.status == "awaiting_user", turn
        said = await conversation.transcript()
        print(json.dumps([int(said[2].text), conversation.id]), flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""
"""A program whose conversations wait for the answers to servers' questions, until it is killed."""


def asking(*after: Any) -> ScriptedLlm:
    """Return a model that calls the tool which asks, and then answers so."""
    return ScriptedLlm([call("trains:ask", **FORM), *(after or (reply("Booked."),))])


@pytest.mark.slow
class TestAnswers:
    """The user answers through the conversation, and the call goes on."""

    async def test_a_form_is_filled_in(self, database: Path, tmp_path: Path) -> None:
        """The server gets the values in its types. The log replays without it."""
        server = Program(tmp_path / "server", ["ask"]).server()
        async with Engine.open(database, model=asking(), mcps={"trains": server}) as engine:
            conversation = await engine.create()
            waiting = await conversation.send("Book a train")
            questions = {question.question: question for question in waiting.questions}
            turn = await conversation.answer(dict(QUESTIONS))
            (told,) = results(await conversation.transcript())
            replayed = await conversation.replay()

        assert waiting.status == "awaiting_user"
        assert questions.keys() == QUESTIONS.keys()
        assert [option.label for option in questions["trains:\nExtras"].options] == ["bike", "dog", "meal"]
        assert questions["trains:\nExtras"].multi_select
        assert json.loads(told) == ACCEPTED
        assert turn.reply == "Booked."
        assert replayed.divergence is None

    async def test_what_does_not_fit_is_asked_again(self, database: Path, tmp_path: Path) -> None:
        """Only that, with what is wrong."""
        server = Program(tmp_path / "server", ["ask"]).server()
        async with Engine.open(database, model=asking(), mcps={"trains": server}) as engine:
            conversation = await engine.create()
            await conversation.send("Book a train")
            again = await conversation.answer({**QUESTIONS, "trains: Your trip?\nSeats (a whole number)": "some"})
            (question,) = again.questions
            await conversation.answer({question.question: "2"})
            (told,) = results(await conversation.transcript())

        sentence = "The answer must be a whole number."
        assert question.question == f"trains: Your trip?\nSeats (a whole number)\n{sentence}"
        assert json.loads(told) == ACCEPTED

    async def test_the_user_declines(self, database: Path, tmp_path: Path) -> None:
        """Where the model goes on after that, the server is told, and decides what the call returns."""
        server = Program(tmp_path / "server", ["ask"]).server()
        async with Engine.open(database, model=asking(), mcps={"trains": server}) as engine:
            conversation = await engine.create(policy=Policy(questions=Questions(cancel="resume")))
            await conversation.send("Book a train")
            turn = await conversation.decline()
            (told,) = results(await conversation.transcript())

        assert json.loads(told) == {"action": "decline"}
        assert turn.reply == "Booked."

    async def test_the_turn_is_cancelled_while_the_user_is_asked(self, database: Path, tmp_path: Path) -> None:
        """The server reads that the call is cancelled, and the next turn works."""
        program = Program(tmp_path / "server", ["ask"])
        async with Engine.open(database, model=asking(), mcps={"trains": program.server(timeout=0.5)}) as engine:
            conversation = await engine.create()
            await conversation.send("Book a train")
            await conversation.cancel()
            await until(lambda: bool(program.received("notifications/cancelled")))
            turn = await conversation.send("Never mind")

        assert turn.reply == "Booked."


@pytest.mark.slow
@pytest.mark.faults
class TestCrashes:
    """If the process dies while the user is asked, the crash contract decides about the call."""

    async def test_a_killed_process(self, database: Path, tmp_path: Path) -> None:
        """A call that may run at most once is in doubt, and a person decides; one that may run again does so, under its
        key, and asks again. The programs of the servers have ended with their engine."""
        once = Program(tmp_path / "once", ["pid", "ask"])
        often = Program(tmp_path / "often", ["pid", "ask"])
        servers = {"trains": once.server(), "planes": often.server(tools={"ask": McpTool(crash="idempotent")})}
        processes, conversations = kill_while_waiting(database, servers)
        await until(lambda: not any(map(is_alive, processes)))

        model = ScriptedLlm([reply("Booked."), reply("Booked.")])
        async with Engine.open(database, model=model, mcps=servers) as engine:
            first, second = [await engine.get(conversation_id) for conversation_id in conversations]
            doubtful, again = await first.wait(), await second.wait()
            assert doubtful is not None
            assert again is not None
            asked = await first.resolve(str(doubtful.call_id), "again")
            turns = [await each.answer({it.question: answer_to(it.question) for it in waiting.questions})
                     for each, waiting in ((first, asked), (second, again))]  # fmt: skip

        keys = [params["_meta"]["turnwise/idempotency-key"] for params in often.received("tools/call")[1:]]
        assert [doubtful.status, asked.status, again.status] == ["in_doubt", "awaiting_user", "awaiting_user"]
        assert [turn.reply for turn in turns] == ["Booked.", "Booked."]
        assert len(keys) == 2
        assert keys[0] == keys[1]


def answer_to(question: str) -> str | list[str]:
    """Return the answer to a question of any of the servers."""
    return next(answer for asked, answer in QUESTIONS.items() if asked.partition(":")[2] == question.partition(":")[2])


def kill_while_waiting(database: Path, servers: dict[str, McpServer]) -> tuple[list[int], list[str]]:
    """Run a conversation for each server in another process until both wait for the user, and kill the process. Return
    the ids of the servers' processes, and of the conversations."""
    given = [str(database), {name: server.model_dump(mode="json") for name, server in servers.items()}, FORM]
    process = subprocess.Popen([sys.executable, "-c", WAITS, json.dumps(given)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    waiting: list[tuple[int, str]] = [tuple(json.loads(process.stdout.readline())) for _ in servers]
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    processes, conversations = zip(*waiting, strict=True)
    return list(processes), list(conversations)
