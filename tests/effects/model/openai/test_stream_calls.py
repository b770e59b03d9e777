"""Calls are put together from their fragments as they were written, whichever dialect the fragments follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.openai.stream_calls import AmbiguousCalls, Fragment, assemble_calls

from ....support.cases import holds_for

NAMES = ("weather", "traffic", "pay", "now")
OSLO, ROME, E6 = '{"city": "Oslo"}', '{"city": "Rome"}', '{"road": "E6"}'
HALVES = ('{"city": ', '"Oslo"}')

Row = tuple[int | None, str, str, str]
"""Index, id, name and arguments of a fragment."""


def assembled(*rows: Row | Sequence[Row], names: Iterable[str] = NAMES) -> list[tuple[str, str]]:
    """Return names and arguments of the calls in these fragments. A row is a delta; a list of rows is one, too."""
    deltas = [[row] if isinstance(row, tuple) else row for row in rows]
    fragments = [Fragment(place, *row) for place, delta in enumerate(deltas) for row in delta]
    return [(call.name, call.arguments) for call in assemble_calls(fragments, tuple(names))]


class TestWhatStandsAroundCalls:
    """What a model or a server writes around a call takes nothing from it."""

    @pytest.mark.parametrize(
        "name", ["functions.pay", "pay:0", "functions.pay:3", "default_api:pay", "pay<|channel|>x"]
    )
    def test_templates_of_names(self, name: str) -> None:
        """Namespaces, numbers and marks of a template are no part of the name of an offered tool."""
        assert assembled((0, "a", name, OSLO)) == [("pay", OSLO)]
        assert assembled((0, "a", name, OSLO), names=[name, "pay"]) == [(name, OSLO)]
        assert assembled((0, "a", f"other.{name}", OSLO)) == [(f"other.{name}", OSLO)]

    @pytest.mark.parametrize("placeholder", ["{}", "null", '""'])
    def test_a_placeholder_behind_the_pieces(self, placeholder: str) -> None:
        """It says that nothing more comes."""
        calls = assembled((0, "a", "pay", ""), *((0, "", "", half) for half in HALVES), (0, "", "", placeholder))

        assert calls == [("pay", OSLO)]

    @pytest.mark.parametrize("rest", ["}", " I hope that helps", "<|call|>", "\n```"])
    def test_text_behind_the_arguments(self, rest: str) -> None:
        """The model is told what it wrote; the call does not run."""
        assert assembled((0, "a", "pay", OSLO + rest)) == [("pay", OSLO + rest)]

    @pytest.mark.parametrize("rest", [ROME, f" {E6}", '{"city'])
    def test_another_object_behind_the_arguments(self, rest: str) -> None:
        """It may belong to another call."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "a", "pay", OSLO + rest))


class TestCallsUnderOneIndex:
    """Several calls may come under one index, or under none."""

    @holds_for("index", [0, 3, None])
    @holds_for("ids", [("a", "b"), ("", ""), ("same", "same")])
    def test_whole_calls_with_other_arguments(self, index: int | None, ids: tuple[str, str]) -> None:
        """Each is a call of its own."""
        calls = assembled((index, ids[0], "weather", OSLO), (index, ids[1], "weather", ROME))

        assert calls == [("weather", OSLO), ("weather", ROME)]

    @pytest.mark.parametrize("index", [0, None])
    @pytest.mark.parametrize("ids", [("a", "b"), ("", ""), ("same", "same")], ids=repr)
    def test_whole_calls_in_one_delta(self, index: int | None, ids: tuple[str, str]) -> None:
        """A list names each call once, so equal ones are several."""
        calls = assembled([(index, ids[0], "weather", OSLO), (index, ids[1], "weather", OSLO)])

        assert calls == [("weather", OSLO)] * 2

    def test_equal_calls_with_an_id_each(self) -> None:
        """The ids tell them apart."""
        assert assembled((0, "a", "pay", OSLO), (0, "b", "pay", OSLO)) == [("pay", OSLO)] * 2

    @pytest.mark.parametrize("index", [0, None])
    def test_calls_in_pieces_without_ids(self, index: int | None) -> None:
        """A name begins a call."""
        calls = assembled(
            (index, "", "weather", ""),
            *((index, "", "", half) for half in HALVES),
            (index, "", "traffic", ""),
            (index, "", "", E6),
        )

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_calls_whose_ids_stand_on_the_first_piece(self) -> None:
        """The pieces without an id belong to the newest one."""
        calls = assembled((0, "a", "weather", ""), (0, "", "", OSLO), (0, "b", "traffic", ""), (0, "", "", E6))

        assert calls == [("weather", OSLO), ("traffic", E6)]

    @pytest.mark.parametrize("index", [0, None])
    def test_interleaved_pieces_with_ids(self, index: int | None) -> None:
        """Each piece belongs to its id."""
        calls = assembled(
            (index, "a", "weather", HALVES[0]),
            (index, "b", "traffic", '{"road": '),
            (index, "a", "", HALVES[1]),
            (index, "b", "", '"E6"}'),
        )

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_calls_without_arguments(self) -> None:
        """Two names of tools are two calls, and no name that was cut."""
        assert assembled((0, "", "now", ""), (0, "", "traffic", "")) == [("now", ""), ("traffic", "")]


