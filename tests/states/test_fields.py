"""The fields of values: what may stand in them, and what is meant where one is left out.

Both belong to the format of what is stored. A field at its default is not written, so a default that changed would
change what an old log says; and a bound that was wider let in what a narrower one would refuse to read back.
"""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.states import (
    Abort,
    Annotation,
    AwaitingApproval,
    Book,
    Cancelling,
    Closed,
    Context,
    ExecuteTool,
    Failed,
    Heard,
    Idle,
    Limits,
    LlmFailed,
    LlmRequesting,
    LlmResponse,
    LogEntry,
    Message,
    ModelSpec,
    Opened,
    Policy,
    PolicyChanged,
    QuestionOption,
    Questions,
    RequestLlm,
    Retry,
    RetryWaiting,
    Round,
    RoundCall,
    SettledCall,
    StartTimer,
    State,
    Step,
    Timer,
    ToolApproval,
    ToolCall,
    ToolResult,
    TurnEnded,
    TurnRecord,
    Usage,
    UserCancel,
    UserMessage,
    UserQuestion,
    UserQuestionResponse,
    Waiting,
)
from turnwise.states.effects import AnyEffect
from turnwise.states.events import AnyEvent
from turnwise.states.states import STATES, AnyState
from turnwise.states.values.turn import MAX_INBOX
from turnwise.states.values.value import MAX_QUOTED, MAX_SENTENCE, MAX_TEXT, Value
from turnwise.testing.strategies import NOON

from ..support.cases import holds_for
from ..support.conversation import call

TIMES = {"at": "2030-01-01T12:00:00Z"}
SENT = {"event_id": "1", **TIMES}

LEFT_OUT: list[tuple[type[Value], dict[str, Any]]] = [
    (Context, {"system": ""}),
    (Book, {"seq": 0, "turn": 0, "next_effect": 1, "window_used": 0}),
    (LlmRequesting, {"inbox": (), "attempt": 1}),
    (RetryWaiting, {"inbox": ()}),
    (AwaitingApproval, {"inbox": (), "deadline": None}),
    (Cancelling, {"inbox": (), "closing": False}),
    (Failed, {"inbox": ()}),
    (Waiting, {"steer": False}),
    (TurnRecord, {"model": 0, "requests": 0, "only_thought": False, "tool_calls": 0}),
    (TurnEnded, {"final_content": None, "truncated": False, "failure": None}),
    (Round, {"running": (), "settled": (), "allowed": ()}),
    (RoundCall, {"approval": False, "exclusive": False, "crash": "at_most_once", "acts": ()}),
    (Heard, {"index": 0}),
    (Usage, {"input_tokens": 0, "output_tokens": 0, "cost": None}),
    (ToolCall, {"raw_arguments": "{}", "provider_id": "", "fault": None, "approval": False, "exclusive": False}),
    (ToolCall, {"crash": "at_most_once", "acts": ()}),
    (ToolResult, {"error": False}),
    (SettledCall, {"error": False}),
    (RequestLlm, {"tool_choice": "auto"}),
    (Message, {"text": "", "thinking": "", "opaque": (), "tool_calls": (), "message_id": "", "tool_call_id": None}),
    (Message, {"error": False, "turn": 0, "model": ""}),
    (Opened, {"system": ""}),
    (UserMessage, {"when_busy": None}),
    (UserQuestionResponse, {"annotations": {}, "call_id": None}),
    (ToolApproval, {"note": "", "arguments": None}),
    (UserCancel, {"turn": None, "call_id": None}),
    (LlmResponse, {"content": "", "thinking": "", "opaque": (), "tool_calls": (), "finish_reason": "stop"}),
    (LlmResponse, {"model": "", "digest": ""}),
    (LlmFailed, {"retry_after": None}),
    (QuestionOption, {"description": None, "preview": None}),
    (UserQuestion, {"header": None, "multi_select": False}),
    (Annotation, {"notes": ""}),
    (Questions, {"alongside": "in_order", "answer": "json", "cancel": "idle", "partial": False, "deadline": None}),
    (Limits, {"requests": 50, "last": "answer_now", "tool_calls": None, "tokens": None, "cost": None, "seconds": None}),
    (Retry, {"attempts": 3, "base": 1.0, "factor": 2.0, "cap": 60.0}),
    (Policy, {"approval_deadline": None, "parallel": 1, "when_busy": "refuse", "cancel_deadline": 5.0}),
    (Policy, {"models": (ModelSpec(name="default"),)}),
]


