"""What was said in a turn has reached quick channels when the turn is returned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from turnwise import Delivery, Engine
from turnwise.effects.dispatcher import InProcessDispatcher
from turnwise.engine.conversation import ITERATIONS_TO_SEND, Conversation
from turnwise.testing import FunctionLlm, RecordingChannel

from ..support.scenarios.examples import example

MemoryStore = example("memory_store").MemoryStore


def engine(channel: RecordingChannel, **options: Any) -> Engine:
    """An engine whose commits do not wait, with a model that answers at once."""
    return Engine.open(store=MemoryStore(), model=FunctionLlm(lambda _: "Hello."), channels=[channel], **options)


def takes(iterations: int) -> Callable[[Delivery], Awaitable[None]]:
    """What a channel does that takes so many iterations of the event loop for a delivery."""

    async def deliver(_: Delivery) -> None:
        for _ in range(iterations):
            await asyncio.sleep(0)

    return deliver


async def send(conversation: Conversation) -> None:
    """Send a message, and wait for the turn."""
    await conversation.send("Hi")


async def send_and_wait(conversation: Conversation) -> None:
    """Send a message, and wait for the turn under way by another call."""
    await conversation.send("Hi", wait=False)
    await conversation.wait()


@pytest.mark.parametrize("speak", [send, send_and_wait])
async def test_a_quick_channel_has_the_reply(speak: Callable[[Conversation], Awaitable[None]]) -> None:
    """A caller that looks at its channel finds what the turn says, although deliveries do not hold up a turn."""
    channel = RecordingChannel(takes(ITERATIONS_TO_SEND // 4))

    async with engine(channel) as opened:
        await speak(await opened.create())

        assert channel.texts == ["Hello."]


async def test_a_slow_channel_is_not_waited_for() -> None:
    """The turn is returned, and the delivery goes on."""
    may_go_on = asyncio.Event()

    async def slowly(_: Delivery) -> None:
        await may_go_on.wait()

    channel = RecordingChannel(slowly)
    async with engine(channel) as opened:
        turn = await (await opened.create()).send("Hi")
        before = list(channel.texts)
        may_go_on.set()

    assert (turn.reply, before, channel.texts) == ("Hello.", [], ["Hello."])


class FailingDispatcher:
    """A dispatcher that cannot tell what was tried, and does everything else as the one that it wraps."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Fail."""
        raise LookupError("no such conversation")


async def test_an_error_of_the_dispatcher_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The turn is stored, so its caller gets it."""

    def failing(*arguments: Any) -> Any:
        return FailingDispatcher(InProcessDispatcher(*arguments))

    with caplog.at_level(logging.ERROR, logger="turnwise.loop"):
        async with engine(RecordingChannel(), dispatcher=failing) as opened:
            turn = await (await opened.create()).send("Hi")
            messages = caplog.messages.copy()

    assert turn.reply == "Hello."
    assert "The dispatcher failed." in messages
