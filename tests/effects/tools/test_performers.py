"""How calls are carried out, and which of them a person must allow first."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise import ConfigurationError, Engine, ToolContext, tool
from turnwise.effects.application_functions import Raised
from turnwise.effects.clock import SystemClock
from turnwise.effects.context import EffectContext
from turnwise.effects.tools import performers
from turnwise.effects.tools.context import Question, ToolError, tool_context_of
from turnwise.effects.tools.performers import ReconciliationPerformer, execute
from turnwise.effects.tools.registry import ToolRegistry
from turnwise.effects.tools.tool import MAX_STORED, cut_text
from turnwise.states import Context, InvalidInput, ReconcileTool, ToolCall, ToolReconciled, ToolResult
from turnwise.states.transcript import Transcript
from turnwise.states.values.acts import Speech
from turnwise.states.values.files import FileReference
from turnwise.states.values.questions import QuestionOption, UserQuestion
from turnwise.states.values.round import RoundCall
from turnwise.testing import ScriptedLlm, call

from ...support.cases import holds_for
from ...support.effect_contexts import FixedHistory, NoReceipts, effect_context
from ...support.tools import (
    NOT_AN_INTEGER,
    REPLACEMENT,
    Party,
    Point,
    Size,
    error,
    find_table,
    outcome_of,
    resolve_call,
    tool_context,
)

# --- One call of a tool has one outcome, whatever the tool does: one that hangs or does not stop blocks neither the
# engine nor its process, and one that a crash interrupted is asked what became of the call.


class Unwritable:
    """An object without a text."""

    def __str__(self) -> str:
        raise RuntimeError("secret")

    __repr__ = __str__


IN_THE_LOG = "What went wrong is in the log of the application."


class Speechless(Exception):
    """An exception whose message cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError


CALL = ToolCall(call_id="call_1_0", name="pay", crash="reconcile")
EFFECT = ReconcileTool(effect_id=7, call=RoundCall.of(CALL, 2), started_as=3)


