"""Draws the conversation machine as a picture in Mermaid's language: every state, every junction, and every way from
one to the next.

The picture is made from the table, so it cannot differ from it. `turnwise diagram` prints it, and
docs/reference/machine.md shows it.

The pages about the table and the map of the machine need the same things of it: names, junctions, the states in which a
person can act, and above all what most busy states have in common. That is shown once, as any busy state. So the
functions that read the table are public, and stand behind the drawing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ...states.events import Event, Opened, Request
from ...states.grammar import Branch, Entry, Guard, Junction, Row, Same, Target
from ...states.states import STATES, Busy, Idle, State
from ...states.table import TABLE

_PACKED = '%%{init: {"flowchart": {"nodeSpacing": 12, "rankSpacing": 25, "padding": 8, "wrappingWidth": 400}}}%%'
"""Mermaid's default spacing would make the picture too wide to be read on a page."""

ANY_BUSY_STATE = "any busy state"
"""The title of what most busy states have in common."""

_ANY_BUSY = "AnyBusyState"
"""The node of what most busy states have in common."""

_STYLES = (
    "classDef person fill:#fde68a,stroke:#b45309,color:#111827",
    "classDef junction fill:#e5e7eb,stroke:#6b7280,color:#111827",
)
"""The colours of states in which a person can act, and of junctions. They suit light and dark pages."""


@dataclass(frozen=True)
class _Arrow:
    """A row of the table, or a branch of a junction, as the picture shows it."""

    source: str
    target: str
    cause: str
    """The event of the row; empty for a branch."""
    guard: str
    """`[guard]`, `[else]` behind rows with a guard, or empty where all choices lead the same way."""


@dataclass(frozen=True)
class _Box:
    """A state, or what most busy states have in common."""

    name: str
    title: str
    entries: tuple[tuple[Entry, ...], ...]
    """The entries of the table, for each event that is drawn at this box."""
    untaken: tuple[type[Event], ...] = ()
    """The events that most busy states take, and this one does not."""
    waits_for_person: bool = False


def mermaid() -> str:
    """Return the table as a Mermaid flowchart, with states as boxes and junctions as hexagons. `Pure.`

    With all arrows drawn to one node each, the lines would cross everywhere. So a node that several arrows lead to
    begins a line of its own, and those arrows end in a copy of its name. A row that stays in its state stands inside
    the box. What most busy states have in common is drawn once, and a busy state shows only what differs. Refusals are
    left to the page.
    """
    boxes = [*map(_box, STATES), _shared_box()]
    arrows = [*_rows_drawn(boxes), *_branches_drawn()]
    heads = _heads(boxes, arrows)
    lines = [
        f"order[ ]:::hidden ~~~ start & {' & '.join(heads)}",  # an invisible link to each keeps them in this order
        f"start(( )) -->|{Opened.__name__}| start_{Idle.__name__}([{Idle.__name__}]):::elsewhere",
        *map(_drawn, boxes),
        *(f"{junction.name}{{{{{junction.name}}}}}:::junction" for junction in junctions()),
        *_lines(arrows, heads),
        *_STYLES,
        "classDef elsewhere fill:none,stroke:#9ca3af,stroke-dasharray:3",
        "classDef hidden fill:none,stroke:none",
    ]
    return "".join([f"{_PACKED}\nflowchart LR\n", *(f"    {line}\n" for line in lines)])


_DrawnRow: TypeAlias = tuple[Guard | None, Target]
"""A row as the picture shows it: its guard, and where it leads."""


def _drawn_rows(state: type[State]) -> dict[type[Event], tuple[_DrawnRow, ...]]:
    """For each event that is taken in this state, its rows as they are drawn."""
    found: dict[type[Event], tuple[_DrawnRow, ...]] = {}
    for row in rows(state):
        found[row.event] = (*found.get(row.event, ()), (row.when, row.to))
    return found


def _shared() -> dict[type[Event], tuple[_DrawnRow, ...]]:
    return dict(common(lambda state: _drawn_rows(state).items()))


def _box(state: type[State]) -> _Box:
    own, shared = _drawn_rows(state), _shared() if state in BUSY_STATES else {}
    said = [entries(state, event) for event, drawn in own.items() if shared.get(event) != drawn]
    untaken = [event for event in shared if event not in own]
    return _Box(state.__name__, state.__name__, tuple(said), tuple(untaken), waits_for_person(state))


def _shared_box() -> _Box:
    """What most busy states have in common, with the entries of one that has it."""
    said = [
        next(entries(state, event) for state in BUSY_STATES if _drawn_rows(state).get(event) == drawn)
        for event, drawn in _shared().items()
    ]
    return _Box(_ANY_BUSY, ANY_BUSY_STATE, tuple(said))


def _rows_drawn(boxes: Sequence[_Box]) -> Iterator[_Arrow]:
    for box in boxes:
        for said in box.entries:
            for entry in said:
                if isinstance(entry, Row) and not isinstance(entry.to, Same):
                    yield _Arrow(box.name, name(entry.to), entry.event.__name__, _asked(entry, said))


def _branches_drawn() -> Iterator[_Arrow]:
    for junction in junctions():
        for branch in junction.branches:
            yield _Arrow(junction.name, name(branch.to), "", _asked(branch, junction.branches))


def _asked(choice: Entry | Branch, siblings: Sequence[Entry | Branch]) -> str:
    """The guard, where it decides which way to go."""
    ways = {sibling.to if isinstance(sibling, Row | Branch) else type(sibling) for sibling in siblings}
    return guard(choice, siblings) if len(ways) > 1 else ""


