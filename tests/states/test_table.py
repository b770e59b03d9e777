"""Law 15: the table obeys its rules as a whole, and the machine of the `transitions` library is the table."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transitions import Machine, MachineError

from turnwise import states
from turnwise.states import (
    MACHINE,
    Closed,
    Context,
    Event,
    Idle,
    Limits,
    LlmFailed,
    LlmRequesting,
    LlmResponse,
    Refused,
    RetryDue,
    State,
    ToolComplete,
    ToolExecuting,
    ToolResult,
    UserCancel,
    UserMessage,
    guards,
    handlers,
    junctions,
    machine,
    next_events,
    table,
    transition,
)
from turnwise.states.events import EVENTS
from turnwise.states.grammar import (
    SAME,
    Branch,
    Entry,
    Junction,
    NoOp,
    Refusal,
    Row,
    Table,
    branch,
    junction,
    lines,
    nothing,
    on,
    refuse,
)
from turnwise.states.guards import is_closing
from turnwise.states.machine import Edge, TableFault, branches_for, build, compile_table, edges
from turnwise.states.machine import entry_for as paths_entry_for
from turnwise.states.states import STATES
from turnwise.states.step_builder import StepBuilder
from turnwise.states.table import TABLE
from turnwise.testing import strategies
from turnwise.testing.strategies import NOON

from ..support.busy_states import IN_TURN, Moment, executing, requesting
from ..support.cases import holds_for
from ..support.conversation import Conversation, asking, call
from ..support.kept_walks import survey
from ..support.table_reading import EDGES, Function, name_of, used
from ..support.table_reading import junctions as junctions_of_table

# --- Law 15: the table obeys its rules as a whole, and each of its entries is taken by something.


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


# --- The table and the machine come out the same each time they are built, and a broken table is not built at all.
#
# Both modules are executed once, at import; these tests execute them once more, beside the ones in use, so that what
# runs only then is tested too.


HELLO = UserMessage(event_id="1", at=NOON, text="Hello")


def read_again(module: ModuleType) -> Any:
    """A module that is executed once more, beside the one in use."""
    spec = find_spec(module.__name__)
    assert spec is not None and spec.loader is not None
    again = module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


def ways(machine: Machine) -> list[tuple[str, str, str, Edge]]:
    """The edges of a machine of `transitions`: event, source, destination and conditions."""
    return [
        (event.name, way.source, way.dest, way.conditions[0].func)
        for event in machine.events.values()
        for from_one_state in event.transitions.values()
        for way in from_one_state
    ]


def places() -> list[State]:
    """Conversations that rest at the beginning, at the end, and while the model, a tool or a person moves them next."""
    requesting, executing, asked = (Conversation() for _ in range(3))
    for conversation in (requesting, executing, asked):
        conversation.says()
    executing.model_calls("a")
    asked.model_calls(asking())
    asked.tool_asks()
    return [Idle(), requesting.state, executing.state, asked.state, Closed()]


class TestReadAgain:
    """Nothing in the machine depends on what was executed before."""

    def test_the_page_says_the_same(self) -> None:
        """Every row, with its guard, target and handler; every junction, with its branches."""
        assert read_again(table).TABLE == table.TABLE

    def test_the_machine_is_built_the_same(self) -> None:
        """The same states, events and edges, in the same order."""
        again = build(table.TABLE)

        assert list(again.states) == list(MACHINE.states)
        assert list(again.events) == list(MACHINE.events)
        assert ways(again) == ways(MACHINE)

    def test_the_machine_takes_the_same(self) -> None:
        """In every state the same events are possible, and lead to the same states."""
        again = read_again(machine)

        assert [again.next_events(state) for state in places()] == [next_events(state) for state in places()]
        assert again.transition(Idle(), HELLO, Context()).state == transition(Idle(), HELLO, Context()).state


class TestRefusals:
    """A refusal is a code, or a function that gives the reason."""

    def test_the_reason_may_depend_on_everything(self) -> None:
        """The function is given the same arguments as the handler of a row."""

        def too_loud(step: StepBuilder[Idle], event: UserMessage, context: Context) -> Refused:
            return Refused("busy", f"{step.state.type} {event.text} {context.policy.parallel}")

        refused = refuse(UserMessage, why=too_loud)[0].reason(StepBuilder(Idle(), HELLO), HELLO, Context())

        assert (refused.code, refused.subject) == ("busy", "idle Hello 1")


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
        assert "Idle on UserMessage: there is no row" in self.broken(self.without(UserMessage))

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


# --- Law 15: the machine of the `transitions` library is the table, and is built when it is first asked for.


Situation = tuple[State, Event, Context]


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    """Any state, an event that it may meet, and a context in which it can rest."""
    state = draw(strategies.states())
    return state, draw(strategies.events_for(state) | strategies.events()), draw(strategies.contexts_for(state))


class TestTheMachineOfTheLibrary:
    """The machine can be used as one of the `transitions` library."""

    def test_it_goes_by_the_names_that_are_stored(self) -> None:
        """States and events are named by their `type`, as in JSON, and there are no others."""
        machine = build(table.TABLE)

        assert set(machine.states) == {str(state.model_fields["type"].default) for state in STATES}
        assert set(machine.events) <= {str(event.model_fields["type"].default) for event in EVENTS}

    @pytest.mark.slow
    def test_threads_that_ask_first_get_the_same(self) -> None:
        """Eight threads that ask both modules at the same time get one machine, which is kept."""
        program = (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "from threading import Barrier\n"
            "from turnwise import states\n"
            "from turnwise.states import machine\n"
            "together = Barrier(8)\n"
            "def ask(module):\n"
            "    together.wait()\n"
            "    return module.MACHINE\n"
            "with ThreadPoolExecutor(8) as threads:\n"
            "    machines = list(threads.map(ask, [states, machine] * 4))\n"
            "kept = [states.MACHINE, vars(machine)['MACHINE']]\n"
            "print(len(machines), len({id(machine) for machine in machines + kept}))\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

        assert (done.stdout, done.stderr) == ("8 1\n", "")

    @pytest.mark.slow
    def test_it_is_listed_before_it_is_built(self) -> None:
        """`dir` names it in both modules, and does not build it."""
        program = (
            "import sys\n"
            "from turnwise import states\n"
            "from turnwise.states import machine\n"
            "print('MACHINE' in dir(states), 'MACHINE' in dir(machine), 'transitions' in sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

        assert (done.stdout, done.stderr) == ("True True False\n", "")

    @pytest.mark.parametrize(
        ("module", "sentence"),
        [(states, "No turnwise.states attribute NOTHING"), (machine, "this module has no attribute 'NOTHING'")],
    )
    def test_other_names_are_unknown(self, module: ModuleType, sentence: str) -> None:
        """A name that a module does not have is an error, as in every module."""
        with pytest.raises(AttributeError, match=f"^{sentence}$"):
            _ = module.NOTHING

    def test_it_is_fired_with_state_event_and_context(self) -> None:
        """A machine just built takes a message from `idle` to `llm_requesting`."""
        cursor = SimpleNamespace(state="idle")

        fired = build(table.TABLE).events["user_message"].trigger(cursor, Idle(), HELLO, Context())

        assert fired
        assert cursor.state == "llm_requesting"

    def test_an_edge_knows_its_row(self) -> None:
        """An edge has the state where it begins, its row, its branches, and the state where it ends."""
        for edge in edges(build(table.TABLE)):
            target = edge.row.to
            for taken in edge.branches:
                assert isinstance(target, Junction) and taken in target.branches
                target = taken.to

            assert edge.row in table.TABLE[edge.source]
            assert edge.to is (edge.source if target is SAME else target)

    @pytest.mark.parametrize(
        ("response", "taken"),
        [
            ({"tool_calls": (call("a"),)}, ToolExecuting),
            ({"tool_calls": (call("a", fault="No."),)}, LlmRequesting),
            ({"content": "Good evening"}, Idle),
        ],
        ids=["calls", "faults", "text"],
    )
    def test_behind_a_row_one_way_is_taken(self, response: dict[str, Any], taken: type[State]) -> None:
        """If the guard of a row is true, exactly one of its edges is possible; otherwise none is."""
        conversation = Conversation()
        conversation.says()
        event = LlmResponse(effect_id=1, at=conversation.now, **response)
        fired = SimpleNamespace(args=(conversation.state, event, Context()))

        saying_yes = [edge for edge in edges(MACHINE) if (edge.source, edge.row.event) == (LlmRequesting, LlmResponse)]
        saying_yes = [edge for edge in saying_yes if edge(fired)]

        rows = [edge.row for edge in saying_yes]
        assert saying_yes[0].to is taken
        assert len(rows) == len(set(rows))


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


def library_machine_ways(part: Row | Branch) -> list[tuple[Branch, ...]]:
    """The branches of each way behind a row or a branch, in order."""
    if not isinstance(part.to, Junction):
        return [()]
    return [(taken, *rest) for taken in part.to.branches for rest in library_machine_ways(taken)]


@holds_for("state", STATES)
def test_the_machine_of_the_library_has_every_way(state: type[State]) -> None:
    """Law 15: the edges of that machine are, row by row and in order, the ways through the junctions of the row."""
    rows = [entry for entry in TABLE[state] if isinstance(entry, Row)]
    edges_of = {row: [edge.branches for edge in EDGES if (edge.source, edge.row) == (state, row)] for row in rows}

    assert edges_of == {row: library_machine_ways(row) for row in rows}
    assert {edge.row for edge in EDGES if edge.source is state} <= set(rows)


@pytest.mark.slow
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


# --- The way that an event takes through the table: `entry_for` and `branches_for` name the rows that a step takes.


PATHS_EDGES = tuple(edges(MACHINE))
MESSAGE = UserMessage(event_id="1", at=NOON, text="Hello")


def told(moment: Moment) -> Conversation:
    """A conversation to which this happened, and then a message, a cancel and a close."""
    conversation = moment()
    for happens in (conversation.says, conversation.cancels, conversation.closes):
        try:
            happens()
        except Refused:
            continue
    return conversation


def edges_behind(row: Row, state: State) -> list[Edge]:
    """The edges that begin with this row of this state."""
    return [edge for edge in PATHS_EDGES if edge.row is row and edge.source is type(state)]


class TestTheEntry:
    """`entry_for` returns the entry of the table that an event takes."""

    def test_a_request_that_is_taken_meets_a_row(self) -> None:
        """A request that is taken takes a row of the current state."""
        entry = paths_entry_for(Idle(), MESSAGE, Context())

        assert isinstance(entry, Row)
        assert entry in TABLE[Idle] and entry.event is UserMessage

    def test_a_refusal_is_an_entry(self) -> None:
        """A refused request takes a refusal, which holds the reason."""
        entry = paths_entry_for(Closed(), MESSAGE, Context())

        assert isinstance(entry, Refusal)
        assert entry in TABLE[Closed]

    def test_what_does_nothing_is_an_entry(self) -> None:
        """A cancel of a closed conversation takes a no-op."""
        assert isinstance(paths_entry_for(Closed(), UserCancel(event_id="1", at=NOON), Context()), NoOp)

    def test_an_answer_that_nobody_waits_for_meets_nothing(self) -> None:
        """An answer takes no entry if nothing is in flight, or only another effect."""
        late = LlmFailed(effect_id=99, at=NOON, kind="timeout", sentence="Too late.")

        assert paths_entry_for(Idle(), late, Context()) is None
        assert paths_entry_for(requesting().state, late, Context()) is None

    def test_the_guards_of_the_entries_see_state_event_and_context(self) -> None:
        """The same cancel takes a no-op or a row, depending on the turn that it names."""
        state = executing().state

        early, now = (
            paths_entry_for(state, UserCancel(event_id="1", at=NOON, turn=turn), Context()) for turn in (0, 1)
        )

        assert (isinstance(early, NoOp), isinstance(now, Row)) == (True, True)


class TestTheBranches:
    """`branches_for` returns the branches that an event takes behind its row."""

    @pytest.mark.parametrize("happens", [MESSAGE, UserCancel(event_id="1", at=NOON)])
    def test_what_takes_no_row_takes_no_branches(self, happens: Event) -> None:
        """A refusal and a no-op have no branches."""
        assert branches_for(Closed(), happens, Context()) == ()

    def test_what_is_ignored_takes_no_branches(self) -> None:
        """An answer that nobody waits for has no branches."""
        late = LlmFailed(effect_id=99, at=NOON, kind="timeout", sentence="Too late.")

        assert branches_for(requesting().state, late, Context()) == ()

    @pytest.mark.parametrize(("seconds", "end"), [(1, LlmRequesting), (60, Idle)])
    def test_the_guards_of_the_branches_see_the_event(self, seconds: int, end: type[State]) -> None:
        """The same result leads to the model or to the end of the turn, depending on the time of the event."""
        conversation = Conversation(limits=Limits(seconds=60))
        conversation.says()
        conversation.model_calls("a")
        at = conversation.now + timedelta(seconds=seconds)
        done = ToolComplete(effect_id=conversation.running("a"), at=at, result=ToolResult(text="done"))

        branches = branches_for(conversation.state, done, conversation.history.context)

        assert branches[-1].to is end


@holds_for("moment", IN_TURN)
def test_entry_and_branches_are_those_of_the_step(moment: Moment) -> None:
    """In every conversation, an event that is refused or ignored takes no branches, and any other takes the one edge of
    the library's machine that ends in the state of the step."""
    for seen in told(moment).history.observations[1:]:
        entry = paths_entry_for(seen.before, seen.event, seen.context)
        branches = branches_for(seen.before, seen.event, seen.context)

        if isinstance(seen.outcome, Refused):
            assert isinstance(entry, Refusal) and branches == ()
        elif seen.outcome.ignored:
            assert (entry is None or isinstance(entry, NoOp)) and branches == ()
        else:
            assert isinstance(entry, Row)
            assert [edge.branches for edge in edges_behind(entry, seen.before)].count(branches) == 1
            end: Row | Branch = branches[-1] if branches else entry
            assert not isinstance(end.to, Junction)
            assert type(seen.outcome.state) is (type(seen.before) if end.to is SAME else end.to)


# --- Law 15: the annotations of guards and handlers say the same as the table, so that mypy's verdict counts.


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
