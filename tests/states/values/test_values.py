"""Values: what they accept, how they are written and read back, and which faults they report."""

from __future__ import annotations

import copy
import cProfile
import dataclasses
import json
import pickle
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from dataclasses import fields as steps_fields
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any, get_args, get_type_hints
from unittest.mock import ANY

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from turnwise import StoredEntry
from turnwise.effects.tools.arguments import TypedArguments
from turnwise.effects.tools.context import Question
from turnwise.effects.tools.normalization import InvalidArguments, describe_fault
from turnwise.engine.requests import make
from turnwise.states import (
    Abort,
    Annotation,
    AwaitingApproval,
    Book,
    Cancelling,
    Closed,
    Context,
    Event,
    ExecuteTool,
    Failed,
    FileReference,
    Heard,
    Idle,
    InvalidInput,
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
    Refused,
    RequestLlm,
    Retry,
    RetryDue,
    RetryWaiting,
    Round,
    RoundCall,
    Running,
    SettledCall,
    Speech,
    StartTimer,
    State,
    Step,
    Timer,
    ToolApproval,
    ToolCall,
    ToolResult,
    ToolsChanged,
    TurnEnded,
    TurnRecord,
    TurnwiseError,
    UnknownConversation,
    Usage,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    Waiting,
    begin,
)
from turnwise.states.effects import EFFECTS, AnyEffect, PersistMessage
from turnwise.states.errors import MAX_FAULTS, CompactionFailed, EngineClosed, RefusalCode, faults_of
from turnwise.states.events import EVENTS, AnyEvent, exact
from turnwise.states.states import STATES, AnyState
from turnwise.states.values.files import MAX_FILES
from turnwise.states.values.questions import MAX_QUESTIONS, UserQuestion, answers_as_json
from turnwise.states.values.round import fingerprint
from turnwise.states.values.turn import MAX_INBOX
from turnwise.states.values.value import (
    MAX_QUOTED,
    MAX_SENTENCE,
    MAX_TEXT,
    Block,
    Instant,
    RequestText,
    Tagged,
    Text,
    Value,
    adapter_of,
    is_nested_deeper,
    json_array,
    later,
    shortened,
)
from turnwise.testing.strategies import NOON

from ...support.cases import holds_for
from ...support.conversation import call, question

MESSAGE = UserMessage(event_id="1", at=NOON, text="Hello")


def kinds_of_fault(kind: Any, value: object) -> list[str]:
    """The types of the validation errors of this value."""
    with pytest.raises(ValidationError) as fault:
        TypeAdapter(kind).validate_python(value)
    return [error["type"] for error in fault.value.errors()]


def sentence_of(kind: Any, value: object) -> str:
    """The sentence of the one validation error of this value."""
    with pytest.raises(ValidationError) as fault:
        TypeAdapter(kind).validate_python(value)
    (error,) = fault.value.errors()
    return error["msg"]


class TestText:
    """Any text that can be written as UTF-8 is accepted."""

    @pytest.mark.parametrize("text", ["", "日本語", "👩‍👩‍👧", "\x00\u2028"])
    def test_any_script_stays_as_it_is(self, text: str) -> None:
        """A text is neither trimmed nor normalised."""
        assert TypeAdapter(Text).validate_python(text) == TypeAdapter(RequestText).validate_python(text) == text

    def test_half_a_character_is_refused(self) -> None:
        """A lone surrogate is refused."""
        assert kinds_of_fault(Text, "a\ud800") == ["string_unicode"]
        assert kinds_of_fault(RequestText, "a\ud800") != []

    def test_a_text_is_shortened_to_its_bound(self) -> None:
        """A text at the bound stays whole, and a longer one is cut so that it fits with the ellipsis."""
        assert [shortened("abcdef", limit) for limit in (7, 6, 5)] == ["abcdef", "abcdef", "abcd…"]


class TestBlock:
    """A JSON object of any content."""

    def test_it_is_kept_in_any_script(self) -> None:
        """Its texts are kept unchanged."""
        block = {"Wo?": "Köln", "どこ": ["東京", None, 1.5, True]}

        assert TypeAdapter(Block).validate_python(block) == block

    @pytest.mark.parametrize("sealed", [float("nan"), float("inf"), "\ud800"])
    def test_what_json_cannot_hold_is_refused(self, sealed: object) -> None:
        """Law 2: what JSON cannot hold exactly is refused."""
        with pytest.raises(ValueError):
            TypeAdapter(Block).validate_python({"a": sealed})


