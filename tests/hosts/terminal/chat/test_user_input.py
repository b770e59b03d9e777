"""Answers in lines of text."""

from __future__ import annotations

import pytest

from turnwise.hosts.terminal.chat.user_input import parse_answer, question_lines
from turnwise.states.values.questions import UserQuestion

ONE = UserQuestion.model_validate({"question": "How many?", "options": [{"label": "2"}, {"label": "Four"}]})


SEVERAL = UserQuestion.model_validate(
    {"question": "Which?", "multiSelect": True, "options": [{"label": "a"}, {"label": "b, c"}, {"label": "d"}]}
)


class TestAnswersInALine:
    """P15: a label, its number, or free text."""

    @pytest.mark.parametrize(
        ("line", "answer"),
        [("four", "Four"), ("1", "2"), ("2", "2"), (" Four ", "Four"), ("five, at least", "five, at least")],
    )
    def test_one_choice(self, line: str, answer: str) -> None:
        """A label takes precedence over a number; everything else is free text, unchanged."""
        assert parse_answer(line, ONE) == answer

    @pytest.mark.parametrize(
        ("line", "answer"), [("1, 3", ["a", "d"]), ("b, c", ["b, c"]), ("a,a", ["a"]), ("a, x", ["a, x"])]
    )
    def test_several_choices(self, line: str, answer: list[str]) -> None:
        """Commas separate choices, unless the whole line is a label or a part of it is neither label nor number."""
        assert parse_answer(line, SEVERAL) == answer

    def test_an_open_question(self) -> None:
        """Any line is its answer, a number too."""
        asked = UserQuestion(question="How many?")

        assert question_lines(asked) == "? How many?"
        assert [parse_answer(line, asked) for line in ("2", "a, b")] == ["2", "a, b"]
