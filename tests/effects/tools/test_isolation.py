"""A tool that hangs or does not stop blocks neither the engine nor its process."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading

import pytest

from turnwise.effects.application_functions import Raised
from turnwise.effects.tools import performers
from turnwise.effects.tools.context import ToolContext
from turnwise.effects.tools.performers import execute
from turnwise.effects.tools.tool import tool
from turnwise.states.values.messages import ToolResult

from ...support.tools import error, outcome_of, tool_context


class TestTimeouts:
    """P5: a call ends at its tool's timeout."""

    async def test_a_coroutine_is_cancelled_at_the_timeout(self) -> None:
        """It can clean up first."""
        cleaned: list[bool] = []

        @tool(timeout=0.01)
        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(True)

        assert await outcome_of(wait) == error("wait did not finish within 0.01 s.")
        assert cleaned == [True]

    async def test_a_coroutine_that_ignores_the_cancel_is_abandoned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a grace period."""
        monkeypatch.setattr(performers, "GRACE", 0.01)
        released = asyncio.Event()
        ended = asyncio.Event()

        @tool(timeout=0.01)
        async def hold() -> None:
            try:
                await released.wait()
            except asyncio.CancelledError:
                await released.wait()
            ended.set()

        outcome = await outcome_of(hold)

        assert outcome == error("hold did not finish within 0.01 s.")
        assert not ended.is_set()
        released.set()
        await ended.wait()

    async def test_a_thread_that_hangs_is_abandoned(self, never: threading.Event) -> None:
        """A thread cannot be stopped."""

        @tool(timeout=0.01)
        def hang() -> None:
            never.wait()

        assert await outcome_of(hang) == error("hang did not finish within 0.01 s.")

    async def test_progress_of_an_abandoned_thread_is_not_shown(self, never: threading.Event) -> None:
        """The call already has its result."""
        shown: list[str] = []
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        @tool(timeout=0.05)
        def hang(it: ToolContext) -> None:
            it.progress("begun")
            never.wait()
            it.progress("late")
            loop.call_soon_threadsafe(ended.set)

        await execute(hang, "{}", tool_context(shown.append))
        never.set()
        await ended.wait()

        assert "late" not in shown

    @pytest.mark.slow
    def test_a_thread_that_hangs_does_not_keep_the_process_alive(self) -> None:
        """A new Python process runs a tool that never returns, and ends."""
        program = (
            "import asyncio, threading\n"
            "from turnwise.effects.tools.context import ToolContext\n"
            "from turnwise.effects.tools.performers import execute\n"
            "from turnwise.effects.tools.tool import tool\n"
            "@tool(timeout=0.05)\n"
            "def hang() -> None:\n"
            "    threading.Event().wait()\n"
            "print(asyncio.run(execute(hang, '{}', ToolContext('c', 'c/1', 'x', print))).text)\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)

        assert (done.returncode, done.stdout, done.stderr) == (0, "hang did not finish within 0.05 s.\n", "")


class TestForeignCancels:
    """Code of the application may cancel whatever task it finds."""

    async def test_a_call_whose_task_is_cancelled_before_it_begins_has_failed(self) -> None:
        """Its caller need not wait for the timeout."""

        @tool(timeout=3600)
        async def slow() -> str:
            """Never begins."""
            return "Done."

        before = asyncio.all_tasks()
        asyncio.get_running_loop().call_soon(lambda: [each.cancel() for each in asyncio.all_tasks() - before])
        async with asyncio.timeout(60):
            outcome = await performers.FunctionCall(slow, {}).wait()

        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, asyncio.CancelledError)


class TestCancelling:
    """A cancel of the caller cancels the tool, and the caller gets `CancelledError`."""

    async def test_a_coroutine_ends_before_the_caller_goes_on(self) -> None:
        """It has cleaned up when the cancel is acknowledged."""
        begun = asyncio.Event()
        cleaned: list[bool] = []

        async def wait() -> None:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(True)

        task = asyncio.create_task(outcome_of(wait))
        await begun.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert cleaned == [True]

    async def test_a_coroutine_that_finishes_all_the_same_has_a_result(self) -> None:
        """The call did what it was asked for."""
        begun = asyncio.Event()

        async def pay() -> str:
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "paid"

        task = asyncio.create_task(outcome_of(pay))
        await begun.wait()
        task.cancel()

        assert (await task).text == "paid"

    async def test_an_error_while_cleaning_up_counts_as_cancelled(self) -> None:
        """It says nothing about what the call was asked for."""
        begun = asyncio.Event()

        async def pay() -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("the connection is gone")

        task = asyncio.create_task(outcome_of(pay))
        await begun.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_a_thread_is_abandoned(self, never: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
        """The caller goes on at once, without a grace period, and a later result of the thread is dropped."""
        monkeypatch.setattr(performers, "GRACE", 3600)
        begun = asyncio.Event()

        def hang(it: ToolContext) -> None:
            it.progress("begun")
            never.wait()

        task = asyncio.create_task(execute(tool(hang), "{}", tool_context(lambda line: begun.set())))
        await begun.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_tools_that_hang_do_not_keep_others_from_running(self, never: threading.Event) -> None:
        """Each call has a thread of its own; there is no pool that could be exhausted."""

        @tool(timeout=0.05)
        def hang() -> None:
            never.wait()

        def work() -> str:
            return "worked"

        hanging = [asyncio.create_task(outcome_of(hang)) for _ in range(64)]
        worked = await outcome_of(work)
        hung = await asyncio.gather(*hanging)

        assert worked == ToolResult(text="worked")
        assert set(hung) == {error("hang did not finish within 0.05 s.")}
