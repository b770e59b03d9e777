"""The directory of agents, and what agents of each role are told and may do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from turnwise import (
    ConfigurationError,
    Conversation,
    Engine,
    LiteLlm,
    Policy,
    Profile,
    Refused,
    ToolContext,
    presets,
    tool,
)
from turnwise.effects.agents import Agent
from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.engine.agents.agents import PAGE, Directory
from turnwise.states import LlmResponse, Texts
from turnwise.states.policy import SubAgentRules
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, reply

from ...states.test_roles import ALLOWED
from ...support.agents.teams import team, tells_agent, tells_user
from ...support.databases import BOTH_STORES, Database
from ...support.engine_scenarios import results
from ...support.servers.openai_server import Body, OpenAiServer, Reply, says
from ...support.servers.openai_server import calls as roles_calls

pytestmark = BOTH_STORES

# --- The directory of agents: whom an agent reaches, and whom it may write to.


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


# --- What agents of each role are told and may do, as the service of a language model sees it over a real socket.


TEXTS = Texts()
COOK = Profile(name="cook", prompt="You cook.", description="Knows recipes.")
GUIDE = Profile(name="guide", prompt="You show people the city.", description="Knows the sights.")


@tool(crash="pure")
async def find_table() -> str:
    """Look for a free table."""
    return "Table 4 is free."


EVERYTHING: tuple[Any, ...] = (*BUILT_IN, find_table)


def by_first_text(scripts: Mapping[str, Sequence[Reply]]) -> Any:
    """A script for several agents: each is told apart by the first thing that was said to it."""
    left = {text: iter(replies) for text, replies in scripts.items()}
    return lambda body: next(left[_first_text(body)])


def _first_text(body: Body) -> str:
    return next(str(message["content"]) for message in body["messages"] if message["role"] == "user")


def requests_of(server: OpenAiServer, text: str) -> list[Body]:
    """The requests of the agent to which this was said first."""
    return [body for body in server.requests if _first_text(body) == text]


def system_of(body: Body) -> str:
    """The system message of a request; empty if there is none."""
    first = body["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def offered(body: Body) -> set[str]:
    """The names of the tools that a request offers."""
    return {one["function"]["name"] for one in body.get("tools", ())}


def engine_at(server: OpenAiServer, database: Database, **options: Any) -> Engine:
    """An engine over a real file, whose model is served over a socket."""
    options.setdefault("tools", EVERYTHING)
    return Engine.open(database, model=LiteLlm("openai/test", api_base=server.url, api_key="test"), **options)


class TestPrompts:
    """D13: what an agent is told of its role."""

    async def test_a_finding_reaches_the_user_in_the_words_of_the_foreground_agent(self, database: Database) -> None:
        """D2, D13: the background agent reads when to use its tool, the other one that it must present the message in
        its own words; each is offered the tools of its role."""
        script = by_first_text({
            "Watch the tables.": [
                roles_calls(("send_user_message", {"text": "table 4: free from 20:00"})),
                says("Sent."),
            ],
            "Good evening.": [says("Good evening!"), says("Table 4 is yours from eight o'clock.")],
        })  # fmt: skip
        async with OpenAiServer(script) as server, engine_at(server, database) as engine:
            front = await engine.create(policy=presets.foreground(), system="You are kind.", owner="ada")
            back = await engine.create(role="background", works_for=front, system="You watch tables.")
            await front.send("Good evening.")
            await back.send("Watch the tables.")
            await engine.delivered()
            await front.wait()
            turns = await front.turns()

            assert [one.reply for one in turns] == ["Good evening!", "Table 4 is yours from eight o'clock."]
            greeting, presenting = requests_of(server, "Good evening.")
            watching = requests_of(server, "Watch the tables.")[0]
        assert TEXTS.foreground_guidance in system_of(greeting)
        assert system_of(presenting) == system_of(greeting)
        assert f'<message_for_user origin="{back.id}">table 4: free' in presenting["messages"][-1]["content"]
        assert TEXTS.background_guidance in system_of(watching)
        assert TEXTS.user_message_guidance.replace("{tool}", "send_user_message") in system_of(watching)
        assert offered(greeting) == {*ALLOWED["foreground"], "find_table"}
        assert offered(watching) == {*ALLOWED["background"], "find_table"}

    async def test_rules_that_do_not_describe_agents_explain_a_message_once_there_is_one(
        self, database: Database
    ) -> None:
        """D13: a foreground agent under other rules gets no prompt that it does not need, and the one that it needs."""
        script = by_first_text({
            "Watch.": [roles_calls(("send_user_message", {"text": "free"})), says("Sent.")],
            "Hi": [says("Hello."), says("There is a table.")],
        })  # fmt: skip
        async with OpenAiServer(script) as server, engine_at(server, database) as engine:
            front = await engine.create(policy=Policy(when_busy="queue"))
            back = await engine.create(role="background", works_for=front)
            await front.send("Hi")
            await back.send("Watch.")
            await engine.delivered()
            await front.wait()

            before, after = requests_of(server, "Hi")
        assert "# Messages of other agents" not in system_of(before)
        assert TEXTS.foreground_guidance in system_of(after)


class TestSubAgents:
    """D2, P20: what a child may call, whatever its parent and its task say."""

    TASK = "Find a table."

    def script(self, task: dict[str, Any], *child: Reply) -> Any:
        """The user's agent starts one child with this task and reports; the child answers as given."""
        return by_first_text(
            {"Go.": [roles_calls(("spawn_agents", {"tasks": [task]})), says("Done.")], self.TASK: child}
        )

    async def run(self, database: Database, script: Any, policy: Policy | None = None) -> tuple[OpenAiServer, str]:
        """Let the agent work. Returns the server, and the result of the call that started the child."""
        async with OpenAiServer(script) as server, engine_at(server, database) as engine:
            parent = await engine.create(policy=policy or presets.foreground())
            turn = await parent.send("Go.")
            said = results(await parent.transcript())

            assert (turn.status, turn.reply) == ("completed", "Done.")
            return server, said[0]

    async def test_a_denied_tool_is_neither_offered_nor_regained(self, database: Database) -> None:
        """D2, P20: the parent has ask_user_question and gives it to its child by name; the child is not offered it, a
        forged call of it has the error result of the seed, and the child goes on."""
        forged = roles_calls(
            ("ask_user_question", {"questions": []}),
            ("x_ask_user_question", {}),
            ("x:talk", {"message": "Hi"}),
            ("speak_to_user", {"text": "Hi"}),
            ("spawn_agents", {"tasks": ["More"]}),
            ("send_user_message", {"text": "Hi"}),
        )
        task = {"text": self.TASK, "tools": ["ask_user_question", "speak_to_user", "spawn_agents", "find_table"]}
        server, result = await self.run(database, self.script(task, forged, says("I decide myself.")))

        first, second = requests_of(server, self.TASK)
        read = [message["content"] for message in second["messages"] if message["role"] == "tool"]
        assert offered(first) == {"find_table"}
        assert [read[0], *read[2:]] == [
            "Error: ask_user_question is not available to sub-agents",
            "Error: talk is not available to sub-agents",
            "Error: speak_to_user is not available to sub-agents",
            "Error: spawn_agents is not available to sub-agents",
            "Error: send_user_message is not available to sub-agents",
        ]
        assert read[1].startswith("Error: There is no tool called x_ask_user_question.")
        assert json.loads(result) == {"agents": [{"status": "completed", "result": "I decide myself."}]}

    async def test_a_child_is_told_what_it_is(self, database: Database) -> None:
        """P25: its last text is its result, so its prompt says so; it is offered what its role allows."""
        server, _ = await self.run(database, self.script({"text": self.TASK}, says("Table 4.")))

        (request,) = requests_of(server, self.TASK)
        assert TEXTS.sub_agent_guidance in system_of(request)
        assert "# How the user hears from you" not in system_of(request)
        assert offered(request) == {*ALLOWED["sub_agent"], "find_table"}

    @pytest.mark.parametrize(("deepest", "may"), [(1, False), (2, True)])
    async def test_children_start_others_as_deep_as_the_policy_says(
        self, database: Database, deepest: int, may: bool
    ) -> None:
        """P20: spawn_agents beyond the depth limit (default 1) is neither offered nor carried out."""
        policy = presets.foreground().replace(sub_agents=SubAgentRules(depth=deepest))
        server, _ = await self.run(database, self.script({"text": self.TASK}, says("Table 4.")), policy)

        assert ("spawn_agents" in offered(requests_of(server, self.TASK)[0])) is may

    async def test_a_child_that_may_ask_is_offered_the_tool(self, database: Database) -> None:
        """Its question goes to its parent's user, because the policy says so."""
        policy = presets.foreground().replace(sub_agents=SubAgentRules(questions="ask_user"))
        server, _ = await self.run(database, self.script({"text": self.TASK}, says("Table 4.")), policy)

        assert "ask_user_question" in offered(requests_of(server, self.TASK)[0])


