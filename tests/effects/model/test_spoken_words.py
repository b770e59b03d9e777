"""What a tool is to say is read out of its arguments while they are written, whatever the pieces."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model import spoken_words
from turnwise.effects.model.port import ModelCall, Token
from turnwise.effects.model.spoken_words import StreamedArgument, StreamedSpeech, spoken_by

WORDS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n{}[]:,😀é'))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


def pieces_of(written: str, places: list[int]) -> list[str]:
    """Cut the text at these places."""
    ends = sorted({0, len(written), *(place % (len(written) + 1) for place in places)})
    return [written[start:end] for start, end in pairwise(ends)]


@given(
    words=WORDS,
    before=st.dictionaries(WORDS.filter(lambda name: name != "text"), VALUES, max_size=3),
    behind=st.dictionaries(WORDS.filter(lambda name: name != "text"), VALUES, max_size=2),
    places=st.lists(st.integers(0, 10_000), max_size=40),
    is_ascii=st.booleans(),
    indent=st.sampled_from([None, 2]),
)
def test_the_pieces_make_the_text(
    words: str, before: dict[str, Any], behind: dict[str, Any], places: list[int], is_ascii: bool, indent: int | None
) -> None:
    """Wherever the arguments are cut, and whatever stands around the text."""
    arguments = {**before, "text": words, **{name: value for name, value in behind.items() if name not in before}}
    reader = StreamedArgument("text")

    said = [reader.add(one) for one in pieces_of(json.dumps(arguments, ensure_ascii=is_ascii, indent=indent), places)]
    said.append(reader.add(" " * 2000))  # whitespace behind the object, so much that all is searched once more

    assert "".join(said) == words


@given(st.text(max_size=80), st.lists(st.integers(0, 100), max_size=10))
def test_nothing_that_is_written_fails_a_reader(written: str, places: list[int]) -> None:
    """A model may write anything."""
    reader = StreamedArgument("text")

    for piece in pieces_of(f'{{"text": "{written}', places):
        reader.add(piece)


@pytest.mark.parametrize("written", ['{"text": 5}', '["text", "no"]', '{"other": {"text": "no"}}', '"text"', "null"])
def test_what_is_no_text_of_that_name_is_not_read(written: str) -> None:
    """Numbers, other shapes, and the same name deeper."""
    reader = StreamedArgument("text")

    assert [reader.add(one) for one in written] == [""] * len(written)


def test_pieces_that_repeat_those_before_them_are_not_read() -> None:
    """The beginning is shown, and nothing that is wrong."""
    reader = StreamedArgument("text")

    assert [reader.add(f'{{"text": "{said}') for said in ("It", "It rains", "It rains.")] == ["It", "", ""]


def test_a_long_text_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each character is parsed once, however small the pieces are."""
    parsed: list[int] = []
    loads = json.loads
    monkeypatch.setattr(
        spoken_words.json, "loads", lambda text, **more: parsed.append(len(text)) or loads(text, **more)
    )
    reader, words = StreamedArgument("text"), "It rains.\n" * 5_000

    said = [reader.add(piece) for piece in json.dumps({"text": words})]

    assert "".join(said) == words
    assert sum(parsed) < 4 * len(words)  # each with two quotes


def test_two_calls_are_told_apart_by_a_blank_line() -> None:
    """A call of a tool that does not speak says nothing."""
    calls = [
        ModelCall("1", "talk", '{"message": "It rains."}'),
        ModelCall("2", "look", '{"message": "no"}'),
        ModelCall("3", "talk", '{"message": "Bye."}'),
    ]

    assert list(spoken_by(calls, {"talk": "message"})) == [Token("It rains.", "speech"), Token("\n\nBye.", "speech")]
    assert list(spoken_by(calls, None)) == []


def test_a_repeated_head_begins_no_other_call() -> None:
    """Some servers write name and id with each piece."""
    shown: list[Token] = []
    speech = StreamedSpeech({"talk": "message"}, shown.append)

    for piece in ('{"message": "It ', 'rains."}', '{"message": "It rains."}'):
        speech.begin(0, "talk", "call_1")
        speech.add(0, piece)

    assert "".join(token.text for token in shown) == "It rains."
