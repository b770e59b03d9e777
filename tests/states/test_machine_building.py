"""The page becomes a machine, and the same one however often it is read.

`table` and `machine` are read once, when they are imported. Here they are read once more, beside the ones that
everybody uses, so that what happens only then is tried like everything else.
"""

from __future__ import annotations

from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from transitions import Machine

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
    """A module, run once more from its first line, beside the one that everybody uses."""
    spec = find_spec(module.__name__)
    assert spec is not None and spec.loader is not None
    again = module_from_spec(spec)
    spec.loader.exec_module(again)
    return again


def ways(machine: Machine) -> list[tuple[str, str, str, Edge]]:
    """Every way through a machine of the library: its event, where it begins and ends, and what it asks."""
    return [
        (event.name, way.source, way.dest, way.conditions[0].func)
        for event in machine.events.values()
        for from_one_state in event.transitions.values()
        for way in from_one_state
    ]


def places() -> list[State]:
    """Where a conversation rests while nobody, the model, a tool or a person moves it, and at its end."""
    requesting, executing, asked = (Conversation() for _ in range(3))
    for conversation in (requesting, executing, asked):
        conversation.says()
    executing.model_calls("a")
    asked.model_calls(asking())
    asked.tool_asks()
    return [Idle(), requesting.state, executing.state, asked.state, Closed()]


class TestReadAgain:
    """Nothing in the machine depends on what was read before."""

    def test_the_page_says_the_same(self) -> None:
        """Every row, with its guard, its way and its handler; every junction, with its branches."""
        assert read_again(table).TABLE == table.TABLE

    def test_the_machine_is_built_the_same(self) -> None:
        """The same states, the same events, and the same ways between them, in the same order."""
        again = build(table.TABLE)

        assert list(again.states) == list(MACHINE.states)
        assert list(again.events) == list(MACHINE.events)
        assert ways(again) == ways(MACHINE)

    def test_the_machine_takes_the_same(self) -> None:
        """What may come next, everywhere; and where it leads."""
        again = read_again(machine)

        assert [again.next_events(state) for state in places()] == [next_events(state) for state in places()]
        assert again.transition(Idle(), HELLO, Context()).state == transition(Idle(), HELLO, Context()).state


class TestRefusals:
    """A refusal is a code, or a function that words the reason."""

    def test_the_reason_may_depend_on_everything(self) -> None:
        """It is given what the handler of a row is given: draft, event and context."""

        def too_loud(draft: StepBuilder[Idle], event: UserMessage, context: Context) -> Refused:
            return Refused("busy", f"{draft.state.type} {event.text} {context.policy.parallel}")

        refused = refuse(UserMessage, why=too_loud)[0].reason(StepBuilder(Idle(), HELLO), HELLO, Context())

        assert (refused.code, refused.subject) == ("busy", "idle Hello 1")


class TestTheMachineOfTheLibrary:
    """Whoever knows the `transitions` library meets what it knows."""

    def test_it_goes_by_the_names_that_are_stored(self) -> None:
        """A state and an event are called as in JSON, by their `type`; nothing else is there."""
        machine = build(table.TABLE)

        assert set(machine.states) == {str(state.model_fields["type"].default) for state in STATES}
        assert set(machine.events) <= {str(event.model_fields["type"].default) for event in EVENTS}

    def test_it_is_fired_with_state_event_and_context(self) -> None:
        """A machine just built takes a message from `idle` to `llm_requesting`."""
        cursor = SimpleNamespace(state="idle")

        fired = build(table.TABLE).events["user_message"].trigger(cursor, Idle(), HELLO, Context())

        assert fired
        assert cursor.state == "llm_requesting"

    def test_an_edge_knows_its_row(self) -> None:
        """Where it begins, on which row, by which branches, and where it ends."""
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
        """Of all ways behind a row exactly one says yes if the row's guard does, and otherwise none."""
        conversation = Conversation()
        conversation.says()
        event = LlmResponse(effect_id=1, at=conversation.now, **response)
        fired = SimpleNamespace(args=(conversation.state, event, Context()))

        saying_yes = [edge for edge in edges(MACHINE) if (edge.source, edge.row.event) == (LlmRequesting, LlmResponse)]
        saying_yes = [edge for edge in saying_yes if edge(fired)]

        rows = [edge.row for edge in saying_yes]
        assert saying_yes[0].to is taken
        assert len(rows) == len(set(rows))
