"""The hand-over of a conversation to another profile, in pure form. No engine, no model."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import (
    Closed,
    Compacting,
    Context,
    Idle,
    LlmRequesting,
    ModelSpec,
    Opened,
    Policy,
    Profile,
    ProfileSelected,
    ProfileSelecting,
    ProfileTransferred,
    Refused,
    RequestLlm,
    RetryWaiting,
    SelectProfile,
    Step,
    Texts,
    ToolCall,
    Transfer,
    Usage,
    begin,
    transition,
)
from turnwise.testing.strategies import NOON

from ...support.busy_states import IN_TURN, Moment
from ...support.cases import holds_for
from ...support.conversation import Conversation, call

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
