"""A model is offered the tools of its conversation and of the turn's profile, and no others may be called."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnwise import Conversation, Engine, ModelRequest, Policy, Profile, Retry, presets, tool
from turnwise.effects.model.written_messages import request_digest
from turnwise.states import LlmResponse, RequestLlm, SelectProfile, ToolsChanged
from turnwise.states.events import ProfileSelected
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, failure, reply

from ....support.engine_scenarios import results

ran: list[str] = []
"""The tools that ran, in order."""


@tool(crash="pure")
async def find_table(party: int = 2) -> str:
    """Look for a free table."""
    ran.append("find_table")
    return f"Table 4 seats {party}."


@tool(approval=True, exclusive=True)
async def pay(amount: int) -> str:
    """Pay the bill."""
    ran.append("pay")
    return "Paid."


TOOLS: list[Any] = [find_table, pay, "talk", "respond_to_user"]


@pytest.fixture(autouse=True)
def _none_ran() -> None:
    ran.clear()


def offered(request: ModelRequest) -> list[str]:
    """Return the names of the tools that a request offers."""
    return [definition["function"]["name"] for definition in request.tools]


@asynccontextmanager
async def begin(
    answers: Sequence[Any], policy: Policy | None = None, tools: Sequence[Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Conversation, ScriptedLlm]]:
    """A conversation with these tools, on an engine that has more."""
    llm = ScriptedLlm(answers)
    async with Engine.open("sqlite://", model=llm, tools=TOOLS, **options) as engine:
        yield await engine.create(policy=policy, tools=tools, system="You book tables."), llm


async def change_tools(conversation: Conversation, *names: str, from_turn: int) -> None:
    """Change the tools of the conversation from this turn on."""
    at = datetime.now(UTC)
    await conversation.dispatch(ToolsChanged(event_id=f"tools-{from_turn}", at=at, tools=names, from_turn=from_turn))


class TestOffering:
    """What a request lists."""

    @pytest.mark.parametrize(
        ("chosen", "expected"),
        [
            (None, ["find_table", "pay", "talk", "respond_to_user"]),
            (["pay", "find_table"], ["find_table", "pay"]),
            (["speak_to_user"], ["respond_to_user"]),
            ([], []),
        ],
    )
    async def test_the_tools_of_the_conversation(self, chosen: list[str] | None, expected: list[str]) -> None:
        """In the order in which the engine was given them, so that equal choices make equal requests."""
        async with begin([reply("Hello.")], tools=chosen) as (conversation, llm):
            await conversation.send("Hi")

        assert offered(llm.requests[0]) == expected

    async def test_only_those_that_the_profile_allows(self) -> None:
        """Both choices must allow a tool; a profile without a choice allows all of the conversation."""
        profiles = (Profile(name="cook", tools=("pay", "talk", "find_table")), Profile(name="guide"))
        chosen = iter(["cook", "guide"])

        async def choose(effect: SelectProfile, context: Any) -> ProfileSelected:
            return ProfileSelected(effect_id=effect.effect_id, at=datetime.now(UTC), profile=next(chosen))

        policy = Policy(route=True, profiles=profiles)
        options: dict[str, Any] = {"tools": ["find_table", "respond_to_user"], "performers": {SelectProfile: choose}}
        async with begin([reply("One."), reply("Two.")], policy, **options) as (conversation, llm):
            await conversation.send("Hi")
            await conversation.send("Hi again")

        assert [offered(request) for request in llm.requests] == [["find_table"], ["find_table", "respond_to_user"]]

    @pytest.mark.parametrize(("chosen", "is_guided"), [(["talk"], True), (["find_table"], False)])
    async def test_the_system_message_explains_the_tools_that_are_offered(
        self, chosen: list[str], is_guided: bool
    ) -> None:
        """Not those that other conversations have."""
        async with begin([reply("Hello.")], tools=chosen) as (conversation, llm):
            await conversation.send("Hi")

        assert ("talk" in llm.requests[0].messages[0]["content"]) is is_guided


class TestChanges:
    """Tools that are changed are those of the next turn."""

    async def test_a_turn_under_way_keeps_its_tools(self) -> None:
        """Its later requests offer what the first did, also after a failed attempt."""
        answers = [call("find_table"), failure("server_error"), reply("Table 4."), reply("Paid?")]

        async def answer(request: ModelRequest) -> Any:
            if len(answers) == 4:
                await change_tools(conversation, "pay", from_turn=2)
            return answers.pop(0)

        llm, policy = FunctionLlm(answer), Policy(retry=Retry(base=0.0))
        async with Engine.open("sqlite://", model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(policy=policy, tools=["find_table"])
            await conversation.send("A table")
            await conversation.send("And now?")

        assert [offered(request) for request in llm.requests] == [["find_table"]] * 3 + [["pay"]]

    async def test_a_resumed_turn_offers_what_it_offered_before(self, database: Path) -> None:
        """After a crash, although the tools of the next turn were changed before it."""
        llm = ScriptedLlm([call("pay", amount=5)])
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(tools=["find_table", "pay"])
            waiting = await conversation.send("Pay")
            await change_tools(conversation, "find_table", from_turn=2)

        again = ScriptedLlm([reply("Done."), reply("Hello.")])
        async with Engine.open(database, model=again, tools=TOOLS) as engine:
            conversation = await engine.get(conversation.id)
            await conversation.approve(waiting.call_id or "", True)
            await conversation.send("Hi")

        assert ran == ["pay"]
        assert [offered(request) for request in again.requests] == [["find_table", "pay"], ["find_table"]]

    async def test_the_requests_are_those_that_would_be_built_anew(self, database: Path) -> None:
        """The written beginning is kept over the change, and the stored digests are those of the requests."""
        llm = ScriptedLlm([call("find_table"), reply("Table 4."), reply("Hello."), reply("Bye.")])
        async with Engine.open(database, model=llm, tools=TOOLS) as engine:
            conversation = await engine.create(tools=["find_table"])
            await conversation.send("A table")
            for turn, names in ((2, ["pay"]), (3, [])):
                await change_tools(conversation, *names, from_turn=turn)
                await conversation.send("And now?")
            entries = await conversation.events()

        stored = [entry.event.digest for entry in entries if isinstance(entry.event, LlmResponse)]
        assert stored == [request_digest(request) for request in llm.requests]
        assert [offered(request) for request in llm.requests] == [["find_table"]] * 2 + [["pay"], ["find_table"]]
        assert (llm.requests[3].tool_choice, len(set(stored))) == ("none", 4)  # the last lists a tool as removed


class TestEnforcing:
    """A call of what is not allowed does not run, and the model reads why."""

    @pytest.mark.parametrize(
        ("chosen", "sentence"),
        [
            (["find_table"], "pay is not available here. Available: find_table."),
            ([], "pay is not available here. There are no tools."),
        ],
    )
    async def test_a_tool_that_is_not_allowed(self, chosen: list[str], sentence: str) -> None:
        """Nobody is asked to approve it."""
        async with begin([call("pay", amount=5), reply("Sorry.")], tools=chosen) as (conversation, _):
            turn = await conversation.send("Pay")
            said = results(await conversation.transcript())

        assert (turn.status, turn.reply, said, ran) == ("completed", "Sorry.", [sentence], [])

    async def test_one_that_the_profile_does_not_allow(self) -> None:
        """Although the conversation has it."""
        policy = Policy(profiles=(Profile(name="cook", tools=("find_table",)),))
        answers = [calls(call("pay", amount=5), call("find_table")), reply("Table 4.")]
        async with begin(answers, policy) as (conversation, _):
            await conversation.send("Pay")
            said = results(await conversation.transcript())

        assert said == ["pay is not available here. Available: find_table.", "Table 4 seats 2."]
        assert ran == ["find_table"]

    async def test_one_that_there_is_not(self) -> None:
        """The sentence names the tools of the conversation, not all that the engine has."""
        async with begin([call("cook"), reply("Sorry.")], tools=["find_table"]) as (conversation, _):
            await conversation.send("Cook")
            said = results(await conversation.transcript())

        assert said == ["There is no tool called cook. Known: find_table."]

    async def test_a_speaking_tool_by_its_other_name(self) -> None:
        """It is allowed under any of its names, or under none."""
        answers = [call("speak_to_user", text="Hi."), reply("Said.")]
        async with begin(answers, presets.explicit_response().replace(ends_on="text"), ["respond_to_user"]) as begun:
            assert (await begun[0].send("Hi")).reply == "Hi."
        async with begin(answers, tools=["talk"]) as (conversation, _):
            await conversation.send("Hi")
            said = results(await conversation.transcript())

        assert said == ["speak_to_user is not available here. Available: talk."]

    async def test_a_call_that_a_performer_of_the_application_resolved(self) -> None:
        """The tool does not run either if the request was not built here."""
        answered = iter([True, False])

        async def ask(effect: RequestLlm, context: Any) -> LlmResponse:
            made = {"call_id": f"call_{effect.effect_id}_0", "name": "find_table", "arguments": "{}"}
            wants_tool = next(answered)
            return LlmResponse(
                effect_id=effect.effect_id,
                at=datetime.now(UTC),
                content="" if wants_tool else "Sorry.",
                tool_calls=(made,) if wants_tool else (),  # type: ignore[arg-type]
                finish_reason="stop",
                model="mine",
            )

        async with begin([], tools=["pay"], performers={RequestLlm: ask}) as (conversation, _):
            await conversation.send("A table")
            said = results(await conversation.transcript())

        assert (said, ran) == (["find_table is not available here. Available: pay."], [])

    async def test_a_tool_that_the_engine_no_longer_has(self, database: Path) -> None:
        """A stored conversation may name it; it is neither offered nor run."""
        async with Engine.open(database, tools=TOOLS) as engine:
            begun = await engine.create(tools=["find_table", "pay"])

        llm = ScriptedLlm([call("pay", amount=5), reply("Sorry.")])
        async with Engine.open(database, model=llm, tools=[find_table]) as engine:
            conversation = await engine.get(begun.id)
            await conversation.send("Pay")
            said = results(await conversation.transcript())

        assert offered(llm.requests[0]) == ["find_table"]
        assert said == ["There is no tool called pay. Known: find_table."]


async def test_equal_choices_are_written_once() -> None:
    """In all conversations of an engine: their requests share the definitions."""
    llm = ScriptedLlm([reply("Hello.")] * 3)
    async with Engine.open("sqlite://", model=llm, tools=TOOLS) as engine:
        for chosen in (["pay"], ["pay"], None):
            await (await engine.create(tools=chosen)).send("Hi")

    first, second, third = (request.tools for request in llm.requests)
    assert first is second
    assert third[1] == first[0]
