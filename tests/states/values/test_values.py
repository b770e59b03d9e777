"""Values: what can be said, written and read back, and where a fault is found."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from turnwise.states import (
    Context,
    Event,
    Heard,
    LlmResponse,
    Opened,
    Policy,
    PolicyChanged,
    RetryDue,
    Round,
    RoundCall,
    Running,
    Usage,
    UserMessage,
)
from turnwise.states.events import exact
from turnwise.states.values.questions import UserQuestion, answers_as_json
from turnwise.states.values.repeats import fingerprint
from turnwise.states.values.value import Block, Instant, Part, RequestText, Text, later, shortened
from turnwise.testing.strategies import NOON

from ...support.conversation import call, question

MESSAGE = UserMessage(event_id="1", at=NOON, text="Hello")


def kinds_of_fault(kind: Any, value: object) -> list[str]:
    """The types of the errors that this value meets: what a program tells them apart by."""
    with pytest.raises(ValidationError) as fault:
        TypeAdapter(kind).validate_python(value)
    return [error["type"] for error in fault.value.errors()]


def sentence_of(kind: Any, value: object) -> str:
    """The sentence of the one error that this value meets."""
    with pytest.raises(ValidationError) as fault:
        TypeAdapter(kind).validate_python(value)
    (error,) = fault.value.errors()
    return error["msg"]


class TestText:
    """Any text that can be written as UTF-8."""

    @pytest.mark.parametrize("text", ["", "日本語", "👩‍👩‍👧", "\x00\u2028"])
    def test_any_script_stays_as_it_is(self, text: str) -> None:
        """Nothing is trimmed, replaced or normalised."""
        assert TypeAdapter(Text).validate_python(text) == TypeAdapter(RequestText).validate_python(text) == text

    def test_half_a_character_is_refused(self) -> None:
        """A lone surrogate cannot be stored."""
        assert kinds_of_fault(Text, "a\ud800") == ["text_broken"]
        assert sentence_of(Text, "a\ud800") == "the text holds half a character (a lone surrogate)"
        assert kinds_of_fault(RequestText, "a\ud800") != []

    def test_a_text_is_shortened_to_its_bound(self) -> None:
        """The ellipsis counts; a text at the bound stays whole."""
        assert [shortened("abcdef", limit) for limit in (7, 6, 5)] == ["abcdef", "abcdef", "abcd…"]


class TestBlock:
    """A JSON object that nobody here looks into."""

    def test_it_is_kept_in_any_script(self) -> None:
        """Not a character of it is changed."""
        block = {"Wo?": "Köln", "どこ": ["東京", None, 1.5, True]}

        assert TypeAdapter(Block).validate_python(block) == block

    @pytest.mark.parametrize("sealed", [float("nan"), float("inf"), "\ud800"])
    def test_what_json_cannot_hold_is_refused(self, sealed: object) -> None:
        """Law 2: it could not be read back as it was."""
        with pytest.raises(ValueError):
            TypeAdapter(Block).validate_python({"a": sealed})


class TestMoments:
    """Always in UTC, always within the calendar."""

    def test_a_moment_is_told_in_utc(self) -> None:
        """The same moment, told by another clock."""
        in_berlin = datetime(2030, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))

        read = TypeAdapter(Instant).validate_python(in_berlin)

        assert read == in_berlin
        assert read.utcoffset() == timedelta(0)

    def test_the_clock_of_the_machine_does_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log that is read in another part of the world reads the same."""
        monkeypatch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        try:
            assert TypeAdapter(Instant).validate_python(NOON).utcoffset() == timedelta(0)
        finally:
            monkeypatch.undo()
            time.tzset()

    def test_a_moment_outside_the_calendar_is_refused(self) -> None:
        """It has no place in UTC."""
        outside = "9999-12-31T23:59:59-01:00"

        assert kinds_of_fault(Instant, outside) == ["moment_out_of_range"]
        assert sentence_of(Instant, outside) == "the moment is outside the calendar"

    def test_later_ends_with_the_calendar(self) -> None:
        """The last moment that can be written, in UTC."""
        assert later(NOON, 1.5) == NOON + timedelta(seconds=1.5)
        assert later(NOON, 1e308) == datetime.max.replace(tzinfo=UTC)


