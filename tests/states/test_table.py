"""Law 15: the table obeys its rules, and its guards and handlers fit their rows."""

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transitions import MachineError

from turnwise.states import (
    MACHINE,
    Closed,
    Context,
    Event,
    Idle,
    Limits,
    LlmRequesting,
    LlmResponse,
    Refused,
    RetryDue,
    State,
    ToolComplete,
    ToolResult,
    UserMessage,
    transition,
)
from turnwise.states.grammar import (
    SAME,
    Branch,
    Entry,
    Junction,
    Row,
    Table,
    branch,
    junction,
    lines,
    nothing,
    on,
    refuse,
)
from turnwise.states.guards.turns import is_closing
from turnwise.states.machine import Edge, TableFault, build, compile_table, edges
from turnwise.states.states import STATES
from turnwise.states.step_builder import StepBuilder
from turnwise.states.table import TABLE
from turnwise.testing.strategies import contexts_for, events, events_for, states

from ..support.conversation import Conversation
from ..support.kept_walks import survey

Function = Callable[..., Any]
Situation = tuple[State, Event, Context]
EDGES = tuple(edges(MACHINE))
WALKS = Path(__file__).parent.parent / "fixtures" / "walks.txt"


def junctions() -> Iterator[Junction]:
    """Every junction of the table, once for each branch that is taken there."""
    for edge in EDGES:
        target = edge.row.to
        for taken in edge.branches:
            assert isinstance(target, Junction)
            yield target
            target = taken.to


def used() -> set[Function]:
    """Every function that the table names."""
    choices: list[Entry | Branch] = [entry for entries in TABLE.values() for entry in entries]
    choices += [branch for junction in junctions() for branch in junction.branches]
    found = [getattr(choice, name, None) for choice in choices for name in ("when", "then", "why")]
    return {function for function in found if callable(function)}


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
    rooms = [import_module(f"turnwise.states.{room}") for room in ("guards", "handlers", "junctions")]
    return [
        import_module(module.name)
        for room in rooms
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}.")
    ]


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


def name_of(function: Function) -> str:
    """The name of a function, with its module."""
    return f"{function.__module__.removeprefix('turnwise.states.')}.{function.__name__}"


HANDLERS = sorted({part.then for edge in EDGES for part, _ in parts(edge) if part.then}, key=name_of)


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Any state, an event that it may meet, and a context in which it can rest."""
    state = draw(states())
    return state, draw(events_for(state) | events()), draw(contexts_for(state))


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
        """Law 15: the table names each public function of guards/, handlers/ and junctions/, or another one uses it."""
        functions = [function for module in modules_of_functions() for function in public(module)]
        named = {name for module in modules_of_functions() for name in names_in(module)}

        idle = [name_of(f) for f in functions if f not in used() and f.__name__ not in named]

        assert idle == []

    def test_the_table_uses_nothing_from_elsewhere(self) -> None:
        """The guards, handlers and reasons of the table are public functions of guards/, handlers/ and junctions/."""
        functions = {function for module in modules_of_functions() for function in public(module)}

        assert sorted(map(name_of, used() - functions)) == []


class TestHandlersFitTheirRows:
    """The annotations of a handler say the same as the table, so that mypy's verdict counts."""

    @pytest.mark.parametrize("handler", HANDLERS, ids=name_of)
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

    @pytest.mark.parametrize("function", sorted(used(), key=name_of), ids=name_of)
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


