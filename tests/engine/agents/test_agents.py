"""The directory of agents: whom an agent reaches, and whom it may write to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from turnwise import Conversation, Engine, ToolContext, tool
from turnwise.effects.agents import Agent
from turnwise.engine.agents.agents import PAGE, Directory
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, reply

from ...support.agents.teams import team, tells_agent, tells_user
from ...support.engine_scenarios import results


@dataclass
class Office:
    """An engine with agents, and its directory."""

    engine: Engine
    directory: Directory

    async def foreground(self, owner: str | None = "ada") -> Conversation:
        """Return a new agent with a user."""
        return await self.engine.create(owner=owner)

    async def background(self, works_for: Conversation | None = None, owner: str | None = None) -> Conversation:
        """Return a new agent that works for another one, or for any agent of its owner."""
        return await self.engine.create(role="background", works_for=works_for, owner=owner)

    async def foreground_of(self, agent: Conversation) -> str | None:
        """Return the id of the agent whose user this one reaches."""
        found = await self.directory.foreground_of(agent.id)
        return None if found is None else found.id

    async def may_write(self, sender: Conversation, target: Conversation) -> bool:
        """Return whether one may write to the other."""
        return await self.directory.reachable(sender.id, target.id) is not None


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    """An engine over a store in memory."""
    async with Engine.open("sqlite://", model=FunctionLlm(lambda request: "…")) as engine:
        yield Office(engine, Directory(lambda: engine.store))


class TestForeground:
    """D3: the nearest foreground agent above, else the one of the owner that was active last."""

    async def test_it_is_the_one_that_the_agent_works_for(self, office: Office) -> None:
        """D3: although another one was active later."""
        front = await office.foreground()
        back = await office.background(front)
        await (await office.foreground()).send("Hi")

        assert await office.foreground_of(back) == front.id

    async def test_it_is_found_above_agents_without_a_user(self, office: Office) -> None:
        """D3: the nearest one, however many agents lie between."""
        front = await office.foreground()
        middle = await office.background(front)

        assert await office.foreground_of(await office.background(middle)) == front.id

    async def test_else_it_is_the_one_of_the_owner_that_was_active_last(self, office: Office) -> None:
        """D3: of those that are not closed."""
        first, second, closed = [await office.foreground() for _ in range(3)]
        await (await office.foreground(owner="eve")).send("Hi")
        back = await office.background(owner="ada")
        await second.send("Hi")
        await first.send("Hi")
        await closed.close()
        assert await office.foreground_of(back) == first.id

        await second.send("Hi again")
        assert await office.foreground_of(back) == second.id

    async def test_many_closed_ones_are_passed_over(self, office: Office) -> None:
        """D3: also when they fill pages of the list."""
        front = await office.foreground()
        for _ in range(PAGE + 1):
            await (await office.foreground()).close()

        assert await office.foreground_of(await office.background(owner="ada")) == front.id

    async def test_a_closed_one_above_is_found_as_closed(self, office: Office) -> None:
        """D11, D14: the caller is told, and nobody else gets the message instead."""
        front, _ = await office.foreground(), await office.foreground()
        back = await office.background(front)
        await front.close()

        found = await office.directory.foreground_of(back.id)
        assert found is not None
        assert (found.id, found.is_closed) == (front.id, True)

    async def test_a_deleted_one_above_counts_as_none(self, office: Office) -> None:
        """D3: then the owner's others are looked for."""
        front, other = await office.foreground(), await office.foreground()
        back = await office.background(front)
        await office.engine.delete(front.id)

        assert await office.foreground_of(back) == other.id

    async def test_without_an_owner_there_is_no_other(self, office: Office) -> None:
        """D3: conversations without an owner may belong to different people."""
        await office.foreground(owner=None)

        assert await office.foreground_of(await office.background()) is None

    async def test_an_agent_with_a_user_has_none(self, office: Office) -> None:
        """It reaches its user itself; and an id that is not stored has none either."""
        front, _ = await office.foreground(), await office.foreground()

        assert await office.foreground_of(front) is None
        assert await office.directory.foreground_of("nobody") is None


