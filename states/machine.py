"""Checks the table, compiles it, and moves conversations with it.

`transition` looks an event up in `(state type, event type) -> rows`, which is compiled at import. `MACHINE` is the same
table as a machine of the `transitions` library, for programs that inspect or draw it. Firing an event through that one
costs several times as much as the look-up, and its edges are thousands of objects that every garbage collection would
walk, so it is built when it is first asked for. A property test checks that both always choose the same row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .context import Context
from .events import ANSWERS, EVENTS, REQUESTS, Event, Opened, Request
from .grammar import SAME, Branch, Entry, Handler, Junction, Refusal, Row, Same, Table, Target
from .states import STATES, AnyState, Book, Idle, State
from .step import Step
from .step_builder import StepBuilder
from .table import TABLE
from .values.messages import effects_taken

if TYPE_CHECKING:
    from transitions import EventData, Machine

    MACHINE: Machine
    """The machine of the `transitions` library. Importing it builds it."""

Key = tuple[type[State], type[Event]]

# Looked up for each event: an instance check of pydantic's models costs many times as much.
_ANSWERS, _REQUESTS = frozenset(ANSWERS), frozenset(REQUESTS)


class TableFault(Exception):
    """The table breaks one of its rules. Raised where a table is compiled or built, never while a conversation
    moves."""


@dataclass(frozen=True)
class Edge:
    """One way through the table: a row, the branches that are taken behind it, and the type of state in which it ends.

    It is callable as a condition of the `transitions` library: whether the event that was fired takes this way.
    """

    source: type[State]
    row: Row
    branches: tuple[Branch, ...]
    to: type[State]

    def __call__(self, fired: EventData) -> bool:
        """Whether the event that was fired takes this way. The arguments are those of `transition`. `Pure.`"""
        state, event, context = fired.args
        builder = StepBuilder(state, event)
        if self.row.when is not None and not self.row.when(builder, event, context):
            return False
        _run(self.row.then, builder, event, context)
        target = self.row.to
        for wanted in self.branches:
            assert isinstance(target, Junction)
            taken = _choose(target, builder, event, context)
            if taken is not wanted:
                return False
            _run(taken.then, builder, event, context)
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
    """Only the last choice has no guard: then nothing falls through, and nothing is shadowed."""
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
            if not own:
                raise TableFault(f"{where}: there is no row for it, no refusal and no explicit no-op")
            _check_guards(where, [entry.when for entry in own])
        elif own:
            raise TableFault(f"{where}: a state of this type never waits for this")
        for entry in own:
            if isinstance(entry, Row):
                _check_junctions(entry.to)


def build(table: Table) -> Machine:
    """Return the table as a machine of the `transitions` library, with its junctions flattened into guarded edges.

    Fire an event with `state`, `event` and `context` as arguments; each edge has an `Edge` as its only condition.
    Raises `TableFault`.
    """
    from transitions import Machine

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


def __dir__() -> list[str]:
    return sorted({*globals(), "MACHINE"})


if not TYPE_CHECKING:  # a type checker would take any name for a name of this module

    def __getattr__(name: str) -> Any:
        """Build `MACHINE`, and keep it. Threads that ask first at the same time may each build one, as there are no
        locks in the pure machine, but all of them get the one that was kept first."""
        if name != "MACHINE":
            raise AttributeError(f"this module has no attribute {name!r}")
        return globals().setdefault(name, build(TABLE))


def edges(machine: Machine) -> Iterator[Edge]:
    """All edges of a machine that `build` made, in the order of the table. `Pure.`"""
    for event in machine.events.values():
        for transitions in event.transitions.values():
            for transition_ in transitions:
                for condition in transition_.conditions:
                    assert isinstance(condition.func, Edge)
                    yield condition.func


def compile_table(table: Table) -> dict[Key, tuple[Entry, ...]]:
    """Return the entries that are tried, in order, for each type of state and event: rows, refusals and no-ops.

    Raises `TableFault` if the table breaks one of its rules. `Pure.`
    """
    compiled: dict[Key, tuple[Entry, ...]] = {}
    for source in STATES:
        entries = table.get(source, ())
        _check(source, entries)
        for entry in entries:
            key = (source, entry.event)
            compiled[key] = (*compiled.get(key, ()), entry)
    return compiled


_COMPILED = compile_table(TABLE)


# --- moving


def begin(opened: Opened) -> Step:
    """The first step of a conversation: it rests in `Idle`. Effects are numbered beyond those that the given history
    names. `Pure.`"""
    book = Book(seq=1, next_effect=effects_taken(opened.messages) + 1, wake=opened.next_wake)
    return Step(Idle(book=book))


def transition(state: State, event: Event, context: Context) -> Step:
    """Return the step of a conversation that rests in `state` when `event` happens.

    The caller must store the step and then carry out its effects, in order; this function does neither. The step is
    `ignored` for an answer whose effect is not in flight, for a report about nothing that is under way, and for a
    request that has nothing to act on.

    Raises `Refused` for a request that this state does not take; then nothing happened. Raises nothing else. `Pure.`
    """
    if not _is_expected(state, event):
        return _ignored(state)
    builder = StepBuilder(state, event)
    entry = _pick(state, event, builder, context)
    if isinstance(entry, Row):
        return _follow(entry, builder, event, context)
    if isinstance(entry, Refusal):
        assert isinstance(event, Request)
        raise entry.reason(builder, event, context)
    return _ignored(state)


def _ignored(state: State) -> Step:
    return Step(cast(AnyState, state), ignored=True)


def entry_for(state: State, event: Event, context: Context) -> Entry | None:
    """The entry of the table that this event takes, or None if the state does not expect the event. `Pure.`"""
    return _pick(state, event, StepBuilder(state, event), context) if _is_expected(state, event) else None


def branches_for(state: State, event: Event, context: Context) -> tuple[Branch, ...]:
    """The branches that this event takes behind its row, from junction to junction; none if it takes no row. `Pure.`"""
    taken: Entry | Branch | None = entry_for(state, event, context)
    builder, branches = StepBuilder(state, event), []
    while isinstance(taken, Row | Branch):
        _run(taken.then, builder, event, context)
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
        guard = entry.when
        if guard is None or guard(builder, event, context):
            return entry
    raise AssertionError("the last entry for every event has no guard")


def _follow(row: Row, builder: StepBuilder[Any], event: Event, context: Context) -> Step:
    state, to = _run(row.then, builder, event, context), row.to
    while type(to) is Junction:  # the instance check of a state's class would ask its metaclass
        branch = _choose(to, builder, event, context)
        state, to = _run(branch.then, builder, event, context), branch.to
    assert type(state) is (type(builder.state) if to is SAME else to), "a handler rests where its row says"
    return Step(cast(AnyState, state), builder.effects, builder.ended, builder.withdrawn)


def _choose(junction: Junction, builder: StepBuilder[Any], event: Event, context: Context) -> Branch:
    for branch in junction.branches:
        guard = branch.when
        if guard is None or guard(builder, event, context):
            return branch
    raise AssertionError("the last branch of every junction has no guard")


def _run(handler: Handler | None, builder: StepBuilder[Any], event: Event, context: Context) -> State | None:
    return None if handler is None else handler(builder, event, context)


def next_events(state: State) -> tuple[type[Event], ...]:
    """The types of event that this state takes now: requests, the answers to its effects, and reports.

    A request of a type listed here may still be refused or have nothing to act on, because of what it says: an answer
    to another question, for example. `Pure.`
    """
    answers = (answer for awaited in state.awaited().values() for answer in awaited)
    taken = {*REQUESTS, *state.reports(), *answers}
    return tuple(
        event
        for event in EVENTS
        if event in taken and any(isinstance(entry, Row) for entry in _COMPILED.get((type(state), event), ()))
    )
