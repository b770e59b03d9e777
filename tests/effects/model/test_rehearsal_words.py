"""What the rehearsal model guesses: arguments from a user's words, options from a tool's result."""

from typing import Any

from turnwise.effects.model.rehearsal_words import fill_parameters, options_in

from ...support.cases import holds_for


class TestParameters:
    """Arguments for a JSON schema."""

    @holds_for(
        ("schema", "said", "value"),
        [
            ({"type": "integer"}, "for twelve at 8 pm", 12),
            ({"type": "integer"}, "4 of us, at 6:30", 4),
            ({"type": "integer"}, "for many", None),
            ({"type": "string", "enum": ["red", "white"]}, "A glass of White, please", "white"),
            ({"type": "string", "enum": ["red", "white"]}, "A glass of water", None),
            ({"type": "boolean"}, "with a quiet corner", True),
            ({"type": "boolean"}, "not a quiet corner", False),
            ({"type": "boolean"}, "anywhere", False),
            ({"type": "string"}, "I live in Łódź now", "Łódź"),
            ({"type": "string"}, "a place called “The Blue Door”", "The Blue Door"),
            ({"type": "string"}, "somewhere japanese", "japanese"),
            ({"type": "string"}, "surprise me", "surprise me"),
            ({"type": "object"}, "anything", None),
        ],
    )
    def test_a_parameter_is_filled_by_its_type(self, schema: dict[str, Any], said: str, value: Any) -> None:
        """A value that the words do not give is not made up."""
        arguments = fill_parameters({"properties": {"quiet": schema}}, said)

        assert arguments == ({} if value is None else {"quiet": value})

    def test_an_unfilled_required_parameter_means_no_arguments(self) -> None:
        """The tool cannot be called."""
        schema = {"properties": {"day": {"type": "string"}}, "required": ["day"]}

        assert fill_parameters(schema, "Will it rain?") is None


class TestOptions:
    """Options to choose from."""

    @holds_for(
        ("text", "labels"),
        [
            ('["a", "b", "c", "d", "e"]', ["a", "b", "c", "d"]),
            ('[{"name": "Koi", "time": "8 PM"}, {"name": "Sakura", "time": "6 PM"}]', ["Koi", "Sakura"]),
            ('{"tables": ["a", "b"]}', ["a", "b"]),
            ("- a\n- b\n", ["a", "b"]),
            ('["a", "a"]', []),
            ('["a", "Other"]', []),
            ("One line is no choice.", []),
            ("Error: broken\nin two lines", []),
            ("", []),
        ],
    )
    def test_a_result_with_two_items_or_more_lists_options(self, text: str, labels: list[str]) -> None:
        """P16: at most four options, none of them twice, none of them called Other."""
        assert [option["label"] for option in options_in(text)] == labels
