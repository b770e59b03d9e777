"""What changes between turns: tools, title and metadata, the profile that holds the conversation, and wake-ups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.states import (
    AgentMessage,
    Closed,
    Compacting,
    Context,
    DetailsChanged,
    Idle,
    LlmRequesting,
    ModelSpec,
    Opened,
    PersistMessage,
    PolicyChanged,
    Profile,
    ProfileSelected,
    ProfileSelecting,
    ProfileTransferred,
    Refused,
    RequestLlm,
    RetryWaiting,
    Schedule,
    ScheduleChanged,
    SelectProfile,
    Step,
    Texts,
    ToolCall,
    ToolsChanged,
    Transfer,
    Usage,
    UserMessage,
    Waiting,
    WakeUp,
    begin,
    next_events,
    openai_messages,
    transition,
)
from turnwise.states.events import AnyEvent
from turnwise.states.policy import Policy
from turnwise.states.values.acts import LONGEST_INTERVAL, MAX_CRON
from turnwise.states.values.turn import MAX_INBOX
from turnwise.states.values.value import CURRENT_REVISION
from turnwise.testing.strategies import NOON

from ...support.busy_states import IN_TURN, Moment
from ...support.cases import holds_for
from ...support.conversation import Conversation, call

# --- A conversation's tools, title and metadata are changed by events that change nothing else.


SENT = {"event_id": "1", "at": NOON}


def closed() -> Conversation:
    """A conversation that has ended."""
    conversation = Conversation()
    conversation.closes()
    return conversation


def failed() -> Conversation:
    """A conversation whose turn has failed."""
    conversation = Conversation()
    conversation.says()
    conversation.model_fails("authentication")
    return conversation


IN_EVERY_STATE = holds_for("play", [*IN_TURN, failed, Conversation])


class TestInEveryState:
    """Settings change in every state but `Closed`."""

    @IN_EVERY_STATE
    def test_the_tools_of_the_next_turn_change(self, play: Callable[[], Conversation]) -> None:
        """The newest turn keeps the tools that it has, and nothing else happens."""
        conversation = play()
        newest = conversation.state.book.turn

        step = conversation.happens(ToolsChanged, tools=("look",), from_turn=newest + 1)

        context = conversation.history.context
        assert (context.tools_in(newest), context.tools_in(newest + 1)) == (None, ("look",))
        assert (step.effects, step.ended) == ((), None)

    @IN_EVERY_STATE
    @holds_for("from_turn", [0, 2])
    def test_a_change_for_another_turn_is_refused(self, play: Callable[[], Conversation], from_turn: int) -> None:
        """The sender did not know how far the conversation has come, or means a turn that is far away."""
        conversation = play()
        newest = conversation.state.book.turn

        with pytest.raises(Refused) as refused:
            conversation.happens(ToolsChanged, tools=(), from_turn=max(newest + from_turn, 1) + (not newest))

        assert refused.value.code == "wrong_state"

    @IN_EVERY_STATE
    def test_a_change_that_narrows_brings_no_tool(self, play: Callable[[], Conversation]) -> None:
        """Whatever the conversation has when the change arrives: it may lose tools, also of a server, and win none."""
        conversation = play()
        following = conversation.state.book.turn + 1
        narrowing: dict[str, Any] = {"from_turn": following, "narrows": True}

        conversation.happens(ToolsChanged, tools=("look", "files:*"), **narrowing)
        for tools in (None, ("look", "pay"), ("*",), ("other:*",), ("files",)):
            with pytest.raises(Refused) as refused:
                conversation.happens(ToolsChanged, tools=tools, **narrowing)
            assert refused.value.code == "wrong_state"
        conversation.happens(ToolsChanged, tools=("files:read",), **narrowing)

        assert conversation.history.context.tools_in(following) == ("files:read",)

    @IN_EVERY_STATE
    def test_title_metadata_and_prompt_change_on_their_own(self, play: Callable[[], Conversation]) -> None:
        """What is not given stays as it was."""
        conversation = play()

        conversation.happens(DetailsChanged, title="Dinner")
        conversation.happens(DetailsChanged, system="Be brief.")
        step = conversation.happens(DetailsChanged, metadata={"user": 7})

        context = conversation.history.context
        assert (context.title, context.metadata, context.system) == ("Dinner", {"user": 7}, "Be brief.")
        assert (step.effects, step.ended) == ((), None)


@pytest.mark.parametrize(("kind", "fields"), [(ToolsChanged, {"tools": None, "from_turn": 1}), (DetailsChanged, {})])
def test_nothing_changes_once_the_conversation_is_closed(kind: Any, fields: dict[str, Any]) -> None:
    """The request is refused."""
    with pytest.raises(Refused) as refused:
        closed().happens(kind, **fields)

    assert refused.value.code == "closed"


class TestToolsOfATurn:
    """`Context.tools_in`."""

    def test_the_newest_change_of_a_turn_counts(self) -> None:
        """Several changes within one turn replace each other; the turn under way keeps what an earlier turn chose."""
        context = Context(tools=("first",))
        for tools, from_turn in [(("second",), 3), (("third",), 5), (("fourth",), 5), (None, 5)]:
            context = context.after(ToolsChanged(**SENT, tools=tools, from_turn=from_turn))

        assert [context.tools_in(turn) for turn in (4, 5, 6)] == [("second",), None, None]

    def test_two_changes_are_enough_to_know_the_tools(self) -> None:
        """The newest change, and the newest one before it that belongs to an earlier turn, give the same context as all
        of them."""
        changes = [ToolsChanged(**SENT, tools=(str(n),), from_turn=turn) for n, turn in enumerate((1, 2, 2, 4, 7, 7))]
        everything = few = Context()
        for change in changes:
            everything = everything.after(change)
        for change in (changes[3], changes[5]):
            few = few.after(change)

        assert everything == few


class TestTheFirstEvent:
    """`Opened` says what the application chose, and under which revision of the machine the log began."""

    def test_what_it_says_holds_for_the_conversation(self) -> None:
        """Everything but the messages is part of the context."""
        chosen: dict[str, Any] = {"owner": "Ada", "title": "Dinner", "metadata": {"a": [1]}, "chose_models": True}
        opened = Opened(**SENT, tools=("look",), **chosen)

        context = Context().after(opened)

        assert context == Context(tools=("look",), **chosen)
        assert (context.tools_in(1), context.revision) == (("look",), CURRENT_REVISION)

    def test_a_change_of_the_policy_says_who_chose_its_models(self) -> None:
        """The application, or the engine."""
        context = Context(chose_models=True)

        assert not context.after(PolicyChanged(**SENT, policy=Policy())).chose_models
        assert context.after(PolicyChanged(**SENT, policy=Policy(), chose_models=True)).chose_models

    def test_the_profiles_are_chosen_apart_from_the_models(self) -> None:
        """The first event and each change say who chose the profiles."""
        chosen = Context().after(Opened(**SENT, chose_profiles=True))

        assert (chosen.chose_profiles, chosen.chose_models) == (True, False)
        assert not chosen.after(PolicyChanged(**SENT, policy=Policy())).chose_profiles
        assert Context().after(PolicyChanged(**SENT, policy=Policy(), chose_profiles=True)).chose_profiles

    def test_a_new_one_is_written_with_its_revision(self) -> None:
        """Apart from it and the policy, nothing is written that has its default."""
        written = Opened(**SENT).model_dump(mode="json", exclude_defaults=True)

        assert set(written) == {"type", "at", "event_id", "policy", "revision"}
        assert written["revision"] == CURRENT_REVISION

    def test_a_revision_that_this_version_does_not_know_is_refused(self) -> None:
        """A newer version wrote it."""
        with pytest.raises(ValidationError, match="revision"):
            Opened(**SENT, revision=CURRENT_REVISION + 1)


class TestWhatIsTooLong:
    """Title and metadata are read whenever a conversation is listed, so they are bounded."""

    @pytest.mark.parametrize(
        ("metadata", "fits"),
        [
            ({str(n): n for n in range(100)}, True),
            ({str(n): n for n in range(101)}, False),
            ({"a": "x" * 19_990}, True),
            ({"a": "x" * 20_000}, False),
            ({"a": float("nan")}, False),
        ],
        ids=["100 entries", "101 entries", "just short enough", "too long", "not JSON"],
    )
    def test_metadata(self, metadata: dict[str, Any], fits: bool) -> None:
        """At most 100 entries, and 20,000 characters of JSON."""
        for make in (lambda: Opened(**SENT, metadata=metadata), lambda: DetailsChanged(**SENT, metadata=metadata)):
            if fits:
                assert make().metadata == metadata
            else:
                with pytest.raises(ValidationError, match="metadata"):
                    make()

    def test_a_title(self) -> None:
        """At most 1,000 characters."""
        assert Opened(**SENT, title="x" * 1_000).title == "x" * 1_000
        with pytest.raises(ValidationError, match="title"):
            DetailsChanged(**SENT, title="x" * 1_001)

    def test_an_owner_is_bounded(self) -> None:
        """It stands in an index."""
        assert Opened(**SENT, owner="x" * 1_000).owner == "x" * 1_000
        with pytest.raises(ValidationError):
            Opened(**SENT, owner="x" * 1_001)


# --- The hand-over of a conversation to another profile, in pure form. No engine, no model.


BOOKING, COOKING = Profile(name="booking"), Profile(name="cooking", model=ModelSpec(name="chef", window=100))
TWO = (BOOKING, COOKING)
TEXTS = Texts()


def handing_over(name: str = "hand_over", **facts: Any) -> ToolCall:
    """A call of a tool that hands over to another profile."""
    return call(name, **{"exclusive": True, "acts": ("transfer",), **facts})


def transfer(conversation: Conversation, profile: str = "cooking") -> Step:
    """A host hands the conversation over."""
    return conversation.happens(ProfileTransferred, profile=profile)


def asked_with(conversation: Conversation) -> tuple[str, str]:
    """The profile and the model of the newest model request."""
    request = conversation.requests()[-1]
    return request.profile, request.model


def two_profiles(**rules: Any) -> Conversation:
    """A conversation with two profiles, of which the second has a model of its own."""
    return Conversation(**{"profiles": TWO, "models": (ModelSpec(name="first"), ModelSpec(name="second")), **rules})


class TestByATool:
    """A tool's result hands the conversation over."""

    def test_the_turn_goes_on_under_the_other_profile(self) -> None:
        """From the next model request on, with the model of that profile, and with all that was said."""
        conversation = two_profiles()
        conversation.says("I am hungry.")
        conversation.model_calls(handing_over())
        assert asked_with(conversation) == ("booking", "first")

        conversation.tool_ends("hand_over", "Over to the cook.", acts=[Transfer(profile="cooking")])

        assert asked_with(conversation) == ("cooking", "chef")
        assert conversation.rests_in(LlmRequesting).turn.profile == "cooking"
        conversation.model_says("Soup?")
        assert conversation.ended.profile == "cooking"
        assert conversation.ended.turn == 1

    def test_all_later_turns_have_it(self) -> None:
        """The conversation stays with the profile that it was handed to."""
        conversation = two_profiles()
        conversation.says()
        conversation.model_calls(handing_over())
        conversation.tool_ends("hand_over", acts=[Transfer(profile="cooking")])
        conversation.model_says("Soup?")

        conversation.says("Yes, please.")

        assert asked_with(conversation) == ("cooking", "chef")
        assert conversation.state.book.profile == "cooking"

    @pytest.mark.parametrize("profile", ["unknown", "Cooking", "cooking "])
    def test_an_unknown_profile_is_an_error_result(self, profile: str) -> None:
        """The model reads why, and nothing is handed over."""
        conversation = two_profiles()
        conversation.says()
        conversation.model_calls(handing_over())

        conversation.tool_ends("hand_over", acts=[Transfer(profile=profile)])

        assert conversation.errors() == ["hand_over"]
        assert conversation.results()["hand_over"] == TEXTS.unknown_profile
        assert asked_with(conversation) == ("booking", "first")
        assert conversation.state.book.profile == ""

    @pytest.mark.parametrize(
        ("facts", "text"),
        [({"exclusive": False}, TEXTS.act_not_exclusive), ({"acts": ("speech",)}, TEXTS.act_not_declared)],
    )
    def test_a_tool_must_declare_it_and_run_alone(self, facts: dict[str, Any], text: str) -> None:
        """Otherwise it would depend on which tool is faster."""
        conversation = two_profiles()
        conversation.says()
        conversation.model_calls(handing_over(**facts))

        conversation.tool_ends("hand_over", acts=[Transfer(profile="cooking")])

        assert conversation.results()["hand_over"] == text
        assert conversation.state.book.profile == ""

    def test_an_error_result_hands_nothing_over(self) -> None:
        """The model only reads it."""
        conversation = two_profiles()
        conversation.says()
        conversation.model_calls(handing_over())

        conversation.tool_ends("hand_over", "No.", error=True, acts=[Transfer(profile="cooking")])

        assert asked_with(conversation) == ("booking", "first")

    def test_the_last_of_several_counts(self) -> None:
        """In the order of their calls."""
        conversation = two_profiles()
        conversation.says()
        conversation.model_calls(handing_over("one"), handing_over("two"))

        conversation.tool_ends("one", acts=[Transfer(profile="cooking")])
        conversation.tool_ends("two", acts=[Transfer(profile="booking")])

        assert asked_with(conversation) == ("booking", "first")
        assert conversation.state.book.profile == "booking"

    def test_what_had_happened_before_a_cancel_stays(self) -> None:
        """The tool had finished, so the next turn has the profile."""
        conversation = two_profiles()
        conversation.says()
        conversation.model_calls(handing_over())
        conversation.cancels()
        conversation.tool_ends("hand_over", acts=[Transfer(profile="cooking")])

        conversation.says("Still hungry.")

        assert asked_with(conversation) == ("cooking", "chef")


