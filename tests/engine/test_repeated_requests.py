"""Requests that are sent again under their id: nothing is done twice, and the answer is the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.effect_ids import call_of
from turnwise import (
    ConfigurationError,
    Conversation,
    Engine,
    InvalidInput,
    ModelSpec,
    Policy,
    Profile,
    Refused,
)
from turnwise.engine.conversation import Cancelled
from turnwise.engine.requests import REMEMBERED
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store
from turnwise.states import AwaitingUserResponse
from turnwise.testing import FunctionLlm

from ..support.databases import BOTH_STORES, Database
from ..support.engine_scenarios import Gate
from ..support.scenarios.repeated_requests import (
    ANSWER,
    CASES,
    OTHER,
    RESUMES,
    Case,
    answer,
    book,
    engine_at,
    outcome,
    pay,
)

pytestmark = BOTH_STORES

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


async def begin(engine: Engine, case: Case) -> str:
    """Create a conversation to which the request fits."""
    conversation = await engine.create(policy=case.policy)
    await case.prepare(conversation)
    return conversation.id


async def length(conversation: Conversation) -> int:
    """Return the number of steps in the log."""
    return len(await conversation.events())


@pytest.mark.slow
@cases
async def test_a_repeated_request_changes_nothing_and_returns_the_same(case: Case, database: Database) -> None:
    """Five times with the same handle, and with another one."""
    async with engine_at(database) as engine:
        conversation_id = await begin(engine, case)
    async with engine_at(database) as engine:
        conversation = await case.found(engine, conversation_id)
        first = await outcome(case.ask(conversation))
        steps = await length(conversation)

        again = [await outcome(case.ask(conversation)) for _ in range(5)]
        others = [await outcome(case.ask(await engine.get(conversation_id))) for _ in range(5)]

        assert again + others == [first] * 10
        assert await length(conversation) == steps
        assert (await conversation.replay()).divergence is None


@pytest.mark.slow
@cases
async def test_requests_that_are_sent_at_once_count_once(case: Case, database: Database) -> None:
    """By five handles together: one is handled, and all get its result."""
    async with engine_at(database) as engine:
        conversation_id = await begin(engine, case)
    async with engine_at(database) as engine:
        handles = [await case.found(engine, conversation_id) for _ in range(5)]

        outcomes = await asyncio.gather(*(outcome(case.ask(handle)) for handle in handles))

        taken = [entry for entry in await handles[0].events() if getattr(entry.event, "event_id", "") == "r"]
        assert outcomes == [outcomes[0]] * 5
        assert len(taken) <= 1


@pytest.mark.slow
@cases
async def test_a_request_is_known_after_a_restart(case: Case, database: Database) -> None:
    """Also when so many others came since that memory would have forgotten it."""
    async with engine_at(database) as engine:
        conversation_id = await begin(engine, case)
    async with engine_at(database) as engine:
        conversation = await case.found(engine, conversation_id)
        first = await outcome(case.ask(conversation))
        if conversation.state.type != "closed":
            for number in range(REMEMBERED + 2):
                await conversation.set_title(f"Title {number}")
        steps = await length(conversation)

        assert [await outcome(case.ask(conversation)) for _ in range(2)] == [first] * 2
    async with engine_at(database) as engine:
        conversation = await engine.get(conversation_id)

        again = [await outcome(case.ask(await engine.get(conversation_id))) for _ in range(5)]

        assert again == [first] * 5
        assert await length(conversation) == steps


class TestWhatIsReturned:
    """The turn as it was at its first stop after the request, whatever has happened since."""

    @pytest.mark.parametrize("restarts", [False, True], ids=["in memory", "after a restart"])
    async def test_an_answer_that_led_to_another_question(self, database: Database, restarts: bool) -> None:
        """It returns the turn with that second question, also once the turn has ended."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Ask? Ask?")
            second = await conversation.answer(ANSWER, request_id="one")
            third = await conversation.answer(ANSWER, request_id="two")
            done = await conversation.answer(ANSWER, request_id="three")
            await conversation.send("Hello")
            again = [await conversation.answer(ANSWER, request_id=name) for name in ("one", "two", "three")]
        if restarts:
            async with engine_at(database) as engine:
                conversation = await engine.get(conversation.id)
                again = [await conversation.answer(ANSWER, request_id=name) for name in ("one", "two", "three")]

        assert [turn.status for turn in (second, third, done)] == ["awaiting_user", "awaiting_user", "completed"]
        assert second.call_id != third.call_id
        assert again == [second, third, done]

    async def test_more_questions_than_memory_holds(self, database: Database) -> None:
        """An old stop is found in the log."""
        questions = 70
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask" + "?" * questions)
            turns = [await conversation.answer(ANSWER, request_id=f"r{number}") for number in range(questions)]

            again = [await conversation.answer(ANSWER, request_id=f"r{number}") for number in (0, 1, 40, 69)]

        assert again == [turns[number] for number in (0, 1, 40, 69)]

    async def test_a_repeated_answer_waits_while_the_turn_runs(self, database: Database) -> None:
        """Like the first one; both get the turn when it stops."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Wait.")
            first = asyncio.ensure_future(conversation.answer(ANSWER, request_id="r"))
            await gate.arrived.wait()
            second = asyncio.ensure_future((await engine.get(conversation.id)).answer(ANSWER, request_id="r"))
            await asyncio.sleep(0.01)
            assert not first.done() and not second.done()
            gate.opened.set()

            assert await first == await second
            assert (await first).status == "completed"

    async def test_a_caller_that_went_away_asks_again(self, database: Database) -> None:
        """The request of a cancelled caller counts; the second caller gets what it led to."""
        gate = Gate()
        async with engine_at(database, gate=gate) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Wait.")
            lost = asyncio.ensure_future(conversation.answer(ANSWER, request_id="r"))
            await gate.arrived.wait()
            lost.cancel()
            await asyncio.wait([lost])
            gate.opened.set()

            turn = await conversation.answer(ANSWER, request_id="r")

        assert turn.status == "completed"

    async def test_a_message_that_is_sent_again_returns_its_turn_as_it_is_now(self, database: Database) -> None:
        """So that a program which was interrupted goes on where the conversation stands."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            asked = await conversation.send("Ask?", message_id="m")
            done = await conversation.answer(ANSWER)

            again = await conversation.send("Ask?", message_id="m")

        assert asked.status == "awaiting_user"
        assert again == done