class TestMoments:
    """Moments are in UTC and within the calendar."""

    def test_a_moment_is_told_in_utc(self) -> None:
        """A moment in another time zone is converted to UTC."""
        in_berlin = datetime(2030, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))

        read = TypeAdapter(Instant).validate_python(in_berlin)

        assert read == in_berlin
        assert read.utcoffset() == timedelta(0)

    def test_the_clock_of_the_machine_does_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The time zone of the machine has no effect."""
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        try:
            assert TypeAdapter(Instant).validate_python(NOON).utcoffset() == timedelta(0)
        finally:
            monkeypatch.undo()
            time.tzset()

    def test_a_moment_outside_the_calendar_is_refused(self) -> None:
        """A moment that has no date in UTC is refused."""
        outside = "9999-12-31T23:59:59-01:00"

        assert kinds_of_fault(Instant, outside) == ["moment_out_of_range"]
        assert sentence_of(Instant, outside) == "the moment is outside the calendar"

    def test_later_ends_with_the_calendar(self) -> None:
        """`later` stops at the last moment that can be written, in UTC."""
        assert later(NOON, 1.5) == NOON + timedelta(seconds=1.5)
        assert later(NOON, 1e308) == datetime.max.replace(tzinfo=UTC)


class TestEventsOfOthers:
    """`exact` returns an event from foreign code as it will be read back, or refuses it."""

    def test_an_event_is_taken_as_it_is(self) -> None:
        """A valid event is returned unchanged."""
        event = LlmResponse(effect_id=1, at=NOON, content="日本語", tool_calls=(call("a"),), usage=Usage(cost=0.1))

        assert exact(event) == event
        assert exact(event).to_json() == event.to_json()
        assert exact(event).model_fields_set == type(event).model_validate_json(event.to_json()).model_fields_set

    def test_an_event_of_no_known_type_is_refused(self) -> None:
        """The base class of events and foreign types are refused."""

        class Shouted(UserMessage):
            """A message of somebody's own type."""

        for event in (Event(type="event", at=NOON), Shouted(event_id="1", at=NOON, text="HELLO")):
            with pytest.raises(ValueError, match=r"^this is not an event that a conversation knows$"):
                exact(event)

    @pytest.mark.parametrize("fields", [{"text": " "}, {"event_id": ""}, {"event_id": 7}, {"at": "noon"}], ids=str)
    def test_an_event_that_was_built_past_its_validation_is_refused(self, fields: dict[str, Any]) -> None:
        """An event that was constructed without validation and is not valid is refused."""
        built = UserMessage.model_construct(**{**dict(MESSAGE), **fields})

        with pytest.raises(ValueError):
            exact(built)

    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    def test_a_number_that_json_does_not_have_is_refused(self, number: float) -> None:
        """In a block, also deep inside, and in a field: none of them becomes null."""
        blocks = [{"sealed": number}, {"sealed": [{"n": number}]}]
        built: list[Event] = [LlmResponse(effect_id=1, at=NOON).replace(opaque=(block,)) for block in blocks]
        built.append(LlmFailed(effect_id=1, at=NOON, kind="network", sentence="No.").replace(retry_after=number))

        for event in built:
            with pytest.raises(ValueError):
                exact(event)

    @pytest.mark.parametrize("cost", [float("nan"), float("inf")])
    def test_a_price_that_json_does_not_have_is_unknown(self, cost: float) -> None:
        """The answer counts, whatever a table of prices says of it."""
        built = LlmResponse(effect_id=1, at=NOON, usage=Usage(input_tokens=1).replace(cost=cost))

        assert exact(built) == built.replace(usage=Usage(input_tokens=1))

    @pytest.mark.filterwarnings("ignore")
    def test_a_field_of_another_type_is_refused_though_it_reads_alike(self) -> None:
        """The text `"7"` in the place of a number is refused, although it could be read as one."""
        built = RetryDue.model_construct(type="retry_due", at=NOON, effect_id="7")

        with pytest.raises(ValueError, match="effect_id"):
            exact(built)


