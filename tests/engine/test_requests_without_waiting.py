"""Requests with `wait=False`: they return once they are stored, with the turn as it is at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.effect_ids import call_of
from turnwise import CancelledTurn, Conversation, Engine, Policy, Refused, RunningTurn, Turn, WaitsForAnswer
from turnwise.persistence.errors import Damaged
from turnwise.testing import FunctionLlm, call, reply

from ..support.engine_scenarios import QUESTION, Gate, Watcher, full_disk, until
from ..support.scenarios.repeated_requests import ANSWER, RESUMES, RUNNING, engine_at
from ..support.store_internals import query

Asking = Callable[[Conversation], Awaitable[Turn]]

GOES_ON: dict[str, tuple[str, Policy | None, Asking]] = {
    "answer": ("Ask? Wait", None, lambda it: it.answer(ANSWER, request_id="r", wait=False)),
    "decline": ("Ask? Wait", RESUMES, lambda it: it.decline(request_id="r", wait=False)),
    "approve": ("Pay, Wait", None, lambda it: it.approve(call_of(it, "call_1_0"), True, request_id="r", wait=False)),
    "deny": ("Pay, Wait", None, lambda it: it.approve(call_of(it, "call_1_0"), False, request_id="r", wait=False)),
}
"""Requests after which the turn goes on until its model is let through: the message before, the rules, the request."""

goes_on = pytest.mark.parametrize("name", GOES_ON)


async def length(conversation: Conversation) -> int:
    """Return the number of steps in the log."""
    return len(await conversation.events())


class TestTurnsThatGoOn:
    """The turn runs when the request returns."""

    @goes_on
    async def test_the_turn_is_running_and_the_request_is_stored(self, name: str, database: Path) -> None:
        """The caller gets the number of the turn at once; `wait` gives the end of it."""
        text, policy, ask = GOES_ON[name]
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(text)

            turn = await ask(conversation)

            assert turn == RunningTurn(number=1)
            assert [one for one in await conversation.events() if getattr(one.event, "event_id", "") == "r"]
            gate.opened.set()
            assert (await conversation.wait()).status == "completed"

    @goes_on
    async def test_a_repeated_request_returns_the_turn_as_it_is_by_then(self, name: str, database: Path) -> None:
        """Running while it runs, completed afterwards; nothing is done twice."""
        text, policy, ask = GOES_ON[name]
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create(policy=policy)
            await conversation.send(text)

            running = [await ask(conversation) for _ in range(3)]
            gate.opened.set()
            ended = await conversation.wait()
            steps = await length(conversation)

            assert running == [RunningTurn(number=1)] * 3
            assert [await ask(conversation), await ask(await engine.get(conversation.id))] == [ended] * 2
            assert await length(conversation) == steps

    async def test_a_call_in_doubt_is_resolved(self, database: Path) -> None:
        """After a crash, the turn goes on when somebody has said what became of the call."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Book, Wait", wait=False)
            await until(lambda: "Book, Wait" in RUNNING)
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.get(conversation.id)

            turn = await conversation.resolve(call_of(conversation, "call_1_0"), "ran", wait=False)

            assert turn == RunningTurn(number=1)
            gate.opened.set()
            assert (await conversation.wait()).status == "completed"

    async def test_a_retry_returns_the_new_turn(self, database: Path) -> None:
        """The failed turn keeps its number."""
        gate = Gate()

        async def fails_first(_: Any) -> Any:
            if not gate.arrived.is_set():
                gate.arrived.set()
                raise RuntimeError("broken")
            await gate()
            return reply("Done.")

        async with Engine.open(database, model=FunctionLlm(fails_first), policy=Policy()) as engine:
            conversation = await engine.create()
            assert (await conversation.send("Go")).status == "failed"

            turn = await conversation.retry(wait=False)

            assert turn == RunningTurn(number=2)
            gate.opened.set()
            assert (await conversation.wait()).reply == "Done."

    async def test_a_turn_that_goes_on_needs_no_log(self, database: Path) -> None:
        """The log cannot be read, but what was stored is known: the request returns, and only who waits fails."""
        gate = Gate()
        async with engine_at(database) as engine:
            conversation_id = (await engine.create()).id
            await (await engine.get(conversation_id)).send("Ask? Wait")
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.get(conversation_id)
            await query(engine.store, "UPDATE events SET payload = '{}' WHERE seq = 2")  # type: ignore[arg-type]

            assert await conversation.answer(ANSWER, wait=False) == RunningTurn(number=1)
            with pytest.raises(Damaged):
                await conversation.wait()