class TestWhatCounts:
    """Which requests are the same."""

    @pytest.fixture
    async def asked(self, database: Database) -> AsyncIterator[tuple[Engine, Conversation]]:
        """Return a conversation that asked twice, and got its answers under the ids one and two."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Ask? Ask?", message_id="m")
            await conversation.answer(ANSWER, call_id=call_of(conversation, "call_1_0"), request_id="one")
            call_of(conversation, "call_3_0")
            await conversation.answer(ANSWER, request_id="two")
            yield engine, conversation

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "ask",
        [
            lambda it: it.answer({"When?": "8:15 PM"}, request_id="one"),
            lambda it: it.answer(ANSWER, call_id=call_of(it, "call_3_0"), request_id="one"),
            lambda it: it.answer(ANSWER, {"When?": {"notes": "please"}}, request_id="one"),
            lambda it: it.decline(request_id="one"),
            lambda it: it.decline(call_of(it, "call_1_0"), request_id="one"),
            lambda it: it.cancel(request_id="one"),
            lambda it: it.cancel(1, request_id="one"),
            lambda it: it.retry(request_id="one"),
            lambda it: it.set_title("one", request_id="one"),
            lambda it: it.set_policy(Policy(), request_id="one"),
            lambda it: it.compact(request_id="one"),
            lambda it: it.close(request_id="one"),
            lambda it: it.close(request_id="m"),
            lambda it: it.send("Hello", message_id="one"),
        ],
    )
    async def test_another_request_under_the_same_id_is_refused(
        self, asked: tuple[Engine, Conversation], ask: Callable[[Conversation], Awaitable[object]]
    ) -> None:
        """Another value, or another kind of request; nothing changes."""
        engine, conversation = asked
        steps = await length(conversation)

        for handle in (conversation, await engine.get(conversation.id)):
            with pytest.raises(Refused) as refused:
                await ask(handle)
            assert refused.value.code == "event_id_reused"

        assert await length(conversation) == steps

    async def test_values_are_compared_as_json(self, database: Database) -> None:
        """1 is 1.0, in whatever order it stands, but not true; to Python all three are equal."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Pay")
            await conversation.set_metadata({"n": 1, "of": [0]}, request_id="details")
            await conversation.approve(
                call_of(conversation, "call_1_0"), True, arguments={"amount": 1}, request_id="approved"
            )
            steps = await length(conversation)

            await conversation.set_metadata({"of": [0.0], "n": 1.0}, request_id="details")
            await conversation.approve(
                call_of(conversation, "call_1_0"), True, arguments={"amount": 1.0}, request_id="approved"
            )
            for asking in (
                conversation.set_metadata({"n": True, "of": [0]}, request_id="details"),
                conversation.set_metadata({"n": 1, "of": [False]}, request_id="details"),
                conversation.approve(
                    call_of(conversation, "call_1_0"), True, arguments={"amount": True}, request_id="approved"
                ),
            ):
                with pytest.raises(Refused, match="under this id"):
                    await asking
            assert await length(conversation) == steps

    async def test_a_cancel_is_no_decline(self, database: Database) -> None:
        """Nor the other way round, although the log has the same event for both."""
        async with engine_at(database) as engine:
            conversation = await engine.create(policy=RESUMES)
            await conversation.send("Ask? Ask?")
            await conversation.decline(request_id="declined")
            await conversation.cancel(request_id="cancelled")

            for asking in (conversation.decline(request_id="cancelled"), conversation.cancel(request_id="declined")):
                with pytest.raises(Refused) as refused:
                    await asking
                assert refused.value.code == "event_id_reused"

    @pytest.mark.parametrize(("name", "call_id"), [("one", "call_1_0"), ("two", "call_3_0"), ("one", None)])
    async def test_what_a_handle_fills_in_does_not_count(
        self, asked: tuple[Engine, Conversation], name: str, call_id: str | None
    ) -> None:
        """A call id may be left out of one of two equal requests, and given in the other."""
        engine, conversation = asked
        steps = await length(conversation)

        turn = await (await engine.get(conversation.id)).answer(
            ANSWER, call_id=call_id and call_of(conversation, call_id), request_id=name
        )

        assert turn.number == 1
        assert await length(conversation) == steps

    @pytest.mark.parametrize("bad", ["", "x" * 201, "\ud800", 7, b"r", ["r"]])
    async def test_a_bad_id_is_named(self, asked: tuple[Engine, Conversation], bad: Any) -> None:
        """It is a text of 1 to 200 characters; nothing happens under any other."""
        _, conversation = asked
        steps = await length(conversation)

        for asking in (
            conversation.answer(ANSWER, request_id=bad),
            conversation.decline(request_id=bad),
            conversation.cancel(request_id=bad),
            conversation.retry(request_id=bad),
            conversation.close(request_id=bad),
            conversation.withdraw("m", request_id=bad),
            conversation.approve(call_of(conversation, "call_1_0"), True, request_id=bad),
        ):
            with pytest.raises(InvalidInput, match=r"^request_id: "):
                await asking

        assert await length(conversation) == steps

    async def test_a_refused_request_may_be_sent_again(self, database: Database) -> None:
        """Nothing was done under its id, so it counts once it fits."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            for asking in (conversation.answer(ANSWER, request_id="a"), conversation.decline(request_id="d")):
                with pytest.raises(Refused):
                    await asking
            await conversation.send("Ask? Ask?")

            turn = await conversation.answer(ANSWER, request_id="a")
            end = await conversation.decline(request_id="d")

        assert (turn.status, end.status) == ("awaiting_user", "cancelled")


class TestAnotherEngine:
    """A choice is repeated after the engine was opened without what was chosen."""

    async def test_it_is_known_and_another_one_is_refused(self, database: Database) -> None:
        """A name that the engine does not know is compared, too."""
        named = Policy(models=(ModelSpec(name="second"), ModelSpec(name="first")))
        chosen = Policy(profiles=(Profile(name="waiter", model="second", tools=("pay",)),))
        first, second = FunctionLlm(answer, name="first"), FunctionLlm(answer, name="second")
        async with Engine.open(database, model=first, models=[second], tools=[pay, book]) as engine:
            conversation = await engine.create()
            await conversation.set_tools([pay], request_id="tools")
            await conversation.set_policy(named, request_id="named")
            await conversation.set_policy(chosen, request_id="chosen")
            steps = await length(conversation)
            with pytest.raises(Refused, match="under this id"):
                await conversation.set_tools(["fly"], request_id="tools")

        async with Engine.open(database, model=first, tools=[book]) as engine:
            conversation = await engine.get(conversation.id)
            await conversation.set_tools(iter(["pay"]), request_id="tools")
            await conversation.set_tools([pay], request_id="tools")
            await conversation.set_policy(named, request_id="named")
            await conversation.set_policy(chosen, request_id="chosen")
            for asking in (
                conversation.set_tools(["fly"], request_id="tools"),
                conversation.set_tools(None, request_id="tools"),
                conversation.set_policy(chosen, request_id="named"),
                conversation.set_policy(named.replace(models=named.models[::-1]), request_id="chosen"),
                conversation.set_policy(chosen.replace(nudges=7), request_id="chosen"),
            ):
                with pytest.raises(Refused, match="under this id"):
                    await asking
            with pytest.raises(ConfigurationError):
                await conversation.set_tools(["fly"], request_id="new")
            assert await length(conversation) == steps

    async def test_windows_do_not_count(self, database: Database) -> None:
        """They are filled in, and another engine may know other ones."""
        rules = Policy(models=(ModelSpec(name="x/y"),), profiles=(Profile(name="waiter", model="x/y"),))
        async with Engine.open(database, model=ModelSpec(name="x/y", window=1000)) as engine:
            conversation = await engine.create(policy=Policy(models=(ModelSpec(name="x/y", window=500),)))
            await conversation.set_policy(rules, request_id="rules")
            steps = await length(conversation)

        async with Engine.open(database, model=ModelSpec(name="x/y", window=9000)) as engine:
            conversation = await engine.get(conversation.id)
            await conversation.set_policy(rules, request_id="rules")
            assert await length(conversation) == steps


class TestTwoTabs:
    """A server makes a handle for each HTTP request, and passes on the ids from its client's form."""

    async def test_a_late_answer_does_not_reach_the_next_question(self, database: Database) -> None:
        """Both tabs show the first question; the second answer names it, and is refused. Nothing changes."""
        async with engine_at(database) as engine:
            conversation_id = (await engine.create()).id
            shown = await (await engine.get(conversation_id)).send("Ask? Ask?")

            first = await (await engine.get(conversation_id)).answer(ANSWER, call_id=shown.call_id, request_id="tab 1")
            steps = await length(await engine.get(conversation_id))
            for late in (
                (await engine.get(conversation_id)).answer(ANSWER, call_id=shown.call_id, request_id="tab 2"),
                (await engine.get(conversation_id)).decline(shown.call_id, request_id="tab 3"),
            ):
                with pytest.raises(Refused) as refused:
                    await late
                assert refused.value.code == "wrong_state"

            last = await engine.get(conversation_id)
            assert first.status == "awaiting_user" and first.call_id != shown.call_id
            assert isinstance(last.state, AwaitingUserResponse) and last.state.call.call_id == first.call_id
            assert await length(last) == steps

    async def test_of_two_tabs_that_answer_at_once_one_is_taken(self, database: Database) -> None:
        """The other learns that it lost, and the second question stays open."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            shown = await conversation.send("Ask? Ask?")
            tabs = [await engine.get(conversation.id) for _ in range(2)]

            outcomes = await asyncio.gather(
                *(tab.answer(ANSWER, call_id=shown.call_id, request_id=f"{n}") for n, tab in enumerate(tabs)),
                return_exceptions=True,
            )

            assert [getattr(one, "code", None) for one in outcomes] == [None, "wrong_state"]
            assert conversation.state.type == "awaiting_user_response"

    async def test_a_late_cancel_does_not_stop_the_next_turn(self, database: Database) -> None:
        """It names the turn that its tab shows."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            await conversation.send("Ask?")

            cancelled = await (await engine.get(conversation.id)).cancel(1)

            assert cancelled.no_op
            assert conversation.state.type == "awaiting_user_response"

    async def test_a_cancel_without_effect_stays_without_effect(self, database: Database) -> None:
        """Sent again under its id, it does not stop a turn that began in the meantime."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            await conversation.send("Hello")
            first = await (await engine.get(conversation.id)).cancel(request_id="r")
            await conversation.send("Ask?")

            again = await (await engine.get(conversation.id)).cancel(request_id="r")

            assert first == again == Cancelled(no_op=True)
            assert conversation.state.type == "awaiting_user_response"
            with pytest.raises(Refused) as refused:
                await conversation.cancel(2, request_id="r")
            assert refused.value.code == "event_id_reused"

    async def test_a_cancel_without_an_id_is_new_each_time(self, database: Database) -> None:
        """Without effect at first, it stops the next turn."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            assert (await conversation.cancel()).no_op
            await conversation.send("Ask?")

            assert not (await conversation.cancel()).no_op

    async def test_an_approval_cannot_be_declined(self, database: Database) -> None:
        """`decline` is for questions: a call that waits for approval goes on waiting."""
        async with engine_at(database) as engine:
            conversation = await engine.create()
            turn = await conversation.send("Pay")

            for asking in (conversation.decline(), conversation.decline(turn.call_id, request_id="r")):
                with pytest.raises(Refused) as refused:
                    await asking
                assert refused.value.code == "wrong_state"
            assert conversation.state.type == "awaiting_approval"


