"""However wrong a value is, nobody waits for a description of each of a million wrong items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from turnwise.effects.tools.arguments import TypedArguments
from turnwise.effects.tools.context import Question
from turnwise.effects.tools.normalization import InvalidArguments, describe_fault
from turnwise.engine.requests import make
from turnwise.states import (
    Image,
    InvalidInput,
    Speech,
    ToolResult,
    ToolsChanged,
    UserMessage,
    UserQuestionResponse,
)
from turnwise.states.errors import MAX_FAULTS, faults_of
from turnwise.states.values.messages import MAX_IMAGES
from turnwise.states.values.questions import MAX_QUESTIONS

MANY = 20_000
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def fields(number: int = MANY) -> dict[str, Any]:
    """So many fields that no value has."""
    return {f"field {each}": each for each in range(number)}


class TestItems:
    """Questions and images are few, so no more of them are read."""

    @pytest.mark.parametrize(
        "make_value",
        [
            lambda: Question(["x"] * MANY),  # type: ignore[list-item]
            lambda: Question("x" * MANY),  # type: ignore[arg-type]
            lambda: Question(tuple("x" * MANY)),  # type: ignore[arg-type]
            lambda: Question({"x": "y"}),  # type: ignore[arg-type]
            lambda: ToolResult(text="x", images=(1,) * MANY),  # type: ignore[arg-type]
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
                "https://example.org/a.png",
                MAX_IMAGES,
                lambda given: make(UserMessage, event_id="m", at=NOW, text="x", images=given),
            ),
            (Image(url="https://example.org/a.png"), MAX_IMAGES, lambda given: ToolResult(text="x", images=given)),
        ],
        ids=["questions", "images of a message", "images of a result"],
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
            (UserMessage, {"text": "x", "images": "x" * MANY}, "images: Input should be a valid tuple."),
            (UserQuestionResponse, {"answers": "x" * MANY}, "answers: Input should be a valid dictionary."),
            (UserQuestionResponse, {"answers": {"When?": [1] * MANY}}, f"Input has {MANY + 1:,} faults."),
            (
                UserQuestionResponse,
                {"answers": {}, "annotations": {"When?": fields()}},
                f"Input has {MANY:,} faults.",
            ),
            (ToolsChanged, {"tools": [1] * MANY, "from_turn": 1}, f"Input has {MANY:,} faults."),
            (ToolsChanged, {"tools": [1, 1], "from_turn": 1}, "tools.0: Input should be a valid string."),
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