class TestABrokenTable:
    """A broken table is neither compiled nor built, with a sentence that says where it is broken."""

    def broken(self, entries: Iterable[Entry], state: type[State] = Idle) -> str:
        """The reason why a table with these entries for `state` cannot be compiled, nor built."""
        table: Table = {**TABLE, state: tuple(entries)}
        with pytest.raises(TableFault) as fault:
            compile_table(table)
        with pytest.raises(TableFault, match=f"^{re.escape(str(fault.value))}$"):
            build(table)
        return str(fault.value)

    def without(self, event: type[Event], state: type[State] = Idle) -> list[Entry]:
        """The entries of a state without those for one event."""
        return [entry for entry in TABLE[state] if entry.event is not event]

    def test_a_row_behind_one_without_a_guard_is_shadowed(self) -> None:
        """Law 15: a row that can never be taken is refused."""
        rows = lines(on(UserMessage, to=SAME), on(UserMessage, to=SAME))

        assert self.broken([*rows, *self.without(UserMessage)]) == (
            "Idle on UserMessage: a choice without a guard shadows those behind it"
        )

    def test_a_last_row_with_a_guard_lets_events_fall_through(self) -> None:
        """Law 15: a last row with a guard is refused."""
        rows = on(UserMessage, to=SAME, when=is_closing)

        assert "Idle on UserMessage: the last choice has a guard" in self.broken([*rows, *self.without(UserMessage)])

    def test_a_request_that_nothing_is_said_about_falls_through(self) -> None:
        """A state without an entry for some request is refused."""
        assert "Idle on UserMessage" in self.broken(self.without(UserMessage))

    def test_a_state_that_nothing_is_said_about_takes_no_request(self) -> None:
        """A state that is not in the table is refused."""
        with pytest.raises(TableFault, match="Closed on Opened"):
            build({state: entries for state, entries in TABLE.items() if state is not Closed})

    def test_an_answer_that_is_waited_for_must_be_taken(self) -> None:
        """A state without a row for an answer that it can wait for is refused."""
        rows = self.without(LlmResponse, LlmRequesting)

        assert "LlmRequesting on LlmResponse" in self.broken(rows, LlmRequesting)

    def test_an_answer_that_is_never_waited_for_has_no_row(self) -> None:
        """A row for an answer that the state never waits for is refused."""
        rows = [*on(RetryDue, to=SAME), *TABLE[Idle]]

        assert self.broken(rows) == "Idle on RetryDue: a state of this type never waits for this"

    @pytest.mark.parametrize(
        ("branches", "fault"),
        [
            ([branch(to=Idle), branch(to=Closed)], "AGAIN: a choice without a guard shadows those behind it"),
            ([branch(to=Idle, when=is_closing)], "AGAIN: the last choice has a guard"),
            ([], "AGAIN: the last choice has a guard"),
        ],
    )
    def test_branches_are_held_to_the_same(self, branches: list[Branch], fault: str) -> None:
        """Law 15: a junction needs a last branch without a guard, and no such branch before it."""
        rows = on(UserMessage, to=junction("AGAIN", *branches))

        assert fault in self.broken([*rows, *self.without(UserMessage)])

    def test_junctions_do_not_lead_in_a_circle(self) -> None:
        """Law 15: a junction that leads back to itself is refused."""
        circle = junction("CIRCLE")
        object.__setattr__(circle, "branches", (branch(to=junction("BETWEEN", branch(to=circle))),))

        assert self.broken([*on(UserMessage, to=circle), *self.without(UserMessage)]) == (
            "the junction CIRCLE leads back to itself"
        )

    def test_refusals_and_no_ops_count_as_rows(self) -> None:
        """A row behind a refusal without a guard is shadowed and refused."""
        rows = lines(refuse(UserMessage, why="busy"), nothing(UserMessage))

        assert "shadows" in self.broken([*rows, *self.without(UserMessage)])


def entry_for(state: State, event: Event, context: Context) -> Entry:
    """The first entry for this event whose guard says yes, found without the compiled table."""
    entries = [entry for entry in TABLE[type(state)] if entry.event is type(event)]
    return next(
        entry for entry in entries if entry.when is None or entry.when(StepBuilder(state, event), event, context)
    )


def taken_edge(state: State, event: Event, context: Context) -> Edge:
    """The first edge of the library's machine whose condition holds."""
    fired = SimpleNamespace(args=(state, event, context))
    ways = MACHINE.get_transitions(event.type, state.type)
    return next(way.conditions[0].func for way in ways if way.conditions[0].func(fired))


