"""Schedules and wake-ups in pure form. No engine, no clock, no store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.states import (
    AgentMessage,
    Closed,
    Context,
    Idle,
    LlmRequesting,
    Opened,
    PersistMessage,
    Policy,
    Refused,
    RequestLlm,
    Schedule,
    ScheduleChanged,
    Step,
    UserMessage,
    Waiting,
    WakeUp,
    begin,
    next_events,
    openai_messages,
    transition,
)
from turnwise.states.events import AnyEvent
from turnwise.states.values.acts import LONGEST_INTERVAL, MAX_CRON
from turnwise.states.values.turn import MAX_INBOX
from turnwise.testing.strategies import NOON

from ...support.busy_states import IN_TURN, Moment
from ...support.cases import holds_for
from ...support.conversation import Conversation

FIRST = NOON + timedelta(hours=1)
SECOND = NOON + timedelta(hours=2)
HOURLY = Schedule(every=3600, task="Look around.")
SENT: dict[str, Any] = {"event_id": "1", "at": NOON}


def schedule(conversation: Conversation, next_wake: datetime | None = FIRST) -> Conversation:
    """The conversation has a schedule."""
    conversation.happens(ScheduleChanged, schedule=HOURLY, next_wake=next_wake)
    return conversation


def wake(conversation: Conversation, due: datetime = FIRST, next_wake: datetime | None = SECOND) -> Step:
    """The moment `due` has come."""
    return conversation.happens(
        WakeUp, event_id=f"wake-{due.isoformat()}", due=due, next_wake=next_wake, text=HOURLY.task
    )


def scheduled(**rules: Any) -> Conversation:
    """A conversation at rest that has a schedule."""
    return schedule(Conversation(role="background", **rules))


@pytest.fixture(params=IN_TURN, ids=lambda moment: moment.__name__)
def busy(request: pytest.FixtureRequest) -> Conversation:
    """A conversation in each state within a turn, with a schedule."""
    moment: Moment = request.param
    return schedule(moment())


class TestAtRest:
    """A wake-up begins a turn."""

    def test_the_task_is_read_like_the_message_of_an_agent(self) -> None:
        """The model is asked, and reads a system message; the origin is the schedule."""
        conversation = scheduled()

        wake(conversation)

        conversation.rests_in(LlmRequesting)
        (message,) = conversation.transcript
        assert conversation.wanted() == [PersistMessage, RequestLlm]
        assert (message.origin, message.audience, message.text) == ("schedule", "agent", "Look around.")
        (read,) = openai_messages(conversation.history.log)
        assert read["content"] == '<system_message origin="schedule">Look around.</system_message>'

    def test_the_next_moment_replaces_the_one_that_is_over(self) -> None:
        """The book says when the conversation wakes up next."""
        conversation = scheduled()

        wake(conversation)

        assert conversation.state.book.wake == SECOND

    def test_a_schedule_may_come_to_its_end(self) -> None:
        """There is no moment after the last one; the turn is begun all the same."""
        conversation = scheduled()

        wake(conversation, next_wake=None)

        assert conversation.rests_in(LlmRequesting).book.wake is None

    def test_a_failed_turn_is_followed_by_a_new_one(self) -> None:
        """What waits since the failure begins a turn first, and the wake-up one of its own."""
        conversation = scheduled(when_busy="queue")
        conversation.says("Hello")
        conversation.says("And another thing")
        conversation.model_fails("authentication")

        wake(conversation)
        conversation.rests_in(LlmRequesting)
        conversation.model_says("Yes.")

        said = [message.text for message in conversation.transcript if message.role == "user"]
        assert said == ["Hello", "And another thing", "Look around."]
        assert conversation.rests_in(LlmRequesting).turn.number == 3

    def test_a_wake_up_that_waits_when_a_turn_fails_begins_the_next_one(self) -> None:
        """As one that comes a moment later does. The next wake-up is awaited, and the task is read once for each."""
        conversation = scheduled()
        conversation.agent_says()
        wake(conversation)
        conversation.model_fails("authentication")
        assert conversation.rests_in(LlmRequesting).turn.number == 2

        conversation.model_says("I looked.")

        assert [message.text for message in conversation.transcript].count("Look around.") == 1
        assert conversation.rests_in(Idle).book.wake == SECOND


class TestWhileBusy:
    """A wake-up waits for the turn under way."""

    def test_it_waits_in_the_inbox(self, busy: Conversation) -> None:
        """In every busy state; the turn goes on as before."""
        before = busy.state

        step = wake(busy)

        waiting = busy.state.inbox[-1]  # type: ignore[union-attr]
        assert (waiting.scheduled, waiting.audience, waiting.silent) == (True, "agent", False)
        assert busy.state.book == before.book.replace(seq=before.book.seq + 1, wake=SECOND)
        assert (type(busy.state), step.effects) == (type(before), ())

    def test_a_second_one_only_moves_the_next_moment(self, busy: Conversation) -> None:
        """However many moments pass during a turn, one wake-up waits."""
        wake(busy)
        inbox = busy.state.inbox  # type: ignore[union-attr]

        wake(busy, SECOND, SECOND + timedelta(hours=1))

        assert busy.state.inbox == inbox  # type: ignore[union-attr]
        assert busy.state.book.wake == SECOND + timedelta(hours=1)

    def test_it_begins_the_next_turn(self) -> None:
        """Alone: it does not merge with the messages around it."""
        conversation = scheduled(when_busy="queue")
        conversation.says("Hello")
        conversation.says("One more thing")
        wake(conversation)
        conversation.says("And another")

        turns = []
        while not isinstance(conversation.state, Idle):
            conversation.model_says("Yes.")
            turns.append(conversation.ended.turn)

        texts = [(message.turn, message.text) for message in conversation.transcript if message.role == "user"]
        assert texts == [(1, "Hello"), (2, "One more thing"), (3, "Look around."), (4, "And another")]
        assert turns == [1, 2, 3, 4]

    def test_another_may_wait_once_the_first_has_begun_its_turn(self) -> None:
        """The inbox holds none then."""
        conversation = scheduled()
        wake(conversation)

        wake(conversation, SECOND, None)

        assert [waiting.scheduled for waiting in conversation.rests_in(LlmRequesting).inbox] == [True]

    @pytest.mark.parametrize("holds_one", [False, True])
    def test_a_full_inbox_takes_none_unless_it_holds_one(self, holds_one: bool) -> None:
        """It is refused, so the moment stays due and can be requested again. A second one needs no room."""
        conversation = scheduled()
        conversation.agent_says()
        others = tuple(Waiting(event_id=f"{n}", seq=n) for n in range(MAX_INBOX - 1))
        inbox = (*others, Waiting(event_id="last", seq=MAX_INBOX, audience="agent", scheduled=holds_one))
        state = conversation.rests_in(LlmRequesting).replace(inbox=inbox)
        event = WakeUp(**SENT, due=FIRST, next_wake=SECOND, text=HOURLY.task)

        if not holds_one:
            with pytest.raises(Refused) as refused:
                transition(state, event, conversation.history.context)
            assert refused.value.code == "busy"
            return
        after = transition(state, event, conversation.history.context).state

        assert isinstance(after, LlmRequesting)
        assert (after.inbox, after.book.wake) == (inbox, SECOND)

    def test_it_can_be_withdrawn(self) -> None:
        """Like any message that waits."""
        conversation = scheduled()
        conversation.agent_says()
        wake(conversation)

        step = conversation.withdraws(f"wake-{FIRST.isoformat()}")

        assert step.withdrawn == (f"wake-{FIRST.isoformat()}",)
        assert conversation.rests_in(LlmRequesting).inbox == ()


class TestStaleWakeUps:
    """One that the conversation does not wait for changes nothing."""

    @pytest.mark.parametrize("due", [FIRST - timedelta(microseconds=1), SECOND])
    def test_another_moment_is_ignored(self, due: datetime) -> None:
        """At rest."""
        conversation = scheduled()
        before = conversation.state

        step = wake(conversation, due, None)

        assert step.ignored
        assert conversation.state == before

    def test_it_is_ignored_in_every_busy_state(self, busy: Conversation) -> None:
        """Also if it is of an earlier schedule."""
        before = busy.state

        assert wake(busy, SECOND, None).ignored
        assert busy.state == before

    def test_the_same_moment_wakes_once(self) -> None:
        """Two engines may find it at the same time."""
        conversation = scheduled()
        wake(conversation)
        before = conversation.state

        assert wake(conversation).ignored
        assert conversation.state == before

    def test_nothing_wakes_a_conversation_without_a_schedule(self) -> None:
        """There is no moment that it waits for."""
        conversation = Conversation()

        assert wake(conversation).ignored
        conversation.rests_in(Idle)

    def test_a_closed_conversation_is_not_woken(self) -> None:
        """The close ends the schedule, and withdraws what waits."""
        conversation = scheduled()
        conversation.agent_says()
        wake(conversation)
        conversation.closes()

        closed = conversation.rests_in(Closed)
        assert conversation.step.withdrawn == (f"wake-{FIRST.isoformat()}",)
        assert closed.book.wake is None
        assert wake(conversation, SECOND, None).ignored
        assert next_events(closed) == ()


class TestTheSchedule:
    """It is set when the conversation begins, and by a request of its own."""

    def test_a_conversation_may_begin_with_one(self) -> None:
        """The first event says when it wakes up first."""
        opened = Opened(**SENT, schedule=HOURLY, next_wake=FIRST)

        assert begin(opened).state.book.wake == FIRST
        assert Context().after(opened).schedule == HOURLY

    def test_it_is_replaced_and_removed(self, busy: Conversation) -> None:
        """In every busy state; nothing else changes."""
        other = Schedule(cron="0 9 * * *", zone="Europe/Berlin", task="Read the news.")

        busy.happens(ScheduleChanged, schedule=other, next_wake=SECOND)
        assert (busy.history.context.schedule, busy.state.book.wake) == (other, SECOND)

        step = busy.happens(ScheduleChanged)
        assert (busy.history.context.schedule, busy.state.book.wake) == (None, None)
        assert (step.effects, step.ended) == ((), None)

    def test_a_wake_up_that_waits_outlives_a_change(self) -> None:
        """It was due before."""
        conversation = scheduled()
        conversation.agent_says()
        wake(conversation)

        conversation.happens(ScheduleChanged)
        conversation.model_says("Yes.")

        assert conversation.rests_in(LlmRequesting).turn.number == 2
        assert conversation.transcript[-1].text == "Look around."

    def test_a_sub_agent_has_none(self) -> None:
        """It has one task, and ends with it."""
        conversation = Conversation(role="sub_agent")

        with pytest.raises(Refused) as refused:
            schedule(conversation)
        conversation.happens(ScheduleChanged)

        assert refused.value.code == "no_schedule"
        with pytest.raises(ValidationError, match="a sub-agent has no schedule"):
            Opened(**SENT, role="sub_agent", parent="parent", schedule=HOURLY, next_wake=FIRST)

    def test_a_closed_conversation_refuses_one(self) -> None:
        """Nothing leads out of the end."""
        conversation = Conversation()
        conversation.closes()

        with pytest.raises(Refused) as refused:
            schedule(conversation)

        assert refused.value.code == "closed"


class TestValues:
    """Schedules and their events validate themselves."""

    @holds_for(
        "fields",
        [
            {},
            {"every": 60, "cron": "* * * * *"},
            {"every": 0.5},
            {"every": 0},
            {"every": -60},
            {"every": float("nan")},
            {"every": float("inf")},
            {"every": LONGEST_INTERVAL + 1},
            {"cron": ""},
            {"cron": "*" * (MAX_CRON + 1)},
            {"cron": "* * * * *", "zone": ""},
            {"every": 60, "task": " \n"},
            {"every": 60, "task": "\ud800"},
        ],
    )
    def test_what_is_no_schedule_is_refused(self, fields: dict[str, Any]) -> None:
        """Neither rhythm or both, too short, too long, nothing to do."""
        with pytest.raises(ValidationError):
            Schedule(**{"task": "Look.", **fields})

    def test_a_wake_up_leads_forward(self) -> None:
        """Otherwise it would come again and again."""
        with pytest.raises(ValidationError, match="must come after"):
            WakeUp(**SENT, due=FIRST, next_wake=FIRST, text="Look.")

    @pytest.mark.parametrize("kind", [Opened, ScheduleChanged])
    def test_there_is_no_wake_up_without_a_schedule(self, kind: Any) -> None:
        """Nobody would know what to do."""
        with pytest.raises(ValidationError, match="no next wake-up"):
            kind(**SENT, next_wake=FIRST)

    @pytest.mark.parametrize(
        "event",
        [
            Opened(**SENT, schedule=HOURLY, next_wake=FIRST),
            ScheduleChanged(**SENT),
            ScheduleChanged(**SENT, schedule=Schedule(cron="0 9 * * *", zone="Asia/Tokyo", task="日本")),
            WakeUp(**SENT, due=FIRST, text="Look."),
        ],
    )
    def test_they_are_read_back_as_they_were_written(self, event: Any) -> None:
        """As JSON, like every event."""
        assert TypeAdapter(AnyEvent).validate_json(event.to_json()) == event

    def test_logs_from_before_are_written_as_they_were(self) -> None:
        """The new fields are left out where they say nothing."""
        written = Opened(**SENT).model_dump_json(exclude_defaults=True)
        state = begin(Opened(**SENT)).state.to_json()

        assert not any(f'"{name}"' in written for name in ("schedule", "next_wake"))
        assert not any(f'"{name}"' in state for name in ("wake", "profile"))


def test_people_and_agents_are_told_from_the_schedule() -> None:
    """Nobody can send a message that is taken for a wake-up: its place in the inbox is not scheduled."""
    conversation = scheduled(when_busy="queue")
    conversation.says("Hello")

    conversation.happens(UserMessage, event_id=f"wake-{FIRST.isoformat()}", text="Wake up!")
    conversation.happens(AgentMessage, origin="schedule", text="Wake up!")
    wake(conversation)

    assert [waiting.scheduled for waiting in conversation.rests_in(LlmRequesting).inbox] == [False, False, True]


def test_transition_is_pure() -> None:
    """The same wake-up gives the same step twice."""
    opened = Opened(**SENT, policy=Policy(), schedule=HOURLY, next_wake=FIRST)
    state, context = begin(opened).state, Context().after(opened)
    event = WakeUp(event_id="2", at=FIRST, due=FIRST, next_wake=SECOND, text="Look.")

    assert transition(state, event, context) == transition(state, event, context)
