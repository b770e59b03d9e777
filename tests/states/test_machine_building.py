"""The table and the machine come out the same each time they are built, and a broken table is not built at all.

Both modules are executed once, at import; these tests execute them once more, beside the ones in use, so that what runs
only then is tested too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import pytest
from transitions import Machine

from turnwise.states import (
    MACHINE,
    Closed,
    Context,
    Event,
    Idle,
    LlmRequesting,
    LlmResponse,
    Refused,
    RetryDue,
    State,
    UserMessage,
    machine,
    next_events,
    table,
    transition,
)
from turnwise.states.grammar import SAME, Branch, Entry, Table, branch, junction, lines, nothing, on, refuse
from turnwise.states.guards import is_closing
from turnwise.states.machine import Edge, TableFault, build, compile_table
from turnwise.states.step_builder import StepBuilder
from turnwise.states.table import TABLE
from turnwise.testing.strategies import NOON

from ..support.conversation import Conversation, asking

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
