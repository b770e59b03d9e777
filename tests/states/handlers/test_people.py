"""Calls that a person must allow, and calls that ask a person in their middle, as the pure machine takes them."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.engine.recovery import reports
from turnwise.states import (
    Abort,
    AwaitingApproval,
    AwaitingUserResponse,
    Cancelling,
    Closed,
    ExecuteTool,
    Heard,
    Idle,
    InDoubt,
    Limits,
    LlmRequesting,
    PersistToolResults,
    Questions,
    ReconcileTool,
    Refused,
    ResumeTool,
    StartTimer,
    Step,
    Texts,
    ToolAborted,
    ToolApproval,
    ToolExecuting,
    ToolInterrupted,
    ToolReconciled,
)
from turnwise.states.states import pending
from turnwise.states.transcript import Transcript
from turnwise.testing.strategies import NOON

from ...support.conversation import Conversation, asking, call, question

# --- Calls that a person must allow, as the pure machine takes them (case P36).


TEXTS = Texts()


def held(**rules: Any) -> Conversation:
    """A round of three calls, of which the second must be approved."""
    conversation = Conversation(parallel=3, **rules)
    conversation.says()
    conversation.model_calls("look", call("pay", approval=True, arguments='{"sum": 5}'), "write")
    conversation.tool_ends("look")
    return conversation


def approves(conversation: Conversation, allowed: bool, call_id: str = "pay", **fields: Any) -> Step:
    """A person allows the call, or does not."""
    return conversation.happens(ToolApproval, call_id=call_id, allowed=allowed, **fields)


class TestHeldUp:
    """A call that must be approved does not run before that."""

    def test_the_call_waits_and_so_do_those_behind_it(self) -> None:
        """P36: the calls before it have run, those behind it have not; there is no deadline unless one is set."""
        conversation = held()

        state = conversation.rests_in(AwaitingApproval)

        assert (state.call.name, state.since, state.deadline) == ("pay", conversation.now, None)
        assert conversation.tools() == []

    def test_it_waits_for_those_before_it(self) -> None:
        """A call that must be allowed is a barrier, like an exclusive one."""
        conversation = Conversation(parallel=3)
        conversation.says()

        conversation.model_calls("look", call("pay", approval=True), "write")

        conversation.rests_in(ToolExecuting)
        assert conversation.tools() == ["look"]

    def test_beyond_the_limit_nobody_is_asked(self) -> None:
        """P36: if the limit of calls is reached, the call could not run, so nobody is asked."""
        conversation = held(limits=Limits(tool_calls=1))

        conversation.rests_in(LlmRequesting)
        assert conversation.results() == {"look": "done", "pay": TEXTS.not_run, "write": TEXTS.not_run}

    def test_with_the_time_over_nobody_is_asked(self) -> None:
        """P36: the same holds for a limit of time that was reached while the call before it ran."""
        conversation = held(limits=Limits(seconds=2))

        conversation.rests_in(Idle)
        assert conversation.results() == {"look": "done", "pay": TEXTS.not_run, "write": TEXTS.not_run}

    def test_a_cancel_ends_the_turn(self) -> None:
        """Neither the call nor those behind it have run."""
        conversation = held()

        conversation.cancels()

        conversation.rests_in(Idle)
        assert conversation.results() == {"look": "done", "pay": TEXTS.skipped, "write": TEXTS.skipped}


class TestAllowed:
    """A person approves the call."""

    def test_it_runs_alone_and_then_the_others(self) -> None:
        """P36: it runs alone, then the others run, and the round is paired."""
        conversation = held()

        approves(conversation, True)
        assert conversation.tools() == ["pay"]
        conversation.tool_ends("pay", "paid")
        conversation.tool_ends("write")

        assert conversation.results() == {"look": "done", "pay": "paid", "write": "done"}

    def test_each_call_is_allowed_for_itself(self) -> None:
        """Approving one call does not approve the next."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("a", approval=True), call("b", approval=True))

        approves(conversation, True, "a")
        conversation.tool_ends("a")

        assert conversation.rests_in(AwaitingApproval).call.name == "b"
        assert conversation.rests_in(AwaitingApproval).round.allowed == ("a",)
        approves(conversation, True, "b")
        assert conversation.rests_in(ToolExecuting).round.allowed == ("a", "b")

    @pytest.mark.parametrize(
        ("edited", "arguments"),
        [(None, '{"sum": 5}'), ({"sum": 3}, '{"sum": 3}'), ({"for": "食事"}, '{"for": "食事"}')],
    )
    def test_it_runs_with_the_arguments_of_the_person(self, edited: dict[str, Any] | None, arguments: str) -> None:
        """P36: arguments that the person edited are used, in any script; otherwise those of the model are."""
        conversation = held()
        approves(conversation, True, arguments=edited)
        told = Transcript()

        for entry in conversation.history.log:
            told.add(entry)

        assert told.call("pay").raw_arguments == arguments
        assert told.call("look").raw_arguments == "{}"
        assert told.messages[1].tool_calls[1].raw_arguments == '{"sum": 5}'

    @pytest.mark.parametrize("place", ["idle", "requesting", "waiting", "executing", "asked", "cancelling", "failed"])
    def test_where_nothing_waits_for_it_a_yes_is_refused(self, place: str) -> None:
        """In every other state it is refused with `wrong_state`, and nothing happens."""
        conversation = Conversation()
        if place != "idle":
            conversation.says()
        if place in ("waiting", "failed"):
            conversation.model_fails("timeout" if place == "waiting" else "authentication")
        elif place not in ("idle", "requesting"):
            conversation.model_calls(asking())
        if place == "asked":
            conversation.tool_asks()
        elif place == "cancelling":
            conversation.cancels()

        with pytest.raises(Refused) as refused:
            approves(conversation, True)

        assert refused.value.code == "wrong_state"

    def test_a_yes_to_an_earlier_call_is_refused(self) -> None:
        """P40: an approval that names an earlier call, such as a late click, changes nothing."""
        conversation = held()

        with pytest.raises(Refused) as refused:
            approves(conversation, True, "look")

        assert refused.value.code == "wrong_state"


