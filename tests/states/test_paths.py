"""The way that an event takes through the table: `entry_for` and `branches_for` name the rows that a step takes."""

from datetime import timedelta

import pytest

from turnwise.states import (
    Closed,
    Context,
    Event,
    Idle,
    Limits,
    LlmFailed,
    LlmRequesting,
    Refused,
    State,
    ToolComplete,
    ToolResult,
    UserCancel,
    UserMessage,
)
from turnwise.states.grammar import SAME, Branch, Junction, NoOp, Refusal, Row
from turnwise.states.machine import MACHINE, Edge, branches_for, edges, entry_for
from turnwise.states.table import TABLE
from turnwise.testing.strategies import NOON

from ..support.busy_states import IN_TURN, Moment, executing, requesting
from ..support.cases import holds_for
from ..support.conversation import Conversation

EDGES = tuple(edges(MACHINE))
MESSAGE = UserMessage(event_id="1", at=NOON, text="Hello")


def told(moment: Moment) -> Conversation:
    """A conversation to which this happened, and then a message, a cancel and a close."""
    conversation = moment()
    for happens in (conversation.says, conversation.cancels, conversation.closes):
        try:
            happens()
        except Refused:
            continue
    return conversation


def edges_behind(row: Row, state: State) -> list[Edge]:
    """The edges that begin with this row of this state."""
    return [edge for edge in EDGES if edge.row is row and edge.source is type(state)]


class TestTheEntry:
    """`entry_for` returns the entry of the table that an event takes."""

    def test_a_request_that_is_taken_meets_a_row(self) -> None:
        """A request that is taken takes a row of the current state."""
        entry = entry_for(Idle(), MESSAGE, Context())

        assert isinstance(entry, Row)
        assert entry in TABLE[Idle] and entry.event is UserMessage

    def test_a_refusal_is_an_entry(self) -> None:
        """A refused request takes a refusal, which holds the reason."""
        entry = entry_for(Closed(), MESSAGE, Context())

        assert isinstance(entry, Refusal)
        assert entry in TABLE[Closed]

    def test_what_does_nothing_is_an_entry(self) -> None:
        """A cancel of a closed conversation takes a no-op."""
        assert isinstance(entry_for(Closed(), UserCancel(event_id="1", at=NOON), Context()), NoOp)

    def test_an_answer_that_nobody_waits_for_meets_nothing(self) -> None:
        """An answer takes no entry if nothing is in flight, or only another effect."""
        late = LlmFailed(effect_id=99, at=NOON, kind="timeout", sentence="Too late.")

        assert entry_for(Idle(), late, Context()) is None
        assert entry_for(requesting().state, late, Context()) is None

    def test_the_guards_of_the_entries_see_state_event_and_context(self) -> None:
        """The same cancel takes a no-op or a row, depending on the turn that it names."""
        state = executing().state

        early, now = (entry_for(state, UserCancel(event_id="1", at=NOON, turn=turn), Context()) for turn in (0, 1))

        assert (isinstance(early, NoOp), isinstance(now, Row)) == (True, True)


class TestTheBranches:
    """`branches_for` returns the branches that an event takes behind its row."""

    @pytest.mark.parametrize("happens", [MESSAGE, UserCancel(event_id="1", at=NOON)])
    def test_what_takes_no_row_takes_no_branches(self, happens: Event) -> None:
        """A refusal and a no-op have no branches."""
        assert branches_for(Closed(), happens, Context()) == ()

    def test_what_is_ignored_takes_no_branches(self) -> None:
        """An answer that nobody waits for has no branches."""
        late = LlmFailed(effect_id=99, at=NOON, kind="timeout", sentence="Too late.")

        assert branches_for(requesting().state, late, Context()) == ()

    @pytest.mark.parametrize(("seconds", "end"), [(1, LlmRequesting), (60, Idle)])
    def test_the_guards_of_the_branches_see_the_event(self, seconds: int, end: type[State]) -> None:
        """The same result leads to the model or to the end of the turn, depending on the time of the event."""
        conversation = Conversation(limits=Limits(seconds=60))
        conversation.says()
        conversation.model_calls("a")
        at = conversation.now + timedelta(seconds=seconds)
        done = ToolComplete(effect_id=conversation.running("a"), at=at, result=ToolResult(text="done"))

        branches = branches_for(conversation.state, done, conversation.history.context)

        assert branches[-1].to is end


@holds_for("moment", IN_TURN)
def test_entry_and_branches_are_those_of_the_step(moment: Moment) -> None:
    """In every conversation, an event that is refused or ignored takes no branches, and any other takes the one edge of
    the library's machine that ends in the state of the step."""
    for seen in told(moment).history.observations[1:]:
        entry = entry_for(seen.before, seen.event, seen.context)
        branches = branches_for(seen.before, seen.event, seen.context)

        if isinstance(seen.outcome, Refused):
            assert isinstance(entry, Refusal) and branches == ()
        elif seen.outcome.ignored:
            assert (entry is None or isinstance(entry, NoOp)) and branches == ()
        else:
            assert isinstance(entry, Row)
            assert [edge.branches for edge in edges_behind(entry, seen.before)].count(branches) == 1
            end: Row | Branch = branches[-1] if branches else entry
            assert not isinstance(end.to, Junction)
            assert type(seen.outcome.state) is (type(seen.before) if end.to is SAME else end.to)