class OneCall(FixedHistory):
    """A history with one call."""

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call."""
        return CALL


async def asked(reconcile: Callable[..., Any], show: Callable[[int, str, Any], None]) -> ToolReconciled:
    """Ask a tool by this function, with progress shown by `show`."""

    @tool(crash="reconcile", reconcile=reconcile)
    def pay() -> str:
        """Pay."""
        return "Paid."

    context = EffectContext("c", 3, 1, Context(), OneCall(Transcript()), show, NoReceipts())
    answer = await ReconciliationPerformer(ToolRegistry([pay]), SystemClock())(EFFECT, context)
    await asyncio.sleep(0)
    return answer


def in_a_thread(it: ToolContext) -> str:
    """Tell where it looks, from a thread of its own."""
    it.progress("Looking it up.")
    return "ran"


async def in_the_loop(it: ToolContext) -> str:
    """Tell where it looks, from the event loop."""
    it.progress("Looking it up.")
    return "ran"


class TestRunning:
    """A tool runs, and its result comes back."""

    async def test_a_function_gets_its_arguments_in_their_types(self) -> None:
        """JSON becomes dates and models."""
        result = await outcome_of(find_table, '{"cuisine": "sushi", "party": {"adults": 2}, "day": "2030-01-31"}')

        assert result == ToolResult(text="sushi for 2 on 2030-01-31, round 1")

    async def test_arguments_that_do_not_fit_are_an_error_result(self) -> None:
        """The call may come from an older log, and the tool may have changed since."""
        assert await outcome_of(find_table) == error("Invalid input: cuisine: Field required; party: Field required")

    async def test_a_tool_can_learn_about_its_call(self) -> None:
        """A parameter of type ToolContext is filled by the engine."""

        async def where(it: ToolContext) -> str:
            return f"{it.conversation_id} {it.key} {it.call_id}"

        assert await outcome_of(where) == ToolResult(text="c c/3 call_2_0")

    async def test_a_plain_function_does_not_block_the_event_loop(self, never: threading.Event) -> None:
        """It runs in a thread. Its progress is shown from the thread of the event loop."""
        begun = asyncio.Event()
        shown: list[tuple[str, threading.Thread]] = []

        def wait(it: ToolContext) -> str:
            it.progress("waiting")
            return "released" if never.wait(10) else "blocked"

        def progress(line: str) -> None:
            shown.append((line, threading.current_thread()))
            begun.set()

        task = asyncio.create_task(execute(tool(wait), "{}", tool_context(progress)))
        await begun.wait()
        never.set()

        assert await task == ToolResult(text="released")
        assert shown == [("waiting", threading.current_thread())]

    async def test_progress_that_is_no_text_is_shown_as_text(self) -> None:
        """As it was when the tool reported it, whatever becomes of it before it is shown."""
        shown: list[str] = []

        async def count(it: ToolContext) -> str:
            found = [1]
            for line in (5, found, "half \ud83c"):
                it.progress(line)  # type: ignore[arg-type]
            found.append(2)
            await asyncio.sleep(0)
            return "done"

        await execute(tool(count), "{}", tool_context(shown.append))

        assert shown == ["5", "[1]", f"half {REPLACEMENT}"]

    @pytest.mark.parametrize("line", [10**5000, Unwritable()], ids=["long number", "broken object"])
    @pytest.mark.parametrize("in_thread", [True, False])
    async def test_progress_that_has_no_text_is_refused(self, line: Any, in_thread: bool) -> None:
        """The tool gets the error where it reported the progress, and nothing is shown."""
        shown: list[str] = []

        def count(it: ToolContext) -> str:
            with pytest.raises(InvalidInput):
                it.progress(line)
            it.progress(line)
            return "done"

        async def count_directly(it: ToolContext) -> str:
            return count(it)

        function: Any = count if in_thread else count_directly
        outcome = await execute(tool(function, name="count"), "{}", tool_context(shown.append))
        await asyncio.sleep(0)

        assert outcome == error("count failed: What a tool shows of its progress must be readable as text.")
        assert shown == []

    async def test_a_plain_function_sees_the_context_variables_of_its_caller(self) -> None:
        """So an application's tracing works inside tools."""
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
        variable.set("set")

        def read() -> str:
            return variable.get()

        assert await outcome_of(read) == ToolResult(text="set")

    async def test_an_awaitable_that_a_plain_function_returns_is_awaited(self) -> None:
        """A plain decorator may hide a coroutine function."""

        async def inner() -> str:
            return "awaited"

        def outer() -> Any:
            return inner()

        assert await outcome_of(outer) == ToolResult(text="awaited")


class TestTheContext:
    """What a tool may know about its call."""

    async def test_the_metadata_are_those_of_the_conversation(self) -> None:
        """As of the step that asked for the call. A tool can change neither them nor the conversation by them."""
        context = Context(metadata={"tenant": "a", "flags": {"beta": [1]}})
        given = tool_context_of("call_2_0", effect_context("c", context=context), 3, 3)

        assert given.metadata == {"tenant": "a", "flags": {"beta": [1]}}
        with pytest.raises(TypeError):
            given.metadata["tenant"] = "b"  # type: ignore[index]
        given.metadata["flags"]["beta"].append(2)
        assert context.metadata == {"tenant": "a", "flags": {"beta": [1]}}

    async def test_without_metadata_they_are_empty(self) -> None:
        """Also for a context that a test makes."""
        assert tool_context_of("call_2_0", effect_context("c"), 3, 3).metadata == {}
        assert tool_context().metadata == {}


