"""The picture for newcomers: where a conversation can rest, and what leads from one state to the next.

The whole table is too much for a first look (`diagram` draws it). What is left out here is left out by rules that read
the table, never by a list that somebody would have to keep:

- how a choice is made, what changes something without leading anywhere, and what a crash brings;
- a junction, if one of its ways out can stand for it: a state from which all its other ways out follow. A turn that
  may begin with a search in older conversations is drawn as if it always did, since whatever comes without the search
  comes after it as well. Only what really parts ways remains a junction;
- what is drawn already: what most busy states do is drawn once, and so is what a state does just as `Idle` does.

Every arrow that is drawn is a way that the machine can take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from turnwise.hosts.diagrams.outline import (
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
"""Which events lead from one node to another. What leaves a junction has none."""

PACKED = '%%{init: {"flowchart": {"nodeSpacing": 20, "rankSpacing": 30, "padding": 10}}}%%'
"""Mermaid's own spacing would make the picture too wide to be read on a page."""


def overview() -> str:
    """The states and how they follow on each other, as a Mermaid flowchart. `Pure.`

    Two nodes that lead to each other share a line with two heads. The order of the lines matters: Mermaid lays out from
    the first one on, so the conversation runs from the top to the bottom.
    """
    arrows = _simplified(_arrows())
    nodes = _in_order_of_the_story(arrows)
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
    """Everything that leads somewhere, drawn once."""
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
    """Without the junctions that a state can stand for, nor those that only choose between two."""
    left = [junction.name for junction in junctions()]
    while found := next(((one, state) for one in left if (state := _stand_in(arrows, one))), None):
        junction, state = found
        left.remove(junction)
        arrows = _without(arrows, junction, [state])
    for junction in left:
        if len(_ways_out(arrows, junction)) <= 2:
            arrows = _without(arrows, junction, _ways_out(arrows, junction))
    return arrows


def _stand_in(arrows: Arrows, junction: str) -> str | None:
    """The state among the ways out from which all others follow, unless the junction is a matter of this state only."""
    ways = _ways_out(arrows, junction)
    for state in (one.__name__ for one in STATES if one.__name__ in ways):
        follows = all((state, other) in arrows for other in ways if other != state)
        if follows and _ways_in(arrows, junction) != [state]:
            return state
    return None


def _without(arrows: Arrows, junction: str, ends: Sequence[str]) -> Arrows:
    """The same arrows, but those that led to the junction lead to these ends."""
    fewer: Arrows = {}
    for (source, target), events in arrows.items():
        if source != junction:
            for end in ends if target == junction else [target]:
                _add(fewer, source, end, events)
    return fewer


# --- drawing


def _in_order_of_the_story(arrows: Arrows) -> list[str]:
    """All nodes: what follows on `Idle`, what follows on that, and so on; then what any busy state does."""
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
    """The events that are particular to this arrow, the most wanted ones first; of many, two and dots."""
    state = _STATES.get(source)
    everywhere = common(taken) if state in BUSY_STATES else ()
    events = arrows[source, target]
    particular = [event for event in events if event not in everywhere] or list(events)
    wanted: list[type[Event]] = [*REQUESTS, *(state.AWAITS if state else ())]
    names = [event.__name__ for event in sorted(particular, key=wanted.index)]
    return names if len(names) <= 3 else [*names[:2], "…"]


_STATES = {state.__name__: state for state in STATES}
