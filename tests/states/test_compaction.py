"""A history that does not fit the window is compacted, and the turn goes on or says why it cannot."""

from datetime import timedelta
from typing import Any

import pytest

from turnwise.states import (
    Abort,
    Closed,
    CompactHistory,
    Compacting,
    DeliverToUser,
    EffectFailed,
    Failed,
    HistoryCompacted,
    Idle,
    Limits,
    LlmRequesting,
    ModelSpec,
    PersistMessage,
    PersistToolResults,
    Policy,
    RecallMemory,
    Recent,
    Refused,
    RequestLlm,
    Retry,
    Texts,
    ToolExecuting,
    Usage,
    presets,
)

from ..support.conversation import Conversation, asking, call

TEXTS = Texts()
WINDOW = (ModelSpec(name="small", window=1_000),)
BELOW, FULL = Usage(input_tokens=800, output_tokens=99), Usage(input_tokens=800, output_tokens=100)


def started(**rules: Any) -> Conversation:
    """A conversation with a model of 1,000 tokens, which was asked something."""
    conversation = Conversation(**{"models": WINDOW, **rules})
    conversation.says("first")
    return conversation


def condensing(**rules: Any) -> Conversation:
    """A conversation whose window is full in the middle of a turn."""
    conversation = started(**rules)
    conversation.model_calls("look", usage=FULL)
    conversation.rests_in(Compacting)
    return conversation


def shown(conversation: Conversation) -> list[str]:
    """The texts that no summary replaces."""
    return [message.text for message in conversation.said.current]


class TestTheThreshold:
    """Case P21: compaction starts when 90% of the window are used, to the token."""

    def test_one_token_below_it_tools_run(self) -> None:
        """P21: one token below 90% of the window, tools run."""
        conversation = started()

        conversation.model_calls("look", usage=BELOW)

        conversation.rests_in(ToolExecuting)
        conversation.tool_ends("look")
        conversation.rests_in(LlmRequesting)

    def test_at_it_history_is_condensed_first(self) -> None:
        """P21: at 90%, the calls of that response get "not run" results, and the history is compacted."""
        conversation = started()

        conversation.model_calls("look", call("gone", fault="No."), usage=FULL)

        assert conversation.wanted() == [PersistMessage, PersistToolResults, CompactHistory]
        assert conversation.results() == {"look": TEXTS.no_room, "gone": TEXTS.no_room}
        assert conversation.tools() == []

    def test_then_the_turn_resumes(self) -> None:
        """P21: the request follows within the same turn, and the window counts as free."""
        conversation = condensing()

        conversation.history_is_condensed(usage=Usage(input_tokens=50))

        assert conversation.wanted() == [RequestLlm]
        assert conversation.state.book.window_used == 0
        assert conversation.rests_in(LlmRequesting).turn.usage == FULL + Usage(input_tokens=50)
        conversation.model_calls("look", usage=BELOW)
        conversation.rests_in(ToolExecuting)

    def test_the_share_of_the_window_is_a_setting(self) -> None:
        """`Policy.window`: a half."""
        conversation = started(window=0.5)

        conversation.model_calls("look", usage=Usage(input_tokens=500))

        conversation.rests_in(Compacting)

    def test_a_window_that_nobody_knows_is_never_full(self) -> None:
        """If `ModelSpec.window` is None, nothing is compacted unless somebody asks for it."""
        conversation = started(models=(ModelSpec(name="unknown"),))

        conversation.model_calls("look", usage=FULL)

        conversation.rests_in(ToolExecuting)

    def test_a_request_that_holds_the_last_minutes_only_is_never_condensed_for(self) -> None:
        """J3: such a request does not contain older turns, so compaction would not make it shorter."""
        conversation = started(dialogue=Recent())
        conversation.breaks(RecallMemory)

        conversation.model_calls("look", usage=FULL)

        conversation.rests_in(ToolExecuting)

    def test_it_is_the_window_of_the_model_that_is_asked(self) -> None:
        """P11: after a fallback, the window of the next model counts."""
        models = (ModelSpec(name="large", window=100_000), *WINDOW)
        conversation = started(models=models, retry=Retry(attempts=1))
        conversation.model_fails()

        conversation.model_calls("look", usage=FULL)

        conversation.rests_in(Compacting)

    def test_a_question_that_finds_no_room_is_not_asked(self) -> None:
        """P21: this holds for every call, also for one that would only ask the user."""
        conversation = started()

        conversation.model_calls(asking(), usage=FULL)

        assert conversation.rests_in(Compacting)
        assert conversation.results() == {"ask": TEXTS.no_room}

    @pytest.mark.parametrize("limits", [Limits(tokens=900), Limits(cost=1.0)])
    def test_with_the_budget_spent_nothing_is_condensed(self, limits: Limits) -> None:
        """Law 12: no request could follow, so the turn ends at its limit."""
        conversation = started(limits=limits)

        conversation.model_calls("look", usage=FULL + Usage(cost=1.0))

        conversation.rests_in(Idle)
        assert conversation.results() == {"look": TEXTS.not_run}
        assert conversation.ended.status == "incomplete"

    def test_condensing_that_spends_the_budget_ends_the_turn(self) -> None:
        """Law 12: the cost of compaction counts, and the limit holds for the request that follows."""
        conversation = condensing(limits=Limits(tokens=1_000))

        conversation.history_is_condensed(usage=Usage(input_tokens=100))

        conversation.rests_in(Idle)
        assert conversation.words(conversation.ended.final_content) == [TEXTS.limit]


