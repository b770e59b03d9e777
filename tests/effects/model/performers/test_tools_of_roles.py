"""An agent is offered the built-in tools of its role, and a forged call of another one has an error result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest

from turnwise import Conversation, Engine, LiteLlm, ModelRequest, Policy, tool
from turnwise.effects.tools.catalogue import BUILT_IN
from turnwise.states import LlmResponse, Opened, RequestLlm, begin
from turnwise.states.policy import SubAgentRules
from turnwise.states.roles import Role
from turnwise.testing import ScriptedLlm, call, calls, reply

from ....states.test_roles import ALLOWED
from ....support.cases import holds_for
from ....support.engine_scenarios import results
from ....support.servers.openai_server import OpenAiServer
from ....support.servers.openai_server import calls as sends_calls
from ....support.servers.openai_server import says as sends

ROLES: tuple[Role, ...] = ("foreground", "background", "sub_agent")
TITLES: dict[Role, str] = {
    "foreground": "agents with a user",
    "background": "background agents",
    "sub_agent": "sub-agents",
}
ran: list[str] = []
"""The tools that ran, in order."""


@tool(crash="pure")
async def find_table() -> str:
    """Look for a free table."""
    ran.append("find_table")
    return "Table 4 is free."


@pytest.fixture(autouse=True)
def _none_ran() -> None:
    ran.clear()


async def agent(engine: Engine, role: Role, **opened: Any) -> Conversation:
    """A conversation with this role, also with that of a sub-agent, as its first event says it."""
    policy = opened.pop("policy", Policy())
    first = Opened(event_id="opened", at=datetime.now(UTC), role=role, policy=policy, **opened)
    conversation_id = str(uuid4())
    await engine.store.create(conversation_id, first, begin(first))
    return await engine.get(conversation_id)


@asynccontextmanager
async def begun(
    role: Role, answers: Sequence[Any], given: Sequence[Any] = tuple(BUILT_IN), **opened: Any
) -> AsyncIterator[tuple[Conversation, ScriptedLlm]]:
    """An agent on an engine that has these tools."""
    llm = ScriptedLlm(answers)
    async with Engine.open("sqlite://", model=llm, tools=given) as engine:
        yield await agent(engine, role, **opened), llm


def offered(request: ModelRequest) -> set[str]:
    """Return the names of the tools that a request offers."""
    return {definition["function"]["name"] for definition in request.tools}


async def faults(conversation: Conversation) -> list[str | None]:
    """Return the faults of the calls of the first response."""
    entries = await conversation.events()
    response = next(entry.event for entry in entries if isinstance(entry.event, LlmResponse))
    return [made.fault for made in response.tool_calls]


class TestOffering:
    """D2: what the requests of an agent list."""

    @pytest.mark.parametrize("role", ROLES)
    async def test_the_tools_of_its_role(self, role: Role) -> None:
        """D2: of all built-in tools, in the order in which the engine was given them, and those of the application."""
        async with begun(role, [reply("Done.")], [*BUILT_IN, find_table]) as (conversation, llm):
            await conversation.send("Go")

        assert offered(llm.requests[0]) == {*ALLOWED[role].intersection(BUILT_IN), "find_table"}

    async def test_a_choice_of_tools_gives_nothing_that_the_role_denies(self) -> None:
        """D2: a child cannot regain a denied tool by being given it by name."""
        chosen = ("ask_user_question", "x:talk", "find_table", "speak_to_user")
        given = [*BUILT_IN, find_table]
        async with begun("sub_agent", [reply("Done.")], given, tools=chosen) as (conversation, llm):
            await conversation.send("Go")

        assert offered(llm.requests[0]) == {"find_table"}

    async def test_equal_choices_of_agents_with_other_roles_are_not_mixed_up(self) -> None:
        """D2: what is offered is kept for each choice of tools and each role and depth, whoever asks first."""
        llm = ScriptedLlm([reply("Done.")] * 4)
        policy = Policy(sub_agents=SubAgentRules(questions="ask_user"))
        async with Engine.open("sqlite://", model=llm, tools=["ask_user_question", "recall_conversation"]) as engine:
            for role in ROLES:
                await (await agent(engine, role)).send("Go")
            await (await agent(engine, "sub_agent", policy=policy)).send("Go")

        both, one = {"ask_user_question", "recall_conversation"}, {"recall_conversation"}
        assert [offered(request) for request in llm.requests] == [both, one, one, both]

    async def test_the_same_choice_at_another_depth_is_another_offer(self) -> None:
        """P20: of two sub-agents with the same rules, the deeper one may start no others."""
        llm = ScriptedLlm([reply("Done.")] * 3)
        policy = Policy(sub_agents=SubAgentRules(depth=2))
        async with Engine.open("sqlite://", model=llm, tools=["spawn_agents", "recall_conversation"]) as engine:
            for depth in (1, 2, 1):
                await (await agent(engine, "sub_agent", policy=policy, depth=depth)).send("Go")

        both, one = {"spawn_agents", "recall_conversation"}, {"recall_conversation"}
        assert [offered(request) for request in llm.requests] == [both, one, both]


class TestForgedCalls:
    """D2, P20: a call of a tool that the role may not call has an error result, and the agent goes on."""

    @holds_for("prefix", ["", "x:", "a:b:"])
    @holds_for("role", ROLES)
    async def test_every_denied_tool_has_an_error_result(self, role: Role, prefix: str) -> None:
        """D2: under each of its names, with the name of a server in front or without, and with any arguments."""
        denied = sorted(set(BUILT_IN) - ALLOWED[role])
        forged = calls(call("find_table"), *(call(f"{prefix}{name}", text="Hi", nonsense=1) for name in denied))
        async with begun(role, [forged, reply("I go on.")], [*BUILT_IN, find_table]) as (conversation, _):
            turn = await conversation.send("Go")
            said = results(await conversation.transcript())

        sentences = [f"{name} is not available to {TITLES[role]}" for name in denied]
        assert said == ["Table 4 is free.", *sentences]
        assert (turn.status, turn.final_content, turn.user_response) == ("completed", "I go on.", None)

    @pytest.mark.parametrize("role", ROLES)
    async def test_no_allowed_tool_is_called_unavailable(self, role: Role) -> None:
        """D2: their faults are about arguments."""
        allowed = sorted(ALLOWED[role].intersection(BUILT_IN))
        async with begun(role, [calls(*(call(name, nonsense=1) for name in allowed)), reply("Done.")]) as (one, _):
            await one.send("Go")
            found = await faults(one)

        assert [fault for fault in found if fault is None or "not available" in fault] == []

    async def test_a_tool_that_the_engine_does_not_even_have(self) -> None:
        """P20: a model may know its name from elsewhere, and reads the same sentence."""
        async with begun("sub_agent", [call("ask_user_question"), reply("On.")], [find_table]) as (conversation, _):
            await conversation.send("Go")
            said = results(await conversation.transcript())

        assert said == ["ask_user_question is not available to sub-agents"]

    async def test_a_tool_of_the_application_with_the_name_of_a_built_in_one(self) -> None:
        """It is another tool, which its application made available."""

        @tool(crash="pure")
        async def ask_user_question() -> str:
            """Ask the user database."""
            return "Three users."

        answers = [call("ask_user_question"), reply("Three.")]
        async with begun("sub_agent", answers, [ask_user_question]) as (conversation, _):
            await conversation.send("Go")
            said = results(await conversation.transcript())

        assert said == ["Three users."]

    async def test_a_built_in_tool_under_another_name(self) -> None:
        """An application may rename it; it does the same, so the same roles may call it."""
        renamed = replace(BUILT_IN["talk"], name="say")
        async with begun("background", [call("say", message="Hi"), reply("On.")], [renamed]) as (conversation, llm):
            turn = await conversation.send("Go")
            said = results(await conversation.transcript())

        assert offered(llm.requests[0]) == set()
        assert (said, turn.deliveries) == (["talk is not available to background agents"], ())

    async def test_a_call_that_a_performer_of_the_application_resolved(self) -> None:
        """The tool does not run either if the response was not checked here."""
        answered = iter([True, False])

        async def ask(effect: RequestLlm, context: Any) -> LlmResponse:
            made = {"call_id": f"call_{effect.effect_id}_0", "name": "x:talk", "arguments": '{"message": "Hi"}'}
            wants_tool = next(answered)
            return LlmResponse(
                effect_id=effect.effect_id,
                at=datetime.now(UTC),
                content="" if wants_tool else "Sorry.",
                tool_calls=(made,) if wants_tool else (),  # type: ignore[arg-type]
                finish_reason="stop",
                model="mine",
            )

        async with Engine.open("sqlite://", tools=["talk"], performers={RequestLlm: ask}) as engine:
            conversation = await agent(engine, "background")
            turn = await conversation.send("Go")
            said = results(await conversation.transcript())

        assert (said, turn.deliveries) == (["talk is not available to background agents"], ())

    async def test_on_the_wire(self) -> None:
        """P20: over a socket, by the name under which a provider takes it: a sub-agent is never offered
        ask_user_question; if it calls it anyway, it reads the sentence in the next request, and goes on."""
        script = [sends_calls(("ask_user_question", {"questions": []})), sends("I decide myself.")]
        async with OpenAiServer(script) as server:
            model = LiteLlm("openai/test", api_base=server.url, api_key="test")
            async with Engine.open("sqlite://", model=model, tools=["ask_user_question", find_table]) as engine:
                turn = await (await agent(engine, "sub_agent")).send("Find a table")

        first, second = server.requests
        assert [one["function"]["name"] for one in first["tools"]] == ["find_table"]
        assert second["messages"][-1]["content"] == "Error: ask_user_question is not available to sub-agents"
        assert (turn.status, turn.final_content) == ("completed", "I decide myself.")
