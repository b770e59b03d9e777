"""The channel to which parts of the same program subscribe."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import unmarked
from turnwise import ConfigurationError, Delivery, Engine, Lagged, StreamChannel, Subscription
from turnwise.testing import FunctionLlm, ScriptedLlm, reply


def said(number: int, conversation_id: str = "c") -> Delivery:
    """A delivery with this number."""
    return Delivery(f"{number}", conversation_id, 1, number, f"{conversation_id}/{number}")


async def all_of(subscription: Subscription) -> list[str]:
    """All deliveries of a subscription until it ends."""
    return [delivery.text async for delivery in subscription]


async def test_a_subscriber_gets_everything_from_its_start(database: Path) -> None:
    """S20: of all conversations or of one."""
    stream = StreamChannel()
    echo = FunctionLlm(lambda request: reply(f"You said {request.messages[-1]['content']}."))

    async with Engine.open(database, model=echo, channels=[stream]) as engine:
        one, other = await engine.create(), await engine.create()
        everything, only = stream.subscribe(), stream.subscribe(other.id)
        await one.send("a")
        heard = [(await anext(everything)).text]
        late = stream.subscribe()
        await other.send("b")
        heard += [(await anext(everything)).text]
        stream.close()

    assert heard == ["You said a.", "You said b."]
    assert await all_of(only) == await all_of(late) == ["You said b."]
    assert await all_of(everything) == []


async def test_a_subscriber_gets_complete_deliveries(database: Path) -> None:
    """With the key by which a repeated one is recognised."""
    stream = StreamChannel()

    async with Engine.open(database, model=ScriptedLlm([reply("Hello.")]), channels=[stream]) as engine:
        conversation = await engine.create()
        with stream.subscribe() as subscription:
            await conversation.send("Hi")
            delivery = await anext(subscription)

    assert delivery == Delivery("Hello.", conversation.id, turn=1, ordinal=1, key=delivery.key)
    assert unmarked(delivery.key) == f"{conversation.id}/2"


async def test_a_slow_subscriber_delays_nobody() -> None:
    """A subscriber that reads nothing delays neither the deliveries nor other subscribers."""
    stream = StreamChannel()
    quick, still = stream.subscribe(memory=2), stream.subscribe(memory=2)
    heard: list[str] = []

    for number in range(1, 6):
        await stream.deliver(said(number))
        heard.append((await anext(quick)).text)

    assert heard == ["1", "2", "3", "4", "5"]
    still.close()
    with pytest.raises(Lagged):
        await anext(still)
    assert await all_of(still) == ["4", "5"]


async def test_a_slow_subscriber_learns_how_many_it_missed() -> None:
    """Once, with the number and a sentence; then it continues with the rest."""
    stream = StreamChannel()
    slow = stream.subscribe(memory=3)
    for number in range(1, 8):
        await stream.deliver(said(number))

    with pytest.raises(Lagged) as told:
        await anext(slow)

    assert (told.value.missed, told.value.sentence) == (
        4,
        "The subscriber was too slow, and missed 4 of the deliveries.",
    )
    assert [(await anext(slow)).text for _ in range(3)] == ["5", "6", "7"]


async def test_a_subscriber_waits_without_polling() -> None:
    """And can stop waiting without losing a delivery."""
    stream = StreamChannel()
    subscription = stream.subscribe()
    waiting = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    again = asyncio.ensure_future(anext(subscription))
    await asyncio.sleep(0)
    await stream.deliver(said(1))

    assert (await again).text == "1"


@pytest.mark.slow
async def test_a_closed_subscription_gets_nothing_more() -> None:
    """It ends, and a subscription that is no longer referenced is collected."""
    stream = StreamChannel()
    with stream.subscribe() as left:
        await stream.deliver(said(1))
    dropped = stream.subscribe()
    is_held = weakref.ref(dropped)
    del dropped
    gc.collect()

    await stream.deliver(said(2))

    assert await all_of(left) == ["1"]
    assert is_held() is None


@pytest.mark.parametrize("memory", [0, -1, 1.5, "2", None])
async def test_a_memory_without_room_is_refused(memory: Any) -> None:
    """In one sentence, when the subscription is made."""
    with pytest.raises(ConfigurationError, match="at least one delivery"):
        StreamChannel().subscribe(memory=memory)