class TestAFinalText:
    """Case P22: a final text is delivered, even if the window is full."""

    def test_it_is_delivered(self) -> None:
        """P22: the usage that came with it is above the threshold, and it is delivered all the same."""
        conversation = started()

        conversation.model_says("Here.", usage=FULL)

        conversation.rests_in(Idle)
        assert conversation.wanted() == [PersistMessage, DeliverToUser]

    def test_condensing_waits_for_the_next_turn(self) -> None:
        """P22: the next message leads to compaction first; effects exactly: persist the message, compact the
        history."""
        conversation = started()
        conversation.model_says("Here.", usage=FULL)

        conversation.says("second")

        assert conversation.wanted() == [PersistMessage, CompactHistory]
        assert conversation.rests_in(Compacting).resume == "request"
        conversation.history_is_condensed("They greeted each other.")
        conversation.rests_in(LlmRequesting)
        assert shown(conversation) == ["second"]

    def test_below_the_threshold_it_does_not(self) -> None:
        """P22: one token below it, the next turn asks the model at once."""
        conversation = started()
        conversation.model_says("Here.", usage=BELOW)

        conversation.says("second")

        conversation.rests_in(LlmRequesting)

    def test_a_nudged_text_is_condensed_for_before_it_is_nudged(self) -> None:
        """P22, S10: where the turn goes on after a text, the threshold holds; the nudge is in the request after
        compaction."""
        conversation = Conversation(presets.explicit_response(), models=WINDOW)
        conversation.says()

        conversation.model_says("I am done.", usage=FULL)
        conversation.rests_in(Compacting)
        conversation.history_is_condensed()

        assert conversation.nudge() == TEXTS.nudge