class TestDenied:
    """A person denies the call, or does not answer."""

    @pytest.mark.parametrize(("note", "result"), [("", TEXTS.denied), ("Too dear", f"{TEXTS.denied}: Too dear")])
    def test_it_does_not_run(self, note: str, result: str) -> None:
        """P36: its result is an error with the note, if there is one, and the other calls run."""
        conversation = held()

        approves(conversation, False, note=note)

        assert (conversation.transcript[-1].text, conversation.transcript[-1].error) == (result, True)
        assert conversation.tools() == ["write"]

    def test_nobody_says_anything_in_time(self) -> None:
        """P36: at the deadline the call is denied."""
        conversation = held(approval_deadline=60)
        timer = conversation.rests_in(AwaitingApproval).deadline
        assert timer is not None and (timer.due - conversation.now).total_seconds() == 60
        assert conversation.wanted() == [PersistToolResults, StartTimer]

        conversation.timer_rings()

        assert (conversation.transcript[-1].text, conversation.transcript[-1].error) == (TEXTS.denied_in_time, True)
        assert conversation.tools() == ["write"]

    def test_an_answer_takes_the_deadline_back(self) -> None:
        """The timer is stopped before the call starts; otherwise it would end the next approval."""
        conversation = held(approval_deadline=60)
        timer = conversation.flying(StartTimer)

        approves(conversation, True)

        assert conversation.wanted() == [Abort, ExecuteTool]
        assert conversation.stopped() == [timer]


# --- A call that asks a person in its middle, and then goes on.


