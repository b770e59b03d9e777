"""The map of the machine shows the whole table, and it can be drawn as it is."""

import re
from collections.abc import Iterator
from itertools import combinations, pairwise

from turnwise.hosts.diagrams.machine_map import (
    PLACES,
    STANDS_IN,
    START,
    TURN,
    MachineMap,
    MapLine,
    MapState,
    machine_map,
)
from turnwise.states.grammar import SAME, Junction, Row, Target
from turnwise.states.states import STATES, State

from ...support.cases import holds_for
from ...support.table_reading import BUSY, JUNCTIONS, TABLE, WAITING_FOR_A_PERSON

Segment = tuple[tuple[int, int], tuple[int, int]]

MAP = machine_map()
BOXES = {state.type: state for state in MAP.states}
LINES = {f"{line.source}-{line.target}": line for line in MAP.lines}
STEPS = {(line.source, line.target) for line in MAP.lines} | {
    (line.target, line.source) for line in MAP.lines if line.both
}


def type_of(state: type[State]) -> str:
    """The `type` of a state, as the map names it."""
    return str(state.model_fields["type"].default)


def ends(source: type[State], target: Target) -> Iterator[type[State]]:
    """The states in which a row can end, through its junctions."""
    if target is SAME:
        yield source
    elif isinstance(target, Junction):
        for branch in target.branches:
            yield from ends(source, branch.to)
    else:
        assert isinstance(target, type)
        yield target


def segments(line: MapLine) -> list[Segment]:
    """The straight pieces of a line."""
    return list(pairwise(line.points))


def is_on_border(point: tuple[int, int], state: MapState) -> bool:
    """Whether a point is on the border of the box of a state."""
    across, down = abs(point[0] - state.x), abs(point[1] - state.y)
    half_width, half_height = MAP.box_width // 2, MAP.box_height // 2
    return (across == half_width and down <= half_height) or (down == half_height and across <= half_width)


def passes_through(segment: Segment, state: MapState) -> bool:
    """Whether a straight piece of a line enters the inside of a box."""
    (x, y), (end_x, end_y) = segment
    left, right = state.x - MAP.box_width // 2, state.x + MAP.box_width // 2
    top, bottom = state.y - MAP.box_height // 2, state.y + MAP.box_height // 2
    return min(x, end_x) < right and max(x, end_x) > left and min(y, end_y) < bottom and max(y, end_y) > top


def overlap(one: Segment, other: Segment) -> bool:
    """Whether two straight pieces share more than a point."""
    for axis in (0, 1):
        along = 1 - axis
        if {point[axis] for point in one} == {point[axis] for point in other} and len({p[axis] for p in one}) == 1:
            first, second = sorted(p[along] for p in one), sorted(p[along] for p in other)
            if max(first[0], second[0]) < min(first[1], second[1]):
                return True
    return False


