"""Draws the picture for newcomers: where a conversation can rest, and what leads from one state to the next.

The whole table is too much for a first look; `hosts.diagrams.mermaid` draws it. What the overview leaves out follows
from rules over the table, not from a list that somebody has to maintain:

- choices, rows that stay in their state, and crashes are left out;
- a junction is left out if one of the states that it leads to can stand for it, because all its other ways out follow
  from that state. A turn that may begin with a search in older conversations is drawn as if it always did, and so is
  one that may end with a summary;
- what most busy states have in common is drawn once, and a state that does the same as `Idle` does not repeat it.

Every arrow that is drawn is a way that the machine can take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from turnwise.hosts.diagrams.mermaid import (
    ANY_BUSY,
    ANY_BUSY_STATE,
    BUSY_STATES,
    STYLES,
    common,
    junctions,
    name,
    rows,
    taken,
    waits_for_person,
)
from turnwise.states.events import REQUESTS, Event, Opened, Report
from turnwise.states.grammar import Same, Target
from turnwise.states.states import STATES, Idle, State

Way: TypeAlias = tuple[type[Event], Target]
"""An event, and where it leads."""

Arrows: TypeAlias = dict[tuple[str, str], tuple[type[Event], ...]]
"""The events that lead from one node to another. An arrow out of a junction has none."""

PACKED = '%%{init: {"flowchart": {"nodeSpacing": 20, "rankSpacing": 30, "padding": 10}}}%%'
"""Mermaid's default spacing would make the picture too wide to be read on a page."""


def overview() -> str:
    """Return the states and how they follow each other, as a Mermaid flowchart. `Pure.`

    Two nodes that lead to each other share a line with two heads. Mermaid places the nodes in the order of the lines,
    so the conversation runs from top to bottom.
    """
    arrows = _simplified(_arrows())
    nodes = _in_order(arrows)
    lines = [
        f"start(( )) -->|{Opened.__name__}| {Idle.__name__}",
        *(f"{end} ~~~ {ANY_BUSY}" for end in nodes if not _ways_out(arrows, end)),  # there is room below the end
        *(_box(node) for node in nodes),
        *_lines(arrows, nodes),
        *STYLES,
    ]
    return "".join([f"{PACKED}\nflowchart TB\n", *(f"    {line}\n" for line in lines)])


# --- what is drawn


def _arrows() -> Arrows:
    """All arrows, each drawn once."""
    arrows: Arrows = {}
    shared = common(_ways)
    for state in STATES:
        drawn = shared if state in BUSY_STATES else _ways(Idle) if state is not Idle else ()
        for event, target in _ways(state):
            if (event, target) not in drawn:
                _add(arrows, state.__name__, name(target), (event,))
    for junction in junctions():
        for branch in junction.branches:
            _add(arrows, junction.name, name(branch.to), ())
    for event, target in shared:
        _add(arrows, ANY_BUSY, name(target), (event,))
    return arrows


def _ways(state: type[State]) -> list[Way]:
    found = [row for row in rows(state) if not isinstance(row.to, Same) and not issubclass(row.event, Report)]
    return [(row.event, row.to) for row in found]


def _add(arrows: Arrows, source: str, target: str, events: Sequence[type[Event]]) -> None:
    if source != target:
        arrows[source, target] = tuple(dict.fromkeys((*arrows.get((source, target), ()), *events)))


def _ways_out(arrows: Arrows, node: str) -> list[str]:
    return [target for source, target in arrows if source == node]


def _ways_in(arrows: Arrows, node: str) -> list[str]:
    return [source for source, target in arrows if target == node]


# --- leaving junctions out


def _simplified(arrows: Arrows) -> Arrows:
    """The arrows without the junctions that a state can stand for, and without those that lead to two nodes only."""
    left = [junction.name for junction in junctions()]
    while found := next(((one, state) for one in left if (state := _stand_in(arrows, one))), None):
        junction, state = found
        left.remove(junction)
        arrows = _without(arrows, junction, [state])
    for junction in left:
        ends = _ends(arrows, junction)
        if len(ends) <= 2:
            arrows = _without(arrows, junction, ends)
    return arrows


def _ends(arrows: Arrows, junction: str) -> list[str]:
    """The ways out of a junction, without a way to another junction that one of these states also leads to, and without
    a way to a state that another junction among them also leads to."""
    ways = _ways_out(arrows, junction)
    by_states = {target for source, target in arrows if source in ways and source in _STATES}
    by_junctions = {target for source, target in arrows if source in ways and source not in _STATES}
    return [way for way in ways if way not in (by_junctions if way in _STATES else by_states)]


def _stand_in(arrows: Arrows, junction: str) -> str | None:
    """The state among the ways out of a junction from which all others follow, unless only this state leads to it."""
    ways = _ways_out(arrows, junction)
    for state in (one.__name__ for one in STATES if one.__name__ in ways):
        follows = all((state, other) in arrows for other in ways if other != state)
        if follows and _ways_in(arrows, junction) != [state]:
            return state
    return None


def _without(arrows: Arrows, junction: str, ends: Sequence[str]) -> Arrows:
    """The arrows without this junction: those that led to it lead to these ends."""
    fewer: Arrows = {}
    for (source, target), events in arrows.items():
        if source != junction:
            for end in ends if target == junction else [target]:
                _add(fewer, source, end, events)
    return fewer


# --- drawing


def _in_order(arrows: Arrows) -> list[str]:
    """All nodes: what follows `Idle`, what follows that, and so on; then any busy state."""
    nodes: list[str] = []
    waiting = [Idle.__name__]
    while waiting:
        node = waiting.pop(0)
        if node not in nodes:
            nodes.append(node)
            waiting += _ways_out(arrows, node)
        if not waiting and ANY_BUSY not in nodes:
            waiting.append(ANY_BUSY)
    return nodes


def _box(node: str) -> str:
    if node == ANY_BUSY:
        return f'{node}[["{ANY_BUSY_STATE}"]]'
    if node not in _STATES:
        return f"{node}{{{{{node}}}}}:::junction"
    return f"{node}([{node}]){':::person' if waits_for_person(_STATES[node]) else ''}"


def _lines(arrows: Arrows, nodes: Sequence[str]) -> Iterator[str]:
    drawn: set[tuple[str, str]] = set()
    for node in nodes:
        for target in _ways_out(arrows, node):
            if (target, node) in drawn:
                continue
            drawn.add((node, target))
            both = (target, node) in arrows
            label = [*_label(arrows, node, target), *(_label(arrows, target, node) if both else [])]
            line = f"{node} {'<-->' if both else '-->'}"
            yield f"{line}|{'<br>'.join(label)}| {target}" if label else f"{line} {target}"


def _label(arrows: Arrows, source: str, target: str) -> list[str]:
    """The events that only this arrow has, the most important first; of more than three, two and an ellipsis."""
    state = _STATES.get(source)
    everywhere = common(taken) if state in BUSY_STATES else ()
    events = arrows[source, target]
    particular = [event for event in events if event not in everywhere] or list(events)
    wanted: list[type[Event]] = [*REQUESTS, *(state.AWAITS if state else ())]
    names = [event.__name__ for event in sorted(particular, key=wanted.index)]
    return names if len(names) <= 3 else [*names[:2], "…"]


_STATES = {state.__name__: state for state in STATES}
