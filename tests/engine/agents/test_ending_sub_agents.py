"""What ends sub-agents before they have finished: deadlines, cancels, and parents that are closed or gone.

P24 and P26: a parent is never held beyond its deadline, whatever a sub-agent does. No sub-agent works on for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, UnknownConversation, presets, tool
from turnwise.effects.context import effect_of_key
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.persistence.errors import StorageFailed
from turnwise.persistence.maintenance.export import import_records
from turnwise.persistence.opening import open_store
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter
from turnwise.states import (
    DeadlineReached,
    Opened,
    SpawnSubAgent,
    Step,
    SubAgentFinished,
    Texts,
    begin,
    transition,
)
from turnwise.testing import ManualClock, call
from turnwise.testing.doubles import NOON

from ...support.agents.teams import MAIL_TOOLS, received, tells_agent
from ...support.databases import BOTH_STORES, Database, stores
from ...support.engine_scenarios import Gate, until
from ...support.families import GO, FamilyLlm, finished, outcomes_in, results_in, spawn, spawned
from ...support.planted.stores import WrappedStore

pytestmark = BOTH_STORES

TOOLS = ["spawn_agents"]
TEXTS = Texts()
LATE = ("cancelled", TEXTS.child_late)
ASSISTANT = presets.assistant()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return the path of a database that does not exist yet."""
    return tmp_path / "agents.db"


class Stubborn:
    """A tool that works until it is let go, and does not stop when it is told to; only at the second time, so that
    a test which fails can end."""

    def __init__(self) -> None:
        self.gate = Gate()

        @tool(crash="pure")
        async def dig() -> str:
            """Dig."""
            with suppress(asyncio.CancelledError):
                await self.gate()
                return "a hole"
            await self.gate()
            return "a hole"

        self.tool = dig


async def states_of_children(conversation: Conversation) -> list[str]:
    """Return the states of its sub-agents, in the order of their tasks."""
    return [child.state for child in await conversation.children()]


async def until_children_are(state: str, conversation: Conversation) -> None:
    """Return when all sub-agents rest in this state."""
    async with asyncio.timeout(30):
        while set(await states_of_children(conversation)) != {state}:
            await asyncio.sleep(0.001)


async def leave_one(database: Database) -> str:
    """Close an engine in the middle of the work of a sub-agent. Returns the id of its parent."""
    gate = Gate()

    async def never() -> str:
        await gate()
        return "…"

    llm = FamilyLlm({GO: [spawn("slow")], "slow": [never]})
    async with Engine.open(database, model=llm, tools=TOOLS, clock=ManualClock()) as engine:
        conversation = await engine.create(policy=ASSISTANT)
        await conversation.send(GO, wait=False)
        await gate.arrived.wait()
        return conversation.id