class TestTextsOfEvents:
    """`texts` lists the texts of an event in the order of `Heard.index`."""

    def test_a_message_has_one(self) -> None:
        """A message has its own text."""
        assert MESSAGE.texts == ("Hello",)

    def test_a_response_has_its_own_and_the_faults_of_its_calls(self) -> None:
        """A response has the model's text at 0 and the fault of its n-th call at 1 + n, which is empty for a call
        without a fault."""
        response = LlmResponse(
            effect_id=1, at=NOON, content="Let me see", tool_calls=(call("a", fault="No."), call("b"))
        )

        assert response.texts == ("Let me see", "No.", "")


class TestTheContext:
    """What holds for the whole conversation."""

    def test_it_begins_with_what_the_host_opened(self) -> None:
        """The context has the system prompt and the rules of `Opened`, or none and the default rules."""
        opened = Opened(event_id="1", at=NOON, system="Be kind.", policy=Policy(parallel=2))

        assert Context().after(opened) == Context(system="Be kind.", policy=Policy(parallel=2))
        assert (Context().system, Context().policy) == ("", Policy())

    def test_it_knows_for_whom_it_works(self) -> None:
        """D12, P25: the context names the conversation that a background agent or a sub-agent works for."""
        background = Opened(event_id="1", at=NOON, role="background", works_for="front")
        sub_agent = Opened(event_id="1", at=NOON, role="sub_agent", parent="front")

        assert Context().after(background) == Context(role="background", works_for="front")
        assert Context().after(sub_agent) == Context(role="sub_agent", parent="front")

    def test_rules_change_and_the_prompt_stays(self) -> None:
        """`PolicyChanged` changes the rules and nothing else."""
        context = Context(system="Be kind.")

        assert context.after(PolicyChanged(event_id="1", at=NOON, policy=Policy(parallel=2))) == Context(
            system="Be kind.", policy=Policy(parallel=2)
        )
        assert context.after(MESSAGE) is context


class TestUsage:
    """The cost of requests."""

    def test_it_adds_up(self) -> None:
        """Tokens and known prices are added; an unknown price counts as nothing beside a known one."""
        assert Usage(input_tokens=1, output_tokens=2) + Usage(input_tokens=10, output_tokens=20, cost=0.5) == Usage(
            input_tokens=11, output_tokens=22, cost=0.5
        )
        assert (Usage(cost=0.25) + Usage(cost=0.5)).cost == 0.75
        assert (Usage() + Usage()).cost is None
        assert (Usage(cost=0.0) + Usage()).cost == 0.0


class TestRounds:
    """A round finds its calls by the effects that run them."""

    def test_an_effect_that_runs_none_of_its_calls(self) -> None:
        """An unknown effect id raises KeyError."""
        called = RoundCall.of(call("a"), 1)
        round_ = Round(calls=(called,), running=(Running(effect_id=7, call_id="a"),))

        assert round_.call(7) == called
        with pytest.raises(KeyError, match="8"):
            round_.call(8)

    def test_a_call_that_is_none_of_its_own(self) -> None:
        """An unknown call id raises KeyError."""
        with pytest.raises(KeyError, match="other"):
            Round(calls=(RoundCall.of(call("a"), 1),)).named("other")

    def test_it_is_done_with_a_call_once(self) -> None:
        """A call that is settled twice, a question for example, is listed once."""
        asked = Round(calls=(RoundCall.of(call("a"), 1),)).settle("a")

        assert asked.settle("a").settled == asked.settled == ("a",)

    def test_a_call_keeps_all_that_says_how_it_may_run(self) -> None:
        """A `RoundCall` keeps every field that says how the call may run, and no text."""
        made = call("a", approval=True, exclusive=True, crash="idempotent", acts=("question",), arguments='{"n": 1}')

        kept = RoundCall.of(made, 3)

        assert json.loads(kept.to_json()) == {
            "call_id": "a",
            "name": "a",
            "seq": 3,
            "approval": True,
            "exclusive": True,
            "crash": "idempotent",
            "acts": ["question"],
        }


class TestQuestions:
    """Programs can tell the faults of questions apart."""

    def test_an_empty_text_is_a_fault_of_its_own_kind(self) -> None:
        """P16: an empty text has its own type of error."""
        assert kinds_of_fault(UserQuestion, {**question().model_dump(), "question": " "}) == ["text_blank"]

    def test_answers_are_written_in_any_script(self) -> None:
        """P15: answers are written in their own script, not as Unicode escapes."""
        assert answers_as_json({"どこ": "東京"}, {}) == '{"answers": {"どこ": "東京"}}'

    def test_a_reference_says_where_a_text_stands(self) -> None:
        """A reference is written with its step and the index of the text."""
        assert Heard(seq=3).to_json() == '{"type":"heard","seq":3}'


