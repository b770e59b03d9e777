"""The performer of `SpawnSubAgent` where it is interrupted: what it does for good is in tests/engine/agents/."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnwise import EngineClosed
from turnwise.effects.sub_agents import SubAgentPerformer
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.states import Made, SpawnSubAgent, SubAgentFinished
from turnwise.testing import ManualClock

from ..support.effect_contexts import effect_context

CONTEXT = effect_context("a parent")
SPAWN = SpawnSubAgent.model_construct(effect_id=1, task=Made(text="Look."))


class NoSubAgents:
    """Sub-agents of an engine that has none. Looking for one takes until `found` is set."""

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.created: list[str] = []

    async def find(self, child_id: str) -> None:
        """Find nothing; in an engine that closes, a cancel comes out as the end of the engine."""
        try:
            await self.found.wait()
        except asyncio.CancelledError:
            raise EngineClosed from None

    async def create(self, child_id: str, opened: Any) -> Any:
        """Record that a sub-agent was created."""
        self.created.append(child_id)
        raise EngineClosed

    async def report(self, parent_id: str, report: Any) -> None:
        """Report to nobody."""

    async def reported(self, parent_id: str, effect_id: int) -> None:
        """Return that nothing is known."""


def performer(sub_agents: NoSubAgents) -> SubAgentPerformer:
    """Return a performer over these sub-agents."""
    return SubAgentPerformer(sub_agents, ToolRegistry(), ManualClock())


async def test_a_cancel_ends_it_also_while_its_engine_closes() -> None:
    """A close must not wait for it."""
    task = asyncio.ensure_future(performer(NoSubAgents())(SPAWN, CONTEXT))
    await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=10)

    assert done and task.cancelled()


async def test_an_engine_that_closes_has_no_outcome() -> None:
    """It does not say that the sub-agent has failed: the next engine waits for it."""
    sub_agents = NoSubAgents()
    sub_agents.found.set()
    task = asyncio.ensure_future(performer(sub_agents)(SPAWN, CONTEXT))
    for _ in range(20):
        await asyncio.sleep(0)

    assert sub_agents.created == ["a parent/1"]
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_that_is_stopped_before_it_exists_is_never_created() -> None:
    """The answer says that it was cancelled."""
    sub_agents = NoSubAgents()
    performing = performer(sub_agents)
    task = asyncio.ensure_future(performing(SPAWN, CONTEXT))
    await asyncio.sleep(0)
    await performing.abort(SPAWN, CONTEXT)
    sub_agents.found.set()
    answer = await task

    assert isinstance(answer, SubAgentFinished)
    assert (answer.status, answer.outcome) == ("cancelled", "It was cancelled.")
    assert sub_agents.created == []
