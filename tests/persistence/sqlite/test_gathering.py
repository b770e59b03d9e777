"""What an event loop does once in its next iteration, or another thread if the loop is closed before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from turnwise.persistence.sqlite.writer import Gathering


@pytest.fixture
def calls() -> list[str]:
    """What was called, in order."""
    return []


@pytest.fixture
def gathering(calls: list[str]) -> Gathering:
    """A gathering that notes its calls."""
    return Gathering(lambda: calls.append("collect"), lambda: calls.append("abandon"))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that is not the one of the test."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def run_once(loop: asyncio.AbstractEventLoop, *callbacks: Callable[[], None]) -> None:
    """Run one iteration of the loop with these callbacks."""
    for callback in (*callbacks, loop.stop):
        loop.call_soon(callback)
    loop.run_forever()


def test_it_is_collected_once_in_the_next_iteration(
    loop: asyncio.AbstractEventLoop, gathering: Gathering, calls: list[str]
) -> None:
    """However often it was asked for in this one."""
    run_once(loop, gathering.ask, gathering.ask)
    assert calls == []

    run_once(loop, gathering.ask)
    assert calls == ["collect"]

    run_once(loop)
    assert calls == ["collect"] * 2


def test_a_loop_that_is_closed_before_abandons_it(
    loop: asyncio.AbstractEventLoop, gathering: Gathering, calls: list[str]
) -> None:
    """And the next loop that asks has its own call."""
    run_once(loop, gathering.ask)
    loop.close()
    assert calls == ["abandon"]

    other = asyncio.new_event_loop()
    run_once(other, gathering.ask)
    run_once(other)
    other.close()
    assert calls == ["abandon", "collect"]
