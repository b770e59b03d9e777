"""What every request to a model has in common, whichever effect it belongs to."""

from __future__ import annotations

import pytest

from turnwise.effects.model.performers.asking import MAX_CALLS, ModelCaller
from turnwise.effects.model.port import LlmFailure, ModelRequest
from turnwise.testing import FunctionLlm, call, calls


async def asked(count: int) -> int:
    """How many calls an answer with so many calls has."""
    model = FunctionLlm(lambda request: calls(*[call("find")] * count))
    answer = await ModelCaller(lambda name: model, silence=60).ask(ModelRequest(model="any", messages=()))
    return len(answer.tool_calls)


class TestCalls:
    """An answer comes from outside, and may hold anything."""

    async def test_as_many_as_a_round_can_bear_are_taken(self) -> None:
        """All of them."""
        assert await asked(MAX_CALLS) == MAX_CALLS

    async def test_more_are_a_malformed_answer(self) -> None:
        """Each step of such a round would store all of them: 10,000 calls would take minutes."""
        with pytest.raises(LlmFailure) as failed:
            await asked(MAX_CALLS + 1)

        assert failed.value.kind == "malformed_response"