class Late(Value):
    """A field that must be given, behind one that may be left out."""

    left: int
    right: int = 2
    last: int


HEARD = (Heard(seq=3), adapter_of(Heard).validate_python({"seq": 3}), Heard(seq=3, index=9).replace(index=0))
"""A value that the machine made, the same one as it was read, and as it came out of a change."""


def python_calls(action: Callable[[], object]) -> int:
    """How many functions written in Python this action calls, with itself."""
    profile = cProfile.Profile(builtins=False)
    profile.runcall(action)
    return sum(entry.callcount for entry in profile.getstats() if not isinstance(entry.code, str))


class TestWriting:
    """A value is written as JSON by one call of pydantic-core."""

    def test_it_is_always_written_alike(self) -> None:
        """A value is written alike, in whatever order it was made and after it was read back, since the log holds
        digests of what is written."""
        made, built = Late(last=3, right=5, left=1), Late.model_construct(last=3, right=5, left=1)

        assert {one.to_json() for one in (made, built, Late.model_validate_json(made.to_json()))} == {
            '{"left":1,"right":5,"last":3}'
        }

    @holds_for("kind", EVENTS + EFFECTS + STATES)
    def test_the_type_is_the_first_field_of_its_family(self, kind: type[Tagged]) -> None:
        """Every event, effect and state has its type as its first field, so the type is written first."""
        assert next(iter(kind.model_fields)) == "type"

    def test_the_type_is_written_and_every_other_default_is_not(self) -> None:
        """A value that has nothing but defaults is written as its type, as JSON and as data."""
        assert Idle().to_json() == Idle().model_dump_json(exclude_defaults=True) == '{"type":"idle"}'
        assert Idle().model_dump(exclude_defaults=True) == {"type": "idle"}
        assert list(Idle().model_dump()) == ["type", "book"]

    def test_the_type_is_written_within_another_value(self) -> None:
        """A value in a field is written with its type, too."""
        assert PersistMessage(said=Heard(seq=3)).to_json() == (
            '{"type":"persist_message","said":{"type":"heard","seq":3}}'
        )

    def test_a_field_can_be_left_out(self) -> None:
        """The named fields are left out."""
        assert MESSAGE.to_json(exclude={"at", "event_id"}) == '{"type":"user_message","text":"Hello"}'

    def test_values_are_written_as_an_array_as_each_is_alone(self) -> None:
        """An array holds each value as its own `to_json` writes it."""
        values = (PersistMessage(said=Heard(seq=3)), Opened(event_id="1", at=NOON), MESSAGE, Usage(), Idle())

        assert json_array(values) == f"[{','.join(value.to_json() for value in values)}]"
        assert json_array(()) == "[]"

    def test_no_python_is_called_for_a_field(self) -> None:
        """Writing a value calls what writing one without fields does, and one comparison for each default that is a
        value itself."""
        message = PersistMessage(said=Heard(seq=3))
        response = LlmResponse(effect_id=1, at=NOON, content="a", usage=Usage(cost=0.1))
        for value in (Value(), message, response):
            value.to_json()  # what writes a class is made when it is first asked for
        without_fields = python_calls(Value().to_json)

        assert python_calls(message.to_json) == without_fields
        assert python_calls(response.to_json) == without_fields + 1


class TestEquality:
    """Values are equal if they are of one class and their fields are equal."""

    def test_how_a_value_was_made_makes_no_difference(self) -> None:
        """A value that the machine made equals one that was read or changed, and all have the same hash and text."""
        made, read, changed = HEARD

        assert made == read == changed
        assert hash(made) == hash(read) == hash(changed)
        assert repr(made) == repr(read) == repr(changed)

    def test_values_of_two_classes_differ(self) -> None:
        """Equal fields of two classes are two values, and so are a value and its fields."""

        class Twin(Heard):
            """The same fields."""

        assert Heard(seq=3) != Twin(seq=3)
        assert Twin(seq=3) != Heard(seq=3)
        assert Heard(seq=3) != vars(Heard(seq=3))
        assert Heard(seq=3) != Heard(seq=4)

    def test_something_that_compares_itself_is_asked(self) -> None:
        """An object that equals everything equals a value, on either side."""
        assert Heard(seq=3) == ANY
        assert Heard(seq=3) == ANY


