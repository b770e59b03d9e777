"""Mistakes of callers that begin: an engine that was never opened, and a conversation that was not awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from inspect import signature
from typing import Any

import anyio
import pytest

from turnwise import Conversation, Engine, EngineClosed
from turnwise.engine.lifetime import must_be_awaited
from turnwise.states.errors import EngineNotOpen, NotAwaited
from turnwise.testing import ScriptedLlm

NOT_OPEN = "The engine is not open: use `async with Engine.open(...)` or `await Engine.open(...)`."
NOT_AWAITED = "A conversation is created with `await`: write `conversation = await engine.create()`."


class TestAnEngineThatWasNeverOpened:
    """Making an engine does not open it."""

    @pytest.mark.parametrize(
        "use",
        [
            lambda engine: engine.create(),
            lambda engine: engine.get("c-1"),
            lambda engine: engine.list(),
            lambda engine: engine.delete("c-1"),
            lambda engine: engine.refresh("c-1"),
            lambda engine: engine.delivered(),
        ],
    )
    async def test_every_method_says_how_it_is_opened(self, use: Callable[[Engine], Awaitable[Any]]) -> None:
        """It is an `EngineClosed`, so a program that handles that handles this too."""
        with pytest.raises(EngineClosed) as caught:
            await use(Engine.open("sqlite://"))

        assert (type(caught.value), caught.value.sentence) == (EngineNotOpen, NOT_OPEN)

    async def test_one_that_was_closed_is_closed(self) -> None:
        """Whether it was open before or not."""
        engine = Engine.open("sqlite://")
        await engine.close()

        with pytest.raises(EngineClosed) as caught:
            await engine.list()

        assert caught.value.sentence == "The engine is closed."


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """Return an engine whose model says the same two times."""
    async with Engine.open("sqlite://", model=ScriptedLlm(["Hi.", "Hi."])) as engine:
        yield engine


class TestAForgottenAwait:
    """What `create` returns must be awaited; used as a conversation, it says so."""

    @pytest.mark.parametrize(
        "use",
        [
            lambda made: made.send("Hello"),
            lambda made: made.send(text="Hello"),
            lambda made: made.send("Hello", wait=False),
            lambda made: made.id,
            lambda made: made.state,
            lambda made: made.updates(),
        ],
    )
    async def test_the_sentence_says_what_to_write(self, use: Callable[[Any], Any], engine: Engine) -> None:
        """Also for `send`, which a plain coroutine has, too."""
        made = engine.create()

        with pytest.raises(NotAwaited) as caught:
            use(made)

        assert caught.value.sentence == NOT_AWAITED
        assert isinstance(caught.value, AttributeError)
        made.close()
        assert await engine.list() == ()

    async def test_get_says_it_too(self, engine: Engine) -> None:
        """It is forgotten as easily."""
        made: Any = engine.get("c-1")

        with pytest.raises(NotAwaited, match=r"`conversation = await engine\.get\(conversation_id\)`"):
            made.transcript()

        made.close()

    @pytest.mark.parametrize(
        "run",
        [
            lambda made: made,
            asyncio.create_task,
            asyncio.ensure_future,
            lambda made: asyncio.wait_for(made, 10),
            lambda made: asyncio.shield(made),
        ],
    )
    async def test_whatever_runs_coroutines_runs_it(
        self, run: Callable[[Any], Awaitable[Conversation]], engine: Engine
    ) -> None:
        """A task of the event loop sends None into it, and awaits what it awaits."""
        conversation = await run(engine.create())

        assert (await conversation.send("Hello")).reply == "Hi."

    async def test_several_are_gathered(self, engine: Engine) -> None:
        """In a group of tasks as well."""
        await asyncio.gather(engine.create(), engine.create())
        async with asyncio.TaskGroup() as group:
            group.create_task(engine.create())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.create)

        assert len(await engine.list()) == 4

    async def test_it_is_cancelled_and_fails_as_a_coroutine_does(self) -> None:
        """What is thrown into it reaches the coroutine, and what that raises reaches the caller."""

        @must_be_awaited("Await it.")
        async def wait(seconds: float) -> None:
            if not seconds:
                raise ValueError("at once")
            await asyncio.sleep(seconds)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(60), 0.01)
        with pytest.raises(ValueError, match="at once"):
            await asyncio.create_task(wait(0))
        task = asyncio.create_task(wait(60))
        assert "wait" in repr(task)
        task.cancel()

    async def test_one_that_is_never_awaited_is_reported_by_python(self) -> None:
        """As for every coroutine, when it is discarded."""

        @must_be_awaited("Await it.")
        async def nothing() -> None: ...

        with pytest.warns(RuntimeWarning, match=r"nothing' was never awaited"):
            _ = nothing()
            del _

    def test_its_signature_is_that_of_the_function(self) -> None:
        """Which editors show."""
        assert "system" in signature(Engine.create).parameters
