"""Answers read from a pipe."""

from __future__ import annotations

import pytest

from turnwise.hosts.terminal.chat.piped_input import parse_answer
from turnwise.states.values.questions import UserQuestion

ONE = UserQuestion.model_validate({"question": "How many?", "options": [{"label": "2"}, {"label": "Four"}]})


SEVERAL = UserQuestion.model_validate(
    {"question": "Which?", "multiSelect": True, "options": [{"label": "a"}, {"label": "b, c"}, {"label": "d"}]}
)


class TestAnswersInALine:
    """P15: labels by name or number, or words of one's own."""

    @pytest.mark.parametrize(
        ("line", "answer"),
        [("four", "Four"), ("1", "2"), ("2", "2"), (" Four ", "Four"), ("five, at least", "five, at least")],
    )
    def test_one_choice(self, line: str, answer: str) -> None:
        """A label comes before a number; everything else is free text, as it was typed."""
        assert parse_answer(line, ONE) == answer

    @pytest.mark.parametrize(
        ("line", "answer"), [("1, 3", ["a", "d"]), ("b, c", ["b, c"]), ("a,a", ["a"]), ("a, x", ["a, x"])]
    )
    def test_several_choices(self, line: str, answer: list[str]) -> None:
        """Commas stand between choices, unless the line as a whole is a label or holds something else."""
        assert parse_answer(line, SEVERAL) == answer