@pytest.mark.parametrize("heard", HEARD, ids=["made", "read", "changed"])
class TestImmutability:
    """A value never changes, and a change is a new value."""

    def test_it_is_frozen(self, heard: Heard) -> None:
        """A field cannot be set, and neither can anything else."""
        for name in ("seq", "text"):
            with pytest.raises(FrozenInstanceError):
                setattr(heard, name, 4)

    def test_it_is_copied(self, heard: Heard) -> None:
        """It can be copied, deeply copied, pickled, and copied with a change; copies are equal and written alike."""
        copies = (copy.copy(heard), copy.deepcopy(heard), pickle.loads(pickle.dumps(heard)), heard.replace())

        assert all(one == heard and one.to_json() == heard.to_json() for one in copies)
        assert {hash(one) for one in copies} == {hash(heard)}
        assert heard.replace(index=7) == Heard(seq=3, index=7)


def test_calls_whose_arguments_are_no_json_are_told_apart_by_their_text() -> None:
    """B10: calls with arguments that are not JSON are compared by their text, and each fingerprint has 16 bytes."""
    broken, other = (fingerprint(call("read", arguments=text)) for text in ("{broken", "{other"))

    assert broken != other
    assert len(broken) == len(fingerprint(call("read"))) == 32


# --- How deeply JSON is nested.


@pytest.mark.parametrize(
    ("value", "depth"),
    [(1, 0), ("[[", 0), ([], 1), ({}, 1), ({"a": 1, "b": [2]}, 2), ([[], [[{"a": None}]]], 4)],
)
def test_every_list_and_object_is_a_level(value: Any, depth: int) -> None:
    """A value is deeper than one level less than it has, and not deeper than it is."""
    assert not is_nested_deeper(value, depth)
    assert depth == 0 or is_nested_deeper(value, depth - 1)


def test_a_deep_value_does_not_exhaust_the_stack() -> None:
    """Values are looked through layer by layer."""
    value: Any = None
    for _ in range(100_000):
        value = [value]

    assert is_nested_deeper(value, 50_000)


# --- However wrong a value is, nobody waits for a description of each of a million wrong items.


MANY = 20_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def fields(number: int = MANY) -> dict[str, Any]:
    """So many fields that no value has."""
    return {f"field {each}": each for each in range(number)}


class TestItems:
    """Questions and files are few, so no more of them are read."""

    @pytest.mark.parametrize(
        "make_value",
        [
            lambda: Question(["x"] * MANY),  # type: ignore[list-item]
            lambda: Question("x" * MANY),  # type: ignore[arg-type]
            lambda: Question(tuple("x" * MANY)),  # type: ignore[arg-type]
            lambda: Question({"x": "y"}),  # type: ignore[arg-type]
            lambda: ToolResult(text="x", files=(1,) * MANY),  # type: ignore[arg-type]
        ],
    )
    def test_what_is_no_list_of_them_has_few_faults(self, make_value: Callable[[], object]) -> None:
        """Not one for each item."""
        with pytest.raises(ValidationError) as refused:
            make_value()

        assert refused.value.error_count() <= 3

    @pytest.mark.parametrize(
        ("items", "most", "take"),
        [
            ({"question": "When?"}, MAX_QUESTIONS, lambda given: Question(given)),
            (
                {"url": "https://example.org/a.png", "media_type": "image/png"},
                MAX_FILES,
                lambda given: make(UserMessage, event_id="m", at=NOW, text="x", files=given),
            ),
            (
                FileReference(url="https://example.org/a.png", media_type="image/png"),
                MAX_FILES,
                lambda given: ToolResult(text="x", files=given),
            ),
        ],
        ids=["questions", "files of a message", "files of a result"],
    )
    def test_no_more_items_are_read_than_show_that_they_are_too_many(
        self, items: Any, most: int, take: Callable[[Any], object]
    ) -> None:
        """Even if their iterator never ends."""
        read = 0

        def endless() -> Iterator[Any]:
            nonlocal read
            for _ in count():
                read += 1
                yield items

        with pytest.raises((ValidationError, InvalidInput), match=rf"1-{most}|at most {most}"):
            take(endless())

        assert read == most + 1


