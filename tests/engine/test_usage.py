"""What a conversation has cost so far."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from turnwise import Engine, ModelRequest, Policy, Retry, Usage
from turnwise.testing import FunctionLlm, call, failure, reply

from ..support.engine_scenarios import QUESTION, Gate

ONE = Usage(input_tokens=10, output_tokens=2, cost=0.25, cached_tokens=4, reasoning_tokens=1)
"""What each answer of the model costs."""


def costs(request: ModelRequest) -> Any:
    """Ask, fail or answer, as the last message says."""
    last = str(request.messages[-1]["content"])
    if last.endswith("Fail"):
        return failure("authentication", "No key.")
    answer = call("ask_user_question", questions=[QUESTION]) if last.endswith("Ask") else reply("Done.")
    return replace(answer, usage=ONE)


class TestUsage:
    """`usage` sums up the whole conversation."""

    async def test_every_turn_counts(self, database: Path) -> None:
        """Those that have ended, those that failed, the one that waits for a person, and a compaction; also after a
        restart."""
        options: dict[str, Any] = {"tools": ["ask_user_question"], "policy": Policy(retry=Retry(attempts=1))}
        async with Engine.open(database, model=FunctionLlm(costs), **options) as engine:
            conversation = await engine.create()
            nothing = await conversation.usage()
            await conversation.send("Hello")
            one = await conversation.usage()
            await conversation.send("Fail")
            await conversation.send("Hello")
            await conversation.compact()
            three = await conversation.usage()
            await conversation.send("Ask")
            four = await conversation.usage()
            turns = await conversation.turns()
        async with Engine.open(database, model=FunctionLlm(costs), **options) as engine:
            again = await (await engine.get(conversation.id)).usage()

        assert (nothing, one, three) == (Usage(), ONE, ONE + ONE + ONE)
        assert four == again == three + ONE
        assert sum((turn.usage for turn in turns), Usage()) == ONE + ONE

    async def test_a_turn_under_way_counts_as_far_as_it_has_come(self, database: Path) -> None:
        """Each answer of the model counts as soon as it is stored."""
        gate = Gate()

        async def slowly(request: ModelRequest) -> Any:
            if request.messages[-1]["role"] == "tool":
                await gate()
            return costs(request)

        async with Engine.open(database, model=FunctionLlm(slowly), tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("Ask")
            answering = asyncio.ensure_future(conversation.answer({"When?": "6:30 PM"}))
            await gate.arrived.wait()
            before = await conversation.usage()
            gate.opened.set()
            turn = await answering

            assert before == ONE
            assert turn.usage == await conversation.usage() == ONE + ONE
