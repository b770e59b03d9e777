"""What a turn takes: iterations of the event loop, tasks, functions, files, calls.

Each iteration of the event loop is a system call, and a change of tasks.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

import turnwise
from turnwise import Engine, tool
from turnwise.testing import FunctionLlm, call

from ..support.scenarios.examples import example

PACKAGE = Path(turnwise.__file__).parent

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


class TestTheWayOfAMessage:
    """How much Python runs in the thread of the event loop, counted by `sys.setprofile`. No clock is asked, so a slow
    machine counts the same."""

    FUNCTIONS, FILES, CALLS = 270, 55, 2_000
    """From `send` until the model is asked: different functions of turnwise, and the files that they stand in. And all
    calls of Python functions in a turn of four steps over a database in a file, with those of libraries."""

    def test_until_the_model_is_asked(self, tmp_path: Path) -> None:
        """A reader who follows a message opens so many files, and no more."""
        until_model, _ = asyncio.run(calls_of_a_turn(tmp_path / "turns.db"))
        own = {(file, name) for file, name in until_model if is_own(file)}

        assert len(own) <= self.FUNCTIONS
        assert len({file for file, _ in own}) <= self.FILES

    def test_a_turn_with_a_tool(self, tmp_path: Path) -> None:
        """Each call costs a tenth of a microsecond to several, and every line of a turn is made of them."""
        _, calls = asyncio.run(calls_of_a_turn(tmp_path / "turns.db"))

        assert len(calls) <= self.CALLS


def is_own(file: str) -> bool:
    """Whether this is a file of turnwise itself; libraries may be installed below it, and so are these tests."""
    folders = Path(file).relative_to(PACKAGE).parts if file.startswith(str(PACKAGE)) else ()
    return bool(folders) and not {"testing", "tests", "site-packages"}.intersection(folders)


async def calls_of_a_turn(database: Path) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The files and names of the functions that are called in a turn, in order: until the model is asked first, and in
    the whole turn. What is done only once is done before."""
    calls: list[tuple[str, str]] = []
    until_model: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    def asked(request: Any) -> Any:
        if calls and not until_model:
            until_model.extend(calls)
        return answer(request)

    async with Engine.open(database, model=FunctionLlm(asked), tools=[find_table]) as engine:
        conversation = await engine.create()
        for _ in range(3):
            await conversation.send("For two")
        gc.disable()
        sys.setprofile(note)
        try:
            await conversation.send("For two")
        finally:
            sys.setprofile(None)
            gc.enable()
    return until_model, calls
