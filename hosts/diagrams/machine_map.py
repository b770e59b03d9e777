"""The map of the machine: boxes with places, lines with points, and every way that a conversation can take, as data.

A page draws the boxes and the lines, and then shows where a conversation is and which way it came: each transition says
over which states it is drawn.

Where the states stand, and which lines connect them, is chosen by hand in `PLACES` and `LINES`, since a program that
places the states by itself does not know what belongs together. Here a turn runs down the middle column, its end runs
up the right one, and whatever interrupts it stands to the left and below. The busy states stand in a frame, as in a
statechart: an arrow that leaves the frame can be taken from every state in it.

Everything else is read from the table, so the map cannot differ from it. Junctions are not drawn. A state stands in for
each of them: a way through the junction passes over that state. A turn that needs no memory, for example, passes over
`MemoryRecalling`. `machine_map` finds these ways in the table and fails if a line is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

from pydantic import Field

from ...states import choices
from ...states.events import REPORTS, REQUESTS, Opened
from ...states.grammar import Junction
from ...states.machine import MACHINE, Edge, edges
from ...states.states import (
    STATES,
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Busy,
    Cancelling,
    Closed,
    Compacting,
    Failed,
    Idle,
    InDoubt,
    LlmRequesting,
    MemoryRecalling,
    ProfileSelecting,
    RetryWaiting,
    State,
    Summarizing,
    ToolExecuting,
    Verifying,
)
from ...states.values.value import Value
from .mermaid import waits_for_person

_Kind: TypeAlias = Literal["rest", "busy", "person", "end"]
"""What a state waits for: for nothing, for an effect, for a person (perhaps beside effects), or for nothing ever."""

START = "start"
"""The node at which a conversation begins."""

TURN = "turn"
"""The node of the frame around the busy states. A way over it leaves the frame from any state in it."""

_WIDTH, _HEIGHT = 112, 40
"""The size of a box, in units of the drawing. Chosen for titles of two lines with 13 letters each, 13 units high."""

Point: TypeAlias = tuple[int, int]


class MapState(Value):
    """A state: a box of the map around the point `x`, `y`."""

    type: str = Field(description="The `type` of the state in updates and in the log.")
    name: str = Field(description="The name of its class.")
    title: str
    kind: _Kind
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
    box_width: int = _WIDTH
    box_height: int = _HEIGHT
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
        width=2 * _LEFT_EDGE + _WIDTH + (columns - 1) * _COLUMN,
        height=_TOP_EDGE + _HEIGHT + (rows - 1) * _ROW + _LEFT_EDGE,
        states=tuple(map(_state, STATES)),
        frame=_frame(columns, rows),
        lines=(_start(), *map(_line, LINES), *map(_exit, _EXITS)),
        junctions=tuple(MapJunction(name=one.name, state=type_of(state)) for one, state in STANDS_IN.items()),
        transitions=tuple(_transitions()),
    )


_Side: TypeAlias = Literal["left", "right", "top", "bottom"]

StateType: TypeAlias = type[State]


@dataclass(frozen=True)
class Place:
    """Where a state stands in the grid, counted from the top left corner, and what is written in its box."""

    column: int
    row: int
    title: str


@dataclass(frozen=True)
class _Port:
    """Where a line touches a box: a side, and the distance from its middle, to the right or downwards."""

    side: _Side
    offset: int = 0


@dataclass(frozen=True)
class Line:
    """A line between two states. One whose ends have different heights is bent in the middle between its columns."""

    source: StateType
    leaves: _Port
    target: StateType
    enters: _Port
    both: bool = False
    """Whether the machine also goes the other way."""


PLACES: dict[StateType, Place] = {
    Failed: Place(0, 0, "Failed"),
    Idle: Place(1, 0, "Idle"),
    Closed: Place(2, 0, "Closed"),
    ProfileSelecting: Place(1, 1, "Profile selecting"),
    Cancelling: Place(2, 1, "Cancelling"),
    Compacting: Place(0, 2, "Compacting"),
    MemoryRecalling: Place(1, 2, "Memory recalling"),
    Summarizing: Place(2, 2, "Summarizing"),
    RetryWaiting: Place(0, 3, "Retry waiting"),
    LlmRequesting: Place(1, 3, "LLM requesting"),
    Verifying: Place(2, 3, "Verifying"),
    AwaitingApproval: Place(0, 4, "Awaiting approval"),
    ToolExecuting: Place(1, 4, "Tool executing"),
    AwaitingSubAgents: Place(2, 4, "Awaiting sub-agents"),
    InDoubt: Place(0, 5, "In doubt"),
    AwaitingUserResponse: Place(1, 5, "Awaiting user response"),
}
"""The place of every state. A title is the name of the state's class in words."""

