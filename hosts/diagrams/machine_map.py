"""The map of the machine as data: boxes with places, lines with points, and every way that the table has.

A page draws the boxes and the lines, and then shows where a conversation is and which way it came: each transition says
over which states it is drawn. The places are chosen by hand in `map_places`. Everything else is read from the table, so
the map cannot differ from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, TypeAlias

from pydantic import Field

from ...states.events import REPORTS, REQUESTS, Opened
from ...states.grammar import Junction
from ...states.machine import MACHINE, Edge, edges
from ...states.states import STATES, Busy, Closed, Idle
from ...states.values.value import Value
from .map_places import CUT_OUT, EXITS, LINES, PLACES, STANDS_IN, Line, Port, StateType
from .outline import waits_for_person

Kind: TypeAlias = Literal["rest", "busy", "person", "end"]
"""What a state waits for: for nothing, for an effect, for a person (perhaps beside effects), or for nothing ever."""

START = "start"
"""The node at which a conversation begins."""

TURN = "turn"
"""The node of the frame around the busy states. A way over it leaves the frame from any state in it."""

WIDTH, HEIGHT = 112, 40
"""The size of a box, in units of the drawing. Chosen for titles of two lines with 13 letters each, 13 units high."""

COLUMN, ROW = 156, 76
"""The distances between the middles of boxes."""

LEFT_EDGE, TOP_EDGE = 20, 34
"""The space left of the first column and above the first row, where the conversation begins."""

FRAME_EDGE = 12
"""The space between the frame and the boxes in it."""

Point: TypeAlias = tuple[int, int]


class MapState(Value):
    """A state: a box of the map around the point `x`, `y`."""

    type: str = Field(description="The `type` of the state in updates and in the log.")
    name: str = Field(description="The name of its class.")
    title: str
    kind: Kind
    description: str = Field(description="One sentence. Names of fields stand between backticks.")
    column: int
    row: int
    x: int
    y: int


class MapLine(Value):
    """A line from one node to another: a state, `start`, or `turn`, the frame."""

    source: str
    target: str
    both: bool = Field(description="Whether the machine also goes the other way.")
    points: tuple[Point, ...]


class MapFrame(Value):
    """The frame around states that have arrows in common: `turn` in lines and routes."""

    title: str
    states: tuple[str, ...]
    points: tuple[Point, ...]


class MapJunction(Value):
    """A choice that several rows of the table share, and the state at which it is drawn."""

    name: str
    state: str


class MapTransition(Value):
    """Events that lead from one state to another, or stay, in the same way.

    `route` are the nodes over which the way is drawn: the first is the source, the last the target, and those between
    are passed over. Where the table has several ways, this is the shortest.
    """

    source: str
    target: str
    events: tuple[str, ...]
    route: tuple[str, ...]


class MachineMap(Value):
    """The drawing of the machine: its size, and what stands in it. All lengths are in units of the drawing."""

    width: int
    height: int
    box_width: int = WIDTH
    box_height: int = HEIGHT
    states: tuple[MapState, ...]
    frame: MapFrame
    lines: tuple[MapLine, ...]
    junctions: tuple[MapJunction, ...]
    transitions: tuple[MapTransition, ...]


@cache
def machine_map() -> MachineMap:
    """Return the map of the machine. It is the same for every conversation. `Pure.`"""
    columns = 1 + max(place.column for place in PLACES.values())
    rows = 1 + max(place.row for place in PLACES.values())
    return MachineMap(
        width=2 * LEFT_EDGE + WIDTH + (columns - 1) * COLUMN,
        height=TOP_EDGE + HEIGHT + (rows - 1) * ROW + LEFT_EDGE,
        states=tuple(map(_state, STATES)),
        frame=_frame(columns, rows),
        lines=(_start(), *map(_line, LINES), *map(_exit, EXITS)),
        junctions=tuple(MapJunction(name=one.name, state=type_of(state)) for one, state in STANDS_IN.items()),
        transitions=tuple(_transitions()),
    )


def type_of(state: StateType) -> str:
    """The `type` of a state, as it is written. `Pure.`"""
    return str(state.model_fields["type"].default)


# --- the drawing


def _state(state: StateType) -> MapState:
    place, (x, y) = PLACES[state], _middle(state)
    first_sentence = " ".join((state.__doc__ or "").split()).partition(". ")[0].removesuffix(".")
    return MapState(
        type=type_of(state),
        name=state.__name__,
        title=place.title,
        kind=_kind(state),
        description=f"{first_sentence}.",
        column=place.column,
        row=place.row,
        x=x,
        y=y,
    )


def _kind(state: StateType) -> Kind:
    if state is Closed:
        return "end"
    if not issubclass(state, Busy):
        return "rest"
    return "person" if waits_for_person(state) else "busy"


def _middle(state: StateType) -> Point:
    place = PLACES[state]
    return LEFT_EDGE + WIDTH // 2 + place.column * COLUMN, TOP_EDGE + HEIGHT // 2 + place.row * ROW


def _frame(columns: int, rows: int) -> MapFrame:
    """The frame: a rectangle around all rows but the first, without the corner in which `CUT_OUT` stands."""
    left, right = LEFT_EDGE - FRAME_EDGE, LEFT_EDGE + WIDTH + (columns - 1) * COLUMN + FRAME_EDGE
    top, bottom = TOP_EDGE + ROW - FRAME_EDGE, TOP_EDGE + (rows - 1) * ROW + HEIGHT + FRAME_EDGE
    x, y = _middle(CUT_OUT)
    inner_x, inner_y = x - COLUMN + WIDTH // 2 + FRAME_EDGE, y + ROW - HEIGHT // 2 - FRAME_EDGE
    points = ((left, top), (inner_x, top), (inner_x, inner_y), (right, inner_y), (right, bottom), (left, bottom))
    framed = tuple(type_of(state) for state in STATES if _is_framed(state))
    return MapFrame(title="A turn is under way", states=framed, points=points)


def _is_framed(state: StateType) -> bool:
    return issubclass(state, Busy) and state is not CUT_OUT


def _start() -> MapLine:
    x, y = _middle(Idle)
    return MapLine(source=START, target=type_of(Idle), both=False, points=((x, 8), (x, y - HEIGHT // 2)))


def _line(line: Line) -> MapLine:
    (x, y), (end_x, end_y) = _port(line.source, line.leaves), _port(line.target, line.enters)
    bend = (x + end_x) // 2
    straight = x == end_x or y == end_y
    between: tuple[Point, ...] = () if straight else ((bend, y), (bend, end_y))
    points = ((x, y), *between, (end_x, end_y))
    return MapLine(source=type_of(line.source), target=type_of(line.target), both=line.both, points=points)


def _port(state: StateType, port: Port) -> Point:
    x, y = _middle(state)
    if port.side in ("left", "right"):
        return x + (WIDTH // 2 if port.side == "right" else -WIDTH // 2), y + port.offset
    return x + port.offset, y + (HEIGHT // 2 if port.side == "bottom" else -HEIGHT // 2)


def _exit(target: StateType) -> MapLine:
    x, y = _middle(target)
    points = ((x, y + ROW - HEIGHT // 2 - FRAME_EDGE), (x, y + HEIGHT // 2))
    return MapLine(source=TURN, target=type_of(target), both=False, points=points)


# --- the ways of the table


def _transitions() -> Iterator[MapTransition]:
    """The transitions, beginning with `Opened`. Events that take the same way stand together."""
    yield MapTransition(source=START, target=type_of(Idle), events=(Opened.__name__,), route=(START, type_of(Idle)))
    events_of: dict[tuple[str, ...], dict[str, None]] = {}
    for (_, event, _), route in _shortest().items():
        events_of.setdefault(route, {})[event] = None
    for route, events in events_of.items():
        yield MapTransition(source=route[0], target=route[-1], events=tuple(events), route=route)


def _shortest() -> dict[tuple[str, str, str], tuple[str, ...]]:
    """The shortest route for each source, event and target."""
    found: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for edge in sorted(edges(MACHINE), key=_importance):
        key = (type_of(edge.source), edge.row.event.__name__, type_of(edge.to))
        route = route_of(edge)
        if key not in found or len(route) < len(found[key]):
            found[key] = route
    return found


def _importance(edge: Edge) -> int:
    """Where the event of an edge stands among those of its state: the answers that it waits for come first."""
    return (*edge.source.AWAITS, *REQUESTS, *REPORTS).index(edge.row.event)


def route_of(edge: Edge) -> tuple[str, ...]:
    """The nodes over which a way through the table is drawn, from its source to its target. `Pure.`"""
    route = [type_of(edge.source)]
    source, target = edge.source, edge.row.to
    for branch in edge.branches:
        assert isinstance(target, Junction)
        route += _leg(source, STANDS_IN[target])
        source, target = STANDS_IN[target], branch.to
    return (*route, *_leg(source, edge.to))


def _leg(source: StateType, target: StateType) -> Sequence[str]:
    """The nodes behind `source` on the way to `target`: over the line between them, out of the frame, or over `Idle`,
    which takes the same events as `Failed`."""
    if source is target:
        return ()
    if target in _NEXT[source]:
        return (type_of(target),)
    if target in EXITS and _is_framed(source):
        return (TURN, type_of(target))
    if Idle in _NEXT[source] and target in _NEXT[Idle]:
        return (type_of(Idle), type_of(target))
    raise LookupError(f"The map has no line from {source.__name__} to {target.__name__}: see map_places.")


def _connected_states() -> dict[StateType, set[StateType]]:
    found: dict[StateType, set[StateType]] = {state: set() for state in STATES}
    for line in LINES:
        found[line.source].add(line.target)
        if line.both:
            found[line.target].add(line.source)
    return found


_NEXT = _connected_states()
