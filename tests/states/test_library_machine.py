"""Law 15: the machine of the `transitions` library is the table, and is built when it is first asked for."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transitions import MachineError

from turnwise import states
from turnwise.states import (
    MACHINE,
    Context,
    Event,
    Idle,
    Limits,
    LlmRequesting,
    LlmResponse,
    Refused,
    State,
    ToolComplete,
    ToolExecuting,
    ToolResult,
    UserMessage,
    machine,
    table,
    transition,
)
from turnwise.states.events import EVENTS
from turnwise.states.grammar import SAME, Branch, Entry, Junction, Row
from turnwise.states.machine import Edge, build, edges
from turnwise.states.states import STATES
from turnwise.states.step_builder import StepBuilder
from turnwise.states.table import TABLE
from turnwise.testing import strategies
from turnwise.testing.strategies import NOON

from ..support.cases import holds_for
from ..support.conversation import Conversation, call
from ..support.table_reading import EDGES

HELLO = UserMessage(event_id="1", at=NOON, text="Hello")
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
        """Eight threads that ask both modules at the same time get one machine, which both modules keep."""
        program = (
            "from concurrent.futures import ThreadPoolExecutor\n"
            "from threading import Barrier\n"
            "from turnwise import states\n"
            "together = Barrier(8)\n"
            "def ask(module):\n"
            "    together.wait()\n"
            "    return module.MACHINE\n"
            "with ThreadPoolExecutor(8) as threads:\n"
            "    machines = list(threads.map(ask, [states, states.machine] * 4))\n"
            "kept = [vars(states)['MACHINE'], vars(states.machine)['MACHINE']]\n"
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
            "print('MACHINE' in dir(states), 'MACHINE' in dir(states.machine), 'transitions' in sys.modules)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

        assert (done.stdout, done.stderr) == ("True True False\n", "")

    @pytest.mark.parametrize("module", [states, machine])
    def test_other_names_are_unknown(self, module: ModuleType) -> None:
        """A name that a module does not have is an error, as in every module."""
        with pytest.raises(AttributeError, match="this module has no attribute 'NOTHING'"):
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


def ways(part: Row | Branch) -> list[tuple[Branch, ...]]:
    """The branches of each way behind a row or a branch, in order."""
    if not isinstance(part.to, Junction):
        return [()]
    return [(taken, *rest) for taken in part.to.branches for rest in ways(taken)]


@holds_for("state", STATES)
def test_the_machine_of_the_library_has_every_way(state: type[State]) -> None:
    """Law 15: the edges of that machine are, row by row and in order, the ways through the junctions of the row."""
    rows = [entry for entry in TABLE[state] if isinstance(entry, Row)]
    edges_of = {row: [edge.branches for edge in EDGES if (edge.source, edge.row) == (state, row)] for row in rows}

    assert edges_of == {row: ways(row) for row in rows}
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