class TestIndexes:
    """The index is whatever the server makes of it."""

    @pytest.mark.parametrize("indexes", [(0, 1), (1, 2), (7, 3)])
    def test_any_numbers_tell_calls_apart(self, indexes: tuple[int, int]) -> None:
        """They need not begin at 0, nor follow each other; pieces may be interleaved."""
        first, second = indexes
        calls = assembled(
            (first, "a", "weather", ""),
            (second, "b", "traffic", ""),
            (first, "", "", HALVES[0]),
            (second, "", "", E6),
            (first, "", "", HALVES[1]),
        )

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_an_index_on_the_first_piece_only(self) -> None:
        """Pieces without one follow the piece before."""
        calls = assembled((0, "a", "weather", ""), (None, "", "", HALVES[0]), (None, "", "", HALVES[1]))

        assert calls == [("weather", OSLO)]

    def test_an_index_that_grows_with_each_piece(self) -> None:
        """A piece without a name begins no call."""
        calls = assembled((0, "a", "weather", HALVES[0]), (1, "", "", HALVES[1]), (2, "b", "traffic", E6))

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_pieces_under_the_index_of_another_call(self) -> None:
        """Nobody can tell whose arguments these are."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "a", "weather", ""), (0, "", "", OSLO), (1, "b", "pay", ""), (0, "", "", E6))


class TestPieces:
    """What one call is cut into."""

    @holds_for("index", [0, None])
    @holds_for("name", ["", "pay"])
    @holds_for("pieces", [['{"amount": 250}'], ['{"amount": 2', "50}"], ["{", '"amount"', ": 250", "}"]])
    def test_an_id_that_changes_with_each_piece(self, index: int | None, name: str, pieces: list[str]) -> None:
        """The pieces go on with an object that is open, so they are one call."""
        rows = [(index, f"id-{place}", name, piece) for place, piece in enumerate(pieces)]

        assert assembled((index, "id", "pay", ""), *rows) == [("pay", '{"amount": 250}')]

    @holds_for(
        ("told", "name"),
        [
            (("wea", "ther"), "weather"),
            (("w", "eat", "her"), "weather"),
            (("weather", "weather"), "weather"),
            (("w", "wea", "weather"), "weather"),
            ((" weather\n",), "weather"),
            ((" wea", "ther "), "weather"),
            (("weather", " "), "weather"),
            (("un", "known"), "unknown"),
        ],
    )
    def test_a_name_in_pieces(self, told: tuple[str, ...], name: str) -> None:
        """It may be cut, repeated, repeated with what comes next, or have blanks around it."""
        rows: list[Row] = [(0, "a" if place == 0 else "", part, "") for place, part in enumerate(told)]

        assert assembled(*rows, (0, "", "", OSLO)) == [(name, OSLO)]

    @pytest.mark.parametrize("name", ["", "weather"])
    def test_arguments_that_repeat_what_came_before(self, name: str) -> None:
        """The last piece has all of them."""
        rows: list[Row] = [(0, "a", name, '{"ci'), (0, "a", name, '{"city": '), (0, "a", name, OSLO)]

        calls = assembled((0, "a", "weather", ""), *rows)

        assert calls == [("weather", OSLO)]

    @pytest.mark.parametrize("placeholder", ["{}", "null", '""'])
    @pytest.mark.parametrize("pieces", [[OSLO], list(HALVES)])
    def test_a_placeholder_first(self, placeholder: str, pieces: list[str]) -> None:
        """What follows are the arguments."""
        calls = assembled((0, "a", "weather", placeholder), *((0, "", "", piece) for piece in pieces))

        assert calls == [("weather", OSLO)]

    def test_a_placeholder_under_a_name_that_is_repeated(self) -> None:
        """This may be one call, or one without arguments and one with."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "", "pay", "{}"), (0, "", "pay", '{"amount": 250}'))

    def test_a_call_without_a_name(self) -> None:
        """Nobody can tell what it calls."""
        with pytest.raises(AmbiguousCalls):
            assembled((0, "a", "", OSLO))

    def test_arguments_that_the_model_wrote_wrong(self) -> None:
        """They are handed on as they are, because nothing else is unusual."""
        assert assembled((0, "a", "weather", '{"city": '), (0, "", "", "Oslo")) == [("weather", '{"city": Oslo')]

    def test_half_characters(self) -> None:
        """A character that was cut is one again."""
        assert assembled((0, "a", "pay", '{"to": "\ud83d'), (0, "", "", '\ude00"}')) == [("pay", '{"to": "😀"}')]

    def test_a_fragment_that_says_nothing(self) -> None:
        """It is no call."""
        assert assembled((0, "", "", ""), (0, "a", "now", "{}")) == [("now", "{}")]

    def test_many_pieces(self) -> None:
        """Their number is not limited."""
        text = json.dumps({"text": "a" * 20_000})

        assert assembled((0, "a", "pay", ""), *((0, "", "", letter) for letter in text)) == [("pay", text)]