class TestEventsOfOthers:
    """`exact`: an event from foreign code is taken as it will be read back, or not at all."""

    def test_an_event_is_taken_as_it_is(self) -> None:
        """Nothing is lost, nothing is added."""
        event = LlmResponse(effect_id=1, at=NOON, content="日本語", tool_calls=(call("a"),), usage=Usage(cost=0.1))

        assert exact(event) == event
        assert exact(event).to_json() == event.to_json()
        assert exact(event).model_fields_set == type(event).model_validate_json(event.to_json()).model_fields_set

    def test_an_event_of_no_known_type_is_refused(self) -> None:
        """Neither the root of all events nor a type of somebody's own."""

        class Shouted(UserMessage):
            """A message of somebody's own type."""

        for event in (Event(type="event", at=NOON), Shouted(event_id="1", at=NOON, text="HELLO")):
            with pytest.raises(ValueError, match=r"^this is not an event that a conversation knows$"):
                exact(event)

    @pytest.mark.parametrize("fields", [{"text": " "}, {"event_id": ""}, {"event_id": 7}, {"at": "noon"}], ids=str)
    def test_an_event_that_was_built_past_its_validation_is_refused(self, fields: dict[str, Any]) -> None:
        """What it declares holds, or it does not enter."""
        built = UserMessage.model_construct(**{**dict(MESSAGE), **fields})

        with pytest.raises(ValueError):
            exact(built)

    @pytest.mark.filterwarnings("ignore")
    def test_a_field_of_another_type_is_refused_though_it_reads_alike(self) -> None:
        """`"7"` is no number, even if it could be read as one and nobody looks at warnings."""
        built = RetryDue.model_construct(type="retry_due", at=NOON, effect_id="7")

        with pytest.raises(ValueError, match="effect_id"):
            exact(built)


class TestTextsOfEvents:
    """Where a text stands that something else refers to."""

    def test_a_message_has_one(self) -> None:
        """The person's own words."""
        assert MESSAGE.texts == ("Hello",)

    def test_a_response_has_its_own_and_the_faults_of_its_calls(self) -> None:
        """0 is what the model said, 1 + n the fault of its n-th call; a call without a fault has no text."""
        response = LlmResponse(
            effect_id=1, at=NOON, content="Let me see", tool_calls=(call("a", fault="No."), call("b"))
        )

        assert response.texts == ("Let me see", "No.", "")


class TestTheContext:
    """What holds for a whole conversation."""

    def test_it_begins_with_what_the_host_opened(self) -> None:
        """System prompt and rules; without them there is no prompt, and the rules are the default ones."""
        opened = Opened(event_id="1", at=NOON, system="Be kind.", policy=Policy(parallel=2))

        assert Context().after(opened) == Context(system="Be kind.", policy=Policy(parallel=2))
        assert (Context().system, Context().policy) == ("", Policy())

    def test_it_knows_for_whom_it_works(self) -> None:
        """D12, P25: a background agent for the user of another conversation, a sub-agent for a turn of one."""
        background = Opened(event_id="1", at=NOON, role="background", works_for="front")
        sub_agent = Opened(event_id="1", at=NOON, role="sub_agent", parent="front")

        assert Context().after(background) == Context(role="background", works_for="front")
        assert Context().after(sub_agent) == Context(role="sub_agent", parent="front")

    def test_rules_change_and_the_prompt_stays(self) -> None:
        """`PolicyChanged` brings rules and nothing else."""
        context = Context(system="Be kind.")

        assert context.after(PolicyChanged(event_id="1", at=NOON, policy=Policy(parallel=2))) == Context(
            system="Be kind.", policy=Policy(parallel=2)
        )
        assert context.after(MESSAGE) is context