class TestWhatIsLeftOut:
    """A default value is part of the format."""

    @holds_for(("kind", "fields"), LEFT_OUT)
    def test_a_field_that_is_not_written_means_this(self, kind: type[Value], fields: dict[str, Any]) -> None:
        """A log that was written before the field existed still means the same."""
        meant = {name: kind.model_fields[name].get_default(call_default_factory=True) for name in fields}

        assert meant == fields

    def test_what_nothing_happened_to_is_empty(self) -> None:
        """So is a step that only rests, and its entry in a log."""
        step = Step(Idle())

        assert (step.effects, step.ended, step.withdrawn, step.ignored) == ((), None, (), False)
        entry = LogEntry(seq=1, event=UserCancel(event_id="1", at=NOON))
        assert (entry.effects, entry.ended, entry.turn) == ((), None, 0)

    def test_the_shortest_of_everything(self) -> None:
        """Only what has no default is written, and always the `type`."""
        assert Idle().to_json() == '{"type":"idle"}'
        assert Closed().to_json() == '{"type":"closed"}'
        assert Abort(effect_id=1).to_json() == '{"type":"abort","effect_id":1}'


class TestHabits:
    """Values are frozen, and exact about their fields."""

    def test_a_value_cannot_be_changed(self) -> None:
        """So whoever holds it may rely on it."""
        with pytest.raises(ValidationError, match="frozen"):
            Book().seq = 1  # type: ignore[misc]

        assert len({Book(), Book(), Book(seq=1)}) == 2

    @pytest.mark.parametrize("kind", [Idle, Policy, Usage, Book])
    def test_a_field_that_nobody_declared_is_refused(self, kind: type[Value]) -> None:
        """It is not dropped silently."""
        with pytest.raises(ValidationError, match="extra"):
            kind.model_validate({"unheard_of": 1})

    @pytest.mark.parametrize("kind", [PolicyChanged, Opened])
    def test_rules_are_written_whole(self, kind: Any) -> None:
        """A policy is stored with all its fields, so a default that changes later does not change an old log."""
        written = kind(event_id="1", at=NOON, policy=Policy()).to_json()

        assert Policy().model_dump_json() in written
        assert TypeAdapter(AnyEvent).validate_json(written).to_json() == written

    @pytest.mark.parametrize(
        ("family", "written"),
        [
            (AnyState, {"type": "nowhere"}),
            (AnyEvent, {"type": "nothing", **SENT}),
            (AnyEffect, {"type": "nothing"}),
            (AnyState, {}),
        ],
    )
    def test_a_type_that_nobody_knows_is_refused(self, family: Any, written: dict[str, Any]) -> None:
        """With one error about the type, instead of one for each member of the family."""
        with pytest.raises(ValidationError) as fault:
            TypeAdapter(family).validate_python(written)

        assert fault.value.error_count() == 1
        assert fault.value.errors()[0]["type"].startswith("union_tag")


SMALLEST: list[tuple[type[Value], str, Any, Any]] = [
    (Usage, "input_tokens", 0, -1),
    (Usage, "output_tokens", 0, -1),
    (Usage, "cost", 0.0, -0.5),
    (Limits, "requests", 1, 0),
    (Limits, "tool_calls", 0, -1),
    (Limits, "tokens", 1, 0),
    (Limits, "cost", 0.5, 0.0),
    (Limits, "seconds", 0.5, 0.0),
    (Retry, "attempts", 1, 0),
    (Retry, "base", 0.0, -0.5),
    (Retry, "factor", 1.0, 0.5),
    (Retry, "cap", 0.0, -0.5),
    (Policy, "parallel", 1, 0),
    (Policy, "models", (ModelSpec(name="m"),), ()),
    (Policy, "cancel_deadline", 0.0, -0.5),
    (Policy, "approval_deadline", 0.0, -0.5),
    (Questions, "deadline", 0.0, -0.5),
    (ModelSpec, "name", "m", ""),
]

FINITE = [
    (Usage, "cost"),
    (Limits, "cost"),
    (Limits, "seconds"),
    (Retry, "base"),
    (Retry, "factor"),
    (Retry, "cap"),
    (Policy, "cancel_deadline"),
    (Questions, "deadline"),
]


