"""Law 15: the table obeys its rules as a whole, and each of its entries is taken by something."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from importlib import import_module
from types import ModuleType

import pytest

from turnwise.states import Closed, Idle, State, guards, handlers, junctions
from turnwise.states.grammar import Junction
from turnwise.states.states import STATES
from turnwise.states.table import TABLE

from ..support.cases import holds_for
from ..support.kept_walks import survey
from ..support.table_reading import EDGES, Function, name_of, used
from ..support.table_reading import junctions as junctions_of_table


def public(module: ModuleType) -> list[Function]:
    """The public functions that a module defines."""
    functions = [function for name, function in vars(module).items() if not name.startswith("_")]
    return [f for f in functions if inspect.isfunction(f) and f.__module__ == module.__name__]


def names_in(module: ModuleType) -> set[str]:
    """The names that the code of a module uses, decorators included and imports left out."""
    nodes = ast.walk(ast.parse(inspect.getsource(module)))
    return {getattr(node, "id", None) or getattr(node, "attr", "") for node in nodes}


def modules_of_functions() -> list[ModuleType]:
    """The modules of the guards, the handlers and the junctions."""
    found = pkgutil.iter_modules(handlers.__path__, f"{handlers.__name__}.")
    return [guards, junctions, *(import_module(module.name) for module in found)]


class TestTheTable:
    """Rules about the table as a whole, which `build` does not check."""

    def test_it_speaks_of_every_state(self) -> None:
        """Every state is in the table, terminal states too."""
        assert set(TABLE) == set(STATES)

    def test_every_state_can_be_reached(self) -> None:
        """Law 15: every state can be reached from Idle."""
        reached: set[type[State]] = {Idle}
        while more := {edge.to for edge in EDGES if edge.source in reached} - reached:
            reached |= more

        assert reached == set(STATES)

    def test_nothing_leads_out_of_the_end(self) -> None:
        """Law 10: Closed has no row, only refusals and no-ops."""
        assert [edge for edge in EDGES if edge.source is Closed] == []

    def test_every_guard_and_handler_is_used(self) -> None:
        """Law 15: the table names each public function of guards, handlers/ and junctions, or another one uses it."""
        functions = [function for module in modules_of_functions() for function in public(module)]
        named = {name for module in modules_of_functions() for name in names_in(module)}

        idle = [name_of(f) for f in functions if f not in used() and f.__name__ not in named]

        assert idle == []

    def test_the_table_uses_nothing_from_elsewhere(self) -> None:
        """The guards, handlers and reasons of the table are public functions of guards, handlers/ and junctions."""
        functions = {function for module in modules_of_functions() for function in public(module)}

        assert sorted(map(name_of, used() - functions)) == []


@pytest.mark.slow
class TestNothingIsHidden:
    """Law 15: every entry and every branch can be taken by some event."""

    @holds_for(
        ("kind", "place"),
        [
            pytest.param(kind, n, id=f"{kind.__name__}-{n}-{entry.event.__name__}")
            for kind in STATES
            for n, entry in enumerate(TABLE[kind])
        ],
    )
    def test_every_entry_is_the_first_for_something(self, kind: type[State], place: int) -> None:
        """Some event takes each row, refusal and no-op of each state."""
        assert (kind, place) in survey().entries

    @holds_for(
        ("asked", "place"),
        [
            pytest.param(each, n, id=f"{each.name}-{n}")
            for each in dict.fromkeys(junctions_of_table())
            for n in range(len(each.branches))
        ],
    )
    def test_every_branch_is_taken_by_something(self, asked: Junction, place: int) -> None:
        """Some event takes each branch of each junction."""
        assert (asked.name, place) in survey().branches
