"""Two histories under one conversation id: nothing of the one is taken for something of the other.

The outside world recognises what it has seen by keys, as the documentation tells it to: a webhook receiver by
`webhook-id`, a bank by the key of a call, a person's click by the id of a call, an agent by the id of a message.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support.effect_ids import unmarked
from tests.support.engine_scenarios import QUESTION, Gate, until
from tests.support.families import GO, FamilyLlm, outcomes_in, results_in, spawn
from tests.support.servers.webhook_receiver import SECRET, Receiver
from turnwise import Conversation, Engine, Refused, ToolContext, WebhookChannel, presets, tool
from turnwise.effects.context import effect_of_key, key_of
from turnwise.engine.recovery import links_of
from turnwise.persistence import import_records
from turnwise.persistence.maintenance.fork import fork
from turnwise.persistence.maintenance.replay import Fold
from turnwise.testing import FunctionLlm, ManualClock, call, reply

from ..support.databases import BOTH_STORES, Database

pytestmark = BOTH_STORES

ASSISTANT = presets.assistant()
TOOLS = ["spawn_agents"]


class Bank:
    """A service that carries out one payment for each key."""

    def __init__(self, **declared: Any) -> None:
        self.paid: dict[str, int] = {}
        self.asked: list[str] = []
        self.gate = Gate()
        self.waits = False

        @tool(name="pay", **{"crash": "idempotent", **declared})
        async def pay(amount: int, context: ToolContext) -> str:
            """Pay."""
            self.asked.append(context.key)
            self.paid.setdefault(context.key, amount)
            if self.waits:
                await self.gate()
            return "Paid."

        self.tool = pay


def obey(request: Any) -> Any:
    """Pay what the user says, and report it."""
    newest = request.messages[-1]
    return call("pay", amount=int(newest["content"])) if newest["role"] == "user" else reply("It is paid.")


def paying(database: Database, bank: Bank, receiver: Receiver, **options: Any) -> Engine:
    """An engine that pays, and says so to the receiver. Its clock stands still, so that no moment tells two histories
    apart."""
    channels = [WebhookChannel(receiver.url, SECRET)]
    return Engine.open(
        database,
        model=FunctionLlm(obey, name="payer"),
        tools=[bank.tool],
        channels=channels,
        clock=ManualClock(),
        **options,
    )


async def pays(engine: Engine, amount: int, message_id: str) -> Conversation:
    """Have the conversation `main` pay, and wait until its text has arrived."""
    conversation = await engine.create(conversation_id="main")
    assert (await conversation.send(str(amount), message_id=message_id)).reply == "It is paid."
    await engine.delivered()
    return conversation


Happens: TypeAlias = Callable[[Any, Bank, Receiver], Awaitable[None]]
"""What leads to a second history under the same ids."""


async def deleted(database: Database, bank: Bank, receiver: Receiver) -> None:
    """A conversation is deleted and created again."""
    async with paying(database, bank, receiver) as engine:
        await pays(engine, 5, "m1")
        await engine.delete("main")
        await pays(engine, 5, "m1")


async def two_databases(database: Path, bank: Bank, receiver: Receiver) -> None:
    """Two customers, each with a database of their own."""
    for path in (database, database.with_name("other.db")):
        async with paying(path, bank, receiver) as engine:
            await pays(engine, 5, "m1")


async def restored(database: Path, bank: Bank, receiver: Receiver) -> None:
    """A backup is restored, and other things are said than the first time."""
    backup = database.with_name("backup.db")
    async with paying(database, bank, receiver) as engine:
        await engine.create(conversation_id="main")
    shutil.copy(database, backup)
    async with paying(database, bank, receiver) as engine:
        await pays(engine, 5, "m1")
    shutil.copy(backup, database)
    async with paying(database, bank, receiver) as engine:
        await pays(engine, 5, "another message")


async def imported(database: Path, bank: Bank, receiver: Receiver) -> None:
    """A conversation is copied into another database, and goes on in both."""
    async with paying(database, bank, receiver) as engine:
        await engine.create(conversation_id="main")
        record = await engine.store.read_record("main")
    other = database.with_name("other.db")
    async with paying(other, bank, receiver) as engine:
        await import_records(engine.store, [record])
        await pays(engine, 5, "another message")
    async with paying(database, bank, receiver) as engine:
        await pays(engine, 5, "m1")


async def test_what_is_done_after_a_deletion_is_done(database: Database) -> None:
    """In a conversation that has the id of one that was deleted."""
    await check_that_both_are_done(deleted, database)


@pytest.mark.parametrize("happens", [two_databases, restored, imported])
async def test_what_a_second_history_does_is_done(happens: Happens, database_file: Path) -> None:
    """In another database, or in the same one as it was before."""
    await check_that_both_are_done(happens, database_file)


async def check_that_both_are_done(happens: Happens, database: Any) -> None:
    """The second payment is made and the second text arrives, although the bank and the receiver drop whatever comes
    under a key that they know."""
    bank = Bank()
    with Receiver() as receiver:
        await happens(database, bank, receiver)

    assert list(bank.paid.values()) == [5, 5]
    assert list(receiver.taken.values()) == ["It is paid."] * 2
    assert {unmarked(key) for key in bank.paid} == {"main/2"}
    assert len(receiver.taken) == len(receiver.posts)


async def test_a_fork_goes_its_own_way(database: Database) -> None:
    """What was delivered before the cut is not delivered again, and what comes after it has keys of its own, also in a
    second fork under the same id."""
    bank = Bank()
    with Receiver() as receiver:
        async with paying(database, bank, receiver) as engine:
            original = await pays(engine, 5, "m1")
            for message_id in ("m2", "m3"):
                await fork(engine.store, "main", "copy", None, engine.now())
                await (await engine.get("copy")).send("6", message_id=message_id)
                await engine.delivered()
                await engine.delete("copy")
            await original.send("6", message_id="m2")
            await engine.delivered()

    assert list(bank.paid.values()) == [5, 6, 6, 6]
    assert len(receiver.taken) == len(receiver.posts) == 4


class TestClicks:
    """What a person decides holds for the call that the person saw."""

    async def test_an_approval_of_the_first_history_allows_nothing_in_the_second(self, database: Database) -> None:
        """Five were approved; five thousand are not, by the same click. The new call has an id of its own."""
        bank = Bank(approval=True)
        with Receiver() as receiver:
            async with paying(database, bank, receiver) as engine:
                conversation = await engine.create(conversation_id="main")
                seen = (await conversation.send("5", message_id="m1")).call_id
                await engine.delete("main")
                conversation = await engine.create(conversation_id="main")
                new = (await conversation.send("5000", message_id="m1")).call_id
                with pytest.raises(Refused) as refused:
                    await conversation.approve(seen, True)

                assert refused.value.code == "wrong_state"
                assert bank.paid == {}
                assert (await conversation.approve(new, True)).reply == "It is paid."

    async def test_an_answer_and_a_verdict_of_the_first_history_are_refused_in_the_second(
        self, database: Database
    ) -> None:
        """So is an answer to a question that was asked there."""
        llm = FunctionLlm(lambda request: call("ask_user_question", questions=[QUESTION]), name="asks")
        async with Engine.open(database, model=llm, tools=["ask_user_question"], clock=ManualClock()) as engine:
            ids = []
            for _ in range(2):
                conversation = await engine.create(conversation_id="main")
                ids.append((await conversation.send("Book.", message_id="m1")).call_id)
                if len(ids) == 1:
                    await engine.delete("main")
            with pytest.raises(Refused) as refused:
                await conversation.answer({"When?": "6:30 PM"}, call_id=ids[0])
            with pytest.raises(Refused) as declined:
                await conversation.decline(ids[0])

            assert refused.value.code == declined.value.code == "wrong_state"
            assert len({*ids}) == 2


class TestAgents:
    """Mail and sub-agents."""

    async def test_a_message_of_a_sender_that_was_created_again_arrives(self, database: Database) -> None:
        """Its number is that of the first, its words are the same, and it is another message."""
        work = FunctionLlm(
            lambda request: (
                reply("Sent.")
                if request.messages[-1]["role"] == "tool"
                else call("send_agent_message", text="Done.", agent_id="front")
            ),
            name="work",
        )
        opening = {"models": [FunctionLlm(lambda request: reply("Thanks."), name="front")], "clock": ManualClock()}
        async with Engine.open(database, model=work, tools=["send_agent_message"], **opening) as engine:
            front = await engine.create(conversation_id="front", model="front", owner="ann")
            for _ in range(2):
                worker = await engine.create(
                    conversation_id="work", role="background", works_for=front, owner="ann", model="work"
                )
                await worker.send("Go.", message_id="m1")
                await engine.delivered()
                await engine.delete("work")
            await until(lambda: front.state.type == "idle" and front.state.book.turn == 2)
            ids = [entry.event.event_id for entry in await front.events() if entry.event.type == "agent_message"]

        assert len({*ids}) == 2
        assert {*map(unmarked, ids)} == {"work/3"}

    async def test_a_sub_agent_has_the_id_of_its_own_history(self, database: Database) -> None:
        """A sub-agent that is left of an older history, here without its parent, is not taken for the new one."""
        llm = FamilyLlm({GO: [spawn("a"), "Done.", spawn("a"), "Done."], "a": ["first", "second"]})
        async with Engine.open(database, model=llm, tools=[*TOOLS], clock=ManualClock()) as engine:
            conversation = await engine.create(conversation_id="main", policy=ASSISTANT)
            await conversation.send(GO, message_id="m1")
            (child,) = await conversation.children()
            record = await engine.store.read_record(child.id)
            await engine.delete("main")
            await import_records(engine.store, [record])
            conversation = await engine.create(conversation_id="main", policy=ASSISTANT)
            await conversation.send(GO, message_id="m1")
            children = [each.id for each in await conversation.children()]

        assert outcomes_in(results_in(llm.asked_by(GO)[-1])[-1]) == [("completed", "second")]
        assert {*map(unmarked, [child.id, *children])} == {"main/3"}
        assert len({*children}) == 2 and child.id in children


class TestOneHistory:
    """Whoever drives a conversation makes the same keys."""

    async def test_a_call_that_runs_again_has_its_key(self, database: Database) -> None:
        """However many steps lie between the one that started it and the crash, and between further crashes: they are
        those of messages that wait, far more than are read at once."""
        bank = Bank()
        bank.waits = True
        for crash in range(3):
            async with Engine.open(database, model=FunctionLlm(obey, name="payer"), tools=[bank.tool]) as engine:
                conversation = await engine.create(conversation_id="main")
                if not crash:
                    await conversation.send("5", message_id="m1", wait=False)
                await until(lambda crash=crash: len(bank.asked) == crash + 1)
                for number in range(30 if not crash else 2):
                    await conversation.set_title(f"{crash} {number}")
        bank.waits = False
        async with Engine.open(database, model=FunctionLlm(obey, name="payer"), tools=[bank.tool]) as engine:
            conversation = await engine.get("main")
            await until(lambda: conversation.state.type in ("idle", "failed"))

        assert len(bank.asked) > 2 and len({*bank.asked}) == 1

    async def test_the_links_are_those_of_the_steps_that_asked_first(self, database: Database) -> None:
        """What is read from the end of a log is what the loop noted step by step, in every state of a long turn."""
        bank = Bank()
        with Receiver() as receiver:
            async with paying(database, bank, receiver) as engine:
                conversation = await pays(engine, 5, "m1")
                entries = await conversation.events()

        async def read(after: int = 0, up_to: int | None = None) -> Any:
            return entries[after:up_to]

        fold = Fold()
        for entry in entries:
            assert fold.take(entry) is None
            state = fold.state
            links, _ = await links_of(state, read)
            for effect_id in state.in_flight():
                asked = next(
                    entry for entry in entries for one in entry.effects if getattr(one, "effect_id", 0) == effect_id
                )
                assert links.of(effect_id) == asked.chain


def test_keys_name_their_effect() -> None:
    """Also those of sub-agents of sub-agents, of today and of older revisions; other texts name none."""
    link = bytes.fromhex("0123456789abcdef")

    assert effect_of_key(key_of(key_of("main", 3, link), 7, link)) == ("main/3/0123456789ab", 7)
    assert effect_of_key("main/3/7") == ("main/3", 7)
    assert effect_of_key("main/3/123456789012") == ("main", 3)
    assert [effect_of_key(each) for each in ("main", "main/", "/3", "main/x", "")] == [("", 0)] * 5
