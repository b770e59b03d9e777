"""How often a turn has the event loop look for something to do. Each time is a system call, and a change of tasks."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

from turnwise import Engine, tool
from turnwise.testing import FunctionLlm, call

from ..support.scenarios.examples import example

MemoryStore = example("memory_store").MemoryStore

ITERATIONS = 13
"""For a turn of four steps (message, model with a call, tool, model) whose commits do not wait: two for each model
request, four for the tool, whose function has a task of its own, one for the caller, and one for each step."""

TASKS = 8
"""One for each step, one for each effect, and one for the function of the tool."""


class CountingSelector(selectors.DefaultSelector):
    """A selector that counts how often an event loop asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.selects = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Count, and wait for events."""
        self.selects += 1
        return super().select(timeout)


@tool(crash="pure")
async def find_table(party: int) -> str:
    """Look for free tables."""
    return "Kikunoi at 6:30 PM."


def answer(request: Any) -> Any:
    """A call of the tool, then a reply."""
    return "There is one." if request.messages[-1]["role"] == "tool" else call("find_table", party=2)


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts its iterations and the tasks that it makes."""

    def __init__(self) -> None:
        self.selector = CountingSelector()
        super().__init__(self.selector)
        self.tasks = 0
        self.set_task_factory(self.make)

    def make(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
        """Count, and make the task."""
        self.tasks += 1
        return asyncio.Task(coroutine, loop=loop, **options)


def counted(turns: int) -> tuple[int, int]:
    """The iterations and the tasks of so many turns."""

    async def run() -> tuple[int, int]:
        async with Engine.open(store=MemoryStore(), model=FunctionLlm(answer), tools=[find_table]) as engine:
            conversation = await engine.create()
            await conversation.send("For two")  # what is loaded only once is loaded now
            before = loop.selector.selects, loop.tasks
            for _ in range(turns):
                assert (await conversation.send("For two")).reply == "There is one."
            return loop.selector.selects - before[0], loop.tasks - before[1]

    loop = CountingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(run())


def test_a_turn_takes_few_iterations_and_tasks() -> None:
    """A step takes one of each."""
    turns = 5

    iterations, tasks = counted(turns)

    assert iterations / turns <= ITERATIONS
    assert tasks / turns == TASKS
