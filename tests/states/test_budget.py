"""What a turn uses is counted exactly, and counted anew after a person has spoken (law 12)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from turnwise.states import (
    Context,
    DeadlineReached,
    Idle,
    Limits,
    LlmRequesting,
    Questions,
    Retry,
    RetryWaiting,
    StartTimer,
    ToolExecuting,
    Usage,
    transition,
)

from ..support.cases import holds_for
from ..support.conversation import Conversation, asking


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