def deleting(crash: str = "at_most_once", /, **rules: Any) -> Conversation:
    """A conversation whose model has called a tool that asks in its middle, and another tool."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.model_calls(call("delete", exclusive=True, crash=crash), "next")
    return conversation


def waiting(crash: str = "at_most_once", /, **rules: Any) -> Conversation:
    """The same, when the tool has asked."""
    conversation = deleting(crash, **rules)
    conversation.tool_asks("delete", suspends=True)
    return conversation


def effects(conversation: Conversation, kind: type[Any]) -> list[Any]:
    """The effects of this type that the newest step asks for."""
    return [effect for effect in conversation.step.effects if isinstance(effect, kind)]


class TestTheAnswer:
    """What the person does is passed on to the call."""

    def test_the_call_waits_and_has_no_result(self) -> None:
        """The conversation rests for the person; nothing is in flight, and the calls behind it keep their places."""
        conversation = waiting()

        state = conversation.rests_in(AwaitingUserResponse)

        assert state.suspends and state.ends_with_process and not state.works
        assert (state.in_flight(), state.round.settled) == ({}, ())
        assert [queued.name for queued in state.round.queued] == ["next"]

    def test_the_answers_are_passed_on_by_reference(self) -> None:
        """The answers stand once, in their event; the call goes on as a new effect that names its first."""
        conversation = waiting()
        first = conversation.history.effects.began

        conversation.answers({"When?": "Now"})

        (resumed,) = effects(conversation, ResumeTool)
        assert (resumed.reply, resumed.said) == ("answered", Heard(seq=conversation.state.book.seq))
        assert resumed.started_as in first and resumed.effect_id not in {resumed.started_as}
        assert conversation.rests_in(ToolExecuting).in_flight() == {resumed.effect_id: ResumeTool}

    def test_the_result_is_the_tools_own(self) -> None:
        """The answer is no result; the round goes on when the call ends."""
        conversation = waiting()
        conversation.answers({"When?": "Now"})

        conversation.tool_ends("delete", "deleted")
        conversation.tool_ends("next")

        conversation.rests_in(LlmRequesting)
        assert [one.text for one in conversation.history.transcript if one.role == "tool"] == ["deleted", "done"]

    def test_a_call_may_ask_again(self) -> None:
        """Each time it goes on as another effect, and always names its first."""
        conversation = waiting()
        conversation.answers({"When?": "Now"})
        conversation.tool_asks("delete", question("Why?"), suspends=True)
        conversation.answers({"Why?": "Later"})

        (resumed,) = effects(conversation, ResumeTool)
        assert resumed.started_as == 2
        assert conversation.rests_in(ToolExecuting).round.running[0].first_id == 2

    def test_a_call_may_end_with_a_question(self) -> None:
        """After it was resumed it may ask in the other way, too: then the answer is its result."""
        conversation = waiting()
        conversation.answers({"When?": "Now"})
        conversation.tool_asks("delete", question("Why?"))
        assert not conversation.rests_in(AwaitingUserResponse).suspends

        conversation.answers({"Why?": "Later"})

        assert conversation.rests_in(ToolExecuting).round.settled == ("delete",)

    def test_the_limits_count_anew_after_an_answer(self) -> None:
        """The person acted. A call that was started is not counted again."""
        conversation = waiting(limits=Limits(tool_calls=1))
        conversation.answers({"When?": "Now"})

        conversation.tool_ends("delete")

        conversation.rests_in(ToolExecuting)


class TestNoAnswer:
    """The person declines, cancels, closes, or does nothing."""

    def test_a_refusal_is_passed_on(self) -> None:
        """With `cancel="resume"` the call goes on and decides itself."""
        conversation = waiting(questions=Questions(cancel="resume"))

        conversation.cancels()

        assert effects(conversation, ResumeTool)[0].reply == "declined"
        conversation.rests_in(ToolExecuting)

    def test_a_deadline_is_passed_on(self) -> None:
        """Nobody answered in time, and the call goes on."""
        conversation = waiting(questions=Questions(deadline=60))

        conversation.timer_rings()

        assert effects(conversation, ResumeTool)[0].reply == "unanswered"
        conversation.rests_in(ToolExecuting)

    def test_a_cancel_stops_the_call(self) -> None:
        """The call is told to stop, and the turn ends when it has."""
        conversation = waiting(questions=Questions(deadline=60))
        conversation.cancels()
        assert effects(conversation, ResumeTool)[0].reply == "cancelled" and effects(conversation, Abort)
        conversation.rests_in(Cancelling)

        conversation.tool_stops("delete")

        conversation.rests_in(Idle)
        assert [one.text for one in conversation.history.transcript if one.role == "tool"] == [
            TEXTS.cancelled,
            TEXTS.skipped,
        ]

    def test_a_call_that_does_not_stop_is_left_at_the_deadline(self) -> None:
        """A cancel takes no longer than the policy says, and what comes later is ignored."""
        conversation = waiting()
        conversation.cancels()
        late = conversation.running("delete")

        conversation.timer_rings()

        conversation.rests_in(Idle)
        assert conversation.happens(ToolAborted, effect_id=late).ignored

    def test_a_close_stops_the_call(self) -> None:
        """The conversation is closed when the call has stopped."""
        conversation = waiting()
        conversation.closes()

        conversation.tool_stops("delete")

        conversation.rests_in(Closed)

    def test_a_question_that_comes_after_the_cancel_is_not_asked(self) -> None:
        """The call that waits for the answer is told to stop."""
        conversation = deleting()
        conversation.cancels()

        conversation.tool_asks("delete", suspends=True)

        assert effects(conversation, ResumeTool)[0].reply == "cancelled"
        conversation.rests_in(Cancelling)


class TestWhoMayWait:
    """Only an exclusive call."""

    def test_another_call_goes_on_without_an_answer(self) -> None:
        """Nobody is asked, and the call is not left waiting."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("look")

        conversation.tool_asks("look", suspends=True)

        assert effects(conversation, ResumeTool)[0].reply == "declined"
        conversation.rests_in(ToolExecuting)