class TestSentAgain:
    """A call that is complete may be sent again."""

    PIECES: tuple[Row, ...] = ((0, "a", "weather", ""), (0, "", "", HALVES[0]), (0, "", "", HALVES[1]))

    @holds_for(
        "again",
        [
            (0, "a", "weather", OSLO),
            (0, "", "weather", OSLO),
            (0, "", "", OSLO),
            (0, "", "", '{"city":"Oslo"}'),
            (None, "a", "weather", OSLO),
            (None, "", "weather", OSLO),
            (1, "a", "weather", OSLO),
            (1, "", "weather", OSLO),
        ],
    )
    def test_whole_after_its_pieces(self, again: Row) -> None:
        """With or without index, id and name."""
        assert assembled(*self.PIECES, again) == [("weather", OSLO)]

    @pytest.mark.parametrize("in_one_delta", [True, False])
    @pytest.mark.parametrize("indexes", [(0, 1), (2, 3), (None, None)], ids=repr)
    def test_all_calls_after_their_pieces(self, indexes: tuple[int | None, int | None], in_one_delta: bool) -> None:
        """In a list, or one after the other."""
        again: list[Row] = [(indexes[0], "", "weather", OSLO), (indexes[1], "", "traffic", E6)]
        more: list[Row | Sequence[Row]] = [again] if in_one_delta else [*again]

        calls = assembled(*self.PIECES, (1, "b", "traffic", ""), (1, "", "", E6), *more)

        assert calls == [("weather", OSLO), ("traffic", E6)]

    def test_one_that_differs_is_another_call(self) -> None:
        """It was not sent before."""
        assert assembled(*self.PIECES, (1, "b", "weather", ROME)) == [("weather", OSLO), ("weather", ROME)]


# --- for any calls, any dialect and any way to cut them

Written = tuple[str, str]
"""Name and arguments of a call."""

WrittenAs = Callable[[int, str, Sequence[str]], list[Row]]
"""How a server writes a call: its place, its name, and the arguments in pieces."""


def _changing_id(place: int, name: str, pieces: Sequence[str]) -> list[Row]:
    ids = (f"{place}-{number}" for number in range(len(pieces) + 1))
    return [(place, next(ids), name, ""), *((place, next(ids), "", piece) for piece in pieces)]


