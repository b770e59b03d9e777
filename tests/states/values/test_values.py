"""Values: what they accept, how they are written and read back, and which faults they report."""

from __future__ import annotations

import copy
import cProfile
import json
import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest.mock import ANY

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.states import (
    Context,
    Event,
    Heard,
    Idle,
    LlmFailed,
    LlmResponse,
    Opened,
    Policy,
    PolicyChanged,
    RetryDue,
    Round,
    RoundCall,
    Running,
    ToolCall,
    Usage,
    UserMessage,
)
from turnwise.states.effects import EFFECTS, PersistMessage
from turnwise.states.events import EVENTS, exact
from turnwise.states.states import STATES
from turnwise.states.values.questions import UserQuestion, answers_as_json
from turnwise.states.values.round import fingerprint
from turnwise.states.values.value import (
    Block,
    Instant,
    Part,
    RequestText,
    Tagged,
    Text,
    json_array,
    later,
    shortened,
    unvalidated,
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
        assert kinds_of_fault(Text, "a\ud800") == ["text_broken"]
        assert sentence_of(Text, "a\ud800") == "the text holds half a character (a lone surrogate)"
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


class TestUnvalidatedValues:
    """`unvalidated` makes a value of fields that are known to be valid."""

    def test_it_is_written_like_the_same_value_that_was_read(self) -> None:
        """The fields are in the declared order, whatever the order in which they were given."""
        made = unvalidated(ToolCall, provider_id="p", fault="It is closed.", name="pay", call_id="call_1_0")

        assert made == ToolCall(call_id="call_1_0", name="pay", provider_id="p", fault="It is closed.")
        assert made.to_json() == ToolCall.model_validate_json(made.to_json()).to_json()


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


class Pair(Part):
    """Two numbers, the second of which has a default."""

    left: int
    right: int = 2


class TestParts:
    """Parts, which are made without validation."""

    def test_a_field_with_a_default_may_be_left_out(self) -> None:
        """A field with a default may be left out, and any other may not."""

        class Triple(Pair):
            """One number more."""

            last: int = 3

        assert dict(Triple(left=1)) == {"left": 1, "right": 2, "last": 3}
        with pytest.raises(TypeError, match="too few fields"):
            Triple(right=2)  # type: ignore[call-arg]

    def test_it_is_always_written_alike(self) -> None:
        """A part is written alike, in whatever order it was made and after it was read back, since the log holds
        digests of what is written."""

        class Late(Pair):
            """A field that must be given, behind one that may be left out."""

            last: int

        made = Late(last=3, right=5, left=1)

        assert made.to_json() == Late.model_validate_json(made.to_json()).to_json() == '{"left":1,"right":5,"last":3}'


PARTS = (Heard(seq=3), Heard.model_validate({"seq": 3}), Heard(seq=3, index=9).replace(index=0))
"""A part that the machine made, the same one as it was read, and as it came out of a change."""


def python_calls(action: Callable[[], object]) -> int:
    """How many functions written in Python this action calls, with itself."""
    profile = cProfile.Profile(builtins=False)
    profile.runcall(action)
    return sum(entry.callcount for entry in profile.getstats() if not isinstance(entry.code, str))


class TestWriting:
    """A value is written as JSON by one call of pydantic-core."""

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
        """Writing a step calls `to_json`, and one comparison for each default that is a value itself."""
        assert python_calls(PersistMessage(said=Heard(seq=3)).to_json) == 1
        assert python_calls(LlmResponse(effect_id=1, at=NOON, content="a", usage=Usage(cost=0.1)).to_json) == 2


class TestEquality:
    """Values are equal if they are of one class and their fields are equal."""

    def test_how_a_value_was_made_makes_no_difference(self) -> None:
        """A value that the machine made equals one that was read, and both have the same hash and the same text."""
        made, read = Heard(seq=3), Heard.model_validate({"seq": 3})

        assert (made == read, hash(made) == hash(read), repr(made) == repr(read)) == (True, True, True)
        assert made.model_fields_set != read.model_fields_set

    def test_values_of_two_classes_differ(self) -> None:
        """Equal fields of two classes are two values, and so are a value and its fields."""

        class Twin(Heard):
            """The same fields."""

        assert Heard(seq=3) != Twin(seq=3)
        assert Twin(seq=3) != Heard(seq=3)
        assert Heard(seq=3) != dict(Heard(seq=3))
        assert Heard(seq=3) != Heard(seq=4)

    def test_something_that_compares_itself_is_asked(self) -> None:
        """An object that equals everything equals a value, on either side."""
        assert Heard(seq=3) == ANY
        assert Heard(seq=3) == ANY


@pytest.mark.parametrize("part", PARTS, ids=["made", "read", "changed"])
class TestWhatPydanticKeeps:
    """A part that the machine made has everything that a model of pydantic has."""

    def test_it_has_the_attributes_of_a_model(self, part: Heard) -> None:
        """It has no extra fields and no private attributes, and an unknown attribute is an error."""
        assert (part.model_extra, part.__pydantic_private__) == (None, None)
        assert dict(part) == {"type": "heard", "seq": 3, "index": 0}
        with pytest.raises(AttributeError, match="'Heard' object has no attribute 'text'"):
            part.text  # type: ignore[attr-defined]  # noqa: B018

    def test_it_is_frozen(self, part: Heard) -> None:
        """A field cannot be set, and neither can anything else."""
        for name in ("seq", "text"):
            with pytest.raises(ValidationError, match="frozen"):
                setattr(part, name, 4)

    def test_it_is_copied(self, part: Heard) -> None:
        """It can be copied, deeply copied, pickled, and copied with a change; copies are equal and written alike."""
        copies = (copy.copy(part), copy.deepcopy(part), pickle.loads(pickle.dumps(part)), part.model_copy())

        assert all(one == part and one.to_json() == part.to_json() for one in copies)
        assert {hash(one) for one in copies} == {hash(part)}
        assert part.model_copy(update={"index": 7}) == Heard(seq=3, index=7)

    def test_it_is_written_without_the_fields_that_were_not_given(self, part: Heard) -> None:
        """The machine gives a part all its fields; one that was read has those that were written."""
        assert part.model_dump(exclude_unset=True) == {name: getattr(part, name) for name in part.model_fields_set}
        assert part.model_fields_set in ({"seq"}, {"type", "seq", "index"})


def test_calls_whose_arguments_are_no_json_are_told_apart_by_their_text() -> None:
    """B10: calls with arguments that are not JSON are compared by their text, and each fingerprint has 16 bytes."""
    broken, other = (fingerprint(call("read", arguments=text)) for text in ("{broken", "{other"))

    assert broken != other
    assert len(broken) == len(fingerprint(call("read"))) == 32