class TestWhatIsCondensed:
    """Whole rounds are replaced; what people said in the running turn stays."""

    def long(self, **rules: Any) -> Conversation:
        """A conversation in its second turn, in which one round is over and the next fills the window."""
        conversation = started(**rules)
        conversation.model_says("One.")
        conversation.says("second")
        conversation.model_calls("a", "b")
        conversation.tool_ends("a", "of a")
        conversation.tool_ends("b", "of b")
        conversation.model_calls("c", content="Next is c.", usage=FULL)
        return conversation

    def test_whole_rounds_go(self) -> None:
        """Everything before the response that exceeded the threshold is compacted; that response stays, with its
        results."""
        conversation = self.long()

        conversation.history_is_condensed("What was before.")

        assert shown(conversation) == ["second", "Next is c.", TEXTS.no_room]
        assert conversation.said.condensed is not None
        assert conversation.said.condensed.summary == "What was before."

    def test_the_log_keeps_everything(self) -> None:
        """A compacted history is a summary and what came after it; the transcript keeps everything."""
        conversation = self.long()
        before = conversation.transcript

        conversation.history_is_condensed()

        assert conversation.transcript == before

    def test_the_effect_says_how_far(self) -> None:
        """`CompactHistory(up_to)` names the step before the response, and the turn whose messages stay."""
        conversation = self.long()

        effect = conversation.step.effects[-1]

        assert isinstance(effect, CompactHistory)
        assert (effect.up_to, effect.turn) == (conversation.state.book.seq - 1, 2)

    def test_what_steered_in_stays(self) -> None:
        """What people said in the running turn is kept, also what they said in the middle of it."""
        conversation = started(when_busy="steer")
        conversation.model_calls("a")
        conversation.says("and quickly")
        conversation.tool_ends("a")
        conversation.model_calls("b", usage=FULL)

        conversation.history_is_condensed()

        assert shown(conversation) == ["first", "and quickly", "", TEXTS.no_room]

    def test_a_message_that_steers_in_meanwhile_enters_behind(self) -> None:
        """P37: it waits for the request, enters at the end of its history, and is not compacted."""
        conversation = condensing(when_busy="steer")
        conversation.says("and quickly")

        conversation.history_is_condensed()

        assert conversation.wanted() == [PersistMessage, RequestLlm]
        assert shown(conversation) == ["first", "", TEXTS.no_room, "and quickly"]

    def test_a_message_that_queues_meanwhile_waits_for_the_next_turn(self) -> None:
        """D10: it does not enter with the request after compaction."""
        conversation = condensing(when_busy="queue")
        conversation.says("later")

        conversation.history_is_condensed()

        assert [waiting.steer for waiting in conversation.rests_in(LlmRequesting).inbox] == [False]
        assert "later" not in shown(conversation)

    def test_the_last_results_of_a_round_go_with_it(self) -> None:
        """If a round has just ended, its response and its results are compacted together."""
        conversation = started()
        conversation.model_calls("a", usage=BELOW)
        conversation.tool_ends("a")

        conversation.model_fails("context_window")
        conversation.history_is_condensed()

        assert shown(conversation) == ["first"]

    def test_the_message_of_a_turn_that_is_tried_again_stays(self) -> None:
        """The message that began the turn is never compacted: for a retry, that is the message of the turn that
        failed."""
        conversation = started()
        conversation.model_says("One.", usage=FULL)
        conversation.says("second")
        for _ in range(2):
            conversation.breaks(CompactHistory, "authentication")
            conversation.tries_again()
        assert conversation.rests_in(Compacting).book.turn == 4

        conversation.history_is_condensed()

        assert shown(conversation) == ["second"]
        conversation.rests_in(LlmRequesting)

    def test_a_second_summary_takes_the_place_of_the_first(self) -> None:
        """When the next turn is compacted too, one summary replaces all of it."""
        conversation = self.long()
        conversation.history_is_condensed("Once.")
        conversation.model_says("Two.", usage=FULL)
        conversation.says("third")

        conversation.history_is_condensed("Twice.")

        assert shown(conversation) == ["third"]
        assert conversation.said.condensed is not None
        assert conversation.said.condensed.summary == "Twice."


class TestTheModelFindsItTooLong:
    """A request that the provider refuses for its length leads to compaction, once, and is sent again."""

    def test_it_is_condensed_and_sent_again(self) -> None:
        """P21: this needs no knowledge of the window."""
        conversation = Conversation(models=(ModelSpec(name="unknown"),))
        conversation.says()

        conversation.model_fails("context_window")
        assert conversation.wanted() == [CompactHistory]
        conversation.history_is_condensed()

        assert conversation.wanted() == [RequestLlm]
        assert conversation.rests_in(LlmRequesting).attempt == 1

    def test_a_second_time_in_a_row_it_fails(self) -> None:
        """P21: if the request after compaction is still too long, the turn fails with a sentence."""
        conversation = started()
        conversation.model_fails("context_window")
        conversation.history_is_condensed()

        conversation.model_fails("context_window")

        assert conversation.rests_in(Failed).kind == "context_window"

    @pytest.mark.parametrize("limits", [Limits(requests=1), Limits(seconds=1)], ids=["requests", "time"])
    def test_on_the_last_request_it_fails_at_once(self, limits: Limits) -> None:
        """Law 12: if no further request is allowed, or the time is over, nothing is compacted."""
        conversation = started(limits=limits)

        conversation.model_fails("context_window")

        assert conversation.rests_in(Failed).kind == "context_window"

    def test_a_passing_failure_in_between_changes_nothing(self) -> None:
        """A retry of that request still counts as the request after compaction."""
        conversation = started()
        conversation.model_fails("context_window")
        conversation.history_is_condensed()
        conversation.model_fails("server_error")
        conversation.timer_rings()

        conversation.model_fails("context_window")

        conversation.rests_in(Failed)


