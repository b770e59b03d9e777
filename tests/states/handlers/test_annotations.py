"""Law 15: the annotations of guards and handlers say the same as the table, so that mypy's verdict counts."""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from turnwise.states import Context, State
from turnwise.states.grammar import SAME, Branch, Row
from turnwise.states.machine import Edge
from turnwise.states.table import TABLE

from ...support.cases import holds_for
from ...support.table_reading import EDGES, Function, name_of, used


def members(annotation: Any) -> tuple[Any, ...]:
    """The types in a union."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def accepted_states(annotation: Any) -> tuple[type[State], ...]:
    """The states for which `StepBuilder[…]`, or a union of them, stands."""
    return tuple(state for draft in members(annotation) for state in members(get_args(draft)[0]))


def parts(edge: Edge) -> Iterator[tuple[Row | Branch, type[State] | None]]:
    """The row of an edge and its branches, each with the state that its handler must return; only the last one returns
    a state."""
    chain: list[Row | Branch] = [edge.row, *edge.branches]
    for part in chain[:-1]:
        yield part, None
    yield chain[-1], edge.to


def stays(handler: Function) -> bool:
    """Whether this handler leaves the state as it is in all of its rows. Then its annotation may name several states by
    a base class, such as `Busy`."""
    return {part.to for edge in EDGES for part, _ in parts(edge) if part.then is handler} == {SAME}


HANDLERS = sorted({part.then for edge in EDGES for part, _ in parts(edge) if part.then}, key=name_of)


class TestHandlersFitTheirRows:
    """The annotations of a handler say the same as the table, so that mypy's verdict counts."""

    @holds_for("handler", HANDLERS)
    def test_a_handler_returns_the_state_that_its_rows_lead_to(self, handler: Function) -> None:
        """Law 15: a handler returns exactly the states of the rows and branches that name it, and None before a
        junction."""
        wanted = {to or type(None) for edge in EDGES for part, to in parts(edge) if part.then is handler}

        annotated = members(get_type_hints(handler)["return"])

        assert all(any(issubclass(state, member) for member in annotated) for state in wanted)
        assert all(member in wanted or stays(handler) for member in annotated)

    def test_every_edge_ends_with_a_handler(self) -> None:
        """The last choice on every way has a handler, which returns the state."""
        assert [edge for edge in EDGES for part, to in parts(edge) if to is not None and part.then is None] == []

    @holds_for("function", sorted(used(), key=name_of))
    def test_a_function_accepts_what_its_rows_bring(self, function: Function) -> None:
        """Law 15: the `StepBuilder[…]` and the event of a function accept every state and event with which the table
        calls it."""
        draft, event, context = list(get_type_hints(function).values())[:3]
        brought = {
            (edge.source, edge.row.event)
            for edge in EDGES
            for part, _ in parts(edge)
            if function in (part.when, part.then)
        }
        brought |= {
            (source, entry.event)
            for source, entries in TABLE.items()
            for entry in entries
            if function in (entry.when, getattr(entry, "why", None))
        }

        assert all(issubclass(state, accepted_states(draft)) for state, _ in brought)
        assert all(issubclass(kind, members(event)) for _, kind in brought)
        assert context is Context