def _heads(boxes: Sequence[_Box], arrows: Sequence[_Arrow]) -> list[str]:
    """The nodes that begin a line, each junction behind the first box that leads to it.

    A state that only one arrow leads to, and from which only copies of names follow, begins no line.
    """
    ways = list(dict.fromkeys((arrow.source, arrow.target) for arrow in arrows))
    led_to = Counter([Idle.__name__, *(target for _, target in ways)])  # a conversation begins at Idle
    within = {box.name for box in boxes if led_to[box.name] == 1}
    order: dict[str, None] = {}
    for box in boxes:
        _put_in_order(box.name, ways, order)
    leads_within = {source for source, target in ways if target in within}
    return [node for node in order if node not in within or node in leads_within]


def _put_in_order(node: str, ways: Sequence[tuple[str, str]], order: dict[str, None]) -> None:
    """Append a node and then the junctions that it leads to."""
    order[node] = None
    for target in (junction.name for junction in junctions()):
        if (node, target) in ways and target not in order:
            _put_in_order(target, ways, order)


def _drawn(box: _Box) -> str:
    lines = [f"<b>{box.title}</b>"]
    for said in box.entries:
        for entry in said:
            if isinstance(entry, Row) and isinstance(entry.to, Same):
                lines.append(f"stays on {entry.event.__name__} {_asked(entry, said)}".rstrip())
    lines += [f"does nothing on {event.__name__}" for event in box.untaken]
    text = "<br>".join(dict.fromkeys(lines))
    shape = f'("{text}")' if len(lines) > 1 else f'(["{text}"])'
    return f"{box.name}{shape}{':::person' if box.waits_for_person else ''}"


def _lines(arrows: Sequence[_Arrow], heads: Sequence[str]) -> Iterator[str]:
    between: dict[tuple[str, str], list[_Arrow]] = {}
    for arrow in arrows:
        between.setdefault((arrow.source, arrow.target), []).append(arrow)
    for (source, target), several in between.items():
        end = f"{source}_{target}([{target}]):::elsewhere" if target in heads else target
        yield f'{source} -->|"{_label(several)}"| {end}'


def _label(arrows: Sequence[_Arrow]) -> str:
    """One line for each event, with its guards below. Events that have the same guards are joined by commas."""
    guards_of: dict[str, tuple[str, ...]] = {}
    for arrow in arrows:
        guards_of[arrow.cause] = tuple(dict.fromkeys((*guards_of.get(arrow.cause, ()), arrow.guard)))
    causes_of: dict[tuple[str, ...], list[str]] = {}
    for cause, guards in guards_of.items():
        causes_of.setdefault(guards, []).append(cause)
    lines: list[str] = []
    for guards, causes in causes_of.items():
        lines += causes if guards == ("",) else [",<br>".join(causes), *guards]
    return "<br>".join(line for line in lines if line)


BUSY_STATES: tuple[type[State], ...] = tuple(state for state in STATES if issubclass(state, Busy))

Thing = TypeVar("Thing", bound=Hashable)


def common(of: Callable[[type[State]], Iterable[Thing]]) -> tuple[Thing, ...]:
    """The things that more than half of the busy states have, in the order of the table; `of` returns those of one
    state. `Pure.`"""
    counts = Counter(thing for state in BUSY_STATES for thing in dict.fromkeys(of(state)))
    return tuple(thing for thing, count in counts.items() if 2 * count > len(BUSY_STATES))


def entries(state: type[State], event: type[Event]) -> tuple[Entry, ...]:
    """The entries of the table for this state and event, in order; none if the event is ignored. `Pure.`"""
    return tuple(entry for entry in TABLE[state] if entry.event is event)


def rows(state: type[State]) -> list[Row]:
    """The rows of a state: its entries that change something. `Pure.`"""
    return [entry for entry in TABLE[state] if isinstance(entry, Row)]


def taken(state: type[State]) -> tuple[type[Event], ...]:
    """The events that can change something in this state, in the order of the table. `Pure.`"""
    return tuple(dict.fromkeys(row.event for row in rows(state)))


def waits_for_person(state: type[State]) -> bool:
    """Whether a person can move the conversation on: the state takes a request that most busy states do not take.
    `Pure.`"""
    everywhere = common(taken)
    return any(issubclass(event, Request) and event not in everywhere for event in taken(state))


def junctions() -> list[Junction]:
    """All junctions, in the order in which the table reaches them. `Pure.`"""
    found: dict[str, Junction] = {}
    for state in STATES:
        for row in rows(state):
            _follow(row.to, found)
    return list(found.values())


def _follow(target: Target, found: dict[str, Junction]) -> None:
    if isinstance(target, Junction) and target.name not in found:
        found[target.name] = target
        for branch in target.branches:
            _follow(branch.to, found)


def name(target: Target) -> str:
    """The name of a state or a junction. `Pure.`"""
    assert not isinstance(target, Same), "a row that stays leads nowhere"
    return target.name if isinstance(target, Junction) else target.__name__


def guard(choice: Entry | Branch, siblings: Sequence[Entry | Branch]) -> str:
    """The guard in brackets, `[else]` behind siblings with a guard, or an empty text. `Pure.`"""
    if choice.when is not None:
        return f"[{choice.when.__name__}]"
    return "[else]" if len(siblings) > 1 else ""