class TestRequests:
    """What a host hands over is refused in one sentence."""

    @pytest.mark.parametrize(
        ("kind", "given", "sentence"),
        [
            (UserMessage, {"text": "x", "files": "x" * MANY}, "files: Input should be a valid tuple."),
            (UserQuestionResponse, {"answers": "x" * MANY}, "answers: Input should be a valid dictionary."),
            (UserQuestionResponse, {"answers": {"When?": [1] * MANY}}, f"Input has {MANY + 1:,} faults."),
            (
                UserQuestionResponse,
                {"answers": {}, "annotations": {"When?": fields()}},
                f"Input has {MANY:,} faults.",
            ),
            (ToolsChanged, {"tools": [1] * MANY, "from_turn": 1}, f"Input has {MANY:,} faults."),
            (ToolsChanged, {"tools": [1, 1], "from_turn": 1}, "tools.0: Input should be a valid string."),
            (UserQuestionResponse, {"answers": {"When?": 1}}, "answers.When?: Input should be a valid string."),
            (
                UserQuestionResponse,
                {"answers": {"What [a]?": ("x" * 1_000_001,)}},
                "answers.What [a]?: Input should be a valid string.",
            ),
        ],
    )
    def test_it_names_the_first_fault_or_their_number(self, kind: Any, given: dict[str, Any], sentence: str) -> None:
        """And describes no other."""
        with pytest.raises(InvalidInput) as refused:
            make(kind, event_id="r", at=NOW, **given)

        assert refused.value.sentence == sentence


class Foreign(BaseModel):
    """A model of an application."""

    numbers: list[int]


class TestDescriptions:
    """Very many faults are counted, not described."""

    def test_so_many_are_described_and_more_are_counted(self) -> None:
        """One fault more, and only the number is told."""
        errors = []
        for number in (MAX_FAULTS, MAX_FAULTS + 1):
            with pytest.raises(ValidationError) as refused:
                Foreign.model_validate({"numbers": ["x"] * number})
            errors.append(refused.value)

        assert len(faults_of(errors[0])) == MAX_FAULTS
        assert [(fault["loc"], fault["msg"]) for fault in faults_of(errors[1])] == [((), "Input has 2,001 faults")]

    def test_the_arguments_of_a_call(self) -> None:
        """A model reads how many there are."""

        def book(numbers: list[int]) -> None:
            """Book."""

        with pytest.raises(InvalidArguments) as refused:
            TypedArguments(book).check(f'{{"numbers": [{",".join(["null"] * MANY)}]}}')

        assert refused.value.sentence == f"Invalid input: Input has {MANY:,} faults"

    def test_the_acts_of_a_result_are_still_told_one_by_one(self) -> None:
        """A few faults are described as before."""
        with pytest.raises(ValidationError) as refused:
            Speech(text=5, when="never")  # type: ignore[arg-type]

        assert describe_fault(refused.value).count(";") == 1


# --- Steps and entries of a log are values, like everything that they hold.


AT = datetime(2026, 1, 1, tzinfo=UTC)
STEP = begin(Opened(at=AT, event_id="opened"))
STEPS_MESSAGE = UserMessage(at=AT, event_id="message", text="Hello.")
ENTRY = LogEntry(2, STEPS_MESSAGE)
STORED = StoredEntry(seq=2, event=STEPS_MESSAGE, digest=b"digest", chain=b"chain", content=b"content")


@pytest.mark.parametrize("value", [STEP, ENTRY, STORED], ids=["step", "entry", "stored"])
class TestAValue:
    """Whoever sees a step sees what was stored: an observer cannot change it for the next one."""

    def test_no_field_can_be_set(self, value: Any) -> None:
        """It raises FrozenInstanceError, and nothing happened."""
        before = deepcopy(value)
        for field in steps_fields(value):
            with pytest.raises(FrozenInstanceError):
                setattr(value, field.name, None)

        assert value == before

    def test_equal_ones_count_once_in_a_set(self, value: Any) -> None:
        """They can be compared and counted, by tests of properties for instance."""
        assert len({value, replace(value)}) == 1

    def test_it_can_be_pickled(self, value: Any) -> None:
        """Another process gets an equal one."""
        assert pickle.loads(pickle.dumps(value)) == value


def test_only_the_state_must_be_given() -> None:
    """Everything else is absent unless it is given."""
    assert Step(STEP.state) == Step(STEP.state, effects=(), ended=None, withdrawn=(), ignored=False)


