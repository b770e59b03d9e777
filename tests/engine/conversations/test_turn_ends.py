"""Channels that want to know when a turn has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from turnwise import Delivery, Engine
from turnwise.states import TurnEnded
from turnwise.testing import ScriptedLlm, failure, reply


class Pager:
    """A channel that keeps what it is told."""

    def __init__(self, name: str = "pager") -> None:
        self.name = name
        self.ended: list[tuple[str, int, str, int]] = []

    async def deliver(self, delivery: Delivery) -> None:
        """Take it."""

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Keep how the turn ended."""
        self.ended.append((conversation_id, ended.turn, ended.status, len(ended.deliveries)))


class BrokenPager(Pager):
    """A channel that fails at the end of each turn."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error

    def turn_ended(self, conversation_id: str, ended: TurnEnded) -> None:
        """Fail."""
        raise self.error


class TestTurnEnds:
    """`turn_ended` of a channel."""

    async def test_each_turn_is_told_once(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        """J14: with its status and its deliveries, also a turn that failed. A channel that raises changes nothing, also
        if it asks for the result of work that it has cancelled, or would end the process."""
        pager = Pager()
        llm = ScriptedLlm([reply("a"), failure("authentication")])
        errors = [OSError("out of paper"), asyncio.CancelledError(), SystemExit(3), KeyboardInterrupt()]
        channels = [*map(BrokenPager, errors), pager]
        async with asyncio.timeout(20), Engine.open(database, model=llm, channels=channels) as engine:
            conversation = await engine.create()
            told = [(await conversation.send(text)).status for text in ("one", "two")]

        assert told == ["completed", "failed"]
        assert pager.ended == [(conversation.id, 1, "completed", 1), (conversation.id, 2, "failed", 0)]
        assert caplog.text.count("A channel failed at the end of a turn.") == 2 * len(errors)

    async def test_turns_of_an_earlier_process_are_not_told(self, database: Path) -> None:
        """What it heard is all that it is told: a reopened database repeats nothing."""
        pager = Pager()
        async with Engine.open(database, model=ScriptedLlm([reply("a")]), channels=[pager]) as engine:
            conversation = await engine.create()
            await conversation.send("one")
        async with Engine.open(database, model=ScriptedLlm([reply("b")]), channels=[pager]) as engine:
            await (await engine.get(conversation.id)).send("two")

        assert [turn for _, turn, _, _ in pager.ended] == [1, 2]