REQUESTS: dict[str, Callable[[Conversation, str], Awaitable[Any]]] = {
    "say": lambda it, id_: it.send("Hello", message_id=id_, when_busy="refuse"),
    "ask": lambda it, id_: it.send("Ask? Ask?", message_id=id_, when_busy="refuse"),
    "pay": lambda it, id_: it.send("Pay", message_id=id_, when_busy="refuse"),
    "fail": lambda it, id_: it.send("Fail", message_id=id_, when_busy="refuse"),
    "answer": lambda it, id_: it.answer(ANSWER, request_id=id_),
    "decline": lambda it, id_: it.decline(request_id=id_),
    "approve": lambda it, id_: it.approve(call_of(it, "call_1_0"), True, request_id=id_),
    "cancel": lambda it, id_: it.cancel(request_id=id_),
    "cancel the first": lambda it, id_: it.cancel(1, request_id=id_),
    "retry": lambda it, id_: it.retry(request_id=id_),
    "set_policy": lambda it, id_: it.set_policy(OTHER, request_id=id_),
    "set_title": lambda it, id_: it.set_title("Dinner", request_id=id_),
    "compact": lambda it, id_: it.compact(request_id=id_),
}
"""Requests of a random day, made under an id."""


class RandomDay:
    """A conversation to which requests come in any order, each repeated at any time, by any handle, in any process."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.told: dict[str, tuple[str, Any]] = {}
        """By the id of each request that was handled, its kind and its result."""

    async def live(self, conversation_id: str, events: Iterable[tuple[str, int]]) -> None:
        """Let one process make these requests, and repeat those of its predecessors."""
        async with engine_at("", store=self.store) as engine:
            handle = await engine.get(conversation_id)
            for what, number in events:
                if what == "again":
                    await self.repeat(engine, handle, number)
                else:
                    await self.ask(handle, what)
        # A cancel without effect is known in its process only.
        self.told = {id_: told for id_, told in self.told.items() if told[1] != Cancelled(no_op=True)}

    async def ask(self, handle: Conversation, what: str) -> None:
        """Make a request under a new id."""
        id_ = f"{what} {len(self.told)}"
        with suppress(Refused):
            self.told[id_] = what, await outcome(REQUESTS[what](handle, id_))

    async def repeat(self, engine: Engine, handle: Conversation, number: int) -> None:
        """Make an earlier request again: it changes nothing, and has the same result."""
        if not self.told:
            return
        id_ = list(self.told)[number % len(self.told)]
        what, first = self.told[id_]
        steps = await length(handle)
        again = await outcome(REQUESTS[what](handle if number % 2 else await engine.get(handle.id), id_))
        assert again == first or what in ("say", "ask", "pay", "fail")  # a message is answered with its turn as it is
        assert await length(handle) == steps


@pytest.mark.slow
@given(
    processes=st.lists(
        st.lists(
            st.tuples(st.sampled_from([*REQUESTS, "ask", "answer", "answer", *["again"] * 12]), st.integers(0, 30)),
            max_size=12,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_repeats_change_nothing_whatever_came_before(processes: list[list[tuple[str, int]]]) -> None:
    """In any order of requests, repeats and restarts; and the log replays."""

    async def day() -> None:
        store = await open_store("sqlite://")
        try:
            async with engine_at("", store=store) as engine:
                conversation_id = (await engine.create()).id
            random_day = RandomDay(store)
            for events in processes:
                await random_day.live(conversation_id, events)
            assert (await replay_conversation(store, conversation_id)).divergence is None
        finally:
            await store.close()

    asyncio.run(day())
