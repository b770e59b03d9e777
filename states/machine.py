"""Reads the table, and moves a conversation by it.

The table becomes a machine of the `transitions` library once, at import: states and edges are validated there, and
whoever knows the library can inspect and draw them. Firing through that machine costs several times what a dictionary
does, so `transition` dispatches on the same rows, compiled into `(state type, event type) -> rows`; a property test
holds the two to the same choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transitions import EventData, Machine

from .context import Context
from .events import ANSWERS, EVENTS, REQUESTS, Event, Opened, Request
from .grammar import SAME, Branch, Entry, Junction, NoOp, Refusal, Row, Same, Table, Target
from .state import Book, State
from .states import STATES, Idle
from .step import Step
from .step_builder import StepBuilder
from .table import TABLE

Key = tuple[type[State], type[Event]]

# Looked up for each event: an instance check of pydantic's models costs many times as much.
_ANSWERS, _REQUESTS = frozenset(ANSWERS), frozenset(REQUESTS)


class TableFault(Exception):
    """The table breaks one of its promises; raised when the machine is built, never while it runs."""


@dataclass(frozen=True)
class Edge:
    """One way through the table: a row, the branches taken behind it, and the state type it ends in.

    Called with a builder's ingredients it says whether this is the way that an event takes: a guard in the sense of the
    `transitions` library.
    """

    source: type[State]
    row: Row
    branches: tuple[Branch, ...]
    to: type[State]

    def __call__(self, fired: EventData) -> bool:
        """Whether the event fired takes this way. The arguments are those of `transition`. `Pure.`"""
        state, event, context = fired.args
        builder = StepBuilder(state, event)
        if self.row.when is not None and not self.row.when(builder, event, context):
            return False
        _run(self.row, builder, event, context)
        target = self.row.to
        for wanted in self.branches:
            assert isinstance(target, Junction)
            taken = _choose(target, builder, event, context)
            if taken is not wanted:
                return False
            _run(taken, builder, event, context)
            target = taken.to
        return True


# --- checking and building


def _edges(source: type[State], row: Row, to: Target, branches: tuple[Branch, ...] = ()) -> Iterator[Edge]:
    if isinstance(to, Same):
        yield Edge(source, row, branches, source)
    elif isinstance(to, Junction):
        for branch in to.branches:
            yield from _edges(source, row, branch.to, (*branches, branch))
    else:
        yield Edge(source, row, branches, to)


def _check_guards(where: str, guards: list[Any]) -> None:
    """The last choice is open and none before it is: nothing falls through, nothing is shadowed."""
    if not guards or guards[-1] is not None:
        raise TableFault(f"{where}: the last choice has a guard, so an event could fall through")
    if None in guards[:-1]:
        raise TableFault(f"{where}: a choice without a guard shadows those behind it")


def _check_junctions(target: Target, above: tuple[Junction, ...] = ()) -> None:
    if isinstance(target, Junction):
        if any(target is junction for junction in above):
            raise TableFault(f"the junction {target.name} leads back to itself")
        _check_guards(target.name, [branch.when for branch in target.branches])
        for branch in target.branches:
            _check_junctions(branch.to, (*above, target))


def _check(source: type[State], entries: tuple[Entry, ...]) -> None:
    expected = (*REQUESTS, *source.AWAITS, *source.REPORTS)
    for event in EVENTS:
        own = [entry for entry in entries if entry.event is event]
        where = f"{source.__name__} on {event.__name__}"
        if event in expected:
            _check_guards(where, [entry.when for entry in own])
        elif own:
            raise TableFault(f"{where}: a state of this type never waits for this")
        for entry in own:
            if isinstance(entry, Row):
                _check_junctions(entry.to)


def build(table: Table) -> Machine:
    """A table as a machine of the `transitions` library, its junctions flattened into guarded edges.

    Fire it with `state`, `event` and `context`; each edge's only condition is an `Edge`. Raises `TableFault`.
    """
    machine = Machine(
        model=None,
        initial=None,
        states=[_name(state) for state in STATES],
        auto_transitions=False,
        send_event=True,
    )
    for source in STATES:
        _check(source, table.get(source, ()))
        for row in table[source]:
            if isinstance(row, Row):
                for edge in _edges(source, row, row.to):
                    machine.add_transition(_name(row.event), _name(source), _name(edge.to), conditions=[edge])
    return machine


def _name(tagged: type[State] | type[Event]) -> str:
    return str(tagged.model_fields["type"].default)


MACHINE = build(TABLE)
"""The machine of the `transitions` library."""


def edges(machine: Machine) -> Iterator[Edge]:
    """All edges of a machine that `build` made, in the order of the table. `Pure.`"""
    for event in machine.events.values():
        for transitions in event.transitions.values():
            for transition_ in transitions:
                for condition in transition_.conditions:
                    assert isinstance(condition.func, Edge)
                    yield condition.func


def _compile(machine: Machine) -> dict[Key, tuple[Entry, ...]]:
    """What is asked, in order, when an event meets a state: the machine's rows beside the table's refusals."""
    known = {(edge.source, edge.row) for edge in edges(machine)}
    compiled: dict[Key, tuple[Entry, ...]] = {}
    for source, entries in TABLE.items():
        for entry in entries:
            if isinstance(entry, Row) and (source, entry) not in known:
                raise TableFault(f"{source.__name__} on {entry.event.__name__}: the machine does not know this row")
            key = (source, entry.event)
            compiled[key] = (*compiled.get(key, ()), entry)
    return compiled


_COMPILED = _compile(MACHINE)


# --- moving


def begin(opened: Opened) -> Step:
    """The first step of a conversation: it rests in `Idle`. `Pure.`"""
    return Step(Idle(book=Book(seq=1)))


def transition(state: State, event: Event, context: Context) -> Step:
    """What becomes of a conversation that rests in `state` when `event` happens.

    The caller stores the step and then carries out its effects, in order; this function does neither. An answer whose
    effect the state does not wait for, a report about nothing that goes on, and a request that has nothing to act on
    give a step that is `ignored`.

    Raises `Refused` for a request that this state does not take: then nothing happened. Raises nothing else. `Pure.`
    """
    if not _is_expected(state, event):
        return Step(state, ignored=True)
    builder = StepBuilder(state, event)
    entry = _pick(state, event, builder, context)
    if isinstance(entry, Refusal):
        assert isinstance(event, Request)
        raise entry.reason(builder, event, context)
    if isinstance(entry, NoOp):
        return Step(state, ignored=True)
    return _follow(entry, builder, event, context)


def entry_for(state: State, event: Event, context: Context) -> Entry | None:
    """The entry of the table that this event meets, or None if nobody waits for it. `Pure.`"""
    return _pick(state, event, StepBuilder(state, event), context) if _is_expected(state, event) else None


def branches_for(state: State, event: Event, context: Context) -> tuple[Branch, ...]:
    """The branches that this event takes behind its row, from junction to junction; none if it takes no row. `Pure.`"""
    taken: Entry | Branch | None = entry_for(state, event, context)
    builder, branches = StepBuilder(state, event), []
    while isinstance(taken, Row | Branch):
        _run(taken, builder, event, context)
        if not isinstance(taken.to, Junction):
            break
        taken = _choose(taken.to, builder, event, context)
        branches.append(taken)
    return tuple(branches)


def _is_expected(state: State, event: Event) -> bool:
    kind = type(event)
    if kind in _ANSWERS:
        effect = state.in_flight().get(event.effect_id)  # type: ignore[attr-defined]
        return effect is not None and kind in state.ANSWERS[effect]
    return kind in _REQUESTS or state.concerned_by(event)  # type: ignore[arg-type]


def _pick(state: State, event: Event, builder: StepBuilder[Any], context: Context) -> Entry:
    for entry in _COMPILED[type(state), type(event)]:
        if entry.when is None or entry.when(builder, event, context):
            return entry
    raise AssertionError("the last entry for every event has no guard")


def _follow(row: Row, builder: StepBuilder[Any], event: Event, context: Context) -> Step:
    taken: Row | Branch = row
    state = _run(row, builder, event, context)
    while isinstance(taken.to, Junction):
        taken = _choose(taken.to, builder, event, context)
        state = _run(taken, builder, event, context)
    assert type(state) is (type(builder.state) if taken.to is SAME else taken.to), "a handler rests where its row says"
    return Step(state, builder.effects, builder.ended, builder.withdrawn)


def _choose(junction: Junction, builder: StepBuilder[Any], event: Event, context: Context) -> Branch:
    for branch in junction.branches:
        if branch.when is None or branch.when(builder, event, context):
            return branch
    raise AssertionError("the last branch of every junction has no guard")


def _run(choice: Row | Branch, builder: StepBuilder[Any], event: Event, context: Context) -> State | None:
    return None if choice.then is None else choice.then(builder, event, context)


def next_events(state: State) -> tuple[type[Event], ...]:
    """The types of event that this state takes now: its requests, the answers that it waits for, and reports.

    A request listed here may still be refused or do nothing for what it says (an answer to another question, say).
    `Pure.`
    """
    answers = (answer for awaited in state.awaited().values() for answer in awaited)
    taken = {*REQUESTS, *state.REPORTS, *answers}
    return tuple(
        event
        for event in EVENTS
        if event in taken and any(isinstance(entry, Row) for entry in _COMPILED.get((type(state), event), ()))
    )
