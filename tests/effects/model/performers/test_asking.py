"""How models are asked in turn, for how long, and what counts as an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise import Engine
from turnwise.effects.model.performers.asking import MAX_CALLS, ModelCaller
from turnwise.effects.model.port import LlmFailure, ModelAnswer, ModelRequest, Token
from turnwise.effects.printable import is_blank
from turnwise.states import Texts
from turnwise.testing import FunctionLlm, ScriptedLlm, call, calls, reply

from ....simulation.environment import RandomSource, VirtualLoop

# --- What every request to a model has in common, whichever effect it belongs to: it is asked in one way, and it may be
# silent for so long, however many pieces it has.


async def asked(count: int) -> int:
    """How many calls an answer with so many calls has."""
    model = FunctionLlm(lambda request: calls(*[call("find")] * count))
    answer = await ModelCaller(lambda name: model, silence=60).ask(ModelRequest(model="any", messages=()))
    return len(answer.tool_calls)


LIMIT = 0.01


class Pieces:
    """A model that says so many pieces, a third of the limit apart, and then hangs or ends."""

    def __init__(self, pieces: int, *, ends: bool = False) -> None:
        self.pieces, self.ends = pieces, ends

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Say the pieces, and one more when the request is cancelled."""
        for _ in range(self.pieces):
            await asyncio.sleep(LIMIT / 3)
            show(Token("."))
        try:
            await asyncio.sleep(0 if self.ends else 3600)
        finally:
            show(Token("."))
        return ModelAnswer("." * self.pieces)


async def ask(model: Pieces, silence: float = LIMIT, whole: float = 60) -> str:
    """Ask the model, and say how that ended."""
    caller = ModelCaller(lambda name: model, silence, whole)
    try:
        return (await caller.ask(ModelRequest(model="any", messages=()))).content
    except LlmFailure as failure:
        return failure.kind


class TestCalls:
    """An answer comes from outside, and may hold anything."""

    async def test_as_many_as_a_round_can_bear_are_taken(self) -> None:
        """All of them."""
        assert await asked(MAX_CALLS) == MAX_CALLS

    async def test_more_are_a_malformed_answer(self) -> None:
        """Each step of such a round would store all of them: 10,000 calls would take minutes."""
        with pytest.raises(LlmFailure) as failed:
            await asked(MAX_CALLS + 1)

        assert failed.value.kind == "malformed_response"


class TestAModelThatTakesTooLong:
    """Its request is cancelled, and fails."""

    async def test_each_of_several_ends(self) -> None:
        """A piece that comes too late changes nothing, and nothing is left behind in their tasks."""
        assert await asyncio.gather(*[ask(Pieces(0)) for _ in range(3)]) == ["timeout"] * 3
        assert await ask(Pieces(0)) == "timeout"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    async def test_one_that_goes_on_for_longer_than_a_whole_answer_may_take(self) -> None:
        """However steadily its pieces come."""
        assert await ask(Pieces(1000), whole=LIMIT * 2) == "timeout"


class TestAModelThatGoesOn:
    """Its time is counted from each of its pieces on."""

    def test_it_may_take_longer_than_the_limit(self) -> None:
        """As long as each of its pauses is shorter."""
        ended: list[str] = []

        async def long() -> None:
            ended.append(await ask(Pieces(20, ends=True)))

        VirtualLoop(RandomSource(0)).run(long(), bound=100 * LIMIT)

        assert ended == ["." * 20]

    def test_it_runs_out_after_the_last_piece(self) -> None:
        """And those that have the same limit run out in the order of their last pieces."""
        ended: list[int] = []

        async def hang_after(pieces: int) -> None:
            assert await ask(Pieces(pieces)) == "timeout"
            ended.append(pieces)

        async def hang_at_once() -> None:
            await asyncio.gather(hang_after(6), hang_after(0), hang_after(3))

        VirtualLoop(RandomSource(0)).run(hang_at_once(), bound=100 * LIMIT)

        assert ended == [0, 3, 6]


class TestACancelFromElsewhere:
    """It stays a cancel."""

    @pytest.mark.parametrize("silence", [60, 0])
    async def test_before_the_time_has_run_out_and_in_that_moment(self, silence: float) -> None:
        """The caller that cancels the task is not told that the model took too long."""
        task = asyncio.ensure_future(ask(Pieces(0), silence))
        await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1


# --- An answer that nobody sees anything of is an empty one, so no turn ends with a reply that looks empty.


UNSEEN = ["\u200b", "\u2060\ufeff", "\u00ad \n", "\u3164", "\u034f\u2800", "\U000e0041", "\u200d\ufe0f"]


@pytest.mark.parametrize("text", UNSEEN)
async def test_a_reply_that_nobody_sees_is_no_reply(tmp_path: Path, text: str) -> None:
    """The user gets the sentence of the policy."""
    model = FunctionLlm(lambda request: text)
    async with Engine.open(tmp_path / "blank.db", model=model) as engine:
        turn = await (await engine.create()).send("Hello")

    assert turn.reply == Texts().ending


@pytest.mark.parametrize("text", UNSEEN)
async def test_a_speech_that_nobody_sees_is_refused(tmp_path: Path, text: str) -> None:
    """The model is told so, and may speak again."""
    model = ScriptedLlm([call("respond_to_user", text=text), call("respond_to_user", text="Here."), reply("")])
    async with Engine.open(tmp_path / "blank.db", model=model, tools=["respond_to_user"]) as engine:
        turn = await (await engine.create()).send("Hello")

    assert turn.deliveries == ("Here.",)


@pytest.mark.parametrize("text", ["\U0001fae8", "\u2764\ufe0f", "\u0928\u200d", ".", "\u3042", "\u0301a"])
def test_whatever_shows_something_is_not_blank(text: str) -> None:
    """Also a character that Python does not know yet."""
    assert not is_blank(text)
    assert not is_blank(f"\u200b{text}\u2060")
