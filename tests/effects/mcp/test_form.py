"""A form of a server becomes questions to the user, and the answers become its values."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.effects.mcp.asking import MAX_FIELDS, Field, InvalidAnswer, fields_of
from turnwise.states.errors import ConfigurationError
from turnwise.states.values.questions import UserQuestion

from ...support.cases import holds_for

SIZES, LONG = ["S", "M", "L"], ["small", "medium", "large"]
MANY = ["red", "green", "blue", "black", "white"]


def field(schema: dict[str, Any], *, is_required: bool = True) -> Field:
    """Return the only field of a form."""
    form = {"type": "object", "properties": {"it": schema}, "required": ["it"] if is_required else []}
    (only,) = fields_of(form)
    return only


def question(schema: dict[str, Any], *, is_required: bool = True) -> UserQuestion:
    """Return the question for the only field of a form."""
    return field(schema, is_required=is_required).question("Tell me.")


def labels(asked: UserQuestion) -> list[str]:
    """Return the options that are offered."""
    return [option.label for option in asked.options]


class TestQuestions:
    """Each kind of field has its kind of question."""

    def test_a_text_is_an_open_question(self) -> None:
        """With the title and the description of the server."""
        asked = question({"type": "string", "title": "Seat", "description": "Row and letter"})

        assert asked == UserQuestion(question="Tell me.\nSeat: Row and letter", header="Seat")

    def test_numbers_say_what_they_are(self) -> None:
        """And optional fields, how they are left out."""
        assert question({"type": "integer"}).question == "Tell me.\nit (a whole number)"
        assert question({"type": "number"}, is_required=False).question == (
            "Tell me.\nit (a number; optional, - leaves it out)"
        )

    @pytest.mark.parametrize(
        ("schema", "offered", "is_multiple"),
        [
            ({"type": "boolean"}, ["Yes", "No"], False),
            ({"type": "string", "enum": SIZES}, SIZES, False),
            ({"type": "string", "enum": SIZES, "enumNames": LONG}, LONG, False),
            ({"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, ["A", "b"], False),
            ({"type": "array", "items": {"type": "string", "enum": SIZES}}, SIZES, True),
            ({"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}}, ["A", "b"], True),
        ],
    )
    def test_choices_are_offered(self, schema: dict[str, Any], offered: list[str], is_multiple: bool) -> None:
        """With the labels of the server; of several values where it wants an array."""
        asked = question(schema)

        assert (labels(asked), asked.multi_select) == (offered, is_multiple)

    @pytest.mark.parametrize("values", [MANY, ["one"], ["Other", "b"], ["A", "a"], [" ", "b"]])
    def test_choices_that_cannot_be_offered_are_named(self, values: list[str]) -> None:
        """A question has two to four options, and none is called Other."""
        asked = question({"type": "string", "enum": values})

        assert labels(asked) == []
        assert asked.question == f"Tell me.\nit (one of: {', '.join(values)})"

    def test_a_long_text_is_cut(self) -> None:
        """A server may say anything."""
        assert len(question({"type": "string", "description": "a" * 1_000_000}).question) < 5_000


class TestAnswers:
    """An answer gets the type that the server wants."""

    @holds_for(
        ("schema", "answer", "value"),
        [
            ({"type": "string"}, " 7 ", " 7 "),
            ({"type": "string"}, "-", "-"),
            ({"type": "integer"}, " 7 ", 7),
            ({"type": "number"}, "7.5", 7.5),
            ({"type": "boolean"}, "Yes", True),
            ({"type": "boolean"}, "no", False),
            ({"type": "boolean"}, "true", True),
            ({"type": "string", "enum": SIZES, "enumNames": ["small", "medium", "large"]}, "Medium", "M"),
            ({"type": "string", "enum": SIZES, "enumNames": ["small", "medium", "large"]}, "m", "M"),
            ({"type": "string", "oneOf": [{"const": "a", "title": "A thing"}, {"const": "b"}]}, "A thing", "a"),
            ({"type": "array", "items": {"type": "string", "enum": SIZES}}, ["S", "L"], ["S", "L"]),
            ({"type": "array", "items": {"type": "string", "enum": MANY}}, "red, Blue", ["red", "blue"]),
            ({"type": "string"}, ["a", "b"], "a, b"),
        ],
    )
    def test_the_value(self, schema: dict[str, Any], answer: str | list[str], value: object) -> None:
        """Labels are read whatever their case, and the text of a choice counts like its label."""
        (found,) = field(schema).value(answer).values()

        assert (type(found), found) == (type(value), value)

    @pytest.mark.parametrize(
        ("schema", "answer", "sentence"),
        [
            ({"type": "integer"}, "many", "The answer must be a whole number."),
            ({"type": "number"}, "nan", "The answer must be a number."),
            ({"type": "boolean"}, "perhaps", "The answer must be one of: Yes, No."),
            ({"type": "string", "enum": SIZES}, "XL", "The answer must be one of: S, M, L."),
            ({"type": "integer", "minimum": 1}, "0", "Invalid input: it: Input should be at least 1"),
            ({"type": "string", "maxLength": 2}, "abc", "Invalid input: it: Input should have at most 2 characters"),
            (
                {"type": "array", "items": {"enum": SIZES}, "minItems": 2},
                ["S"],
                "Invalid input: it: Input should have at least 2 items",
            ),
        ],
    )
    def test_what_does_not_fit(self, schema: dict[str, Any], answer: str | list[str], sentence: str) -> None:
        """One sentence tells the user why."""
        with pytest.raises(InvalidAnswer) as invalid:
            field(schema).value(answer)

        assert invalid.value.sentence == sentence

    @pytest.mark.parametrize("answer", ["-", [], ()])
    def test_an_optional_field_may_be_left_out(self, answer: str | list[str]) -> None:
        """It then does not stand in the form at all."""
        assert field({"type": "string"}, is_required=False).value(answer) == {}


class TestForms:
    """What nobody can fill in is refused."""

    @pytest.mark.parametrize(
        "form",
        [
            {"properties": {"it": {"type": "object"}}},
            {"properties": {"it": {"type": "array", "items": {"type": "string"}}}},
            {"properties": {"it": {}}},
            {"properties": {"it": True}},
            {"properties": {"it": {"type": "string", "minLength": "x"}}},
            {"properties": []},
            {"properties": {f"field {number}": {"type": "string"} for number in range(MAX_FIELDS + 1)}},
        ],
    )
    def test_it_is_refused(self, form: dict[str, Any]) -> None:
        """By a typed error."""
        with pytest.raises(ConfigurationError):
            fields_of(form)

    def test_a_form_without_fields(self) -> None:
        """It asks for consent alone."""
        assert fields_of({"type": "object"}) == ()
