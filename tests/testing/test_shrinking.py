"""A failure is printed as a short program that repeats what happened."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from turnwise.states import (
    Event,
    LlmResponse,
    MessageWithdrawn,
    Opened,
    Refused,
    ToolAborted,
    ToolApproval,
    ToolCall,
    UserMessage,
)
from turnwise.testing import (
    History,
    LawBroken,
    Observation,
    Trace,
    as_program,
    check_laws,
    shrink_trace,
    trace_of,
    traces,
)
from turnwise.testing.laws import is_taken_or_refused, pairs_calls_with_results, runs_no_more_than_allowed
from turnwise.testing.shrinking import MAX_SHOWN, tell
from turnwise.testing.strategies import NOON, events

from ..support.conversation import Conversation, call
from ..support.planted.machines import crashes, plant, runs_one_too_many

seen: list[Observation] = []


def remember(history: History) -> None:
    """A law of a host, which is never broken."""
    seen[:] = history.observations


def run(program: str) -> None:
    """Run a printed program as a test would."""
    names: dict[str, Any] = {"__name__": "pasted"}
    exec(compile(program, "pasted.py", "exec"), names)
    (test,) = (thing for name, thing in names.items() if name.startswith("test_"))
    test()


def told(trace: Trace) -> list[object]:
    """All that is known of a trace, in a form that can be compared."""
    outcomes = [vars(each.outcome) if isinstance(each.outcome, Refused) else each.outcome for each in trace]
    return [(each.before, each.event, each.context, outcome) for each, outcome in zip(trace, outcomes, strict=True)]


def two_tools(**rules: Any) -> Conversation:
    """A message, a cancel and another message; then the model calls two tools."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.cancels()
    conversation.says("Book a table")
    conversation.model_calls(call("find", arguments='{"party": 2}'), "book", content="Let me see")
    return conversation


class TestTheProgram:
    """`as_program`."""

    @pytest.mark.slow
    @given(traces())
    def test_it_does_again_what_happened(self, trace: Trace) -> None:
        """Whatever happened, the program leads to the same states, effects, refusals and endings."""
        run(as_program(trace, remember))

        assert told(tuple(seen)) == told(trace)

    @given(events())
    def test_it_says_exactly_what_an_event_said(self, event: Event) -> None:
        """For every event, with times at the ends of the calendar and texts that need escaping."""
        run(as_program((event,), remember))

        assert seen[0].event == event

    def test_it_is_one_line_an_event_and_says_only_what_is_unusual(self) -> None:
        """It omits defaults, writes times in seconds from the first event, and adds each outcome as a comment."""
        conversation = two_tools(parallel=2)
        conversation.history.take(UserMessage(event_id="more", at=conversation.now, text='He said "no"'))
        conversation.history.take(LlmResponse(effect_id=1, at=conversation.now, content="Too late"))

        program = as_program(conversation.history, runs_no_more_than_allowed)

        assert program == PROGRAM

    def test_a_moment_far_away_is_written_out(self) -> None:
        """In seconds it would be unreadable and lose digits."""
        opened = Opened(event_id="opened", at=NOON)
        message = UserMessage(event_id="late", at=NOON.replace(year=9999, microsecond=1), text="Hello")

        program = as_program((opened, message))

        assert "at=datetime(9999, 6, 1, 12, 0, 0, 1, tzinfo=UTC)" in program

    def test_without_a_law_it_checks_them_all(self) -> None:
        """A trace that breaks no law can be written as a program too."""
        program = as_program(two_tools().history.observations)

        run(program)
        assert program.endswith("    check_laws(history.observations)\n")

    def test_a_law_that_cannot_be_imported_must_be_brought_along(self) -> None:
        """The program names the law and imports only what it can."""

        def nothing_happens(history: History) -> None:
            raise AssertionError

        program = as_program(two_tools().history, nothing_happens)

        assert "import nothing_happens" not in program
        assert program.endswith("    check_newest(history, nothing_happens)\n")


PROGRAM = '''\
from datetime import UTC, datetime, timedelta

from turnwise.states import LlmResponse, Opened, Policy, ToolCall, UserCancel, UserMessage
from turnwise.testing import History, check_newest
from turnwise.testing.laws import runs_no_more_than_allowed


def at(seconds: float) -> datetime:
    return datetime(2026, 6, 1, 12, 0, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def test_runs_no_more_than_allowed() -> None:
    """Law 6: one model request at a time, no more tools than the policy allows, an exclusive call alone, and no call \
that a person must allow and has not allowed."""
    history = History()
    history.take(Opened(at=at(0), event_id="request-0", policy=Policy(parallel=2)))  # idle
    history.take(UserMessage(at=at(1), event_id="request-1", text="Hello"))  # llm_requesting
    history.take(UserCancel(at=at(2), event_id="request-2"))  # idle
    history.take(UserMessage(at=at(3), event_id="request-3", text="Book a table"))  # llm_requesting
    history.take(LlmResponse(at=at(4), effect_id=2, content="Let me see", tool_calls=(ToolCall(call_id="find", \
name="find", raw_arguments='{"party": 2}'), ToolCall(call_id="book", name="book"))))  # tool_executing
    history.take(UserMessage(at=at(4), event_id="more", text='He said "no"'))  # refused: busy
    history.take(LlmResponse(at=at(4), effect_id=1, content="Too late"))  # ignored

    check_newest(history, runs_no_more_than_allowed)
'''


