"""Answers that break off, go quiet or take long, over a real socket: they end when they should, and count."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.servers.model_server import (
    OPENAI,
    Answer,
    Data,
    ModelServer,
    Pause,
    Raw,
    Reply,
    Tokens,
    answers,
    fails,
)
from turnwise import Conversation, Engine, Limits, Policy, Retry, Settings
from turnwise.states import LlmFailed, Usage

PRICES = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
TOLD = Data({"choices": [], "usage": {"prompt_tokens": 500, "completion_tokens": 50, "total_tokens": 550}})
WHOLE = answers("Whole.", usage=Tokens(500, 60))


@asynccontextmanager
async def conversing(
    *replies: Reply, limits: Limits | None = None, silence: float = 20.0, whole: float = 60.0
) -> AsyncIterator[Conversation]:
    """Talk to a server that answers like this."""
    policy = Policy(retry=Retry(attempts=3, base=0.01), **({} if limits is None else {"limits": limits}))
    settings = Settings(llm_chat_timeout_sec=silence, llm_chat_whole_timeout_sec=whole)
    async with ModelServer(replies) as server:
        model = server.llm(OPENAI.model, **PRICES)
        async with Engine.open("sqlite://", model=model, policy=policy, settings=settings) as engine:
            yield await engine.create()


class TestAnAnswerThatBreaksOff:
    """It has been paid for."""

    async def test_it_counts_as_its_provider_says(self) -> None:
        """For the turn and for the conversation, with its cost."""
        async with conversing(answers("Half an ans", TOLD, end="breaks_off"), WHOLE) as conversation:
            turn = await conversation.send("Hi")
            total = await conversation.usage()

        assert turn.usage == total
        assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.estimated) == (1000, 110, False)
        assert turn.usage.cost == pytest.approx(1000e-6 + 220e-6)

    async def test_it_is_estimated_where_the_provider_says_nothing(self) -> None:
        """By what has come of it."""
        async with conversing(answers("Half an answer. " * 10, end="breaks_off"), WHOLE) as conversation:
            turn = await conversation.send("Hi")

        assert 60 + 35 < turn.usage.output_tokens < 60 + 45
        assert turn.usage.input_tokens > 500

    async def test_it_uses_up_the_limits_of_the_turn(self) -> None:
        """Then it is not asked for again."""
        broken = answers("Half an ans", TOLD, end="breaks_off")
        async with conversing(broken, broken, WHOLE, limits=Limits(tokens=1000)) as conversation:
            turn = await conversation.send("Hi")
            failures = [entry.event for entry in await conversation.events() if isinstance(entry.event, LlmFailed)]

        assert (turn.status, turn.limit, turn.usage.tokens) == ("failed", "tokens", 1100)
        assert len(failures) == 2

    async def test_a_request_that_was_refused_costs_nothing(self) -> None:
        """Nobody has read it."""
        async with conversing(fails(500, "no"), WHOLE) as conversation:
            turn = await conversation.send("Hi")

        assert turn.usage == Usage(input_tokens=500, output_tokens=60, cost=turn.usage.cost)


def slowly(*pieces: Any, pause: float) -> Answer:
    """Answer with these pieces, with a pause behind each."""
    return answers(*(one for piece in pieces for one in (piece, Pause(pause))))


class TestSilence:
    """A model that says nothing has hung; one that goes on writing has not."""

    async def test_an_answer_that_keeps_coming_is_let_finish(self) -> None:
        """However long it takes in all."""
        async with conversing(slowly(*("word " for _ in range(10)), pause=0.1), silence=0.6) as conversation:
            turn = await conversation.send("Hi")

        assert (turn.status, turn.reply) == ("completed", "word " * 10)

    @pytest.mark.parametrize("filler", [Raw(b": keep-alive\n\n"), ""], ids=["comments", "empty pieces"])
    async def test_what_is_no_piece_is_silence(self, filler: Any) -> None:
        """A server sends it to keep the connection open."""
        began = time.monotonic()
        async with conversing(slowly(*[filler] * 60, pause=0.05), WHOLE, silence=0.4) as conversation:
            turn = await conversation.send("Hi")

        assert turn.reply == "Whole."
        assert time.monotonic() - began < 2.9

    async def test_a_silent_answer_has_been_paid_for_as_far_as_it_came(self) -> None:
        """Estimated, since its provider never told."""
        async with conversing(answers("Half an ans", Pause(5)), WHOLE, silence=0.4) as conversation:
            turn = await conversation.send("Hi")

        assert turn.reply == "Whole."
        assert turn.usage.estimated
        assert turn.usage.output_tokens == 60 + 3

    async def test_the_whole_has_a_limit_of_its_own(self) -> None:
        """An answer that never ends is no answer."""
        endless = slowly(*("word " for _ in range(100)), pause=0.05)
        async with conversing(endless, WHOLE, silence=0.4, whole=0.6) as conversation:
            turn = await conversation.send("Hi")

        assert turn.reply == "Whole."


class TestAnAnswerThatIsCancelled:
    """What has come of it has been paid for."""

    async def test_it_counts_for_its_turn_and_for_the_conversation(self) -> None:
        """Estimated, because its provider had not told yet."""
        async with conversing(answers("Half an ans", Pause(5))) as conversation:
            shown = conversation.stream("Hi")
            async for update in shown:
                if update.type == "token":
                    break
            await conversation.cancel()
            total = await conversation.usage()
            turn = (await conversation.turns())[-1]

        assert turn.usage == total
        assert (total.output_tokens, total.estimated) == (3, True)
        assert total.cost is not None
        assert total.cost > 0