class TestTurnsThatStopAtOnce:
    """The request itself ends the turn, or the turn waits for a person again."""

    async def test_a_declined_question_ends_the_turn(self, database: Path) -> None:
        """The turn has ended when the request returns, and when it is sent again."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask?")

            first = await conversation.decline(request_id="r", wait=False)

            assert isinstance(first, CancelledTurn)
            assert await conversation.decline(request_id="r", wait=False) == first

    async def test_a_repeated_answer_returns_the_next_question(self, database: Path) -> None:
        """The model asks again: a repeated answer to the first question returns the turn with the second one."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Ask?")

            call_id = call_of(conversation, "call_1_0")
            await conversation.answer(ANSWER, request_id="r", wait=False)
            second = await conversation.wait()
            again = await conversation.answer(ANSWER, call_id=call_id, request_id="r", wait=False)

            assert isinstance(second, WaitsForAnswer)
            assert again == second

    async def test_a_late_answer_is_refused(self, database: Path) -> None:
        """Two people answer the first question: the slower one is refused, also if the next question is open by
        then."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Ask?")
            other = await engine.get(conversation.id)

            await conversation.answer(ANSWER, wait=False)
            await conversation.wait()
            with pytest.raises(Refused) as refused:
                await other.answer(ANSWER, wait=False)

            assert refused.value.code == "wrong_state"
            assert conversation.state.type == "awaiting_user_response"


class TestStopping:
    """Cancel, close and compact."""

    async def test_a_cancel_returns_while_the_turn_stops(self, database: Path) -> None:
        """The tool has not stopped yet; whoever waits sees it stop."""
        gate = Gate()
        stopping = asyncio.Event()

        async def slow() -> str:
            """Stop slowly."""
            try:
                await gate()
            except asyncio.CancelledError:
                stopping.set()
                await gate.opened.wait()
            return "late"

        async with Engine.open(database, model=FunctionLlm(lambda _: call("slow")), tools=[slow]) as engine:
            conversation = await engine.create()
            await conversation.send("Go", wait=False)
            await gate.arrived.wait()

            cancelled = await conversation.cancel(request_id="r", wait=False)

            assert not cancelled.no_op
            assert conversation.state.type == "cancelling"
            assert not (await conversation.cancel(request_id="r", wait=False)).no_op
            await stopping.wait()
            gate.opened.set()
            assert (await conversation.wait()).status == "cancelled"

    async def test_a_cancel_of_nothing_says_so(self, database: Path) -> None:
        """At rest there is nothing to stop."""
        async with engine_at(database) as engine:
            conversation = await engine.create()

            assert (await conversation.cancel(wait=False)).no_op

    async def test_a_close_returns_while_the_turn_stops(self, database: Path) -> None:
        """The conversation closes once its turn has stopped."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Wait", wait=False)
            watcher = Watcher(conversation)
            await gate.arrived.wait()

            await conversation.close(wait=False)
            await watcher.collecting

            assert conversation.state.type == "closed"

    async def test_a_compaction_runs_after_the_request_returned(self, database: Path) -> None:
        """The summary is written meanwhile; sent again, the request changes nothing."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            steps = await length(conversation)

            await conversation.compact(request_id="r", wait=False)
            await conversation.compact(request_id="r", wait=False)
            await conversation.compact(request_id="r")

            assert await length(conversation) == steps + 2
            assert conversation.state.type == "idle"


class TestStorage:
    """Nothing is promised that is not stored."""

    @pytest.mark.parametrize(
        "ask",
        [
            lambda it: it.answer(ANSWER, request_id="r", wait=False),
            lambda it: it.decline(request_id="r", wait=False),
            lambda it: it.cancel(request_id="r", wait=False),
            lambda it: it.close(request_id="r", wait=False),
        ],
    )
    async def test_a_full_disk_refuses_the_request(self, ask: Any, database: Path) -> None:
        """It is refused as "storage", the question stays open, and the same request is taken later."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask?")
            before = conversation.state

            async with full_disk(engine):
                with pytest.raises(Refused) as refused:
                    await ask(conversation)

            assert refused.value.code == "storage"
            assert conversation.state == before
            await ask(conversation)
            assert conversation.state != before

    async def test_a_caller_that_is_cancelled_does_not_take_its_request_back(self, database: Path) -> None:
        """The client is gone before the answer is stored; the answer counts all the same, once."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask?")
            asking = asyncio.ensure_future(conversation.answer(ANSWER, request_id="r", wait=False))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])

            turn = await conversation.answer(ANSWER, call_id=call_of(conversation, "call_1_0"), request_id="r")

            assert turn.status == "completed"
            assert sum(getattr(one.event, "event_id", "") == "r" for one in await conversation.events()) == 1


def test_without_an_event_loop(database: Path) -> None:
    """The blocking engine has the same parameter."""

    def answers(request: Any) -> Any:
        asked = any(message["role"] == "tool" for message in request.messages)
        return reply("Booked.") if asked else call("ask_user_question", questions=[QUESTION])

    with Engine.open_blocking(database, model=FunctionLlm(answers), tools=["ask_user_question"]) as engine:
        conversation = engine.create()
        conversation.send("A table")

        turn = conversation.answer(ANSWER, wait=False)

        assert turn.number == 1
        assert conversation.wait().reply == "Booked."