class TestGivingUp:
    """Case P21: if compaction does not help, the turn ends and nothing is lost."""

    def test_condensing_that_fails_is_tried_again(self) -> None:
        """P21: it may fail twice; each attempt has an id of its own, and the turn goes on."""
        conversation = condensing()
        ids = [conversation.flying(CompactHistory)]
        for _ in range(2):
            conversation.breaks(CompactHistory)
            ids.append(conversation.flying(CompactHistory))

        conversation.history_is_condensed()

        assert len(set(ids)) == 3
        conversation.rests_in(LlmRequesting)

    def test_three_failures_give_up_with_a_sentence(self) -> None:
        """P21: after the third failure the turn fails with a sentence, and nothing is lost."""
        conversation = condensing()

        for _ in range(3):
            conversation.breaks(CompactHistory, sentence="The model is not well.")

        failed = conversation.rests_in(Failed)
        assert (failed.kind, failed.sentence) == ("timeout", "The model is not well.")
        assert conversation.results() == {"look": TEXTS.no_room}
        assert shown(conversation) == ["first", "", TEXTS.no_room]

    def test_a_failure_that_would_come_again_gives_up_at_once(self) -> None:
        """P11: only failures that may pass are retried."""
        conversation = condensing()

        conversation.breaks(CompactHistory, "authentication")

        assert conversation.rests_in(Failed).kind == "authentication"

    def test_still_full_right_after_gives_up_with_a_sentence(self) -> None:
        """P21: if the window is full again at the next response, the turn fails with a sentence, with all calls
        paired."""
        conversation = condensing()
        conversation.history_is_condensed()

        conversation.model_calls("again", usage=FULL)

        failed = conversation.rests_in(Failed)
        assert (failed.kind, failed.sentence) == ("context_window", TEXTS.full)
        assert conversation.wanted() == [PersistMessage, PersistToolResults]
        assert conversation.results() == {"look": TEXTS.no_room, "again": TEXTS.no_room}

    def test_by_policy_giving_up_is_a_reply(self) -> None:
        """J16: under `on_failure="reply"` the turn ends in Idle with a reply that says why."""
        conversation = condensing(on_failure="reply")
        conversation.history_is_condensed()

        conversation.model_calls("again", usage=FULL)

        conversation.rests_in(Idle)
        assert conversation.delivered() == [f"{TEXTS.error} {TEXTS.full}"]

    def test_a_final_text_right_after_is_delivered(self) -> None:
        """P22: the window is still full, but the turn needs no further request."""
        conversation = condensing()
        conversation.history_is_condensed()

        conversation.model_says("Here.", usage=FULL)

        assert (conversation.ended.status, conversation.delivered()) == ("completed", ["Here."])

    def test_with_room_in_between_it_is_condensed_again(self) -> None:
        """A turn whose window was not full in the meantime compacts a second time."""
        conversation = condensing()
        conversation.history_is_condensed()
        conversation.model_calls("a", usage=BELOW)
        conversation.tool_ends("a")

        conversation.model_calls("b", usage=FULL)

        conversation.rests_in(Compacting)

    @pytest.mark.parametrize("response", ["nudged", "cut off", "only thinks"])
    def test_room_after_a_response_without_a_round_counts_too(self, response: str) -> None:
        """It does not matter whether the response in between had calls."""
        conversation = Conversation(presets.explicit_response(), models=WINDOW)
        conversation.says()
        conversation.model_calls("look", usage=FULL)
        conversation.history_is_condensed()
        if response == "nudged":
            conversation.model_says("Hm.")
        elif response == "cut off":
            conversation.model_calls("a", finish_reason="length")
        else:
            conversation.model_says("", thinking="Hm.")

        conversation.model_calls("b", usage=FULL)

        conversation.rests_in(Compacting)

    def test_a_window_that_stays_full_is_not_condensed_over_and_over(self) -> None:
        """If a response that only thinks still fills the window, the next request is sent as it is; if calls follow,
        the turn gives up."""
        conversation = condensing()
        conversation.history_is_condensed()
        conversation.model_says("", thinking="Hm.", usage=FULL)
        conversation.rests_in(LlmRequesting)

        conversation.model_calls("b", usage=FULL)

        conversation.rests_in(Failed)

    def test_after_giving_up_a_retry_condenses_again(self) -> None:
        """The retry is a new turn, which may compact again."""
        conversation = condensing()
        conversation.history_is_condensed()
        conversation.model_calls("again", usage=FULL)

        conversation.tries_again()

        assert conversation.rests_in(Compacting).resume == "request"


