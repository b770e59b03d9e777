"""What the guards decide: what a turn uses is counted exactly, and its end names the limit because of which it
ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from turnwise.states import (
    Act,
    AgentMail,
    Context,
    DeadlineReached,
    Idle,
    Limits,
    LlmRequesting,
    ModelSpec,
    Questions,
    Retry,
    RetryWaiting,
    SendToAgent,
    Speech,
    StartTimer,
    Texts,
    ToolExecuting,
    Usage,
    WorkComplete,
    presets,
)
from turnwise.states.machine import transition

from ..support.cases import holds_for
from ..support.conversation import Conversation, asking, call, completing

# --- What the guards decide: the end of a turn names the limit because of which it ended, and an agent's role says
# what it may do by the acts of its tools, whatever tool returns them.


COST = Usage(input_tokens=9, output_tokens=1, cost=0.5)


def ends_at(conversation: Conversation) -> tuple[str, str | None]:
    """How the turn ended that the last step left, and at which limit."""
    return conversation.ended.status, conversation.ended.limit


def missing_claim() -> Conversation:
    """The rules want a claim, and the model gives a text."""
    conversation = Conversation(presets.explicit_response(), limits=Limits(requests=1))
    conversation.says()
    conversation.model_says("Done.")
    return conversation


def empty_response() -> Conversation:
    """The model says nothing after its tools have run."""
    conversation = Conversation(limits=Limits(requests=2))
    conversation.says()
    conversation.model_calls("look")
    conversation.tool_ends("look")
    conversation.model_says("")
    return conversation


def rejected_claim() -> Conversation:
    """The claim is rejected, and would be allowed to be rejected once more."""
    conversation = Conversation(presets.explicit_response(), verify=3, limits=Limits(requests=1, last="plain"))
    conversation.says()
    conversation.model_calls(completing())
    return conversation


TEXTS = Texts()
FOR_USER = AgentMail(target="other", text="It is ready.", audience="user")
FOR_AGENT = AgentMail(target="other", text="It is ready.")
NOW, LATER = Speech(text="Hello", when="now"), Speech(text="Hello")


def acting(act: Act, role: str, **fields: Any) -> Conversation:
    """An agent of this role whose tool has done this."""
    conversation = Conversation(role=role, **fields)
    conversation.says()
    conversation.model_calls(call("work", exclusive=True, acts=("speech", "mail", "work_complete")))
    conversation.tool_ends("work", acts=[act])
    return conversation


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(requests=1, last="plain"), "requests"),
        (Limits(requests=1), "requests"),
        (Limits(tokens=10), "tokens"),
        (Limits(cost=0.5), "cost"),
        (Limits(seconds=1.0), "seconds"),
        (Limits(requests=2, tokens=10, cost=0.5, seconds=1.0), "tokens"),
    ],
)
def test_a_turn_that_goes_on_calling_tools_names_its_limit(limits: Limits, limit: str) -> None:
    """Whichever limit is reached, the end names it; of several the first in the order requests, tokens, cost,
    seconds."""
    conversation = Conversation(limits=limits)
    conversation.says()

    conversation.model_calls("look", usage=COST)

    assert ends_at(conversation) == ("incomplete", limit)


def test_a_limit_that_is_reached_behind_a_round_is_named() -> None:
    """The tools have run, and the model may not be asked what comes of their results."""
    conversation = Conversation(limits=Limits(seconds=3.0))
    conversation.says()
    conversation.model_calls("look")

    conversation.tool_ends("look")
    conversation.now = conversation.now.replace(minute=5)
    conversation.model_calls("look")

    assert ends_at(conversation) == ("incomplete", "seconds")


def test_a_limit_of_tool_calls_ends_no_turn() -> None:
    """Calls beyond it are not run, and the model answers."""
    conversation = Conversation(limits=Limits(tool_calls=0))
    conversation.says()
    conversation.model_calls("look")

    conversation.model_says("I could not look.")

    assert ends_at(conversation) == ("completed", None)


def test_an_answer_to_the_last_request_is_no_end_by_a_limit() -> None:
    """The model answered, although it had no tools for that request."""
    conversation = Conversation(limits=Limits(requests=1))
    conversation.says()

    conversation.model_says("Done.")

    assert ends_at(conversation) == ("completed", None)


@pytest.mark.parametrize("play", [missing_claim, empty_response, rejected_claim])
def test_a_limit_that_keeps_the_model_from_being_reminded_is_named(play: Callable[[], Conversation]) -> None:
    """The model would be asked once more if the limit allowed it."""
    assert play().ended.limit == "requests"


def test_a_turn_that_fails_because_no_request_is_left_names_the_limit() -> None:
    """The history would be compacted for another request, which the limit does not allow."""
    conversation = Conversation(limits=Limits(requests=1), models=(ModelSpec(name="small"),))
    conversation.says()

    conversation.model_fails("context_window")

    assert ends_at(conversation) == ("failed", "requests")


def test_a_failure_of_another_kind_names_no_limit() -> None:
    """No limit keeps the turn from going on."""
    conversation = Conversation(limits=Limits(requests=1))
    conversation.says()

    conversation.model_fails("authentication")

    assert ends_at(conversation) == ("failed", None)


def test_a_cancelled_turn_names_no_limit() -> None:
    """It was ended by a person, though its limit was reached."""
    conversation = Conversation(limits=Limits(requests=1))
    conversation.says()

    conversation.cancels()

    assert ends_at(conversation) == ("cancelled", None)


@holds_for(
    ("act", "roles"),
    [
        (NOW, {"foreground"}),
        (LATER, {"foreground"}),
        (FOR_USER, {"background"}),
        (FOR_AGENT, {"foreground", "background", "sub_agent"}),
    ],
)
@holds_for("role", ["foreground", "background", "sub_agent"])
def test_only_an_agent_with_a_user_speaks_and_only_a_background_agent_writes_to_users(
    act: Act, roles: set[str], role: str
) -> None:
    """D2, P20: an act that the role does not allow has an error result, is not carried out, and the agent goes
    on."""
    conversation = acting(act, role)

    conversation.rests_in(LlmRequesting)
    if role in roles:
        assert conversation.results() == {"work": "done"}
    else:
        assert conversation.results() == {"work": TEXTS.act_not_for_role}
        assert conversation.errors() == ["work"]
        assert conversation.delivered() == []
        assert SendToAgent not in conversation.wanted()


@pytest.mark.parametrize("role", ["foreground", "background", "sub_agent"])
def test_every_agent_may_claim_that_its_work_is_complete(role: str) -> None:
    """A claim concerns no user, so every role may make it."""
    assert acting(WorkComplete(summary="All done."), role).results() == {"work": "done"}


# --- What a turn uses is counted exactly, and counted anew after a person has spoken (law 12).


def used(tokens: int, cost: float | None = None) -> Usage:
    """The usage of a request."""
    return Usage(input_tokens=tokens - 1, output_tokens=1, cost=cost)


class TestCounting:
    """Each request, each call and each token is counted once."""

    def test_calls_are_counted_one_by_one(self) -> None:
        """With a limit of two, two calls run."""
        conversation = Conversation(limits=Limits(tool_calls=2))
        conversation.says()
        conversation.model_calls("a", "b", "c")

        conversation.tool_ends("a")
        assert conversation.tools() == ["b"]
        conversation.tool_ends("b")

        assert conversation.rests_in(LlmRequesting).turn.tool_calls == 2
        assert list(conversation.results()) == ["a", "b", "c"]

    def test_what_requests_cost_adds_up(self) -> None:
        """Input and output tokens are added up, and costs where they are known."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", usage=used(10, 0.5))
        conversation.tool_ends("a")
        conversation.model_calls("b", usage=used(20))

        turn = conversation.rests_in(ToolExecuting).turn

        assert turn.usage == turn.spent == Usage(input_tokens=28, output_tokens=2, cost=0.5)
        assert turn.usage.tokens == 30

    def test_effects_are_numbered_without_a_gap(self) -> None:
        """From 1 on, through all turns: requests, tools and timers alike."""
        conversation = Conversation()
        conversation.says()
        conversation.model_fails()
        conversation.timer_rings()
        conversation.model_calls("a", "b")
        conversation.tool_ends("a")
        conversation.cancels()

        assert sorted(conversation.history.effects.started) == [1, 2, 3, 4, 5, 6]

    def test_unknown_costs_spend_no_money(self) -> None:
        """If no price is known, a limit of money is never reached."""
        conversation = Conversation(limits=Limits(cost=0.5))
        conversation.says()

        conversation.model_calls("a", usage=used(10))

        assert conversation.tools() == ["a"]

    def test_the_newest_request_tells_how_full_the_window_is(self) -> None:
        """`window_used` is not a sum, and outlives the turn."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", usage=used(10))
        conversation.tool_ends("a")

        conversation.model_says("Done", usage=used(20))

        assert conversation.rests_in(Idle).book.window_used == 20


class TestCountedAnew:
    """When a person speaks, the limits start again (case P34)."""

    def answered(self, **limits: object) -> Conversation:
        """A conversation whose question was answered after some work, an hour later; another call is queued."""
        conversation = Conversation(limits=Limits(**limits), questions=Questions(deadline=7_200))
        conversation.says()
        conversation.model_calls("read", asking(), "write", usage=used(10, 0.5))
        conversation.tool_ends("read")
        conversation.tool_asks()
        conversation.now = conversation.now.replace(hour=13)
        conversation.answers({"When?": "Now"})
        return conversation

    def test_everything_but_the_cost_of_the_turn(self) -> None:
        """P34: requests, calls, tokens, money and time start at zero; the cost of the whole turn is kept."""
        conversation = self.answered()

        turn = conversation.rests_in(ToolExecuting).turn

        assert (turn.requests, turn.tool_calls, turn.since) == (0, 1, conversation.now)
        assert turn.spent == Usage()
        assert turn.usage == used(10, 0.5)

    @pytest.mark.parametrize("limits", [{"tool_calls": 2}, {"tokens": 10}, {"cost": 0.5}, {"seconds": 60}], ids=str)
    def test_what_was_used_up_before_no_longer_counts(self, limits: dict[str, float]) -> None:
        """P34: the call behind the question runs, although the limit was reached before the answer."""
        if set(limits) & {"tokens", "cost"}:
            limits = {name: 2 * limit for name, limit in limits.items()}

        conversation = self.answered(**limits)

        assert conversation.tools() == ["write"]

    @pytest.mark.parametrize(("waited", "counted"), [(60.0, 60.0), (0.25, 0.25), (0.0, 0.0), (-60.0, 0.0)])
    def test_a_wait_for_a_person_moves_the_beginning(self, waited: float, counted: float) -> None:
        """The turn's beginning moves by the time that the person took, even by less than a second; it never moves back,
        though the clock may have been set back."""
        conversation = Conversation(questions=Questions(deadline=60))
        conversation.says()
        conversation.model_calls(asking(), "write")
        conversation.tool_asks()
        asked = conversation.asked()
        late = DeadlineReached(effect_id=conversation.flying(StartTimer), at=asked.since + timedelta(seconds=waited))

        state = transition(asked, late, Context()).state

        assert isinstance(state, ToolExecuting)
        assert (state.turn.since - asked.turn.since).total_seconds() == counted


class TestThinking:
    """A response that only thinks is followed up once, and again after something else happened (seed 001)."""

    def test_after_a_round_of_tools_it_may_think_again(self) -> None:
        """Only two such responses in a row count: a response with calls is not empty."""
        conversation = Conversation()
        conversation.says()
        conversation.model_says("", thinking="Hm.")
        conversation.model_calls("a")
        conversation.tool_ends("a")

        conversation.model_says("", thinking="Hm?")

        turn = conversation.rests_in(LlmRequesting).turn
        assert (turn.only_thought, turn.empties) == (True, 0)


class TestWaits:
    """How long a failed request waits before it is sent again."""

    @holds_for(
        ("rules", "retry_after", "wait"),
        [
            (Retry(base=0.25), None, 0.25),
            (Retry(base=0.25), 0.125, 0.25),
            (Retry(base=0.25), 0.5, 0.5),
            (Retry(base=0.0), None, 0.0),
            (Retry(base=2.0, cap=0.5), None, 0.5),
            (Retry(cap=0.5), 0.5, 0.5),
            (Retry(cap=0.5), 0.75, None),
            (Retry(attempts=1), None, None),
        ],
    )
    def test_the_first_wait(self, rules: Retry, retry_after: float | None, wait: float | None) -> None:
        """It is `base` or what the provider asks for, whichever is longer, up to `cap`; None where no further attempt
        is allowed."""
        assert rules.wait(1, retry_after) == wait

    @pytest.mark.parametrize(("attempt", "wait"), [(1, 1.0), (2, 3.0), (3, 9.0), (4, 20.0), (5, None)])
    def test_each_wait_is_longer(self, attempt: int, wait: float | None) -> None:
        """Each wait is `factor` times the one before, up to `cap`; after the last attempt there is none."""
        assert Retry(attempts=5, base=1.0, factor=3.0, cap=20.0).wait(attempt, None) == wait

    def test_a_provider_may_ask_for_as_long_as_is_allowed(self) -> None:
        """P11: `cap` itself is not too long."""
        conversation = Conversation()
        conversation.says()

        conversation.model_fails("rate_limit", retry_after=60.0)

        conversation.rests_in(RetryWaiting)