class TestByAHost:
    """A request hands the conversation over."""

    @holds_for("play", IN_TURN)
    def test_in_every_busy_state(self, play: Moment) -> None:
        """Nothing but the book changes; a profile that the policy does not have is refused."""
        conversation = play()
        names = [profile.name for profile in conversation.history.context.policy.profiles]
        before = conversation.state

        if not names:
            with pytest.raises(Refused) as refused:
                transfer(conversation)
            assert (refused.value.code, refused.value.subject) == ("unknown_profile", "cooking")
            assert conversation.state == before
            return
        step = transfer(conversation, names[-1])

        expected = before.book.replace(seq=before.book.seq + 1, profile=names[-1])
        assert conversation.state == before.replace(book=expected)
        assert (step.effects, step.ended) == ((), None)

    def test_between_turns(self) -> None:
        """The next turn begins with it."""
        conversation = two_profiles()

        transfer(conversation)
        conversation.rests_in(Idle)
        conversation.says()

        assert asked_with(conversation) == ("cooking", "chef")

    def test_while_the_model_is_asked(self) -> None:
        """The request in flight is answered under the old profile; the next one has the new one."""
        conversation = two_profiles()
        conversation.says()
        transfer(conversation)
        assert conversation.rests_in(LlmRequesting).turn.profile == "booking"

        conversation.model_calls("look")
        conversation.tool_ends("look")

        assert asked_with(conversation) == ("cooking", "chef")

    def test_a_retry_is_the_same_request(self) -> None:
        """It goes to the model, under the profile, for which it was made; so does one to a fallback model."""
        conversation = two_profiles()
        conversation.says()
        transfer(conversation)
        conversation.model_fails()
        conversation.rests_in(RetryWaiting)

        conversation.timer_rings()
        assert asked_with(conversation) == ("booking", "first")
        conversation.model_fails()
        conversation.timer_rings()
        conversation.model_fails()
        assert asked_with(conversation) == ("booking", "second")

        conversation.model_calls("look")
        conversation.tool_ends("look")
        assert asked_with(conversation) == ("cooking", "chef")

    def test_a_turn_that_needs_no_further_request_keeps_its_profile(self) -> None:
        """The record of the turn names the profile under which it was answered."""
        conversation = two_profiles()
        conversation.says()
        transfer(conversation)

        conversation.model_says("Sakura has a table.")

        assert conversation.ended.profile == "booking"
        assert conversation.state.book.profile == "cooking"

    def test_the_window_of_the_new_model_counts(self) -> None:
        """What the old model took in easily does not fit into the new one, so it is compacted first."""
        conversation = two_profiles(models=(ModelSpec(name="first", window=100_000),))
        conversation.says()
        transfer(conversation)

        conversation.model_calls("look", usage=Usage(input_tokens=1_000))
        conversation.rests_in(Compacting)
        conversation.history_is_condensed()

        assert asked_with(conversation) == ("cooking", "chef")

    def test_a_fallback_model_is_kept_within_a_profile(self) -> None:
        """A hand-over to the profile that the turn has changes nothing."""
        conversation = two_profiles()
        conversation.says()
        for _ in range(2):
            conversation.model_fails()
            conversation.timer_rings()
        conversation.model_fails()
        transfer(conversation, "booking")

        conversation.model_calls("look")
        conversation.tool_ends("look")

        assert asked_with(conversation) == ("booking", "second")

    def test_a_closed_conversation_stays_as_it_is(self) -> None:
        """It refuses the request."""
        conversation = two_profiles()
        conversation.closes()

        with pytest.raises(Refused) as refused:
            transfer(conversation)

        assert refused.value.code == "closed"
        conversation.rests_in(Closed)


