"""The tool by which a model hands the conversation over to another profile."""

from __future__ import annotations

import pytest

from turnwise.effects.tools.builtin import NO_PROFILE, transfer_to
from turnwise.effects.tools.performers import execute
from turnwise.states.values.acts import Transfer
from turnwise.states.values.messages import ToolResult

from ....support.tools import tool_context


async def outcome(arguments: str) -> ToolResult:
    """The result of one call."""
    result = await execute(transfer_to, arguments, tool_context())
    assert isinstance(result, ToolResult)
    return result


async def test_it_names_the_profile() -> None:
    """The machine knows whether there is such a profile."""
    made = await outcome('{"profile": " cook "}')

    assert (made.acts, made.error) == ((Transfer(profile="cook"),), False)


@pytest.mark.parametrize("arguments", ['{"profile": " \\n"}', '{"profile": ""}'])
async def test_a_blank_name_is_an_error(arguments: str) -> None:
    """The model reads what is missing."""
    made = await outcome(arguments)

    assert (made.text, made.error, made.acts) == (NO_PROFILE, True, ())


@pytest.mark.parametrize("arguments", ["{}", '{"profile": 5}', '{"profile": "cook", "now": true}', '["cook"]', "null"])
async def test_other_arguments_are_errors(arguments: str) -> None:
    """Nothing is handed over."""
    made = await outcome(arguments)

    assert (made.error, made.acts) == (True, ())


def test_it_runs_alone() -> None:
    """Calls behind it belong to the next profile's step; and a crash may repeat it, because it only names a profile."""
    assert (transfer_to.exclusive, transfer_to.acts, transfer_to.crash) == (True, ("transfer",), "pure")
