"""Calls that a person must allow, as the pure machine takes them (case P36)."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import (
    Abort,
    AwaitingApproval,
    ExecuteTool,
    Idle,
    Limits,
    LlmRequesting,
    PersistToolResults,
    Refused,
    StartTimer,
    Step,
    Texts,
    ToolApproval,
    ToolExecuting,
)
from turnwise.states.transcript import Transcript

from ...support.conversation import Conversation, asking, call

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