class TestACrash:
    """The process dies while the call waits, or after it has gone on."""

    def test_only_the_interruption_is_reported(self) -> None:
        """The deadline ends with the question, and the wait is not counted as a resume."""
        state = waiting(questions=Questions(deadline=60)).state

        assert reports(state, NOON, pending(state)) == (ToolInterrupted(at=NOON, call_id="delete"),)

    @pytest.mark.parametrize("crash", ["pure", "idempotent"])
    def test_a_call_that_may_run_twice_runs_again(self, crash: str) -> None:
        """Its first effect is answered, so it runs as a new one, which names the first for the idempotency key."""
        conversation = waiting(crash, questions=Questions(deadline=60))

        conversation.tool_was_interrupted("delete")

        (again,) = effects(conversation, ExecuteTool)
        assert again.started_as == 2 and again.effect_id > 2
        assert effects(conversation, Abort)
        assert conversation.rests_in(ToolExecuting).resumes == 0

    def test_it_runs_again_under_its_new_id_after_another_crash(self) -> None:
        """That effect has no answer yet, so the id is used again."""
        conversation = waiting("pure")
        conversation.tool_was_interrupted("delete")
        (again,) = effects(conversation, ExecuteTool)

        conversation.tool_was_interrupted("delete")

        assert effects(conversation, ExecuteTool) == [again]

    def test_a_call_that_must_not_run_twice_is_in_doubt(self) -> None:
        """A person decides."""
        conversation = waiting()

        conversation.tool_was_interrupted("delete")

        assert conversation.rests_in(InDoubt).round.doubtful == ("delete",)

    def test_a_tool_that_can_be_asked_is_asked_about_its_first_effect(self) -> None:
        """What it did not run, runs again under a new id with the first key."""
        conversation = waiting("reconcile")
        conversation.tool_was_interrupted("delete")
        (asked,) = effects(conversation, ReconcileTool)

        conversation.tool_reconciles("delete", "did_not_run")

        (again,) = effects(conversation, ExecuteTool)
        assert (asked.started_as, again.started_as) == (2, 2)

    def test_an_interruption_of_another_call_is_ignored(self) -> None:
        """It does not wait."""
        conversation = waiting()

        assert conversation.tool_was_interrupted("next").ignored

    def test_a_call_that_was_resumed_is_interrupted_like_any_other(self) -> None:
        """It runs again, and asks again."""
        conversation = waiting("pure")
        conversation.answers({"When?": "Now"})
        left = pending(conversation.state)
        assert [type(one) for one in reports(conversation.state, NOON, left)][-1] is ToolInterrupted

        conversation.tool_was_interrupted("delete")
        conversation.tool_asks("delete", suspends=True)

        assert conversation.rests_in(AwaitingUserResponse).suspends

    @pytest.mark.parametrize(("verdict", "state"), [("unknown", InDoubt), ("did_not_run", ToolExecuting)])
    def test_a_call_that_is_not_found_is_left_to_its_contract(self, verdict: str, state: type[Any]) -> None:
        """The process that resumes it does not hold it: its performer says what the contract wants."""
        conversation = waiting("idempotent")
        conversation.answers({"When?": "Now"})

        conversation.happens(ToolReconciled, effect_id=conversation.running("delete"), verdict=verdict)

        conversation.rests_in(state)
