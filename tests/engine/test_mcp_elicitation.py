"""A server asks the user in the middle of a call, and the call waits in the conversation."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, McpServer, McpTool, Policy, Questions
from turnwise.testing import ScriptedLlm, call, reply

from ..support.engine_scenarios import results
from ..support.servers.mcp_programs import Program, is_alive, until

pytestmark = pytest.mark.slow

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
