"""A mistake of callers that begin: an engine that was never opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnwise import Engine, EngineClosed
from turnwise.states.errors import EngineNotOpen

NOT_OPEN = "The engine is not open: use `async with Engine.open(...)` or `await Engine.open(...)`."


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