class TestStopping:
    """A person ends a turn during compaction."""

    def test_a_cancel_ends_the_turn(self) -> None:
        """It ends as cancelled, with all calls paired; a summary that comes later is ignored."""
        conversation = condensing()
        late = conversation.flying(CompactHistory)

        conversation.cancels()

        conversation.rests_in(Idle)
        assert (conversation.ended.status, conversation.stopped()) == ("cancelled", [late])
        assert conversation.happens(HistoryCompacted, effect_id=late, summary="Late.").ignored
        assert conversation.said.condensed is None

    def test_a_close_ends_the_turn(self) -> None:
        """The conversation is closed with the turn."""
        conversation = condensing()

        conversation.closes()

        conversation.rests_in(Closed)
        assert (conversation.ended.status, conversation.wanted()) == ("cancelled", [Abort])

    def test_after_a_cancel_the_next_turn_condenses_again(self) -> None:
        """The window is still full."""
        conversation = condensing()
        conversation.cancels()

        conversation.says("second")

        conversation.rests_in(Compacting)

    def test_a_late_cancel_changes_nothing(self) -> None:
        """P40: a cancel that names an earlier turn is ignored."""
        assert condensing().cancels(turn=0).ignored


class TestAtRest:
    """`CompactionRequested` compacts the history without a turn."""

    def resting(self, **rules: Any) -> Conversation:
        """A conversation that is compacted at rest, after one turn."""
        conversation = started(**rules)
        conversation.model_says("One.", usage=FULL)
        conversation.wants_it_condensed()
        conversation.rests_in(Compacting)
        return conversation

    def test_everything_is_condensed(self) -> None:
        """All messages are compacted; no turn is under way, and none ends."""
        conversation = self.resting()
        assert conversation.wanted() == [CompactHistory]
        assert conversation.rests_in(Compacting).resume == "rest"

        conversation.history_is_condensed("They greeted each other.")

        conversation.rests_in(Idle)
        assert (conversation.wanted(), conversation.step.ended) == ([], None)
        assert shown(conversation) == []

    def test_then_the_next_turn_has_room(self) -> None:
        """P22: the next turn does not compact again."""
        conversation = self.resting()
        conversation.history_is_condensed()

        conversation.says("second")

        conversation.rests_in(LlmRequesting)
        assert shown(conversation) == ["second"]

    def test_a_failure_is_tried_again(self) -> None:
        """There are three attempts, as within a turn."""
        conversation = self.resting()
        conversation.breaks(CompactHistory)
        conversation.breaks(CompactHistory)
        assert conversation.rests_in(Compacting).attempt == 3

        conversation.history_is_condensed()

        conversation.rests_in(Idle)

    def test_failures_leave_it_as_it_was(self) -> None:
        """The conversation rests as before; the sentence is in the event; no turn ended."""
        conversation = self.resting()

        for _ in range(3):
            conversation.breaks(CompactHistory, sentence="The model is not well.")

        conversation.rests_in(Idle)
        event = conversation.history.log[-1].event
        assert isinstance(event, EffectFailed) and event.sentence == "The model is not well."
        assert (conversation.step.ended, conversation.wanted()) == (None, [])
        assert shown(conversation) == ["first", "One."]

    def test_a_cancel_leaves_it_as_it_was(self) -> None:
        """The compaction is stopped; no turn ended."""
        conversation = self.resting()

        conversation.cancels()

        conversation.rests_in(Idle)
        assert (conversation.wanted(), conversation.step.ended) == ([Abort], None)

    def test_a_close_leaves_it_as_it_was(self) -> None:
        """The compaction is stopped and the conversation closed; no turn ended."""
        conversation = self.resting()

        conversation.closes()

        conversation.rests_in(Closed)
        assert (conversation.wanted(), conversation.step.ended) == ([Abort], None)

    def test_a_message_meanwhile_is_refused_by_default(self) -> None:
        """P2: the conversation is busy."""
        conversation = self.resting()

        with pytest.raises(Refused) as refused:
            conversation.says("second")

        assert refused.value.code == "busy"

    @pytest.mark.parametrize("when_busy", ["queue", "steer"])
    @pytest.mark.parametrize("end", ["condensed", "failed", "cancelled"])
    def test_a_message_meanwhile_begins_a_turn_afterwards(self, when_busy: str, end: str) -> None:
        """Law 13: it is answered, however the compaction ends, and is not part of the summary."""
        conversation = self.resting(when_busy=when_busy)
        conversation.says("second")

        if end == "condensed":
            conversation.history_is_condensed()
        elif end == "failed":
            conversation.breaks(CompactHistory, "authentication")
        else:
            conversation.cancels()

        turn = conversation.state.turn
        assert turn.number == 2
        assert shown(conversation)[-1] == "second"
        assert conversation.step.ended is None

    def test_a_silent_message_meanwhile_enters_at_rest(self) -> None:
        """D6: it starts no turn, and the next turn reads it."""
        conversation = self.resting()
        conversation.agent_says("By the way.", silent=True)

        conversation.history_is_condensed()

        conversation.rests_in(Idle)
        assert shown(conversation) == ["By the way."]

    def test_a_message_meanwhile_can_be_taken_back(self) -> None:
        """P37: then no turn begins."""
        conversation = self.resting(when_busy="queue")
        conversation.says("second", event_id="m2")
        conversation.withdraws("m2")

        conversation.history_is_condensed()

        conversation.rests_in(Idle)

    def test_while_busy_it_is_refused(self) -> None:
        """During a turn, compaction follows from the threshold only."""
        conversation = started()

        with pytest.raises(Refused) as refused:
            conversation.wants_it_condensed()

        assert refused.value.code == "busy"

    def test_a_failed_conversation_may_be_condensed_and_tried_again(self) -> None:
        """After a turn failed because its request was too long, a person can compact and retry."""
        conversation = started()
        conversation.model_fails("authentication")

        conversation.wants_it_condensed()
        conversation.history_is_condensed()
        failed = conversation.rests_in(Failed)
        conversation.tries_again()

        assert conversation.rests_in(LlmRequesting).turn.tries_again == failed.turn


def test_the_moment_of_the_request_is_that_after_condensing() -> None:
    """J6: a request tells the time at which it is made."""
    conversation = condensing()
    conversation.now += timedelta(hours=1)

    conversation.history_is_condensed()

    assert conversation.requests()[-1].at == conversation.now


def test_no_default_model_has_a_window() -> None:
    """The host tells the window of its model; without one, nothing is compacted by itself."""
    assert [model.window for model in Policy().models] == [None]


def test_another_attempt_condenses_the_same_messages() -> None:
    """P21: it has an id of its own, the same last step, and the same turn whose messages stay."""
    conversation = condensing()
    first = conversation.in_flight()[conversation.flying(CompactHistory)]

    conversation.breaks(CompactHistory)

    again = conversation.in_flight()[conversation.flying(CompactHistory)]
    assert isinstance(first, CompactHistory) and first.turn is not None
    assert again == first.replace(effect_id=again.effect_id)
