"""Conversations of other libraries move over: their histories, made by these libraries themselves, go on here.

The scripts that made them stand beside them, in tests/fixtures/histories/.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine, LiteLlm, tool
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.states.openai_writing import NO_RESULT

from ..support.scenarios.openai_histories import Given, faults_in
from ..support.servers.openai_server import Body, OpenAiServer, calls, says

HISTORIES = Path(__file__).parents[1] / "fixtures" / "histories"


@tool(crash="pure")
async def find_table(cuisine: str, party: int) -> str:
    """Look for a free table."""
    return f"A table for {party}: {cuisine}"


def history(name: str, key: str = "openai") -> list[Given]:
    """The messages that the library made of its own history."""
    messages: list[Given] = json.loads((HISTORIES / f"{name}.json").read_text("utf-8"))[key]
    return messages


async def moved(messages: Any, database: Path) -> tuple[list[Given], tuple[str, ...], Body]:
    """Begin a conversation with these messages, and let it go on with a tool: its messages before that, the repairs,
    and the first request that the provider gets."""
    script = [calls(("find_table", {"cuisine": "sushi", "party": 3}), ids=["call_a"]), says("There is one.")]
    async with OpenAiServer(script) as server:
        model = LiteLlm("openai/test", api_base=server.url, api_key="test")
        async with Engine.open(database, model=model, tools=[find_table]) as engine:
            conversation = await engine.create(messages=messages)
            before, repairs = await conversation.messages(), await conversation.repairs()
            turn = await conversation.send("And sushi for three?")
            after = await conversation.messages()

    assert turn.reply == "There is one."
    assert (faults_in(before), faults_in(after), after[: len(before)]) == ([], [], before)
    return before, repairs, server.requests[0]


def texts_of(body: Body, role: str) -> list[str]:
    """The texts of this role in a request, with images as `image`."""
    contents = [message.get("content") for message in body["messages"] if message["role"] == role]
    parts = [[{"text": one}] if isinstance(one, str) else one or [] for one in contents]
    return [part.get("text", "image") for several in parts for part in several]


def repaired_like(messages: list[Given], dangling: str | None) -> list[Given]:
    """What becomes of a fixture: the second call with a repeated id gets another, and the last call gets a result."""
    expected: list[Given] = json.loads(json.dumps(messages))
    second = next(place for place, one in enumerate(expected) if "ramen" in json.dumps(one.get("tool_calls")))
    expected[second]["tool_calls"][0]["id"] = "call_a_r2"
    expected[second + 1]["tool_call_id"] = "call_a_r2"
    return expected + ([{"role": "tool", "tool_call_id": dangling, "content": NO_RESULT}] if dangling else [])


@pytest.mark.parametrize(
    ("name", "dangling"), [("langgraph", "call_c"), ("openai_agents", None), ("pydantic_ai", "call_c")]
)
async def test_histories_of_other_libraries_go_on(name: str, dangling: str | None, database: Path) -> None:
    """LangGraph, openai-agents and pydantic-ai: everything comes through, in order: texts and images, parallel calls,
    their arguments and results. Only the id that their model repeated and the call that was cancelled are repaired."""
    given_messages = history(name)

    messages, repairs, request = await moved(given_messages, database)

    assert messages == repaired_like(given_messages, dangling)
    assert len(repairs) == (2 if dangling else 1)
    assert "The id 'call_a' is repeated; it became 'call_a_r2'." in repairs[0]
    asked = texts_of(request, "user")
    assert asked[:3] == ["A table like here:", "image", "for two, please."]
    assert "Book it." in asked[-1 if dangling is None else -2]
    assert "And sushi for three?" in asked[-1]
    results = texts_of(request, "tool")
    assert (results[0], results[2]) == ("A table for 2: sushi", "A table for 4: ramen")
    assert results[3:] == ([NO_RESULT] if dangling else [])
    assert "Sakura has a table at 18:30, and it will rain. 🌧️" in texts_of(request, "assistant")


async def test_the_items_of_a_session_are_taken_as_they_are(tmp_path: Path) -> None:
    """openai-agents: without the library's converter the model is asked the same."""
    _, _, converted = await moved(history("openai_agents"), tmp_path / "one.db")

    _, repairs, request = await moved(history("openai_agents", "stored"), tmp_path / "two.db")

    assert request["messages"] == converted["messages"]
    assert any("of the Responses API was rewritten" in repair for repair in repairs)


async def test_the_newest_items_of_a_session_are_a_history_too(database: Path) -> None:
    """openai-agents: a session with a limit begins with the result of a call that was cut off; it is left out."""
    messages, repairs, _ = await moved(history("openai_agents", "openai_limited"), database)

    assert messages[0]["content"].startswith("Sakura has a table")
    assert repairs == ("messages[0]: A result of the call 'call_b', which waits for none, was left out.",)


async def test_a_program_of_litellm_hands_over_its_list_as_it_is(database: Path) -> None:
    """Such programs append the message objects of the responses to their list."""
    litellm = load_litellm()
    messages: list[Any] = [{"role": "system", "content": "You book tables."}, {"role": "user", "content": "Dinner?"}]
    tools = [find_table.definition()]
    script = [calls(("find_table", {"cuisine": "ramen", "party": 2}), ids=["Ab3456789"]), says("Takumi.")]
    async with OpenAiServer(script) as server:
        for _ in script:
            response = await litellm.acompletion(
                model="openai/test", api_base=server.url, api_key="test", messages=messages, tools=tools
            )
            messages.append(response.choices[0].message)
            for call in messages[-1].tool_calls or ():
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "A table for 2: ramen"})

    before, repairs, _ = await moved(messages, database)

    assert repairs == ()
    assert [(one["role"], one.get("content")) for one in before] == [
        ("system", "You book tables."),
        ("user", "Dinner?"),
        ("assistant", None),
        ("tool", "A table for 2: ramen"),
        ("assistant", "Takumi."),
    ]
    assert before[2]["tool_calls"][0]["function"]["name"] == "find_table"
