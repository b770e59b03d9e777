"""Where the states stand in the map of the machine, and which lines connect them: chosen by hand.

A program that places the states by itself does not know what belongs together. Here a turn runs down the middle column,
its end runs up the right one, and whatever interrupts it stands to the left and below. The busy states stand in a
frame, as in a statechart: an arrow that leaves the frame can be taken from every state in it.

Junctions are not drawn. A state stands in for each of them: a way through the junction passes over that state. A turn
that needs no memory, for example, passes over `MemoryRecalling`. `machine_map` finds these ways in the table and fails
if a line is missing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...states import choices
from ...states.grammar import Junction
from ...states.states import (
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
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

Side: TypeAlias = Literal["left", "right", "top", "bottom"]

StateType: TypeAlias = type[State]


@dataclass(frozen=True)
class Place:
    """Where a state stands in the grid, counted from the top left corner, and what is written in its box."""

    column: int
    row: int
    title: str


@dataclass(frozen=True)
class Port:
    """Where a line touches a box: a side, and the distance from its middle, to the right or downwards."""

    side: Side
    offset: int = 0


@dataclass(frozen=True)
class Line:
    """A line between two states. One whose ends have different heights is bent in the middle between its columns."""

    source: StateType
    leaves: Port
    target: StateType
    enters: Port
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

LEFT, RIGHT, TOP, BOTTOM = Port("left"), Port("right"), Port("top"), Port("bottom")

LINES: tuple[Line, ...] = (
    # A turn runs down the middle.
    Line(Idle, BOTTOM, ProfileSelecting, TOP),
    Line(ProfileSelecting, BOTTOM, MemoryRecalling, TOP),
    Line(MemoryRecalling, BOTTOM, LlmRequesting, TOP),
    Line(LlmRequesting, BOTTOM, ToolExecuting, TOP, both=True),
    # It waits for people, for sub-agents and for another attempt.
    Line(ToolExecuting, BOTTOM, AwaitingUserResponse, TOP, both=True),
    Line(ToolExecuting, LEFT, AwaitingApproval, RIGHT, both=True),
    Line(ToolExecuting, Port("left", 13), InDoubt, RIGHT, both=True),
    Line(ToolExecuting, RIGHT, AwaitingSubAgents, LEFT, both=True),
    Line(LlmRequesting, LEFT, RetryWaiting, RIGHT, both=True),
    Line(LlmRequesting, Port("left", -13), Compacting, Port("right", 8), both=True),
    # Its end runs up on the right.
    Line(LlmRequesting, RIGHT, Verifying, LEFT, both=True),
    Line(ToolExecuting, Port("right", -13), Verifying, Port("left", 13)),
    Line(Verifying, TOP, Summarizing, BOTTOM),
    Line(LlmRequesting, Port("right", -13), Summarizing, Port("left", 8)),
    Line(Summarizing, Port("left", -8), Idle, Port("right", 9)),
    Line(Cancelling, LEFT, Idle, Port("right", 9)),
    # At rest.
    Line(Idle, Port("right", -7), Closed, Port("left", -7)),
    Line(Idle, Port("left", -7), Failed, Port("right", -7), both=True),
    Line(Idle, Port("left", 9), Compacting, Port("right", -8), both=True),
)
"""Every line between two states."""

EXITS: tuple[StateType, ...] = (Failed, Cancelling)
"""The states right above the frame to which an arrow leads from it, which stands for one from each state in it."""

CUT_OUT = Cancelling
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
    choices.END_TURN: Summarizing,
    choices.REST: Idle,
    choices.FAIL: Failed,
    choices.STOP: Cancelling,
    choices.ACKNOWLEDGED: Cancelling,
}
"""The state that each junction is drawn at."""
