"""What agents of each role are told and may do, as the service of a language model sees it over a real socket."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Conversation, Engine, LiteLlm, Policy, Profile, Refused, presets, tool
from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.states import LlmResponse, Texts
from turnwise.states.policy import SubAgentRules
from turnwise.testing import ScriptedLlm, call, reply

from ...states.test_roles import ALLOWED
from ...support.engine_scenarios import results
from ...support.servers.openai_server import Body, OpenAiServer, Reply, calls, says

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


def engine_at(server: OpenAiServer, database: Path, **options: Any) -> Engine:
    """An engine over a real file, whose model is served over a socket."""
    options.setdefault("tools", EVERYTHING)
    return Engine.open(database, model=LiteLlm("openai/test", api_base=server.url, api_key="test"), **options)


class TestPrompts:
    """D13: what an agent is told of its role."""

    async def test_a_finding_reaches_the_user_in_the_words_of_the_foreground_agent(self, database: Path) -> None:
        """D2, D13: the background agent reads when to use its tool, the other one that it must present the message in
        its own words; each is offered the tools of its role."""
        script = by_first_text({
            "Watch the tables.": [calls(("send_user_message", {"text": "table 4: free from 20:00"})), says("Sent.")],
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

    async def test_rules_that_do_not_describe_agents_explain_a_message_once_there_is_one(self, database: Path) -> None:
        """D13: a foreground agent under other rules gets no prompt that it does not need, and the one that it needs."""
        script = by_first_text({
            "Watch.": [calls(("send_user_message", {"text": "free"})), says("Sent.")],
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
        return by_first_text({"Go.": [calls(("spawn_agents", {"tasks": [task]})), says("Done.")], self.TASK: child})

    async def run(self, database: Path, script: Any, policy: Policy | None = None) -> tuple[OpenAiServer, str]:
        """Let the agent work. Returns the server, and the result of the call that started the child."""
        async with OpenAiServer(script) as server, engine_at(server, database) as engine:
            parent = await engine.create(policy=policy or presets.foreground())
            turn = await parent.send("Go.")
            said = results(await parent.transcript())

            assert (turn.status, turn.reply) == ("completed", "Done.")
            return server, said[0]

    async def test_a_denied_tool_is_neither_offered_nor_regained(self, database: Path) -> None:
        """D2, P20: the parent has ask_user_question and gives it to its child by name; the child is not offered it, a
        forged call of it has the error result of the seed, and the child goes on."""
        forged = calls(
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

    async def test_a_child_is_told_what_it_is(self, database: Path) -> None:
        """P25: its last text is its result, so its prompt says so; it is offered what its role allows."""
        server, _ = await self.run(database, self.script({"text": self.TASK}, says("Table 4.")))

        (request,) = requests_of(server, self.TASK)
        assert TEXTS.sub_agent_guidance in system_of(request)
        assert "# How the user hears from you" not in system_of(request)
        assert offered(request) == {*ALLOWED["sub_agent"], "find_table"}

    @pytest.mark.parametrize(("deepest", "may"), [(1, False), (2, True)])
    async def test_children_start_others_as_deep_as_the_policy_says(
        self, database: Path, deepest: int, may: bool
    ) -> None:
        """P20: spawn_agents beyond the depth limit (default 1) is neither offered nor carried out."""
        policy = presets.foreground().replace(sub_agents=SubAgentRules(depth=deepest))
        server, _ = await self.run(database, self.script({"text": self.TASK}, says("Table 4.")), policy)

        assert ("spawn_agents" in offered(requests_of(server, self.TASK)[0])) is may

    async def test_a_child_that_may_ask_is_offered_the_tool(self, database: Path) -> None:
        """Its question goes to its parent's user, because the policy says so."""
        policy = presets.foreground().replace(sub_agents=SubAgentRules(questions="ask_user"))
        server, _ = await self.run(database, self.script({"text": self.TASK}, says("Table 4.")), policy)

        assert "ask_user_question" in offered(requests_of(server, self.TASK)[0])


class TestTransfer:
    """A model hands the conversation over to another profile, with the same user."""

    async def profile_of_requests(self, conversation: Conversation) -> list[str]:
        """The profile of each turn that has ended."""
        return [turn.profile for turn in await conversation.turns()]

    async def test_it_goes_on_by_the_other_profile(self, database: Path) -> None:
        """From the next request on, in all later turns, and after the engine was opened again."""
        script = [
            calls(("transfer_to", {"profile": "cook"})),
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

    async def test_an_unknown_profile_is_an_error_result(self, database: Path) -> None:
        """The model reads it and goes on as it was."""
        llm = ScriptedLlm([call("transfer_to", profile="pilot"), reply("I stay.")])
        async with Engine.open(database, model=llm, tools=["transfer_to"]) as engine:
            conversation = await engine.create(policy=Policy(profiles=(GUIDE, COOK)))
            turn = await conversation.send("Fly me")
            entries = await conversation.transcript()

        (result,) = (message for message in entries if message.role == "tool")
        assert (result.error, turn.reply, turn.profile) == (True, "I stay.", "guide")


async def test_calls_of_older_logs_are_read_as_they_were(database: Path) -> None:
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


async def test_a_sub_agent_is_not_created_by_hand(database: Path) -> None:
    """It would have no parent that waits for it."""
    async with Engine.open(database) as engine:
        with pytest.raises(ConfigurationError):
            await engine.create(role="sub_agent")
        with pytest.raises(Refused):
            closed = await engine.create()
            await closed.close()
            await engine.create(role="background", works_for=closed)
