"""Tools for tests, and short ways to call one and to have a call of one checked."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

from pydantic import BaseModel, Field, field_validator

from turnwise.effects.model.port import ModelCall
from turnwise.effects.tools.context import ToolContext
from turnwise.effects.tools.performers import ToolOutcome, execute
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.effects.tools.tool import Tool, tool
from turnwise.states.values.messages import ToolCall, ToolResult

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
NOT_AN_INTEGER = "Input should be a valid integer, unable to parse string as an integer"


def result_in(content: str) -> str:
    """Return the result in what a model reads of a call, without the note that a person changed the arguments."""
    return content.partition("\n\n(A person changed the arguments")[0]


class Party(BaseModel):
    """Who comes."""

    adults: int
    children: int = 0

    @field_validator("adults")
    @classmethod
    def _check_adults(cls, adults: int) -> int:
        if adults < 1:
            raise ValueError("at least one adult must come")
        return adults


class Size(str, enum.Enum):  # noqa: UP042  (a StrEnum would be written like a text)
    """A text that is also a member of an enumeration."""

    BIG = "big"


@dataclasses.dataclass
class Point:
    """A value that JSON knows only by its fields."""

    x: int
    y: float


@tool(crash="pure", timeout=5)
async def find_table(
    cuisine: Annotated[str, Field(description="What to eat")], party: Party, day: date | None = None, round: int = 1
) -> str:
    """Look for a free table.

    Ask for one day at a time.
    """
    return f"{cuisine} for {party.adults + party.children} on {day}, round {round}"


def untyped(cuisine: str, day) -> None:  # type: ignore[no-untyped-def]
    """A function that cannot be a tool: one of its parameters has no type."""


def tool_context(progress: Callable[[str], None] = lambda line: None) -> ToolContext:
    """What a tool may know about its call."""
    return ToolContext(conversation_id="c", key="c/3", call_id="call_2_0", progress=progress)


async def outcome_of(function: Callable[..., Any], arguments: str = "{}") -> ToolOutcome:
    """The outcome of one call of this function, or tool."""
    called = function if isinstance(function, Tool) else tool(function)
    return await execute(called, arguments, tool_context())


def resolve_call(arguments: object, *tools: Any, name: str = "find_table") -> ToolCall:
    """A call after the registry has checked it. Its arguments are given as text, or as the value to write as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    (call,) = ToolRegistry(tools or [find_table]).resolve_calls(2, [ModelCall("p", name, text)])
    return call


def error(sentence: str) -> ToolResult:
    """An error result."""
    return ToolResult(text=sentence, error=True)