class TestTheTwoMachines:
    """`transition` and the machine of the `transitions` library choose the same rows."""

    @given(situations())
    def test_they_choose_the_same(self, situation: Situation) -> None:
        """For every step of `transition`, firing the library's machine takes the same row to the same state."""
        state, event, _ = situation
        cursor = SimpleNamespace(state=state.type)
        try:
            step = transition(*situation)
        except Refused:
            return
        if step.ignored:
            return

        assert MACHINE.events[event.type].trigger(cursor, *situation)
        assert cursor.state == step.state.type
        assert taken_edge(*situation).row is entry_for(*situation)

    @pytest.mark.parametrize(("seconds", "end"), [(1, "llm_requesting"), (60, "idle")])
    def test_they_see_the_moment_of_an_event(self, seconds: int, end: str) -> None:
        """Both let the same result lead to the model, or end the turn once its time is over."""
        conversation = Conversation(limits=Limits(seconds=60))
        conversation.says()
        conversation.model_calls("a")
        at = conversation.now + timedelta(seconds=seconds)
        done = ToolComplete(effect_id=conversation.running("a"), at=at, result=ToolResult(text="done"))
        situation = (conversation.state, done, conversation.history.context)
        cursor = SimpleNamespace(state=conversation.state.type)

        assert MACHINE.events[done.type].trigger(cursor, *situation)

        assert cursor.state == transition(*situation).state.type == end

    @given(situations())
    def test_what_no_row_takes_the_library_does_not_know(self, situation: Situation) -> None:
        """For an event that a state only refuses, drops or never waits for, the library's machine has no edge."""
        state, event, _ = situation
        cursor = SimpleNamespace(state=state.type)
        if any(isinstance(entry, Row) and entry.event is type(event) for entry in TABLE[type(state)]):
            return

        with pytest.raises((MachineError, KeyError)):
            MACHINE.events[event.type].trigger(cursor, *situation)


class TestNothingIsHidden:
    """Law 15: every entry and every branch can be taken by some event."""

    @pytest.mark.parametrize(
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

    @pytest.mark.parametrize(
        ("asked", "place"),
        [
            pytest.param(each, n, id=f"{each.name}-{n}")
            for each in dict.fromkeys(junctions())
            for n in range(len(each.branches))
        ],
    )
    def test_every_branch_is_taken_by_something(self, asked: Junction, place: int) -> None:
        """Some event takes each branch of each junction."""
        assert (asked.name, place) in survey().branches


def ways(part: Row | Branch) -> list[tuple[Branch, ...]]:
    """The branches of each way behind a row or a branch, in order."""
    if not isinstance(part.to, Junction):
        return [()]
    return [(taken, *rest) for taken in part.to.branches for rest in ways(taken)]


@pytest.mark.parametrize("state", STATES)
def test_the_machine_of_the_library_has_every_way(state: type[State]) -> None:
    """Law 15: the edges of that machine are, row by row and in order, the ways through the junctions of the row."""
    rows = [entry for entry in TABLE[state] if isinstance(entry, Row)]
    edges_of = {row: [edge.branches for edge in EDGES if (edge.source, edge.row) == (state, row)] for row in rows}

    assert edges_of == {row: ways(row) for row in rows}
    assert {edge.row for edge in EDGES if edge.source is state} <= set(rows)


def test_importing_turnwise_does_not_build_the_machine_of_the_library() -> None:
    """A conversation begins and moves without it; it is built when it is asked for."""
    program = (
        "import sys, turnwise, turnwise.states.machine\n"
        "from datetime import UTC, datetime\n"
        "from turnwise.states import Context, Opened, UserMessage, begin, transition\n"
        "now = datetime.now(UTC)\n"
        "begun = begin(Opened(event_id='1', at=now))\n"
        "moved = transition(begun.state, UserMessage(event_id='2', at=now, text='Hello'), Context())\n"
        "assert moved.state.type == 'llm_requesting'\n"
        "assert 'transitions' not in sys.modules\n"
        "assert turnwise.states.MACHINE is turnwise.states.machine.MACHINE\n"
        "assert 'transitions' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
