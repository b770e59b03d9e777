"""Code of an application that ends its process whenever it is called, at every start anew.

Whatever is begun is counted before it begins, so after a few starts it is left out, people are told, and the
conversation goes on.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effect_ids import unmarked
from turnwise import Engine
from turnwise.persistence import examine, open_store, repair
from turnwise.testing import RecordingChannel, ScriptedLlm, reply

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(240)]

PROGRAM = '''
import asyncio, logging, os, signal, sys
from turnwise import Engine, ToolContext, tool
from turnwise.testing import FunctionLlm, call, reply

DATABASE, DEADLY = sys.argv[1:]
logging.basicConfig(level=logging.WARNING)


def die(where):
    if where == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)


async def was_paid(amount: int, context: ToolContext) -> str:
    die("asked")
    return "did_not_run"


@tool(crash="reconcile", reconcile=was_paid)
async def pay(amount: int) -> str:
    """Pay."""
    die("run")
    if DEADLY == "asked":
        os._exit(9)
    return "Paid."


class Channel:
    def __init__(self, name):
        self.name = name

    async def deliver(self, delivery):
        die(f"{self.name}, {delivery.text}")
        with open(f"{DATABASE}.{self.name}", "a") as heard:
            heard.write(delivery.text + chr(10))


def obey(request):
    newest = request.messages[-1]
    return call("pay", amount=5) if newest["content"] == "Pay" else reply("Heard: " + str(newest["content"]))


async def main():
    channels = [Channel("screen"), Channel("phone")] if "," in DEADLY else []
    async with Engine.open(DATABASE, model=FunctionLlm(obey, name="m"), tools=[pay], channels=channels) as engine:
        text = "Pay" if channels == [] else "one"
        conversation = await engine.create(conversation_id="main")
        if conversation.state.type == "idle" and not conversation.state.book.turn:
            if channels:
                other = await engine.create(conversation_id="other")
                await other.send("innocent", message_id="m0", wait=False)
            await conversation.send(text, message_id="m1", wait=False)
        await engine.delivered()
        turn = await conversation.wait()
        await engine.delivered()
        print(turn.status, turn.failure or turn.reply)


asyncio.run(main())
'''


def starts(database: Path, deadly: str) -> tuple[int, str, str]:
    """How often the program was started until it came to its end, and what it wrote then."""
    program = database.with_name("program.py")
    program.write_text(PROGRAM)
    for count in range(1, 10):
        run = subprocess.run(
            [sys.executable, program, database, deadly], capture_output=True, text=True, timeout=60, check=False
        )
        if run.returncode == 0:
            return count, run.stdout, run.stderr
        assert run.returncode == -9 or run.returncode == 9, run.stderr
    return 99, "", ""


@pytest.mark.parametrize("deadly", ["run", "asked"])
async def test_a_call_that_ends_its_process_is_left_out(database: Path, deadly: str) -> None:
    """Whether the tool dies itself, each time after its verdict that it did not run, or the function that is asked. The
    turn fails with a sentence, and the next one goes on."""
    count, told, _ = starts(database, deadly)

    assert count == 4
    assert told.startswith("failed ")
    async with Engine.open(database, model=ScriptedLlm([reply("Hello.")], name="m")) as engine:
        conversation = await engine.get("main")
        assert (await conversation.send("Hello")).reply == "Hello."
        assert (await conversation.replay()).divergence is None


async def test_a_delivery_that_ends_its_process_is_left_out(database: Path) -> None:
    """It is told, and stays in the outbox. The other channel has the text, and so has the other conversation on the
    same channel, which is tried alone after the first crash."""
    count, told, log = starts(database, "phone, Heard: one")

    assert count == 4
    assert told == "completed Heard: one\n"
    assert "The channel phone ended the program at each attempt to deliver this. It is left out." in log
    heard = {name: Path(f"{database}.{name}").read_text().splitlines() for name in ("screen", "phone")}
    assert {*heard["screen"]} == {"Heard: one", "Heard: innocent"}
    assert {*heard["phone"]} == {"Heard: innocent"}

    phone = RecordingChannel(name="phone")
    async with Engine.open(
        database, model=ScriptedLlm([reply("Two.")], name="m"), channels=[RecordingChannel(name="screen"), phone]
    ) as engine:
        conversation = await engine.get("main")
        await conversation.send("two")
        await engine.delivered()
        (left,) = await engine.store.outbox(["main", "other"])
        assert [delivery.text for delivery in phone.deliveries] == ["Two."]
        assert (left.target, left.begun) == ("phone", 2)


async def test_a_delivery_that_was_left_out_is_made_when_a_person_says_so(database: Path) -> None:
    """The doctor finds it, and `--fix` makes it due as if it had never been tried."""
    starts(database, "phone, Heard: one")
    store = await open_store(database)
    found = (await examine(store)).findings
    await repair(store, found)
    await store.close()

    phone = RecordingChannel(name="phone")
    async with Engine.open(database, model=ScriptedLlm([], name="m"), channels=[phone]) as engine:
        await engine.delivered()
        assert await engine.store.outbox(["main"]) == ()

    assert ["is left out" in finding.sentence for finding in found] == [True]
    assert [(delivery.text, unmarked(delivery.key)) for delivery in phone.deliveries] == [("Heard: one", "main/2")]


async def test_an_engine_that_closes_during_an_attempt_has_not_died(database: Path) -> None:
    """However often it is closed while a channel hangs, the delivery is made."""

    class Hanging:
        name = "phone"

        async def deliver(self, delivery: object) -> None:
            await asyncio.Event().wait()

    async with Engine.open(database, model=ScriptedLlm([reply("Hi.")], name="m"), channels=[Hanging()]) as engine:
        await (await engine.create(conversation_id="main")).send("Hello")
    for _ in range(5):
        async with Engine.open(database, model=ScriptedLlm([], name="m"), channels=[Hanging()]) as engine:
            await asyncio.sleep(0.05)  # the attempt has begun
    phone = RecordingChannel(name="phone")
    async with Engine.open(database, model=ScriptedLlm([], name="m"), channels=[phone]) as engine:
        async with asyncio.timeout(60):
            while await engine.store.outbox(["main"]):
                await asyncio.sleep(0.01)

    assert [delivery.text for delivery in phone.deliveries] == ["Hi."]