class TestUsage:
    """What requests cost."""

    def test_it_adds_up(self) -> None:
        """Tokens by tokens; a price that is not known counts nothing beside one that is."""
        assert Usage(input_tokens=1, output_tokens=2) + Usage(input_tokens=10, output_tokens=20, cost=0.5) == Usage(
            input_tokens=11, output_tokens=22, cost=0.5
        )
        assert (Usage(cost=0.25) + Usage(cost=0.5)).cost == 0.75
        assert (Usage() + Usage()).cost is None
        assert (Usage(cost=0.0) + Usage()).cost == 0.0


class TestRounds:
    """A round knows its calls by the effects that run them."""

    def test_an_effect_that_runs_none_of_its_calls(self) -> None:
        """A `KeyError` that names it."""
        called = RoundCall.of(call("a"), 1)
        round_ = Round(calls=(called,), running=(Running(effect_id=7, call_id="a"),))

        assert round_.call(7) == called
        with pytest.raises(KeyError, match="8"):
            round_.call(8)

    def test_a_call_that_is_none_of_its_own(self) -> None:
        """A `KeyError` that names it."""
        with pytest.raises(KeyError, match="other"):
            Round(calls=(RoundCall.of(call("a"), 1),)).named("other")

    def test_it_is_done_with_a_call_once(self) -> None:
        """A question is done with when it is asked, and its answer changes nothing about that."""
        asked = Round(calls=(RoundCall.of(call("a"), 1),)).settle("a")

        assert asked.settle("a").settled == asked.settled == ("a",)

    def test_a_call_keeps_all_that_says_how_it_may_run(self) -> None:
        """And leaves the texts where they are."""
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
    """Faults of questions are told apart by programs, too."""

    def test_an_empty_text_is_a_fault_of_its_own_kind(self) -> None:
        """P16: empty strings."""
        assert kinds_of_fault(UserQuestion, {**question().model_dump(), "question": " "}) == ["text_blank"]

    def test_answers_are_written_in_any_script(self) -> None:
        """P15: what the model reads is what was written, not its numbers in Unicode."""
        assert answers_as_json({"どこ": "東京"}, {}) == '{"answers": {"どこ": "東京"}}'

    def test_a_reference_says_where_a_text_stands(self) -> None:
        """The step, and the place among its texts."""
        assert Heard(seq=3).to_json() == '{"type":"heard","seq":3}'


class Pair(Part):
    """Two numbers, the second of which may be left out."""

    left: int
    right: int = 2


class TestParts:
    """What the machine makes out of values that were checked."""

    def test_a_field_with_a_default_may_be_left_out(self) -> None:
        """The others may not."""

        class Triple(Pair):
            """One number more."""

            last: int = 3

        assert dict(Triple(left=1)) == {"left": 1, "right": 2, "last": 3}
        with pytest.raises(TypeError, match="too few fields"):
            Triple(right=2)  # type: ignore[call-arg]

    def test_it_is_always_written_alike(self) -> None:
        """In whatever order it was made, and read back: the digests of the log are of what is written."""

        class Late(Pair):
            """A field that must be given, behind one that may be left out."""

            last: int

        made = Late(last=3, right=5, left=1)

        assert made.to_json() == Late.model_validate_json(made.to_json()).to_json() == '{"left":1,"right":5,"last":3}'


def test_calls_whose_arguments_are_no_json_are_told_apart_by_their_text() -> None:
    """B10: and what stands for a call in the log is 16 bytes long, whatever the call."""
    broken, other = (fingerprint(call("read", arguments=text)) for text in ("{broken", "{other"))

    assert broken != other
    assert len(broken) == len(fingerprint(call("read"))) == 32