class TestReach:
    """Who may write to whom: agents of one owner, and agents of one tree."""

    async def test_agents_of_one_owner_reach_each_other(self, office: Office) -> None:
        """D3: and agents of two owners do not."""
        one, other, stranger = (
            await office.foreground(),
            await office.background(owner="ada"),
            await office.foreground("eve"),
        )

        assert await office.may_write(one, other)
        assert await office.may_write(other, one)
        assert not await office.may_write(one, stranger)
        assert not await office.may_write(stranger, other)

    async def test_agents_of_one_tree_reach_each_other_without_an_owner(self, office: Office) -> None:
        """Those that work for the same agent do, also after that one was deleted; others do not."""
        front, stranger = await office.foreground(None), await office.foreground(None)
        one, other = await office.background(front), await office.background(front)
        assert await office.may_write(one, other)
        assert await office.may_write(front, one)
        assert not await office.may_write(one, stranger)

        await office.engine.delete(front.id)
        assert await office.may_write(one, other)
        assert not await office.may_write(one, front)

    @pytest.mark.parametrize("agent_id", ["", "nobody", "x" * 10_000, "\ud800", "a\x00b"])
    async def test_an_impossible_id_is_nobody(self, agent_id: str, office: Office) -> None:
        """Whatever a model writes."""
        front = await office.foreground()

        assert await office.directory.find(agent_id) is None
        assert await office.directory.reachable(front.id, agent_id) is None
        assert await office.directory.reachable(agent_id, front.id) is None

    async def test_an_agent_is_found_as_it_stands_in_the_store(self, office: Office) -> None:
        """With its role, its state, its owner, and whom it works for."""
        front = await office.foreground()
        back = await office.background(front)

        assert await office.directory.find(back.id) == Agent(
            id=back.id, role="background", state="idle", owner="ada", works_for=front.id
        )


INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("send_user_message", {"text": ""}, "text: Input should not be empty"),
    ("send_user_message", {"text": " \n\t"}, "text: Input should not be empty"),
    ("send_user_message", {}, "text: Field required"),
    ("send_user_message", {"text": 5}, "text: Input should be a valid string"),
    ("send_user_message", {"text": "a", "agent_id": "x"}, "agent_id: "),
    ("send_user_message", {"text": "a", "silent": True}, "silent: "),
    ("send_agent_message", {"text": ""}, "text: Input should not be empty"),
    ("send_agent_message", {"text": "a", "urgent": True}, "urgent: "),
    ("send_agent_message", {"text": "a", "silent": "maybe"}, "silent: "),
    ("send_agent_message", {"text": "a", "agent_id": "nobody"}, "There is no agent nobody that"),
    ("send_agent_message", {"text": "a", "agent_id": ""}, "There is no agent  that"),
]
"""Calls of the tools that cannot succeed, and what their results say."""


class TestTools:
    """The tools and the tool context use the directory."""

    async def test_without_a_foreground_agent_the_call_fails_and_the_turn_goes_on(self, database: Any) -> None:
        """D3: an error result, and nothing is posted."""
        async with team(database, bg=[tells_user("a"), tells_agent("b"), reply("Nobody.")]) as agents:
            back = await agents.background(None)
            turn = await back.send("Go")

            assert turn.final_content == "Nobody."
            assert results(await back.transcript()) == [
                "There is no agent with a user that this agent works for.",
                "Say by `agent_id` which agent the message is for: this agent works for none that has a user.",
            ]
            assert await agents.engine.store.outbox([back.id]) == ()

    async def test_invalid_arguments_are_error_results(self, database: Any) -> None:
        """D4: empty or blank text, an extra property: nothing is posted, and the turn goes on."""
        invalid = [(call(name, **arguments), reason) for name, arguments, reason in INVALID]
        script = [calls(*(made for made, _ in invalid)), reply("Well.")]
        async with team(database, fg=[], bg=script) as agents:
            front = await agents.foreground()
            back = await agents.background(front)
            turn = await back.send("Go")
            await agents.settled()

            assert turn.final_content == "Well."
            found = [message for message in await back.transcript() if message.role == "tool"]
            for result, (_, reason) in zip(found, invalid, strict=True):
                assert result.error
                assert reason in result.text
            assert front.state.book.seq == 1

    async def test_an_agent_cannot_write_to_itself(self, database: Any) -> None:
        """It would answer itself without end."""
        ids: list[str] = []

        @tool(crash="pure")
        async def own_id(context: ToolContext) -> str:
            """Tell the id of this conversation."""
            ids.append(context.conversation_id)
            return context.conversation_id

        def answer(request: Any) -> Any:
            said = sum(message["role"] == "assistant" for message in request.messages)
            return [call("own_id"), tells_agent("a", agent_id=ids[0] if ids else ""), reply("No.")][said]

        tools = [own_id, "send_agent_message"]
        async with Engine.open(database, model=FunctionLlm(answer), tools=tools) as engine:
            conversation = await engine.create()
            await conversation.send("Go")

            assert results(await conversation.transcript())[1] == "An agent cannot write to itself."

    async def test_a_tool_of_the_application_finds_agents(self, database: Any) -> None:
        """By `ToolContext.agents`: the agent with the user, and those that this one may write to."""
        seen: list[Any] = []

        @tool(crash="pure")
        async def look(context: ToolContext) -> str:
            """Look around."""
            assert context.agents is not None
            front = await context.agents.foreground()
            assert front is not None
            seen.extend([front.role, front.id, await context.agents.find(front.id) == front])
            seen.append(await context.agents.find("nobody"))
            return "looked"

        llm = ScriptedLlm([call("look"), reply("Done.")])
        async with Engine.open(database, model=llm, tools=[look]) as engine:
            front = await engine.create()
            back = await engine.create(role="background", works_for=front)
            await back.send("Go")

            assert seen == ["foreground", front.id, True, None]