# --- The fields of values: what may stand in them, and what is meant where one is left out.
#
# Both belong to the format of what is stored. A field at its default is not written, so a default that changed would
# change what an old log says; and a bound that was wider let in what a narrower one would refuse to read back.


TIMES = {"at": "2030-01-01T12:00:00Z"}
SENT = {"event_id": "1", **TIMES}

LEFT_OUT: list[tuple[Any, dict[str, Any]]] = [
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


def default_of(kind: Any, name: str) -> Any:
    """The default of a field of a value or a record."""
    if issubclass(kind, Value):
        return kind.model_fields[name].get_default(call_default_factory=True)
    return next(field.default for field in dataclasses.fields(kind) if field.name == name)


class TestWhatIsLeftOut:
    """A default value is part of the format."""

    @holds_for(("kind", "fields"), LEFT_OUT)
    def test_a_field_that_is_not_written_means_this(self, kind: Any, fields: dict[str, Any]) -> None:
        """A log that was written before the field existed still means the same."""
        meant = {name: default_of(kind, name) for name in fields}

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
        with pytest.raises(FrozenInstanceError):
            Book().seq = 1  # type: ignore[misc]
        with pytest.raises(ValidationError, match="frozen"):
            Idle().book = Book()  # type: ignore[misc]

        assert len({Book(), Book(), Book(seq=1)}) == 2

    @pytest.mark.parametrize("kind", [Idle, Policy, Usage, Book])
    def test_a_field_that_nobody_declared_is_refused(self, kind: Any) -> None:
        """It is not dropped silently."""
        with pytest.raises(ValidationError, match="unheard_of"):
            adapter_of(kind).validate_python({"unheard_of": 1})

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


# --- Refusals and errors: each has one sentence for people, and data for programs.


class TestSentences:
    """A sentence can be shown to people as it is."""

    @holds_for("code", get_args(RefusalCode))
    def test_every_refusal_has_one(self, code: RefusalCode) -> None:
        """It begins with a capital letter and ends with a full stop, or with what it is about."""
        sentence = Refused(code, "When?").sentence

        assert sentence[0].isupper()
        assert sentence.endswith((".", ": When?"))

    def test_what_a_refusal_is_about_is_named(self) -> None:
        """It is in the sentence for people, and an attribute for programs."""
        refused = Refused("missing_answer", "When?")

        assert refused.sentence == "An answer is missing: When?"
        assert (refused.code, refused.subject) == ("missing_answer", "When?")

    def test_a_refusal_need_not_be_about_anything(self) -> None:
        """Then the sentence has nothing in its place."""
        assert Refused("busy").subject == ""
        assert Refused("unknown_question").sentence == "This was not asked: "

    def test_a_long_text_is_not_repeated_in_full(self) -> None:
        """The sentence quotes at most `MAX_QUOTED` characters of it."""
        for error in (Refused("unknown_question", "x" * 1_000), UnknownConversation("x" * 1_000)):
            assert f"{'x' * (MAX_QUOTED - 1)}…" in error.sentence
            assert "x" * MAX_QUOTED not in error.sentence

    def test_an_unknown_conversation_is_named(self) -> None:
        """The sentence has the id that was asked for."""
        error = UnknownConversation("c-1")

        assert error.sentence == "There is no conversation with the id c-1."
        assert error.conversation_id == "c-1"

    def test_a_closed_engine(self) -> None:
        """The sentence is complete without further data."""
        assert EngineClosed().sentence == "The engine is closed."

    def test_an_error_that_nobody_caught_shows_its_sentence(self) -> None:
        """A log that writes the error shows its sentence."""
        for error in (TurnwiseError("No."), Refused("busy"), UnknownConversation("c-1"), EngineClosed()):
            assert str(error) == error.sentence

    def test_a_history_that_could_not_be_condensed_says_why(self) -> None:
        """In the sentence for people, and as an attribute for programs."""
        error = CompactionFailed("timeout", "It took too long.")

        assert (error.kind, error.sentence) == ("timeout", "It took too long.")

    @pytest.mark.parametrize(
        "error", [TurnwiseError("No \ud800."), UnknownConversation("\ud800"), Refused("closed", sentence="\ud800")]
    )
    def test_they_can_be_written_whatever_they_quote(self, error: TurnwiseError) -> None:
        """Half a character is replaced, so that a log or a response can hold the sentence."""
        assert "\ufffd" in error.sentence
        assert str(error) == error.sentence
