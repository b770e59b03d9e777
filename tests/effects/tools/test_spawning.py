"""The built-in tool that starts sub-agents: what a model may write, and what is an error."""

from __future__ import annotations

import json
from typing import Any

from turnwise.effects.tools.builtin import spawn_agents
from turnwise.effects.tools.context import ToolContext
from turnwise.effects.tools.performers import execute
from turnwise.states import SubAgents, SubAgentTask, ToolResult
from turnwise.states.values.acts import MAX_TASKS

from ...support.cases import holds_for

CONTEXT = ToolContext(conversation_id="a", key="a/1", call_id="call_1_0", progress=lambda line: None)


async def run(arguments: Any) -> ToolResult:
    """Return the result of a call with these arguments."""
    result = await execute(spawn_agents, arguments if isinstance(arguments, str) else json.dumps(arguments), CONTEXT)
    assert isinstance(result, ToolResult)
    return result


async def test_tasks_are_texts_or_objects() -> None:
    """Both kinds may stand side by side, and their order is kept."""
    detailed = {
        "text": "b",
        "profile": "fast",
        "tools": ["look"],
        "requests": 3,
        "tokens": 1000,
        "cost": 0.5,
        "seconds": 60,
    }

    result = await run({"tasks": ["a", detailed, {"text": "c"}]})

    task = SubAgentTask(text="b", profile="fast", tools=("look",), requests=3, tokens=1000, cost=0.5, seconds=60)
    assert result.acts == (SubAgents(tasks=("a", task, "c")),)
    assert not result.error


@holds_for(
    "arguments",
    [
        {},
        {"tasks": []},
        {"tasks": "look it up"},
        {"tasks": [""]},
        {"tasks": ["a", " \n\t"]},
        {"tasks": [{"text": "  "}]},
        {"tasks": [{}]},
        {"tasks": [3]},
        {"tasks": [None]},
        {"tasks": ["a"] * (MAX_TASKS + 1)},
        {"tasks": ["a" * 1_000_001]},
        {"tasks": ["a"], "model": "large"},
        {"tasks": [{"text": "a", "model": "large"}]},
        {"tasks": [{"text": "a", "tools": "look"}]},
        {"tasks": [{"text": "a", "requests": 0}]},
        {"tasks": [{"text": "a", "requests": True}]},
        {"tasks": [{"text": "a", "tokens": -5}]},
        {"tasks": [{"text": "a", "cost": 0}]},
        {"tasks": [{"text": "a", "seconds": 0}]},
        '{"tasks": [{"text": "a", "seconds": NaN}]}',
        '{"tasks": [{"text": "a", "cost": 1e999}]}',
        "[]",
        "no JSON",
    ],
)
async def test_anything_else_is_an_error_and_starts_nothing(arguments: Any) -> None:
    """Empty and blank tasks, too many of them, extra properties, and limits that are none: one sentence each."""
    result = await run(arguments)

    assert result.error
    assert result.acts == ()
    assert result.text and len(result.text) <= 500 and "\n" not in result.text


def test_its_schema_describes_both_kinds_of_task() -> None:
    """Nothing is left open in it, so a provider can enforce it."""
    tasks = spawn_agents.parameters["properties"]["tasks"]
    text, task = tasks["items"]["anyOf"]

    assert (tasks["minItems"], tasks["maxItems"]) == (1, MAX_TASKS)
    assert text["type"] == "string"
    assert task["additionalProperties"] is False
    assert task["required"] == ["text"]
    assert set(task["properties"]) == {"text", "profile", "tools", "requests", "tokens", "cost", "seconds"}
    assert all(described["description"] for described in task["properties"].values())


def test_it_runs_alone_and_may_run_again() -> None:
    """It only says what to start, so a call that a crash interrupted runs again."""
    assert (spawn_agents.exclusive, spawn_agents.crash, spawn_agents.acts) == (True, "pure", ("children",))
