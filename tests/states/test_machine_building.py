"""The table and the machine come out the same each time they are built. Both modules are executed once, at import;
these tests execute them once more, beside the ones in use, so that what runs only then is tested too."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from transitions import Machine

from turnwise import states
from turnwise.states import (
    MACHINE,
    Closed,
    Context,
    Idle,
    LlmRequesting,
    LlmResponse,
    Refused,
    State,
    ToolExecuting,
    UserMessage,
    machine,
    next_events,
    table,
    transition,
)
from turnwise.states.events import EVENTS
from turnwise.states.grammar import SAME, Junction, refuse
from turnwise.states.machine import Edge, build, edges
from turnwise.states.states import STATES
from turnwise.states.step_builder import StepBuilder
from turnwise.testing.strategies import NOON

from ..support.conversation import Conversation, asking, call

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


class TestTheMachineOfTheLibrary:
    """The machine can be used as one of the `transitions` library."""

    def test_it_goes_by_the_names_that_are_stored(self) -> None:
        """States and events are named by their `type`, as in JSON, and there are no others."""
        machine = build(table.TABLE)

        assert set(machine.states) == {str(state.model_fields["type"].default) for state in STATES}
        assert set(machine.events) <= {str(event.model_fields["type"].default) for event in EVENTS}

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