class TestRouting:
    """A conversation that was handed over is not routed."""

    def test_no_profile_is_chosen_any_more(self) -> None:
        """Later turns begin with the profile at once."""
        conversation = two_profiles(route=True)
        conversation.says()
        conversation.rests_in(ProfileSelecting)
        conversation.happens(ProfileSelected, effect_id=conversation.flying(SelectProfile), profile="booking")
        conversation.model_calls(handing_over())
        conversation.tool_ends("hand_over", acts=[Transfer(profile="cooking")])
        conversation.model_says("Soup?")

        conversation.says("Yes.")

        assert RequestLlm in conversation.wanted()
        assert asked_with(conversation) == ("cooking", "chef")

    def test_a_choice_under_way_does_not_count(self) -> None:
        """The router answers after the hand-over: the first request has the profile that was handed to."""
        conversation = two_profiles(route=True)
        conversation.says()
        transfer(conversation)

        conversation.happens(ProfileSelected, effect_id=conversation.flying(SelectProfile), profile="booking")

        assert asked_with(conversation) == ("cooking", "chef")


class TestOtherRules:
    """`PolicyChanged` may end a hand-over."""

    def test_rules_with_the_profile_leave_it(self) -> None:
        """Also if the profile itself is another one by now."""
        conversation = two_profiles()
        transfer(conversation)

        conversation.changes_rules(profiles=(BOOKING, Profile(name="cooking", model=ModelSpec(name="new"))))
        conversation.says()

        assert asked_with(conversation) == ("cooking", "new")

    @pytest.mark.parametrize("profiles", [(), (BOOKING,)])
    def test_rules_without_it_end_it(self, profiles: tuple[Profile, ...]) -> None:
        """The conversation has the first profile again, or none."""
        conversation = two_profiles()
        transfer(conversation)

        conversation.changes_rules(profiles=profiles)
        conversation.says()

        assert conversation.state.book.profile == ""
        assert asked_with(conversation)[0] == (profiles[0].name if profiles else "")