class TestTransfer:
    """A model hands the conversation over to another profile, with the same user."""

    async def profile_of_requests(self, conversation: Conversation) -> list[str]:
        """The profile of each turn that has ended."""
        return [turn.profile for turn in await conversation.turns()]

    async def test_it_goes_on_by_the_other_profile(self, database: Database) -> None:
        """From the next request on, in all later turns, and after the engine was opened again."""
        script = [
            roles_calls(("transfer_to", {"profile": "cook"})),
            says("Pasta, then."),
            says("With basil."),
            says("And cheese."),
        ]
        policy = Policy(profiles=(GUIDE, COOK))
        async with OpenAiServer(script) as server:
            async with engine_at(server, database) as engine:
                conversation = await engine.create(policy=policy, system="You are kind.")
                first = await conversation.send("What do I eat?")
                second = await conversation.send("Go on")
            async with engine_at(server, database) as engine:
                again = await engine.get(conversation.id)
                await again.send("Go on")
                report = await again.replay()

            systems = [system_of(body) for body in server.requests]
        assert [COOK.prompt in text for text in systems] == [False, True, True, True]
        assert [GUIDE.prompt in text for text in systems] == [True, False, False, False]
        assert all("- guide: Knows the sights.\n- cook: Knows recipes." in text for text in systems)
        assert (first.profile, second.profile, again.profile) == ("cook", "cook", "cook")
        assert report.divergence is None

    async def test_an_unknown_profile_is_an_error_result(self, database: Database) -> None:
        """The model reads it and goes on as it was."""
        llm = ScriptedLlm([call("transfer_to", profile="pilot"), reply("I stay.")])
        async with Engine.open(database, model=llm, tools=["transfer_to"]) as engine:
            conversation = await engine.create(policy=Policy(profiles=(GUIDE, COOK)))
            turn = await conversation.send("Fly me")
            entries = await conversation.transcript()

        (result,) = (message for message in entries if message.role == "tool")
        assert (result.error, turn.reply, turn.profile) == (True, "I stay.", "guide")


async def test_calls_of_older_logs_are_read_as_they_were(database: Database) -> None:
    """D2: what a call was found to be stands in the log, so a replay asks no role."""
    llm = ScriptedLlm([call("send_user_message", text="Hi"), reply("On.")])
    async with Engine.open(database, model=llm, tools=EVERYTHING) as engine:
        conversation = await engine.create()
        await conversation.send("Go")
        entries = await conversation.events()
        report = await conversation.replay()

    (made,) = next(entry.event for entry in entries if isinstance(entry.event, LlmResponse)).tool_calls
    assert (made.fault, made.acts) == ("send_user_message is not available to agents with a user", ())
    assert report.divergence is None


async def test_a_sub_agent_is_not_created_by_hand(database: Database) -> None:
    """It would have no parent that waits for it."""
    async with Engine.open(database) as engine:
        with pytest.raises(ConfigurationError):
            await engine.create(role="sub_agent")
        with pytest.raises(Refused):
            closed = await engine.create()
            await closed.close()
            await engine.create(role="background", works_for=closed)