def _repeated_arguments(place: int, name: str, pieces: Sequence[str]) -> list[Row]:
    return [(place, f"id{place}", name, "".join(pieces[: end + 1])) for end in range(len(pieces))]


DIALECTS: dict[str, WrittenAs] = {
    "as OpenAI": lambda n, name, p: [(n, f"id{n}", name, ""), *((n, "", "", piece) for piece in p)],
    "whole": lambda n, name, p: [(n, f"id{n}", name, "".join(p))],
    "whole, one index": lambda n, name, p: [(0, f"id{n}", name, "".join(p))],
    "whole, no index": lambda n, name, p: [(None, f"id{n}", name, "".join(p))],
    "one id for all": lambda n, name, p: [(n, "id", name, ""), *((n, "id", "", piece) for piece in p)],
    "one index": lambda n, name, p: [(0, f"id{n}", name, ""), *((0, "", "", piece) for piece in p)],
    "one index, no ids": lambda n, name, p: [(0, "", name, ""), *((0, "", "", piece) for piece in p)],
    "no index": lambda n, name, p: [(None, f"id{n}", name, ""), *((None, f"id{n}", "", piece) for piece in p)],
    "no index, no ids": lambda n, name, p: [(None, "", name, ""), *((None, "", "", piece) for piece in p)],
    "the id on each piece": lambda n, name, p: [(n, f"id{n}", name, ""), *((n, f"id{n}", "", piece) for piece in p)],
    "the name on each piece": lambda n, name, p: [(n, "", name, ""), *((n, "", name, piece) for piece in p)],
    "another id on each piece": _changing_id,
    "a name in two pieces": lambda n, name, p: [
        (n, f"id{n}", name[:2], ""),
        (n, "", name[2:], p[0]),
        *((n, "", "", piece) for piece in p[1:]),
    ],
    "arguments repeated": _repeated_arguments,
    "a placeholder first": lambda n, name, p: [(n, f"id{n}", name, "{}"), *((n, "", "", piece) for piece in p)],
    "sent again": lambda n, name, p: [
        (n, f"id{n}", name, ""),
        *((n, "", "", piece) for piece in p),
        (n, f"id{n}", name, "".join(p)),
    ],
}

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 999) | st.text('ab"{}\\ é', max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=4,
)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1, max_size=2).map(json.dumps)
    ),
    min_size=1,
    max_size=3,
)


@st.composite
def in_pieces(draw: st.DrawFn, text: str) -> list[str]:
    """A text, cut in any way."""
    places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=5)))
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.slow
@given(st.data(), CALLS, st.sampled_from(sorted(DIALECTS)))
def test_the_calls_are_those_that_were_written(data: st.DataObject, calls: list[Written], dialect: str) -> None:
    """For any calls, each dialect and each way to cut the arguments: the same calls, or none that can be read; never
    other ones."""
    write = DIALECTS[dialect]
    rows = chain.from_iterable(
        write(place, name, data.draw(in_pieces(arguments))) for place, (name, arguments) in enumerate(calls)
    )

    try:
        found = assembled(*rows)
    except AmbiguousCalls:
        return

    assert found == calls


@given(st.data(), CALLS, st.sampled_from(["as OpenAI", "whole", "one index", "the id on each piece"]))
def test_usual_calls_can_always_be_read(data: st.DataObject, calls: list[Written], dialect: str) -> None:
    """What follows the protocol, or nearly, is never ambiguous."""
    write = DIALECTS[dialect]
    rows = [write(place, name, data.draw(in_pieces(arguments))) for place, (name, arguments) in enumerate(calls)]

    assert assembled(*chain.from_iterable(rows)) == calls


ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 2),
        st.sampled_from(["", "a", "b"]),
        st.sampled_from(["", *NAMES]),
        st.sampled_from(["", "{}", OSLO, *HALVES]),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(ROWS)
def test_nothing_is_made_up(rows: list[Row]) -> None:
    """Whatever comes: each call has the name of a fragment, and no more arguments than were written."""
    try:
        calls = assembled(*rows)
    except AmbiguousCalls:
        return

    assert {name for name, _ in calls} <= {name for *_, name, _ in rows}
    assert len("".join(text for _, text in calls)) <= len("".join(text for *_, text in rows))