def program_in(broken: Exception) -> str:
    """The program that a failure shows."""
    (note,) = (note for note in broken.__notes__ if "written as a program" in note)
    return note.partition("\n\n")[2]


class TestAFailure:
    """A broken law raises an error that shows the program."""

    def test_it_shows_the_program(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The program fails as the conversation did, and succeeds when the fault is corrected."""
        events = [each.event for each in two_tools().history.observations]

        with monkeypatch.context() as faulty:
            plant(faulty, runs_one_too_many)
            with pytest.raises(LawBroken, match="more tools run than the policy allows") as broken:
                check_laws(trace_of(events))
            with pytest.raises(LawBroken, match="more tools run than the policy allows"):
                run(program_in(broken.value))

        run(program_in(broken.value))

    def test_what_a_law_of_your_own_raises_gets_it_too(self) -> None:
        """A host's law may use `assert`, or raise by accident."""

        def is_short(history: History) -> None:
            assert len(history.log) < 4

        with pytest.raises(AssertionError) as broken:
            check_laws(two_tools().history.observations, is_short)

        assert program_in(broken.value) == as_program(two_tools().history.observations[:4], is_short)

    def test_outside_of_hypothesis_it_is_told_as_it_happened(self) -> None:
        """Without shrinking, since somebody chose these events."""
        broken = LawBroken("")

        trace = tell(broken, two_tools().history.observations, remember)

        assert trace == tuple(two_tools().history.observations)

    def test_nothing_is_cut_short(self) -> None:
        """A program that is too long is omitted completely: a part of it would show another conversation."""
        conversation = two_tools()
        conversation.history.take(UserMessage(event_id="long", at=conversation.now, text="x" * MAX_SHOWN))
        broken = LawBroken("")

        tell(broken, conversation.history.observations, remember)

        assert broken.__notes__ == [
            "The 6 events that led there are too long to print; as_program() writes them down.",
        ]


def takes_nothing_back_and_allows_nothing(history: History) -> None:
    """A law that a withdrawal or an approval breaks."""
    assert not (history.withdrawn and history.allowed)


class TestMadeShorter:
    """`shrink_trace` removes from a trace what does not matter for its failure."""

    def test_what_does_not_matter_goes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A cancelled turn, texts, arguments and rules are removed; answers keep referring to their effects."""
        events = [each.event for each in two_tools(when_busy="queue").history.observations]
        plant(monkeypatch, runs_one_too_many)
        trace = trace_of(events)

        shortest = shrink_trace(trace, runs_no_more_than_allowed)

        assert [each.event for each in shortest] == [
            Opened(event_id="request-0", at=events[0].at),
            UserMessage(event_id="request-1", at=events[1].at, text="a"),
            LlmResponse(
                effect_id=1,
                at=events[2].at,
                tool_calls=(ToolCall(call_id="call-1", name="find"), ToolCall(call_id="call-2", name="book")),
            ),
        ]

    def test_an_answer_ends_what_waits_for_it_where_the_rest_is_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A retry's request is removed with the failure before it; its response then answers the first request."""
        conversation = Conversation()
        conversation.says()
        conversation.model_fails("internal")
        conversation.tries_again()
        conversation.model_calls("find", "book")
        events = [each.event for each in conversation.history.observations]
        plant(monkeypatch, runs_one_too_many)

        shortest = shrink_trace(trace_of(events), runs_no_more_than_allowed)

        assert [each.event.type for each in shortest] == ["opened", "user_message", "llm_response"]

    def test_ids_stay_those_of_what_they_name(self) -> None:
        """A withdrawal still names its message and an approval its call, when both ids are shortened."""
        conversation = Conversation(when_busy="queue")
        conversation.says()
        conversation.model_says("Hello")
        conversation.says()
        conversation.says("Hurry")
        conversation.happens(MessageWithdrawn, message_id=conversation.history.newest.event.event_id)
        conversation.model_calls(call("9d3e", approval=True))
        conversation.happens(ToolApproval, call_id="9d3e", allowed=True)

        shortest = shrink_trace(conversation.history.observations, takes_nothing_back_and_allows_nothing)

        events = [each.event for each in shortest]
        assert [type(event) for event in events] == [
            Opened,
            UserMessage,
            UserMessage,
            MessageWithdrawn,
            LlmResponse,
            ToolApproval,
        ]
        assert events[3].message_id == events[2].event_id == "request-2"
        assert events[5].call_id == events[4].tool_calls[0].call_id == "call-1"

    def test_an_event_that_cannot_happen_stays_the_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If a handler raises, the same exception must remain."""
        plant(monkeypatch, crashes)
        conversation = two_tools()
        stopped = ToolAborted(effect_id=conversation.running("find"), at=conversation.now)

        shortest = shrink_trace((*conversation.history.observations, stopped), is_taken_or_refused)

        assert [type(each) for each in shortest] == [Observation, Observation, Observation, ToolAborted]
        assert shortest[-1].effect_id == 2

    def test_what_breaks_nothing_stays_as_it_is(self) -> None:
        """A trace that breaks no law is not changed."""
        trace = tuple(two_tools().history.observations)

        assert shrink_trace(trace, pairs_calls_with_results) == trace