class TestDeadlines:
    """P26: a sub-agent that does not end in time never holds its parent."""

    @pytest.mark.parametrize("hangs_in", ["model", "tool"])
    async def test_the_deadline_of_the_wait_ends_it(self, database: Database, hangs_in: str) -> None:
        """The others' outcomes count, the late one is said to be late, and its conversation is closed."""
        clock, stubborn, gate = ManualClock(), Stubborn(), Gate()

        async def never() -> str:
            await gate()
            return "too late"

        slow = [never] if hangs_in == "model" else [call("dig"), "too late"]
        llm = FamilyLlm({GO: [spawn("slow", "quick"), "Done."], "slow": slow, "quick": ["result"]})
        tools = [*TOOLS, stubborn.tool]
        async with Engine.open(database, model=llm, tools=tools, clock=clock) as engine:
            conversation = await engine.create(policy=ASSISTANT.replace(sub_agent_deadline=60.0))
            await conversation.send(GO, wait=False)
            await (stubborn.gate if hangs_in == "tool" else gate).arrived.wait()
            while len(await finished(conversation)) < 1:
                await asyncio.sleep(0.001)
            await clock.advance(60)
            turn = await conversation.wait()

            assert turn.reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [LATE, ("completed", "result")]
            await clock.until_asleep(0)
            stubborn.gate.opened.set()
            await until_children_are("closed", conversation)
            assert (await conversation.replay()).divergence is None

    async def test_a_late_outcome_changes_nothing(self, database: Database) -> None:
        """Neither does one that comes twice, or that belongs to no sub-agent: the model has read each once."""
        clock, gate = ManualClock(), Gate()

        async def later() -> str:
            await gate()
            return "too late"

        llm = FamilyLlm({GO: [spawn("slow", "quick"), "Done."], "slow": [later], "quick": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS, clock=clock) as engine:
            conversation = await engine.create(policy=ASSISTANT.replace(sub_agent_deadline=60.0))
            await conversation.send(GO, wait=False)
            while len(await finished(conversation)) < 1:
                await asyncio.sleep(0.001)
            slow, quick = await spawned(conversation)
            forged = [SubAgentFinished(effect_id=n, at=NOON, outcome="forged") for n in (quick, 99, 0)]
            for answer in forged:
                engine.answer(conversation.id, answer)
            await clock.advance(60)
            await conversation.wait()
            before = len(await conversation.events())
            for answer in [*forged, SubAgentFinished(effect_id=slow, at=NOON, outcome="forged")]:
                engine.answer(conversation.id, answer)
            gate.opened.set()
            await until_children_are("closed", conversation)
            await engine.refresh(conversation.id)

            assert len(await conversation.events()) == before
            assert await finished(conversation) == [quick]
            assert "forged" not in str(await conversation.messages())

    async def test_a_task_may_have_a_deadline_of_its_own(self, database: Database) -> None:
        """Only its sub-agent is stopped then; even if its tool ignores that, the parent has its outcome at once."""
        clock, stubborn = ManualClock(), Stubborn()
        task = {"text": "slow", "seconds": 10}
        llm = FamilyLlm({GO: [spawn(task, "quick"), "Done."], "slow": [call("dig"), "…"], "quick": ["result"]})
        tools = [*TOOLS, stubborn.tool]
        async with Engine.open(database, model=llm, tools=tools, clock=clock) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await stubborn.gate.arrived.wait()
            await clock.advance(10)
            turn = await conversation.wait()

            assert turn.reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [LATE, ("completed", "result")]
            stubborn.gate.opened.set()
            await until_children_are("closed", conversation)

    async def test_one_that_was_due_while_no_process_ran_is_late(self, database: Database) -> None:
        """It is not started again for nothing, and its parent goes on."""
        clock, gate = ManualClock(), Gate()

        async def never() -> str:
            await gate()
            return "…"

        llm = FamilyLlm({GO: [spawn({"text": "slow", "seconds": 10}), "Done."], "slow": [never, never]})
        async with Engine.open(database, model=llm, tools=TOOLS, clock=clock) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
        await clock.advance(3600)
        async with Engine.open(database, model=llm, tools=TOOLS, clock=clock) as engine:
            conversation = await engine.get(conversation.id)
            turn = await conversation.wait()

            assert turn.reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [LATE]
            await until_children_are("closed", conversation)


class TestCancels:
    """A cancel waits until the sub-agents have stopped, for a bounded time."""

    async def test_the_turn_ends_when_all_have_stopped(self, database: Database) -> None:
        """Those that had finished keep their result, the others are cancelled and closed."""
        gate = Gate()

        async def never() -> str:
            await gate()
            return "…"

        llm = FamilyLlm({GO: [spawn("slow", "quick")], "slow": [never], "quick": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
            while len(await finished(conversation)) < 1:
                await asyncio.sleep(0.001)
            cancelled = await conversation.cancel()
            (turn,) = await conversation.turns()

            assert not cancelled.no_op
            assert turn.status == "cancelled"
            assert await states_of_children(conversation) == ["closed", "closed"]
            assert sorted(await finished(conversation)) == await spawned(conversation)
            result = next(message.text for message in await conversation.transcript() if message.role == "tool")
            assert outcomes_in(result) == [("cancelled", TEXTS.child_cancelled), ("completed", "result")]

    async def test_one_that_ignores_it_holds_the_turn_no_longer_than_the_deadline(self, database: Database) -> None:
        """Its tool works on, and its conversation is closed when that has ended."""
        clock, stubborn = ManualClock(), Stubborn()
        llm = FamilyLlm({GO: [spawn("slow")], "slow": [call("dig"), "…"]})
        tools = [*TOOLS, stubborn.tool]
        async with Engine.open(database, model=llm, tools=tools, clock=clock) as engine:
            conversation = await engine.create(policy=ASSISTANT.replace(cancel_deadline=5.0))
            await conversation.send(GO, wait=False)
            await stubborn.gate.arrived.wait()
            cancelling = asyncio.ensure_future(conversation.cancel())
            await until(lambda: conversation.state.type == "cancelling")
            await clock.advance(5)
            await cancelling

            assert conversation.state.type == "idle"
            stubborn.gate.opened.set()
            await until_children_are("closed", conversation)

    async def test_it_reaches_the_sub_agents_after_a_restart(self, database: Database) -> None:
        """A process that ends while it waits for them leaves that to the next one."""
        clock, stubborn = ManualClock(), Stubborn()
        llm = FamilyLlm({GO: [spawn("slow"), "…"], "slow": [call("dig"), "…"]})
        tools = [*TOOLS, stubborn.tool]
        async with Engine.open(database, model=llm, tools=tools, clock=clock) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await stubborn.gate.arrived.wait()
            cancelling = asyncio.ensure_future(conversation.cancel())
            await until(lambda: conversation.state.type == "cancelling")
            stubborn.gate.opened.set()
            cancelling.cancel()
        async with Engine.open(database, model=llm, tools=tools, clock=clock) as engine:
            conversation = await engine.get(conversation.id)
            await conversation.wait()

            assert conversation.state.type == "idle"
            await until_children_are("closed", conversation)
            assert [turn.status for turn in await conversation.turns()] == ["cancelled"]

    async def test_a_parent_that_is_closed_ends_its_sub_agents(self, database: Database) -> None:
        """They are closed when `close` returns."""
        gate = Gate()

        async def never() -> str:
            await gate()
            return "…"

        llm = FamilyLlm({GO: [spawn("slow", "slower")], "slow": [never], "slower": [never]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
            await conversation.close()

            assert conversation.state.type == "closed"
            assert await states_of_children(conversation) == ["closed", "closed"]

    async def test_a_sub_agent_that_is_closed_is_cancelled_for_its_parent(self, database: Database) -> None:
        """Anybody may stop a single one by its id, and the others go on."""
        gate = Gate()

        async def never() -> str:
            await gate()
            return "…"

        llm = FamilyLlm({GO: [spawn("slow", "quick"), "Done."], "slow": [never], "quick": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
            slow = (await conversation.children())[0]
            await (await engine.get(slow.id)).close()
            await conversation.wait()

            result = results_in(llm.asked_by(GO)[-1])[0]
            assert outcomes_in(result) == [("cancelled", TEXTS.child_cancelled), ("completed", "result")]


class TestRestarts:
    """Neither a close of the engine nor a loop that fails stops a sub-agent, and its outcome is not lost."""

    async def test_sub_agents_go_on_in_the_next_process(self, database: Database) -> None:
        """They are not started a second time, and each outcome reaches the model once."""
        gate = Gate()

        async def slowly() -> str:
            await gate()
            return "result of slow"

        llm = FamilyLlm({
            GO: [spawn("slow", "quick"), "Done."], "slow": [slowly, "result of slow"], "quick": ["result"],
        })  # fmt: skip
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
            while len(await finished(conversation)) < 1:
                await asyncio.sleep(0.001)
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.get(conversation.id)
            turn = await conversation.wait()

            assert turn.reply == "Done."
            result = results_in(llm.asked_by(GO)[-1])[0]
            assert outcomes_in(result) == [("completed", "result of slow"), ("completed", "result")]
            assert len(await conversation.children()) == 2
            assert sorted(await finished(conversation)) == await spawned(conversation)
            assert (await conversation.replay()).divergence is None

    async def test_an_outcome_of_an_earlier_process_is_read_from_the_log(self, database: Database) -> None:
        """The sub-agent had ended, and the process died before its parent knew."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS, dispatcher=LosesOutcomes) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await until_children_are_there(conversation)
            await until_children_are("closed", conversation)
            assert await finished(conversation) == []
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.get(conversation.id)
            await conversation.wait()

            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [("completed", "result")]
            assert len(llm.asked_by("a")) == 1

    async def test_a_loop_of_the_parent_that_fails_stops_nothing(self, database: Database) -> None:
        """Whoever asks for the parent next gets a loop that waits for the same sub-agents."""
        llm = FamilyLlm({GO: [spawn("a", "b"), "Done."], "a": ["result of a"], "b": ["result of b"]})
        async with Engine.open(database, model=llm, tools=TOOLS, dispatcher=FailsOnce) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            with pytest.raises(Exception, match="Something broke"):
                await conversation.send(GO)
            again = await engine.get(conversation.id)
            turn = await again.wait()

            assert turn.reply == "Done."
            result = results_in(llm.asked_by(GO)[-1])[0]
            assert outcomes_in(result) == [("completed", "result of a"), ("completed", "result of b")]
            assert len(llm.requests) == 4

    async def test_one_that_is_deleted_has_failed(self, database: Database) -> None:
        """Its parent learns that, and goes on."""
        gate = Gate()

        async def never() -> str:
            await gate()
            return "…"

        llm = FamilyLlm({GO: [spawn("slow"), "Done."], "slow": [never]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
            await engine.delete((await conversation.children())[0].id)
            turn = await conversation.wait()

            assert turn.reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [("failed", "The sub-agent was deleted.")]


class TestOrphans:
    """A sub-agent for which nobody waits is ended: at once, or when the next process takes it over."""

    async def test_its_parent_has_gone_on_without_it(self, database: Database) -> None:
        """The process died between the step of the parent and the end of the sub-agent."""
        parent_id = await leave_one(database)
        store = await SqliteStore.open(database)
        loaded = await store.load(parent_id)
        event = DeadlineReached(effect_id=loaded.state.deadline.effect_id, at=NOON)
        await loaded.log.append(event, transition(loaded.state, event, loaded.context))
        await store.close()

        llm = FamilyLlm({GO: ["Done."], "slow": []})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.get(parent_id)
            await conversation.wait()
            await until_children_are("closed", conversation)

            assert llm.asked_by("slow") == []

    async def test_its_parent_is_gone(self, database: Database) -> None:
        """Somebody has deleted the parent by other means."""
        parent_id = await leave_one(database)
        store = await SqliteStore.open(database)
        await store.delete(parent_id)
        await store.close()

        llm = FamilyLlm({"slow": []})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            (child,) = await engine.list(role="sub_agent")

            assert child.state == "closed"
            assert llm.requests == []

    async def test_it_was_created_and_never_given_its_task(self, database: Database) -> None:
        """It rests, so nothing takes it over; but it is found."""
        parent_id = await leave_one(database)
        store = await SqliteStore.open(database)
        child_id = f"{parent_id}/99"
        opened = Opened(event_id=f"opened-{child_id}", at=NOON, role="sub_agent", parent=parent_id, depth=1)
        await store.create(child_id, opened, begin(opened))
        await store.close()

        llm = FamilyLlm({GO: ["Done."], "slow": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            assert (await engine.get(child_id)).state.type == "closed"

    async def test_a_parent_that_gives_up_ends_its_sub_agents(self, database: Database) -> None:
        """Its turn fails after too many crashes, and the sub-agent of an earlier process is not left at work."""
        policy = ASSISTANT.replace(recovery=ASSISTANT.recovery.replace(resumes=1))
        gates = [Gate() for _ in range(3)]

        def waits(gate: Gate) -> Any:
            async def never() -> str:
                await gate()
                return "…"

            return never

        llm = FamilyLlm({GO: [spawn("slow")], "slow": [waits(gate) for gate in gates]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(GO, wait=False)
            await gates[0].arrived.wait()
        async with Engine.open(database, model=llm, tools=TOOLS):
            await gates[1].arrived.wait()
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.get(conversation.id)
            await until_children_are("closed", conversation)

            assert conversation.state.type == "failed"

    async def test_a_copy_of_a_sub_agent_is_nobodys(self, database: Database) -> None:
        """It has an id of its own, so it reports to nobody, is not ended, and stays when the original is deleted."""
        parent_id = await leave_one(database)
        llm = FamilyLlm({GO: ["Done."], "slow": ["result", "again"], "Hello": ["Hi."]})
        async with Engine.open(database, model=llm, tools=TOOLS, clock=ManualClock()) as engine:
            parent = await engine.get(parent_id)
            await parent.wait()
            (child,) = await parent.children()
            copy = await (await engine.get(child.id)).fork(at=1)
            await copy.send("Hello")
            reports = await finished(parent)

            assert reports == await spawned(parent)
            assert [each.id for each in await parent.children()] == [child.id]
            await engine.delete(parent_id)
            assert [each.id for each in await engine.list()] == [copy.id]

    async def test_a_copy_of_a_parent_starts_nobody(self, database: Database) -> None:
        """What its turns have read of sub-agents is in its log, and the sub-agents stay those of the original."""
        llm = FamilyLlm({GO: [spawn("a"), "Done."], "a": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO)
            copy = await conversation.fork()

            assert await copy.children() == ()
            assert [turn.reply for turn in await copy.turns()] == ["Done."]
            assert (await copy.replay()).divergence is None


class TestImports:
    """Conversations that are copied into another database in the middle of their work."""

    @pytest.mark.parametrize("copied", ["both", "parent", "child"])
    async def test_nothing_of_them_goes_on_there(self, database: Database, tmp_path: Path, copied: str) -> None:
        """A parent waits for no sub-agent and starts none; a sub-agent ends. The next message to the parent is answered
        by a model that reads that the sub-agent has ended."""
        parent_id = await leave_one(database)
        source = await SqliteStore.open(database)
        (child_id,) = await source.ids(f"{parent_id}/3/")
        ids = {"both": [parent_id, child_id], "parent": [parent_id], "child": [child_id]}[copied]
        records = [await source.read_record(each) for each in ids]
        await source.close()
        target = await SqliteStore.open(tmp_path / "copy.db")
        await import_records(target, records)
        await target.close()

        llm = FamilyLlm({GO: ["Done."]})
        async with Engine.open(tmp_path / "copy.db", model=llm, tools=TOOLS, clock=ManualClock()) as engine:
            if copied != "parent":
                assert (await engine.get(child_id)).state.type == "closed"
            if copied == "child":
                assert llm.requests == []
                return
            parent = await engine.get(parent_id)
            assert parent.state.type == "failed"
            turn = await parent.send("Go on.")

            assert turn.reply == "Done."
            assert [status for status, _ in outcomes_in(results_in(llm.requests[-1])[0])] == ["cancelled"]
            assert (await parent.replay()).divergence is None


class TestDeletion:
    """A conversation is deleted with its sub-agents."""

    async def test_they_are_deleted_while_they_work(self, database: Database) -> None:
        """Nothing of them is left in the database, and nothing of them goes on."""
        gate = Gate()

        async def never() -> str:
            await gate()
            return "…"

        llm = FamilyLlm({GO: [spawn("slow", "quick"), "Done."], "slow": [never], "quick": ["result"]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
            children = await conversation.children()
            await engine.delete(conversation.id)

            assert await engine.list() == ()
            assert engine.waiting == ()
            for child in children:
                with pytest.raises(UnknownConversation):
                    await engine.get(child.id)

    async def test_the_parent_does_not_go_on_meanwhile(
        self, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its model is not asked what to do without the sub-agent, and no outcome is left that nobody can take."""
        gate = Gate()
        llm = FamilyLlm({GO: [spawn("slow"), "Done."], "slow": [answers_of(gate)]})
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            sending = asyncio.ensure_future(conversation.send(GO))
            await gate.arrived.wait()
            await engine.delete(conversation.id)

            with pytest.raises(UnknownConversation):
                await sending
        assert len(llm.asked_by(GO)) == 1
        assert caplog.records == []

    async def test_a_parent_that_cannot_be_deleted_goes_on(self, database: Database) -> None:
        """The deletion fails, and the turn ends as it would have; the sub-agent that is gone is started anew."""
        gate = Gate()
        llm = FamilyLlm({GO: [spawn("slow"), "Done."], "slow": [answers_of(gate), "result"]})
        store = KeepsParents(await open_store(database))
        async with Engine.open(store=store, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await gate.arrived.wait()
            with pytest.raises(StorageFailed):
                await engine.delete(conversation.id)
            turn = await (await engine.get(conversation.id)).wait()

            assert turn.reply == "Done."
            assert outcomes_in(results_in(llm.asked_by(GO)[-1])[0]) == [("completed", "result")]
        await store.close()

    async def test_who_waits_for_a_parent_that_cannot_be_deleted_goes_on_waiting(self, database: Database) -> None:
        """A caller is not told that a conversation is gone which stays: it is told how its turn ends."""
        gate = Gate()
        llm = FamilyLlm({GO: [spawn("slow"), "Done."], "slow": [answers_of(gate), "result"]})
        store = KeepsParents(await open_store(database))
        async with Engine.open(store=store, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            sending = asyncio.ensure_future(conversation.send(GO))
            await gate.arrived.wait()
            with pytest.raises(StorageFailed):
                await engine.delete(conversation.id)

            assert (await sending).reply == "Done."
        await store.close()

    async def test_a_parent_goes_on_also_if_the_store_raises_an_error_of_its_own(self, database: Database) -> None:
        """A store of the application may raise what no port declares."""
        gate = Gate()
        llm = FamilyLlm({GO: [spawn("slow"), "Done."], "slow": [answers_of(gate), "result"]})
        store = KeepsParents(await open_store(database))
        store.error = OSError("The connection is lost.")
        async with Engine.open(store=store, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            sending = asyncio.ensure_future(conversation.send(GO))
            await gate.arrived.wait()
            with pytest.raises(OSError, match="The connection is lost"):
                await engine.delete(conversation.id)

            async with asyncio.timeout(20):
                assert (await sending).reply == "Done."
        await store.close()

    async def test_who_waits_for_a_parent_that_another_engine_has_deleted_meanwhile_is_told(
        self, database: Database
    ) -> None:
        """The deletion finds nothing to delete, and the callers do not wait for ever."""
        gate = Gate()
        llm = FamilyLlm({GO: [spawn("slow")], "slow": [answers_of(gate)]})
        store = LosesParents(await open_store(database))
        async with Engine.open(store=store, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            sending = asyncio.ensure_future(conversation.send(GO))
            await gate.arrived.wait()
            with pytest.raises(UnknownConversation):
                await engine.delete(conversation.id)

            async with asyncio.timeout(20):
                with pytest.raises(UnknownConversation):
                    await sending
        await store.close()

    async def test_a_sub_agent_that_is_started_anew_may_write_as_the_deleted_one_did(self, database: Database) -> None:
        """Its ids are those of the deleted one. The target takes both messages, and the outbox is empty then."""
        gate = Gate()
        work = [tells_agent("first"), answers_of(gate), tells_agent("second"), "result"]
        llm = FamilyLlm({GO: [spawn("slow"), "Done.", "Read.", "Read."], "slow": work})
        store = KeepsParents(await open_store(database))
        async with Engine.open(store=store, model=llm, tools=[*TOOLS, *MAIL_TOOLS]) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            sending = asyncio.ensure_future(conversation.send(GO))
            await gate.arrived.wait()
            (child,) = await conversation.children()
            with pytest.raises(StorageFailed):
                await engine.delete(conversation.id)
            await sending
            await engine.delivered()

            messages = await received(conversation)
            assert [message.text for message in messages] == ["first", "second"]
            assert [message.origin for message in messages] == [child.id, child.id]
            assert await store.outbox([child.id]) == ()
        await store.close()

    async def test_none_is_started_by_a_conversation_that_is_being_deleted(self, database: Database) -> None:
        """A process that dies behind the deletion of the parent would leave the sub-agent in the database for ever."""
        answering, deleting = Gate(), Gate()
        llm = FamilyLlm({GO: [spawned_behind(answering)], "late": []})
        store = DeletesSlowly(await open_store(database), deleting)
        async with Engine.open(store=store, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=ASSISTANT)
            await conversation.send(GO, wait=False)
            await answering.arrived.wait()
            deletion = asyncio.ensure_future(engine.delete(conversation.id))
            await deleting.arrived.wait()
            answering.opened.set()
            await until(lambda: conversation.state.type == "awaiting_sub_agents")
            for _ in range(20):
                await asyncio.sleep(0)

            assert await store.list(ConversationFilter(role="sub_agent")) == ()
            deleting.opened.set()
            await deletion
            assert await store.list() == ()
        await store.close()

    async def test_none_is_started_for_a_parent_that_another_engine_has_deleted(self, database: Database) -> None:
        """The engine that starts it does not know yet that the parent is gone. Nobody would find the sub-agent."""
        llm = FamilyLlm({GO: [spawn("late")], "late": []})
        async with (
            stores(database, 2) as (store, other_store),
            Engine.open(store=other_store, model=llm, tools=TOOLS, worker=isinstance(database, Path)) as other,
            Engine.open(store=CreatesSlowly(store, other), model=llm, tools=TOOLS) as engine,
        ):
            conversation = await engine.create(policy=ASSISTANT)

            async with asyncio.timeout(20):
                with pytest.raises(UnknownConversation):
                    await conversation.send(GO)

            assert await store.list() == ()
        assert llm.asked_by("late") == []


def spawned_behind(gate: Gate) -> Any:
    """Return an answer of a model that starts a sub-agent when the gate is opened."""

    async def answer() -> Any:
        await gate()
        return spawn("late")

    return answer


def answers_of(gate: Gate) -> Any:
    """Return an answer of a model that comes when the gate is opened."""

    async def answer() -> str:
        await gate()
        return "result"

    return answer


class KeepsParents(WrappedStore):
    """A store that cannot delete a conversation which is not a sub-agent."""

    error: Exception = StorageFailed("The disk is full.")

    async def delete(self, conversation_id: str) -> None:
        """Delete a sub-agent."""
        if "/" not in conversation_id:
            raise self.error
        await self.store.delete(conversation_id)


class LosesParents(WrappedStore):
    """A store from which another engine deletes the parent with its sub-agent."""

    async def delete(self, conversation_id: str) -> None:
        """Delete the conversation and its parent."""
        await self.store.delete(conversation_id)
        if "/" in conversation_id:
            await self.store.delete(effect_of_key(conversation_id)[0])


class DeletesSlowly(WrappedStore):
    """A store that deletes nothing before this gate is open."""

    def __init__(self, store: Any, gate: Gate) -> None:
        super().__init__(store)
        self.gate = gate

    async def delete(self, conversation_id: str) -> None:
        """Delete a conversation when the gate is open."""
        await self.gate()
        await self.store.delete(conversation_id)


class CreatesSlowly(WrappedStore):
    """A store that takes so long to create a sub-agent that this engine deletes its parent meanwhile."""

    def __init__(self, store: Any, other: Engine) -> None:
        super().__init__(store)
        self.other = other

    async def create(self, conversation_id: str, event: Opened, step: Step, **options: Any) -> Any:
        """Create a conversation, a sub-agent when its parent is gone."""
        if event.parent is not None:
            await self.other.delete(event.parent)
        return await super().create(conversation_id, event, step, **options)


class LosesOutcomes(InProcessDispatcher):
    """A dispatcher whose process dies before an outcome of a sub-agent is known."""

    def __init__(self, performers: Any, clock: Any, answer: Any) -> None:
        super().__init__(
            performers, clock, lambda id_, given: None if isinstance(given, SubAgentFinished) else answer(id_, given)
        )


class FailsOnce(InProcessDispatcher):
    """A dispatcher that breaks right after it has started sub-agents for the first time."""

    has_failed = False

    def dispatch(self, effects: Sequence[Any], context: Any) -> None:
        """Start the effects, and break."""
        super().dispatch(effects, context)
        if any(isinstance(effect, SpawnSubAgent) for effect in effects) and not self.has_failed:
            self.has_failed = True
            raise RuntimeError("broken")


async def until_children_are_there(conversation: Conversation) -> None:
    """Return when the conversation has sub-agents."""
    async with asyncio.timeout(30):
        while not await conversation.children():
            await asyncio.sleep(0.001)