def test_it_can_be_repeated_from_the_log() -> None:
    """The events alone lead to the same state."""
    conversation = two_profiles(route=True)
    conversation.says()
    transfer(conversation)
    conversation.happens(ProfileSelected, effect_id=conversation.flying(SelectProfile), profile="booking")
    conversation.model_calls(handing_over())
    conversation.tool_ends("hand_over", acts=[Transfer(profile="booking")])

    first, *later = conversation.history.log
    assert isinstance(first.event, Opened)
    state, context = begin(first.event).state, Context().after(first.event)
    for entry in later:
        state, context = transition(state, entry.event, context).state, context.after(entry.event)

    assert state == conversation.state


def test_a_conversation_without_profiles_knows_none() -> None:
    """The empty name is no profile either."""
    assert not Policy().has_profile("")
    with pytest.raises(ValueError, match="at least 1 character"):
        ProfileTransferred(event_id="1", at=NOON, profile="")


# --- Schedules and wake-ups in pure form. No engine, no clock, no store.


FIRST = NOON + timedelta(hours=1)
SECOND = NOON + timedelta(hours=2)
HOURLY = Schedule(every=3600, task="Look around.")
WAKING_SENT: dict[str, Any] = {"event_id": "1", "at": NOON}


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
        event = WakeUp(**WAKING_SENT, due=FIRST, next_wake=SECOND, text=HOURLY.task)

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
        opened = Opened(**WAKING_SENT, schedule=HOURLY, next_wake=FIRST)

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
            Opened(**WAKING_SENT, role="sub_agent", parent="parent", schedule=HOURLY, next_wake=FIRST)

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
            WakeUp(**WAKING_SENT, due=FIRST, next_wake=FIRST, text="Look.")

    @pytest.mark.parametrize("kind", [Opened, ScheduleChanged])
    def test_there_is_no_wake_up_without_a_schedule(self, kind: Any) -> None:
        """Nobody would know what to do."""
        with pytest.raises(ValidationError, match="no next wake-up"):
            kind(**WAKING_SENT, next_wake=FIRST)

    @pytest.mark.parametrize(
        "event",
        [
            Opened(**WAKING_SENT, schedule=HOURLY, next_wake=FIRST),
            ScheduleChanged(**WAKING_SENT),
            ScheduleChanged(**WAKING_SENT, schedule=Schedule(cron="0 9 * * *", zone="Asia/Tokyo", task="日本")),
            WakeUp(**WAKING_SENT, due=FIRST, text="Look."),
        ],
    )
    def test_they_are_read_back_as_they_were_written(self, event: Any) -> None:
        """As JSON, like every event."""
        assert TypeAdapter(AnyEvent).validate_json(event.to_json()) == event

    def test_logs_from_before_are_written_as_they_were(self) -> None:
        """The new fields are left out where they say nothing."""
        written = Opened(**WAKING_SENT).model_dump_json(exclude_defaults=True)
        state = begin(Opened(**WAKING_SENT)).state.to_json()

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
    opened = Opened(**WAKING_SENT, policy=Policy(), schedule=HOURLY, next_wake=FIRST)
    state, context = begin(opened).state, Context().after(opened)
    event = WakeUp(event_id="2", at=FIRST, due=FIRST, next_wake=SECOND, text="Look.")

    assert transition(state, event, context) == transition(state, event, context)