_LEFT, RIGHT, _TOP, _BOTTOM = _Port("left"), _Port("right"), _Port("top"), _Port("bottom")

LINES: tuple[Line, ...] = (
    # A turn runs down the middle.
    Line(Idle, _BOTTOM, ProfileSelecting, _TOP),
    Line(ProfileSelecting, _BOTTOM, MemoryRecalling, _TOP),
    Line(MemoryRecalling, _BOTTOM, LlmRequesting, _TOP),
    Line(LlmRequesting, _BOTTOM, ToolExecuting, _TOP, both=True),
    # It waits for people, for sub-agents and for another attempt.
    Line(ToolExecuting, _BOTTOM, AwaitingUserResponse, _TOP, both=True),
    Line(ToolExecuting, _LEFT, AwaitingApproval, RIGHT, both=True),
    Line(ToolExecuting, _Port("left", 13), InDoubt, RIGHT, both=True),
    Line(ToolExecuting, RIGHT, AwaitingSubAgents, _LEFT, both=True),
    Line(LlmRequesting, _LEFT, RetryWaiting, RIGHT, both=True),
    Line(LlmRequesting, _Port("left", -13), Compacting, _Port("right", 8), both=True),
    # Its end runs up on the right.
    Line(LlmRequesting, RIGHT, Verifying, _LEFT, both=True),
    Line(ToolExecuting, _Port("right", -13), Verifying, _Port("left", 13)),
    Line(Verifying, _TOP, Summarizing, _BOTTOM),
    Line(LlmRequesting, _Port("right", -13), Summarizing, _Port("left", 8)),
    Line(Summarizing, _Port("left", -8), Idle, _Port("right", 9)),
    Line(Cancelling, _LEFT, Idle, _Port("right", 9)),
    # At rest.
    Line(Idle, _Port("right", -7), Closed, _Port("left", -7)),
    Line(Idle, _Port("left", -7), Failed, _Port("right", -7), both=True),
    Line(Idle, _Port("left", 9), Compacting, _Port("right", -8), both=True),
)
"""Every line between two states."""

_EXITS: tuple[StateType, ...] = (Failed, Cancelling)
"""The states right above the frame to which an arrow leads from it, which stands for one from each state in it."""

_CUT_OUT = Cancelling
"""The state in the top right corner of the frame that stands outside it."""

STANDS_IN: dict[Junction, StateType] = {
    choices.BEGIN_TURN: ProfileSelecting,
    choices.AFTER_PROFILE: MemoryRecalling,
    choices.ASK_MODEL: LlmRequesting,
    choices.FIT_WINDOW: LlmRequesting,
    choices.AFTER_EMPTY: LlmRequesting,
    choices.GIVE_UP: LlmRequesting,
    choices.NEXT_IN_ROUND: ToolExecuting,
    choices.CHECK_WORK: Verifying,
    choices.AFTER_OUTPUT: LlmRequesting,
    choices.END_TURN: Summarizing,
    choices.REST: Idle,
    choices.FAIL: Failed,
    choices.STOP: Cancelling,
    choices.ACKNOWLEDGED: Cancelling,
}
"""The state that each junction is drawn at."""