class TestReturnedValues:
    """Any value becomes a text that the model reads, or an act."""

    @holds_for(
        ("returned", "text"),
        [
            ("as it is\n", "as it is\n"),
            ("", ""),
            (None, "Done."),
            (Party(adults=2), '{"adults":2,"children":0}'),
            (Point(1, 0.5), '{"x":1,"y":0.5}'),
            ({"a": [1, None, True, "é"], 2: date(2030, 1, 31)}, '{"a":[1,null,true,"é"],"2":"2030-01-31"}'),
            ((), "[]"),
            (0, "0"),
            (False, "false"),
            (Size.BIG, "big"),
            ({"x": math.nan}, '{"x":"NaN"}'),
            ({"x": logging.NullHandler}, '{"x":"<class \'logging.NullHandler\'>"}'),
            ("half \ud83c", f"half {REPLACEMENT}"),
            ({"\ud83c": ["🍣", "\ud83c"]}, '{"\\ufffd": ["\\ud83c\\udf63", "\\ufffd"]}'),
            (ToolResult(text="no", error=True), None),
        ],
    )
    async def test_a_value_becomes_text(self, returned: Any, text: str | None) -> None:
        """Text is kept, None becomes "Done.", any other value becomes JSON, and a `ToolResult` is kept."""

        async def give() -> Any:
            return returned

        expected = returned if text is None else ToolResult(text=text)
        assert await outcome_of(give) == expected

    async def test_a_value_that_cannot_be_written_is_an_error_result(self) -> None:
        """Such as a list that contains itself."""

        def give() -> Any:
            endless: list[Any] = []
            endless.append(endless)
            return endless

        assert await outcome_of(give) == error("give returned something that cannot be written as JSON.")

    async def test_a_declared_question_is_an_act(self) -> None:
        """A tool of the application asks in the same way as the built-in one."""
        question = UserQuestion(question="Which?", options=(QuestionOption(label="a"), QuestionOption(label="b")))

        @tool(exclusive=True, acts=["question"])
        async def ask() -> Question:
            return Question((question,))

        assert await outcome_of(ask) == Question((question,))

    async def test_an_undeclared_question_is_an_error_result(self, caplog: pytest.LogCaptureFixture) -> None:
        """A tool returns only acts of the kinds that it declares. The log says which declaration is missing."""
        question = UserQuestion(question="Which?", options=(QuestionOption(label="a"), QuestionOption(label="b")))

        async def sneak() -> Question:
            return Question((question,))

        assert await outcome_of(sneak) == error("sneak may not ask the user: it does not declare that it asks.")
        assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
            ("ERROR", 'sneak returned an act that it does not declare: it needs acts=["question"]')
        ]

    @pytest.mark.parametrize(
        "returned", [Speech(text="Hi"), [Speech(text="Hi")], ToolResult(text="", acts=(Speech(text="Hi"),))]
    )
    async def test_an_undeclared_act_is_told_in_the_log(self, returned: Any, caplog: pytest.LogCaptureFixture) -> None:
        """The machine carries none of it out, and the operator learns why."""

        async def sneak() -> Any:
            return returned

        @tool(acts=["speech"])
        async def speak() -> Any:
            return returned

        await outcome_of(speak)
        assert caplog.records == []
        await outcome_of(sneak)
        assert 'sneak returned an act that it does not declare: it needs acts=["speech"]' in caplog.text


