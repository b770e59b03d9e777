"""The schedule of a conversation and its hand-over to a profile, as an application asks for them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, InvalidInput, Policy, Profile, Refused, Schedule, Transfer, tool
from turnwise.testing import FunctionLlm, ManualClock, ScriptedLlm, call, reply

NOON = ManualClock().now()
HOUR = timedelta(hours=1)
PROFILES = (Profile(name="booking", prompt="You book."), Profile(name="cooking", prompt="You cook."))

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"every": 0.5}, "every: Input should be greater than or equal to 1."),
    ({"every": timedelta(milliseconds=1)}, "every: Input should be greater than or equal to 1."),
    ({"every": -1}, "every: Input should be greater than or equal to 1."),
    ({"every": float("nan")}, "every: Input should be a finite number."),
    ({"every": "soon"}, "every: Input should be a valid number, unable to parse string as a number."),
    ({"every": 1e12}, "every: Input should be less than or equal to 315360000."),
    ({"every": 60, "cron": "* * * * *"}, "A schedule has either an interval (`every`) or a cron expression (`cron`)"),
    ({"every": 60, "zone": "Europe/Berlin"}, "A time zone belongs to a cron expression"),
    ({"task": "Look around."}, "A task and a time zone belong to a schedule"),
    ({"zone": "Europe/Berlin"}, "A task and a time zone belong to a schedule"),
    ({"every": 60, "task": " "}, "task: Input should not be empty."),
    ({"every": 60, "task": 5}, "task: Input should be a valid string."),
    ({"cron": ""}, "cron: String should have at least 1 character."),
    ({"cron": 5}, "cron: Input should be a valid string."),
    ({"cron": "* " * 101}, "cron: String should have at most 200 characters."),
    ({"cron": "every day"}, "The cron expression 'every day' is not valid"),
    ({"cron": "0 0 */31 2 MON#5"}, "The cron expression '0 0 */31 2 MON#5' never comes."),
    ({"cron": "* * * * *", "zone": "Mars/Olympus"}, "There is no time zone 'Mars/Olympus' on this machine."),
]


class TestSchedules:
    """`Engine.create(every=…, cron=…)`, `Conversation.set_schedule`, `schedule` and `next_wake`."""

    @pytest.mark.parametrize("every", [3600, 3600.0, HOUR])
    async def test_an_interval_is_given_in_seconds_or_as_a_duration(self, every: Any) -> None:
        """The first moment is an interval away."""
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            conversation = await engine.create(every=every, task="Look around.")

            assert conversation.schedule == Schedule(every=3600, task="Look around.")
            assert conversation.next_wake == NOON + HOUR

    async def test_without_a_task_it_reads_that_of_its_rules(self) -> None:
        """An application words it by its policy."""
        texts = Policy().texts.replace(wake_up="An hour has passed.")
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            plain = await engine.create(every=HOUR)
            worded = await engine.create(policy=Policy(texts=texts))
            await worded.set_schedule(every=HOUR)

            assert plain.schedule is not None and plain.schedule.task == Policy().texts.wake_up
            assert worded.schedule is not None and worded.schedule.task == "An hour has passed."

    async def test_a_conversation_has_none_unless_it_is_given_one(self) -> None:
        """And none after it was taken away, or after the close."""
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            conversation = await engine.create()
            assert (conversation.schedule, conversation.next_wake) == (None, None)

            await conversation.set_schedule(cron="0 9 * * *", task="Read the news.")
            assert conversation.next_wake == NOON + 21 * HOUR
            await conversation.set_schedule(every=HOUR, task="Look around.")
            assert conversation.next_wake == NOON + HOUR
            await conversation.set_schedule()
            assert (conversation.schedule, conversation.next_wake) == (None, None)

            await conversation.set_schedule(every=HOUR)
            await conversation.close()
            assert conversation.next_wake is None
            with pytest.raises(Refused) as refused:
                await conversation.set_schedule(every=HOUR)
            assert refused.value.code == "closed"

    async def test_what_is_no_schedule_is_refused_in_a_sentence(self) -> None:
        """Nothing is created, and nothing is changed."""
        async with Engine.open("sqlite://", clock=ManualClock()) as engine:
            conversation = await engine.create(every=HOUR, task="Look around.")
            before = await conversation.events()

            for fields, sentence in WRONG:
                for attempt in (engine.create, conversation.set_schedule):
                    with pytest.raises(InvalidInput) as refused:
                        await attempt(**fields)
                    assert refused.value.sentence.startswith(sentence), fields

            assert len(await engine.list()) == 1
            assert await conversation.events() == before

    async def test_a_request_that_is_sent_twice_is_one(self) -> None:
        """Also if time has passed in between; another one under its id is refused."""
        clock = ManualClock()
        async with Engine.open("sqlite://", clock=clock) as engine:
            conversation = await engine.create()
            await conversation.set_schedule(every=HOUR, request_id="r")
            await clock.advance(60)

            await conversation.set_schedule(every=HOUR, request_id="r")
            with pytest.raises(Refused) as refused:
                await conversation.set_schedule(every=2 * HOUR, request_id="r")

            assert conversation.next_wake == NOON + HOUR
            assert refused.value.code == "event_id_reused"

    async def test_it_is_there_after_a_restart(self, database: Path) -> None:
        """However many steps were taken since."""
        model = FunctionLlm(lambda request: "Yes.")
        async with Engine.open(database, model=model, clock=ManualClock()) as engine:
            conversation = await engine.create(every=2 * HOUR)
            await conversation.set_schedule(every=HOUR, task="Look around.")
            for _ in range(5):
                await conversation.send("Hello")
            conversation_id = conversation.id

        async with Engine.open(database, clock=ManualClock()) as engine:
            again = await engine.get(conversation_id)

            assert (again.schedule, again.next_wake) == (Schedule(every=3600, task="Look around."), NOON + HOUR)
            (summary,) = await engine.list()
            assert summary.wakes_at == NOON + HOUR


@tool(exclusive=True, acts=("transfer",))
async def hand_over(profile: str) -> Transfer:
    """Hand over to another profile."""
    return Transfer(profile=profile)


class TestHandingOver:
    """`Conversation.transfer_to`, and a tool that returns a `Transfer`."""

    async def test_by_the_host(self) -> None:
        """The next turn has the profile, and what was said before."""
        model = ScriptedLlm([reply("Sakura has a table."), reply("Soup?")])
        async with Engine.open("sqlite://", model=model, profiles=PROFILES) as engine:
            conversation = await engine.create()
            await conversation.send("A table for two?")

            await conversation.transfer_to("cooking")
            await conversation.send("And what do they cook?")

            system, *messages = model.requests[-1].messages
            assert "You cook." in system["content"] and "You book." not in system["content"]
            assert [message["content"] for message in messages][:2] == ["A table for two?", "Sakura has a table."]
            assert conversation.profile == "cooking"
            assert [turn.profile for turn in await conversation.turns()] == ["booking", "cooking"]

    async def test_by_a_tool(self) -> None:
        """The model that answers after the tool has the other profile; a name that there is not is an error result."""
        model = ScriptedLlm(
            [call("hand_over", profile="dancing"), call("hand_over", profile="cooking"), reply("Soup?"), reply("Yes.")]
        )
        async with Engine.open("sqlite://", model=model, profiles=PROFILES, tools=[hand_over]) as engine:
            conversation = await engine.create()
            await conversation.send("I am hungry.")
            await conversation.send("Is it hot?")

            prompts = [request.messages[0]["content"] for request in model.requests]
            assert ["You cook." in prompt for prompt in prompts] == [False, False, True, True]
            results = [message for message in await conversation.transcript() if message.role == "tool"]
            assert [message.error for message in results] == [True, False]
            assert results[0].text == Policy().texts.unknown_profile
            assert (await conversation.replay()).divergence is None

    async def test_an_unknown_profile_is_refused(self) -> None:
        """The sentence names it, and nothing changes."""
        async with Engine.open("sqlite://", profiles=PROFILES) as engine:
            conversation = await engine.create()

            with pytest.raises(Refused) as refused:
                await conversation.transfer_to("dancing")
            with pytest.raises(InvalidInput):
                await conversation.transfer_to("")

            assert refused.value.code == "unknown_profile"
            assert refused.value.sentence == "The conversation has no profile of this name: dancing"
            assert conversation.state.book.profile == ""

    async def test_an_engine_that_has_the_profile_no_longer_ends_it(self, database: Path) -> None:
        """The conversation follows the profiles of its engine, and goes on under the first of them."""
        model = FunctionLlm(lambda request: "Yes.")
        async with Engine.open(database, model=model, profiles=PROFILES) as engine:
            conversation = await engine.create()
            await conversation.transfer_to("cooking")
            conversation_id = conversation.id

        async with Engine.open(database, model=model, profiles=(PROFILES[0], Profile(name="dancing"))) as engine:
            again = await engine.get(conversation_id)
            await again.send("Hello")

            assert again.profile == "booking"
            assert again.state.book.profile == ""

    async def test_a_tool_that_does_not_run_alone_cannot_be_declared(self) -> None:
        """The order of two hand-overs must not depend on which tool is faster."""
        with pytest.raises(ConfigurationError, match="exclusive=True"):

            @tool(acts=("transfer",))
            async def careless() -> Transfer:
                """Hand over."""
                return Transfer(profile="cooking")


def test_without_an_event_loop() -> None:
    """The blocking engine has the same."""
    model = FunctionLlm(lambda request: "Yes.")
    with Engine.open_blocking("sqlite://", model=model, profiles=PROFILES, clock=ManualClock()) as engine:
        conversation = engine.create(every=HOUR, task="Look around.")
        assert (conversation.schedule, conversation.next_wake) == (
            Schedule(every=3600, task="Look around."),
            NOON + HOUR,
        )

        conversation.set_schedule()
        conversation.transfer_to("cooking")
        conversation.send("Hello")

        assert (conversation.schedule, conversation.next_wake, conversation.profile) == (None, None, "cooking")