_COLUMN, _ROW = 156, 76
"""The distances between the middles of boxes."""

_LEFT_EDGE, _TOP_EDGE = 20, 34
"""The space left of the first column and above the first row, where the conversation begins."""

_FRAME_EDGE = 12
"""The space between the frame and the boxes in it."""


def type_of(state: StateType) -> str:
    """The `type` of a state, as it is written. `Pure.`"""
    return str(state.model_fields["type"].default)


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


def _kind(state: StateType) -> _Kind:
    if state is Closed:
        return "end"
    if not issubclass(state, Busy):
        return "rest"
    return "person" if waits_for_person(state) else "busy"


def _middle(state: StateType) -> Point:
    place = PLACES[state]
    return _LEFT_EDGE + _WIDTH // 2 + place.column * _COLUMN, _TOP_EDGE + _HEIGHT // 2 + place.row * _ROW


def _frame(columns: int, rows: int) -> MapFrame:
    """The frame: a rectangle around all rows but the first, without the corner in which `_CUT_OUT` stands."""
    left, right = _LEFT_EDGE - _FRAME_EDGE, _LEFT_EDGE + _WIDTH + (columns - 1) * _COLUMN + _FRAME_EDGE
    top, bottom = _TOP_EDGE + _ROW - _FRAME_EDGE, _TOP_EDGE + (rows - 1) * _ROW + _HEIGHT + _FRAME_EDGE
    x, y = _middle(_CUT_OUT)
    inner_x, inner_y = x - _COLUMN + _WIDTH // 2 + _FRAME_EDGE, y + _ROW - _HEIGHT // 2 - _FRAME_EDGE
    points = ((left, top), (inner_x, top), (inner_x, inner_y), (right, inner_y), (right, bottom), (left, bottom))
    framed = tuple(type_of(state) for state in STATES if _is_framed(state))
    return MapFrame(title="A turn is under way", states=framed, points=points)


def _is_framed(state: StateType) -> bool:
    return issubclass(state, Busy) and state is not _CUT_OUT


def _start() -> MapLine:
    x, y = _middle(Idle)
    return MapLine(source=START, target=type_of(Idle), both=False, points=((x, 8), (x, y - _HEIGHT // 2)))


def _line(line: Line) -> MapLine:
    (x, y), (end_x, end_y) = _port(line.source, line.leaves), _port(line.target, line.enters)
    bend = (x + end_x) // 2
    straight = x == end_x or y == end_y
    between: tuple[Point, ...] = () if straight else ((bend, y), (bend, end_y))
    points = ((x, y), *between, (end_x, end_y))
    return MapLine(source=type_of(line.source), target=type_of(line.target), both=line.both, points=points)


def _port(state: StateType, port: _Port) -> Point:
    x, y = _middle(state)
    if port.side in ("left", "right"):
        return x + (_WIDTH // 2 if port.side == "right" else -_WIDTH // 2), y + port.offset
    return x + port.offset, y + (_HEIGHT // 2 if port.side == "bottom" else -_HEIGHT // 2)


def _exit(target: StateType) -> MapLine:
    x, y = _middle(target)
    points = ((x, y + _ROW - _HEIGHT // 2 - _FRAME_EDGE), (x, y + _HEIGHT // 2))
    return MapLine(source=TURN, target=type_of(target), both=False, points=points)


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
    if target in _EXITS and _is_framed(source):
        return (TURN, type_of(target))
    if Idle in _NEXT[source] and target in _NEXT[Idle]:
        return (type_of(Idle), type_of(target))
    raise LookupError(f"The map has no line from {source.__name__} to {target.__name__}: LINES needs one.")


def _connected_states() -> dict[StateType, set[StateType]]:
    found: dict[StateType, set[StateType]] = {state: set() for state in STATES}
    for line in LINES:
        found[line.source].add(line.target)
        if line.both:
            found[line.target].add(line.source)
    return found


_NEXT = _connected_states()