class TestLongResults:
    """Of a result that is too long to be stored, the beginning and the end are, and how much is missing."""

    @given(st.text(min_size=201), st.integers(200, 400))
    def test_a_cut_text_keeps_its_beginning_and_its_end(self, text: str, limit: int) -> None:
        """It is as long as the limit, the same each time, and says how many characters are missing."""
        cut = cut_text(text * 3, limit)
        beginning, _, rest = cut.partition("\n[… ")
        mark, _, end = rest.rpartition(" characters are left out here …]\n")
        missing, _, total = mark.partition(" of ")

        assert (text * 3).startswith(beginning)
        assert (text * 3).endswith(end)
        assert 0 <= len(beginning) - len(end) <= 1
        assert int(total.replace(",", "")) == len(text) * 3
        assert len(beginning) + int(missing.replace(",", "")) + len(end) == len(text) * 3
        assert limit - 5 <= len(cut) <= limit
        assert cut.encode().decode() == cut

    @pytest.mark.parametrize("length", [300, 500, 100_000])
    def test_only_the_ends_of_a_long_text_are_redacted(self, length: int) -> None:
        """J1: a secret at the place of the cut is seen in full, and the cost does not grow with the text."""
        seen: list[int] = []

        def redact(text: str) -> str:
            seen.append(len(text))
            return text.replace("secret", "[X]")

        cut = cut_text(("secret" * length)[:length], 250, redact)

        assert len(cut) <= 250
        assert cut.startswith("[X][X]") and not {"sec", "ret"} & set(cut.partition("\n")[0].split("[X]"))
        assert max(seen) <= 500 and len(seen) <= 2

    @given(st.text())
    def test_a_text_that_fits_is_kept(self, text: str) -> None:
        """Up to the limit itself."""
        assert cut_text(text, len(text)) == text

    async def test_images_and_the_mark_of_an_error_stay(self) -> None:
        """How much of it a tool lets a request show has nothing to do with what is stored."""
        image = FileReference(url="https://example.com/a.png", media_type="image/png")

        def listing() -> Any:
            return ["x" * 5_000, image]

        @tool(max_result=300)
        def failing() -> Any:
            return ToolResult(text="y" * 5_000, error=True, files=(image,))

        listed = await execute(tool(listing), "{}", tool_context(), max_stored=1_000)
        failed = await execute(failing, "{}", tool_context(), max_stored=1_000)

        assert isinstance(listed, ToolResult)
        assert isinstance(failed, ToolResult)
        assert (len(listed.text), listed.files, listed.error) == (1_000, (image,), False)
        assert (len(failed.text), failed.files, failed.error) == (1_000, (image,), True)

    async def test_a_result_of_megabytes_is_not_lost(self) -> None:
        """By default up to a million characters are stored."""

        def export() -> str:
            return f"begin{'x' * 3_000_000}end"

        outcome = await outcome_of(export)

        assert isinstance(outcome, ToolResult)
        assert (outcome.text[:5], outcome.text[-3:], len(outcome.text)) == ("begin", "end", MAX_STORED)
        assert "[… 2,000,06" in outcome.text
        assert " of 3,000,008 characters are left out here …]" in outcome.text


