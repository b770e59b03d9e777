"""Texts that arrive in pieces and later whole."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from turnwise import TokenUpdate
from turnwise.hosts.http.doors.turns import TextParts, TextPiece


def token(text: str, attempt: int = 1, *, from_start: bool = False) -> TokenUpdate:
    """A piece of an answer."""
    return TokenUpdate(text, "text", turn=1, request=1, attempt=attempt, from_start=from_start)


def shown(pieces: Iterable[TextPiece]) -> list[str]:
    """Pieces as texts: the number of the part, its text, and how it ends."""
    return [f"{one.number}:{one.text}{'~' if one.abandoned else '|' if one.ends else ''}" for one in pieces]


@pytest.mark.parametrize(
    ("tokens", "whole", "expected"),
    [
        ([], "Hello", ["1:Hello", "1:|"]),
        (["Hel", "lo"], "Hello", ["1:Hel", "1:lo", "1:|"]),
        (["Hel"], "Hello", ["1:Hel", "1:lo|"]),
        (["Hello "], "Hello", ["1:Hello ", "1:|"]),
        (["\n", " Hi"], "Hi", ["1:\n Hi", "1:|"]),
        (["  "], "Hello", ["1:Hello", "1:|"]),
        (["Help"], "Hello", ["1:Help", "1:~", "2:Hello", "2:|"]),
    ],
)
def test_a_text_is_shown_once(tokens: list[str], whole: str, expected: list[str]) -> None:
    """What was streamed of it is not repeated; what was streamed of another text ends as abandoned."""
    parts = TextParts()

    pieces = [piece for text in tokens for piece in parts.token(token(text))]

    assert shown([*pieces, *parts.full_text(whole)]) == expected


def test_a_text_from_the_start_adds_what_is_new() -> None:
    """A watcher that has missed pieces is given all of them again."""
    parts = TextParts()

    pieces = [*parts.token(token("Hel")), *parts.token(token("Hello", from_start=True)), *parts.token(token("!"))]

    assert shown([*pieces, *parts.full_text("Hello!")]) == ["1:Hel", "1:lo", "1:!", "1:|"]


def test_another_attempt_begins_another_part() -> None:
    """Also where it is shown from its start."""
    for from_start in (False, True):
        parts = TextParts()
        pieces = [*parts.token(token("Half")), *parts.token(token("Whole", 2, from_start=from_start))]

        assert shown([*pieces, *parts.full_text("Whole")]) == ["1:Half", "1:~", "2:Whole", "2:|"]


def test_a_text_that_is_never_whole_is_abandoned() -> None:
    """A turn that is cancelled ends in the middle of a text. Blank space has begun none."""
    parts = TextParts()

    assert shown([*parts.token(token("Half")), *parts.close(), *parts.close()]) == ["1:Half", "1:~"]
    assert shown([*parts.token(token(" ", 2)), *parts.close()]) == []