class TestBounds:
    """The bound itself is allowed; one step beyond it is refused."""

    @holds_for(("kind", "field", "inside", "outside"), SMALLEST)
    def test_the_smallest(self, kind: type[Value], field: str, inside: Any, outside: Any) -> None:
        """A smaller value would have no meaning."""
        assert getattr(kind.model_validate({field: inside}), field) == inside
        with pytest.raises(ValidationError, match=field):
            kind.model_validate({field: outside})

    @holds_for(("kind", "field"), FINITE)
    def test_numbers_are_numbers(self, kind: type[Value], field: str) -> None:
        """Infinity and NaN are refused, since JSON cannot hold them."""
        for number in (float("inf"), float("nan")):
            with pytest.raises(ValidationError, match=field):
                kind.model_validate({field: number})

    @pytest.mark.parametrize("wait", [-0.5, float("inf"), float("nan")])
    def test_a_provider_asks_for_a_wait_that_can_be_waited(self, wait: float) -> None:
        """It is neither negative nor infinite."""
        failed = {"effect_id": 1, "kind": "timeout", "sentence": "Slow.", **TIMES}

        assert LlmFailed.model_validate({**failed, "retry_after": 0.0}).retry_after == 0.0
        with pytest.raises(ValidationError, match="retry_after"):
            LlmFailed.model_validate({**failed, "retry_after": wait})

    @pytest.mark.parametrize(("shortest", "longest"), [(1, 200)])
    def test_an_id_of_a_request(self, shortest: int, longest: int) -> None:
        """It is not empty, and not longer than an id may be."""
        for length in (shortest, longest):
            assert len(UserCancel(event_id="x" * length, at=NOON).event_id) == length
        for length in (shortest - 1, longest + 1):
            with pytest.raises(ValidationError, match="event_id"):
                UserCancel(event_id="x" * length, at=NOON)

    def test_the_bounds_that_are_ours(self) -> None:
        """The length of a request's text, the size of an inbox, the length of a sentence, and how much a sentence
        quotes."""
        assert (MAX_TEXT, MAX_INBOX, MAX_SENTENCE, MAX_QUOTED) == (1_000_000, 100, 500, 200)

    def test_a_text_of_a_request(self) -> None:
        """It has at most `MAX_TEXT` characters."""
        assert len(UserMessage(text="x" * MAX_TEXT, **SENT).text) == MAX_TEXT
        with pytest.raises(ValidationError, match="text"):
            UserMessage(text="x" * (MAX_TEXT + 1), **SENT)

    def test_a_message_says_something(self) -> None:
        """A message of blanks is refused, and the sentence says why."""
        with pytest.raises(ValidationError) as fault:
            UserMessage(text=" \n", **SENT)

        (error,) = fault.value.errors()
        assert (error["type"], error["msg"]) == ("message_empty", "a message must not be empty")

    def test_a_note_of_a_person(self) -> None:
        """It has at most 2,000 characters."""
        assert len(ToolApproval(call_id="a", allowed=False, note="x" * 2_000, **SENT).note) == 2_000
        with pytest.raises(ValidationError, match="note"):
            ToolApproval(call_id="a", allowed=False, note="x" * 2_001, **SENT)

    def test_the_calls_of_a_response_are_told_apart(self) -> None:
        """Their ids are not empty, and all different."""
        with pytest.raises(ValidationError) as fault:
            LlmResponse(effect_id=1, at=NOON, tool_calls=(call("a"), call("a")))
        (error,) = fault.value.errors()
        assert (error["type"], error["msg"]) == (
            "call_ids_repeat",
            "the ids of the calls in one response must differ",
        )

        with pytest.raises(ValidationError, match="call_id"):
            ToolCall(call_id="", name="a")

    @pytest.mark.parametrize("crash", ["pure", "idempotent", "reconcile", "at_most_once"])
    def test_what_may_happen_to_a_call_after_a_crash(self, crash: str) -> None:
        """There are four crash contracts; any other is refused, in a call and in the effect that runs it."""
        made = RoundCall.of(call("a", crash=crash), 1)

        effect = ExecuteTool(effect_id=1, call=made)
        assert effect.call.crash == crash
        with pytest.raises(ValidationError, match="crash"):
            call("a", crash=crash.upper())


class TestWorks:
    """`works` says whether something would be interrupted if the process died."""

    def test_the_world_moves_it_next(self) -> None:
        """It waits for a request, for a tool, or for a timer."""
        requesting = LlmRequesting(effect_id=1, turn=TurnRecord(number=1, since=NOON))

        assert requesting.works
        assert not Idle().works

    def test_a_person_moves_it_next(self) -> None:
        """It waits for a person; a deadline does not change that, since the wait outlives the process."""
        held = RoundCall.of(call("a", approval=True), 1)
        turn = TurnRecord(number=1, since=NOON)
        deadline = Timer(effect_id=1, due=NOON)

        waits = AwaitingApproval(call=held, round=Round(calls=(held,)), since=NOON, turn=turn, deadline=deadline)

        assert waits.awaited()
        assert not waits.works


@holds_for("kind", STATES)
def test_a_state_has_a_timer_where_it_has_one_in_flight(kind: type[State]) -> None:
    """A store finds the timer that is due next by the states that name `StartTimer` in `IN_FLIGHT`."""
    types = {one for hint in get_type_hints(kind).values() for one in (hint, *get_args(hint))}

    assert (Timer in types) == (StartTimer in kind.IN_FLIGHT)