class TestFailing:
    """P5: a tool that fails gives an error result that says why."""

    @holds_for(
        ("raised", "kind", "message"),
        [
            (ValueError("no table left"), "ValueError", "no table left"),
            (ValueError("no table left\nTraceback (most recent call last):\n  …"), "ValueError", "no table left"),
            (RuntimeError("Traceback (most recent call last):\n  …"), "RuntimeError", "RuntimeError"),
            (ValueError(), "ValueError", "ValueError"),
            (Speechless(), "Speechless", "Speechless"),
            (TimeoutError("the kitchen is slow"), "TimeoutError", "the kitchen is slow"),
            (StopIteration(), "StopIteration", "StopIteration"),
            (asyncio.CancelledError(), "CancelledError", "CancelledError"),
            (SystemExit("leaving"), "SystemExit", "leaving"),
            (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
            (GeneratorExit(), "GeneratorExit", "GeneratorExit"),
            (ToolError(" "), "ToolError", "ToolError"),
        ],
    )
    @holds_for("in_thread", [True, False])
    async def test_whatever_is_raised_is_an_error_result(
        self, raised: BaseException, kind: str, message: str, in_thread: bool
    ) -> None:
        """It names the class alone, because the message may hold secrets; with `errors="message"` it is the first line
        of the message, without a traceback. Also for an error that would end a thread or the whole program."""

        def book() -> None:
            raise raised

        async def book_directly() -> None:
            raise raised

        if isinstance(raised, StopIteration) and not in_thread:
            kind, message = "RuntimeError", "coroutine raised StopIteration"
        function: Any = book if in_thread else book_directly

        assert await outcome_of(tool(function, name="book")) == error(f"book failed: {kind}. {IN_THE_LOG}")
        assert await outcome_of(tool(function, name="book", errors="message")) == error(f"book failed: {message}")

    @pytest.mark.parametrize("in_thread", [True, False])
    async def test_a_tool_error_tells_the_model_what_it_says(
        self, in_thread: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Every line of it, and nothing of its cause. It is no fault of the program, so the log has no warning."""

        def book() -> None:
            try:
                raise ValueError("secret")
            except ValueError as cause:
                raise ToolError("No table is left.\nTry another day.") from cause

        async def book_directly() -> None:
            book()

        assert await outcome_of(book if in_thread else book_directly) == error("No table is left.\nTry another day.")
        assert caplog.records == []

    async def test_the_traceback_is_in_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        """So the operator of the engine can find the cause."""

        def book() -> None:
            raise ValueError("no table left")

        await outcome_of(book)

        (record,) = caplog.records
        assert (record.name, record.getMessage()) == ("turnwise.tools", "book failed")
        assert record.exc_info is not None
        assert "raise ValueError" in caplog.text

    async def test_a_long_message_is_shortened(self) -> None:
        """The message of an exception has any length. That of a `ToolError` is stored like a result."""

        @tool(errors="message")
        def book() -> None:
            raise ValueError("x" * 10_000)

        def tell() -> None:
            raise ToolError("x" * 10_000)

        outcomes = await outcome_of(book), await outcome_of(tell)

        assert [len(outcome.text) for outcome in outcomes if isinstance(outcome, ToolResult)] == [500, 10_000]

    async def test_half_characters_in_a_message_are_replaced(self) -> None:
        """The result must be storable."""

        @tool(errors="message")
        def book() -> None:
            raise ValueError("half \ud83c")

        def tell() -> None:
            raise ToolError("half \ud83c")

        assert await outcome_of(book) == error(f"book failed: half {REPLACEMENT}")
        assert await outcome_of(tell) == error(f"half {REPLACEMENT}")

    async def test_an_invalid_question_fails_with_one_sentence(self) -> None:
        """P33: pydantic's own message would repeat the input and link to a web page."""

        @tool(exclusive=True, acts=["question"])
        def ask() -> Question:
            return Question(())

        assert await outcome_of(ask) == error("ask failed: Must have 1-4 questions")

    async def test_a_validation_error_does_not_repeat_the_input(self) -> None:
        """P33: of any pydantic model that a tool makes, also where the model may read messages."""

        def seat() -> None:
            Party(adults="secret")  # type: ignore[arg-type]

        told = await outcome_of(tool(seat, errors="message"))

        assert told == error(f"seat failed: Invalid input: {NOT_AN_INTEGER}")
        assert await outcome_of(seat) == error(f"seat failed: ValidationError. {IN_THE_LOG}")

    async def test_a_tool_that_cancels_its_own_task_fails_alone(self) -> None:
        """The turn goes on."""

        async def stop() -> str:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return "stopped"

        assert await outcome_of(stop) == error(f"stop failed: CancelledError. {IN_THE_LOG}")


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


class TestProgress:
    """It goes the same way as the progress of the tool itself."""

    @pytest.mark.parametrize("reconcile", [in_a_thread, in_the_loop])
    async def test_it_is_shown_in_the_event_loop(self, reconcile: Callable[..., Any]) -> None:
        """Whichever thread reports it: what a conversation shows belongs to the loop."""
        shown: list[tuple[object, ...]] = []

        answer = await asked(reconcile, lambda *line: shown.append((*line, threading.current_thread())))

        assert answer.verdict == "ran"
        assert shown == [
            (7, "tool_progress", {"call_id": "call_1_0", "text": "Looking it up."}, threading.main_thread())
        ]

    async def test_what_has_no_text_is_refused_where_it_is_reported(self) -> None:
        """A number is shown as its digits, and an object that cannot be written raises."""
        shown: list[Any] = []

        class Unwritable:
            def __str__(self) -> str:
                raise RuntimeError

        def look(it: ToolContext) -> ToolResult:
            it.progress(1)  # type: ignore[arg-type]
            with pytest.raises(InvalidInput):
                it.progress(Unwritable())  # type: ignore[arg-type]
            return ToolResult(text="Paid.")

        answer = await asked(look, lambda _, __, data: shown.append(data["text"]))

        assert answer.result == ToolResult(text="Paid.")
        assert shown == ["1"]

    async def test_nothing_is_shown_after_the_answer(self) -> None:
        """A thread that goes on is no longer heard."""
        shown: list[Any] = []
        kept: list[ToolContext] = []

        def look(it: ToolContext) -> str:
            kept.append(it)
            return "did_not_run"

        await asked(look, lambda *line: shown.append(line))
        await asyncio.to_thread(kept[0].progress, "Still looking.")
        await asyncio.sleep(0)

        assert shown == []


# --- Whether a person must approve a call is decided when the call arrives, by the tool or by a function of its
# arguments.


def pay(amount: int, to: str = "Ann", party: Party | None = None) -> str:
    """Pay."""
    return f"{amount} to {to}"


def is_large(amount: int, to: str, party: Party | None) -> bool:
    """Whether this is much money."""
    return amount > 100 and to != "Bob"


def raising(error: BaseException) -> Callable[[int], bool]:
    """A function that raises this error."""

    def decide(amount: int) -> bool:
        raise error

    return decide


def needs(approval: Callable[..., Any], **arguments: Any) -> bool:
    """Whether a call of `pay` with this approval needs a person."""
    return resolve_call(arguments, tool(pay, approval=approval), name="pay").approval


class TestDecisions:
    """A function decides for each call."""

    @pytest.mark.parametrize(
        ("arguments", "decision"),
        [
            ({"amount": 100}, False),
            ({"amount": 101}, True),
            ({"amount": 101, "to": "Bob"}, False),
            ({"amount": "101", "to": "Ann"}, True),
        ],
    )
    def test_it_gets_the_arguments_as_the_tool_does(self, arguments: Any, decision: bool) -> None:
        """In their types, with the defaults of the tool."""
        assert needs(is_large, **arguments) is decision

    def test_it_may_take_some_of_the_arguments(self) -> None:
        """By their names, or all of them as `**arguments`."""
        assert needs(lambda amount: amount > 3, amount=5)
        assert not needs(lambda to: to == "Bob", amount=5)
        assert needs(lambda **given: given == {"amount": 5, "to": "Ann", "party": None}, amount=5)
        assert needs(lambda amount, limit=3: amount > limit, amount=5)

    def test_it_gets_what_the_model_wrote_for_a_schema(self) -> None:
        """Nothing is filled in: if it needs an argument that the model left out, a person decides."""
        schema = {"type": "object", "properties": {"from": {"default": "x"}, "n": {"type": "number"}}}

        def made(approval: Any) -> Any:
            return tool(lambda **given: "", name="pay", parameters=schema, approval=approval)

        assert not resolve_call({"from": 1}, made(lambda **given: given != {"from": 1}), name="pay").approval
        assert not resolve_call({"n": 1.5}, made(lambda n: n > 2), name="pay").approval
        assert resolve_call({}, made(lambda n: n > 2), name="pay").approval

    @pytest.mark.parametrize(
        ("approval", "reason"),
        [
            (lambda amount: 1 / 0, "The approval of pay failed, so a person must approve the call"),
            (raising(SystemExit(1)), "The approval of pay failed, so a person must approve the call"),
            (raising(asyncio.CancelledError()), "The approval of pay failed, so a person must approve the call"),
            (raising(GeneratorExit()), "The approval of pay failed, so a person must approve the call"),
            (lambda amount: None, "The approval of pay returned NoneType, not a bool"),
            (lambda amount: 1, "The approval of pay returned int, not a bool"),
        ],
    )
    def test_one_that_fails_needs_a_person(self, approval: Any, reason: str, caplog: pytest.LogCaptureFixture) -> None:
        """The log says why."""
        assert needs(approval, amount=1)
        assert reason in caplog.text
        assert [record.levelno for record in caplog.records] == [logging.WARNING]

    def test_an_interrupt_of_the_program_goes_through(self) -> None:
        """Ctrl-C is not meant for the function that happens to run."""
        with pytest.raises(KeyboardInterrupt):
            needs(raising(KeyboardInterrupt()), amount=1)

    def test_one_that_returns_a_coroutine_needs_a_person(self, caplog: pytest.LogCaptureFixture) -> None:
        """It cannot be awaited. No warning about it is left behind."""

        async def later() -> bool:
            return False

        assert needs(lambda amount: later(), amount=1)
        assert "returned coroutine, not a bool" in caplog.text

    def test_it_is_not_asked_about_a_call_that_does_not_run(self) -> None:
        """Its arguments do not fit, so it could not be asked."""
        asked: list[int] = []

        call = resolve_call({"amount": "x"}, tool(pay, approval=lambda amount: asked.append(amount)), name="pay")

        assert call.fault is not None
        assert asked == []


class TestDeclarations:
    """What cannot decide is refused when the tool is made."""

    @pytest.mark.parametrize(
        ("approval", "sentence"),
        [
            ("yes", "The approval of pay must be true, false or a function of its arguments."),
            (None, "The approval of pay must be true, false or a function of its arguments."),
            (1, "The approval of pay must be true, false or a function of its arguments."),
            (bool, "The approval of pay must be true, false or a function of its arguments."),
            (lambda price: True, "The approval of pay needs price, which is not among the arguments of the tool."),
            (lambda amount, /: True, "The approval of pay needs amount, which is not among the arguments of the tool."),
            (lambda *, x: True, "The approval of pay needs x, which is not among the arguments of the tool."),
        ],
    )
    def test_an_unfit_approval_is_refused(self, approval: Any, sentence: str) -> None:
        """No bool, a class, parameters that the tool does not have."""
        with pytest.raises(ConfigurationError) as refused:
            tool(pay, approval=approval)

        assert refused.value.sentence == sentence

    def test_one_that_must_be_awaited_is_refused(self) -> None:
        """It decides at once, before the call is stored."""

        async def ask(amount: int) -> bool:
            return True

        with pytest.raises(ConfigurationError) as refused:
            tool(pay, approval=ask)

        assert refused.value.sentence == "The approval of pay must be a plain function: it decides at once."

    def test_it_cannot_ask_for_the_context(self) -> None:
        """The call is not running yet."""

        def spend(amount: int, context: ToolContext) -> None: ...

        with pytest.raises(ConfigurationError, match="needs context, which is not among"):
            tool(spend, approval=lambda amount, context: True)


async def test_the_decision_is_a_fact(tmp_path: Path) -> None:
    """It is stored on the call: another engine, whose function would decide otherwise, does not ask it again."""
    database = tmp_path / "pay.db"
    model = ScriptedLlm([call("pay", amount=5), call("pay", amount=500)])
    async with Engine.open(database, model=model, tools=[tool(pay, approval=is_large)]) as engine:
        conversation = await engine.create()
        turn = await conversation.send("Pay")
        assert turn.status == "awaiting_approval"

    never = tool(pay, approval=lambda amount: False)
    async with Engine.open(database, model=ScriptedLlm(["Paid."]), tools=[never]) as engine:
        again = await engine.get(conversation.id)
        assert again.state.type == "awaiting_approval"
        ended = await again.approve(again.state.call.call_id, True)
        said = await again.transcript()
        assert (await again.replay()).divergence is None

    assert ended.reply == "Paid."
    assert [message.text for message in said if message.role == "tool"] == ["5 to Ann", "500 to Ann"]