class TestPlaces:
    """Where the states stand."""

    def test_every_state_has_a_place(self) -> None:
        """A new state cannot be forgotten."""
        assert set(PLACES) == set(STATES)
        assert list(BOXES) == [type_of(state) for state in STATES]

    def test_no_two_states_have_the_same_place(self) -> None:
        """Each box has a field of the grid for itself."""
        assert len({(state.column, state.row) for state in MAP.states}) == len(STATES)

    @holds_for("state", STATES)
    def test_a_title_is_the_name_of_the_state_in_words(self, state: type[State]) -> None:
        """A reader finds the state of the map in the log and in the documentation."""
        words = re.findall("[A-Z][a-z]*", state.__name__)

        assert BOXES[type_of(state)].title.replace("-", " ").lower() == " ".join(words).lower()

    def test_the_states_in_which_a_person_can_act_are_told_from_busy_ones(self) -> None:
        """The kind of a state says what it waits for."""
        kinds = {BOXES[type_of(state)].name: BOXES[type_of(state)].kind for state in STATES}

        assert {name for name, kind in kinds.items() if kind == "rest"} == {"Idle", "Failed"}
        assert {name for name, kind in kinds.items() if kind == "person"} == WAITING_FOR_A_PERSON - {"Idle", "Failed"}
        assert {name for name, kind in kinds.items() if kind == "end"} == {"Closed"}

    @holds_for("state", MAP.states)
    def test_every_state_is_described_in_one_sentence(self, state: MapState) -> None:
        """The sentence is the first one of the class, on one line."""
        assert re.fullmatch(r"[A-Z][^\n]+\.", state.description)

    def test_the_frame_holds_the_busy_states_and_no_others(self) -> None:
        """All but `Cancelling`, to which an arrow from the frame leads."""
        inside = {state.type for state in MAP.states if is_inside_frame(state)}

        assert inside == set(MAP.frame.states) == {type_of(state) for state in BUSY} - {"cancelling"}

    def test_everything_is_inside_the_drawing(self) -> None:
        """Boxes, lines and frame keep a distance from its edges."""
        points = [*MAP.frame.points, *(point for line in MAP.lines for point in line.points)]
        corners = [
            (state.x + across, state.y + down)
            for state in MAP.states
            for across in (-MAP.box_width // 2, MAP.box_width // 2)
            for down in (-MAP.box_height // 2, MAP.box_height // 2)
        ]

        assert all(4 < x < MAP.width - 4 and 4 < y < MAP.height - 4 for x, y in [*points, *corners])


def is_inside_frame(state: MapState) -> bool:
    """Whether the middle of a box is inside the frame: a ray to the right crosses its border an odd number of times."""
    corners = MAP.frame.points
    crossed = 0
    for (x, y), (_, end_y) in pairwise((*corners, corners[0])):
        crossed += min(y, end_y) < state.y < max(y, end_y) and x > state.x
    return crossed % 2 == 1


class TestLines:
    """The lines can be drawn as they are."""

    @holds_for("line", MAP.lines)
    def test_a_line_connects_the_borders_of_its_boxes(self, line: MapLine) -> None:
        """It begins at the source, or at the start or the frame, and ends at the target."""
        assert line.source in (START, TURN) or is_on_border(line.points[0], BOXES[line.source])
        assert is_on_border(line.points[-1], BOXES[line.target])

    @holds_for("line", MAP.lines)
    def test_a_line_is_horizontal_or_vertical_and_enters_no_box(self, line: MapLine) -> None:
        """Lines are bent at right angles and pass between the boxes."""
        for segment in segments(line):
            assert segment[0][0] == segment[1][0] or segment[0][1] == segment[1][1]
            assert not [state.type for state in MAP.states if passes_through(segment, state)]

    def test_lines_share_a_way_only_to_the_same_state(self) -> None:
        """Elsewhere a reader could not tell where a line leads."""
        shared = {
            (one.target, other.target)
            for one, other in combinations(MAP.lines, 2)
            if any(overlap(first, second) for first in segments(one) for second in segments(other))
        }

        assert shared == {("idle", "idle")}

    def test_two_nodes_are_connected_once(self) -> None:
        """A way there and back is one line with two heads."""
        assert len(LINES) == len(MAP.lines)
        assert len({frozenset((line.source, line.target)) for line in MAP.lines}) == len(MAP.lines)


class TestTransitions:
    """Every arrow of the table is there, and nothing else."""

    @holds_for("state", STATES)
    def test_every_event_leads_where_the_table_says(self, state: type[State]) -> None:
        """Through all junctions, and in no other way."""
        expected = {
            (entry.event.__name__, type_of(end))
            for entry in TABLE[state]
            if isinstance(entry, Row)
            for end in ends(state, entry.to)
        }

        assert {
            (event, transition.target)
            for transition in MAP.transitions
            if transition.source == type_of(state)
            for event in transition.events
        } == expected

    def test_a_conversation_begins_at_idle(self) -> None:
        """By the event `Opened`."""
        assert [(one.events, one.target, one.route) for one in MAP.transitions if one.source == START] == [
            (("Opened",), "idle", (START, "idle"))
        ]

    def test_every_route_runs_over_lines(self) -> None:
        """From its source to its target, only in directions in which the lines have a head. Out of the frame it leaves
        from a state in it."""
        for transition in MAP.transitions:
            assert (transition.route[0], transition.route[-1]) == (transition.source, transition.target)
            for source, target in pairwise(transition.route):
                if target == TURN:
                    assert source in MAP.frame.states
                else:
                    assert (source, target) in STEPS

    def test_every_line_is_used_in_each_of_its_directions(self) -> None:
        """No line or head is drawn that no transition takes."""
        used = {step for transition in MAP.transitions for step in pairwise(transition.route)}

        assert STEPS - used == set()

    @holds_for(
        ("source", "event", "route"),
        [
            ("idle", "UserMessage", ("idle", "profile_selecting", "memory_recalling", "llm_requesting")),
            ("llm_requesting", "LlmResponse", ("llm_requesting", "tool_executing")),
            ("llm_requesting", "LlmResponse", ("llm_requesting", "summarizing", "idle")),
            ("tool_executing", "ToolComplete", ("tool_executing", "llm_requesting")),
            ("awaiting_user_response", "UserQuestionResponse", ("awaiting_user_response", "tool_executing")),
            ("tool_executing", "UserCancel", ("tool_executing", "turn", "cancelling")),
            ("llm_requesting", "Resumed", ("llm_requesting", "turn", "failed")),
            ("failed", "RetryRequested", ("failed", "idle", "profile_selecting", "memory_recalling", "llm_requesting")),
        ],
    )
    def test_a_way_passes_over_what_it_does_not_need(self, source: str, event: str, route: tuple[str, ...]) -> None:
        """A turn without memory passes over `MemoryRecalling`, and an end without a summary over `Summarizing`."""
        (found,) = [one for one in MAP.transitions if one.route == route]

        assert (found.source, event in found.events) == (source, True)

    def test_every_junction_is_drawn_at_a_state(self) -> None:
        """So each way through it can be drawn."""
        assert set(STANDS_IN) == set(JUNCTIONS)
        assert {junction.name for junction in MAP.junctions} == {junction.name for junction in JUNCTIONS}
        assert {junction.state for junction in MAP.junctions} <= set(BOXES)


def test_the_map_is_exact_in_json() -> None:
    """Written as JSON and read back it is the same."""
    assert MachineMap.model_validate_json(MAP.model_dump_json()) == MAP
