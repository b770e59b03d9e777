"""A conversation goes to another point in the tree of its turns: what is shown then, and what else holds there."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given

from turnwise.states import (
    AwaitingSubAgents,
    BranchSwitched,
    Cancelling,
    Closed,
    Compacting,
    Failed,
    Heard,
    Idle,
    LlmRequesting,
    LlmStopped,
    LogEntry,
    MessageEdited,
    Refused,
    RequestLlm,
    Rewound,
    Step,
    Summarizing,
    SwitchBranch,
    Usage,
)
from turnwise.states.branches import Branches, messages_of
from turnwise.states.transcript import Transcript
from turnwise.states.values.turn import BranchPoint
from turnwise.testing import Trace, traces

from ..support.conversation import Conversation, asking, spawning


def rewinds(conversation: Conversation, before: int, **fields: Any) -> Step:
    """Hide this turn and all that follows it."""
    branch = conversation.state.book.branch
    return conversation.with_model_stopped(conversation.happens(Rewound, before=before, branch=branch, **fields))


def answers_again(conversation: Conversation, turn: int) -> Step:
    """Have the messages of this turn answered again."""
    return rewinds(conversation, turn, again=messages_of(conversation.history.log, turn))


def edits(conversation: Conversation, before: int, text: str, **fields: Any) -> Step:
    """Say something else in place of what began this turn."""
    given = {"before": before, "text": text, "message_id": "m", "branch": conversation.state.book.branch}
    return conversation.with_model_stopped(conversation.happens(MessageEdited, **{**given, **fields}))


def switches(conversation: Conversation, turn: int) -> Step:
    """Return to the branch that ends with this turn."""
    return conversation.happens(BranchSwitched, turn=turn, branch=conversation.state.book.branch)


def talked(*texts: str, **rules: Any) -> Conversation:
    """A conversation in which these were said and answered."""
    conversation = Conversation(**rules)
    for text in texts:
        conversation.says(text)
        conversation.model_says(f"{text}!")
    return conversation


def shown(conversation: Conversation) -> list[str]:
    """The texts of the transcript."""
    return [message.text for message in conversation.transcript]


def refused(conversation: Conversation, request: Any) -> str:
    """The code with which a request is refused."""
    with pytest.raises(Refused) as refusal:
        request(conversation)
    return refusal.value.code


class TestTheTree:
    """`Branches` knows the turns by the points at which stretches of them begin."""

    TREE = (
        Branches()
        .after(SwitchBranch(to=BranchPoint(turn=2, before=True), turns=3))  # 1, 4, 5
        .after(SwitchBranch(to=BranchPoint(turn=5, before=True), turns=5))  # 1, 4, 6
        .after(SwitchBranch(to=BranchPoint(turn=3), turns=6))  # 1, 2, 3, 7
    )

    def test_each_turn_leads_back_to_the_first(self) -> None:
        """By the turn before it on its branch."""
        paths = {turn: self.TREE.turns_to(turn) for turn in (3, 5, 6, 7)}

        assert paths == {3: (1, 2, 3), 5: (1, 4, 5), 6: (1, 4, 6), 7: (1, 2, 3, 7)}

    def test_one_branch_is_shown(self) -> None:
        """The others are left, and named by their newest turns."""
        assert [turn for turn in range(1, 8) if self.TREE.shows(turn)] == [1, 2, 3, 7]
        assert list(self.TREE.hidden(7)) == [(4, 6)]
        assert self.TREE.left(7) == (5, 6)

    def test_whoever_goes_back_twice_without_a_turn_leaves_nothing(self) -> None:
        """The second point counts."""
        tree = self.TREE.after(SwitchBranch(to=BranchPoint(turn=1, before=True), turns=7))
        tree = tree.after(SwitchBranch(to=BranchPoint(turn=6), turns=7))

        assert tree.turns_to(8) == (1, 4, 6, 8)
        assert tree.left(7) == (5, 7)

    def test_a_conversation_that_never_went_back_has_one_branch(self) -> None:
        """It costs nothing."""
        assert (Branches.of(talked("a", "b").history.log), Transcript().branches) == (Branches(), None)
        assert list(Branches().hidden(5)) == []


class TestAtRest:
    """Nothing is under way, so the conversation goes there at once."""

    def test_it_rests_where_it_goes(self) -> None:
        """Without a message there is nothing to answer."""
        conversation = talked("a", "b")

        step = rewinds(conversation, 2)

        assert [type(effect) for effect in step.effects] == [SwitchBranch]
        assert (conversation.rests_in(Idle).book.turn, shown(conversation)) == (2, ["a", "a!"])

    def test_a_failed_turn_can_be_left(self) -> None:
        """It cannot be tried again then, but answered again."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_fails("authentication")
        conversation.rests_in(Failed)

        answers_again(conversation, 2)

        assert conversation.rests_in(LlmRequesting).turn.number == 3
        assert shown(conversation) == ["a", "a!", "b"]

    def test_what_a_request_says_of_the_window_holds(self) -> None:
        """So the next request is not condensed because of what is hidden, nor sent although it does not fit."""
        conversation = talked("a", "b")

        rewinds(conversation, 2, window_used=321)

        assert conversation.state.book.window_used == 321

    def test_a_request_that_was_made_for_another_branch_is_refused(self) -> None:
        """Or for a turn that is no longer the newest, or that there is not."""
        conversation = talked("a", "b")
        rewinds(conversation, 2)

        codes = [
            refused(conversation, lambda one: one.happens(Rewound, before=1, branch=0)),
            refused(conversation, lambda one: rewinds(one, 1, newest=1)),
            refused(conversation, lambda one: rewinds(one, 3)),
        ]

        assert codes == ["moved_on"] * 3

    def test_a_sub_agent_does_not_go_back(self) -> None:
        """It has one task."""
        conversation = Conversation(role="sub_agent")
        conversation.says("Find it")

        assert refused(conversation, lambda one: rewinds(one, 1)) == "no_branches"


class TestWhileSomethingIsUnderWay:
    """The turn is stopped as by a cancel, and the conversation goes on behind it."""

    def test_a_model_request_ends_as_soon_as_the_model_has_stopped(self) -> None:
        """That step says that the turn was cancelled, and asks the model again. What was spent on the answer counts."""
        conversation = talked("a")
        conversation.says("b")

        step = edits(conversation, 2, "B", usage=Usage(input_tokens=7))

        assert conversation.ended.status == "cancelled"
        assert conversation.ended.usage.tokens == 7
        assert RequestLlm in [type(effect) for effect in step.effects]
        assert shown(conversation) == ["a", "a!", "B"]

    def test_what_the_model_had_written_stays_in_its_branch(self) -> None:
        """It is hidden with the turn, and returns with it."""
        conversation = talked("a")
        conversation.says("b")
        conversation.happens(MessageEdited, before=2, text="B", message_id="m")
        conversation.happens(LlmStopped, effect_id=conversation.flying(RequestLlm), content="half of")
        there = shown(conversation)
        conversation.model_says("B!")

        switches(conversation, 2)

        assert there == ["a", "a!", "B"]
        assert shown(conversation) == ["a", "a!", "b", "half of"]

    def test_what_runs_must_stop_first(self) -> None:
        """The point stands in the state meanwhile, so it outlives a crash; then the result of the call is hidden with
        its turn."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls("look")
        edits(conversation, 2, "B")
        waiting = conversation.rests_in(Cancelling)
        conversation.resumes()

        conversation.tool_stops("look")

        assert waiting.goes_to is not None
        assert waiting.goes_to.said is not None
        assert conversation.rests_in(LlmRequesting).turn.number == 3
        assert shown(conversation) == ["a", "a!", "B"]
        switches_back = conversation.cancels()
        assert switches_back.ended is not None
        switches(conversation, 2)
        assert shown(conversation) == ["a", "a!", "b", "", "Cancelled by user"]

    def test_the_deadline_ends_the_wait(self) -> None:
        """As that of a cancel."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls("look")
        answers_again(conversation, 2)

        conversation.timer_rings()

        assert shown(conversation) == ["a", "a!", "b"]

    def test_one_at_a_time(self) -> None:
        """Another one is refused, so that no message is lost; a cancel has nothing to add."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls("look")
        edits(conversation, 2, "B")

        code = refused(conversation, lambda one: edits(one, 2, "C"))
        step = conversation.cancels()

        assert (code, step.ignored) == ("busy", True)

    def test_whoever_only_cancelled_may_still_go_back(self) -> None:
        """While the tools stop."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls("look")
        conversation.cancels()

        edits(conversation, 2, "B")
        conversation.tool_stops("look")

        assert shown(conversation) == ["a", "a!", "B"]

    def test_what_was_under_way_is_paid_for_once(self) -> None:
        """By the request that stopped it; the next one may read the same costs again."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls("look")
        conversation.cancels(usage=Usage(output_tokens=5))

        rewinds(conversation, 2, usage=Usage(output_tokens=5))
        conversation.tool_stops("look")

        assert conversation.ended.usage == Usage(output_tokens=5)

    def test_a_close_comes_first(self) -> None:
        """The new message is withdrawn with those that wait, and nothing is hidden."""
        conversation = talked("a", when_busy="queue")
        conversation.says("b")
        conversation.model_calls("look")
        conversation.says("c")
        edits(conversation, 2, "B", event_id="edit")
        conversation.closes()

        step = conversation.tool_stops("look")

        assert isinstance(conversation.state, Closed)
        assert len(step.withdrawn) == 2
        assert "edit" in step.withdrawn
        assert shown(conversation)[:3] == ["a", "a!", "b"]

    def test_a_question_is_withdrawn(self) -> None:
        """Its call gets a result in the branch that is left."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls(asking())
        conversation.tool_asks()

        answers_again(conversation, 2)

        assert conversation.rests_in(LlmRequesting).turn.number == 3

    def test_sub_agents_are_cancelled(self) -> None:
        """And their outcomes hidden."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls(spawning())
        conversation.tool_spawns("spawn", "find it")
        conversation.rests_in(AwaitingSubAgents)

        rewinds(conversation, 2)
        conversation.child_finishes("find it", status="cancelled")

        assert (conversation.rests_in(Idle).book.turn, shown(conversation)) == (2, ["a", "a!"])

    def test_a_summary_of_a_turn_is_left_out(self) -> None:
        """The turn had ended."""
        conversation = talked(summarize=True)
        conversation.says("a")
        conversation.model_says("a!")
        conversation.rests_in(Summarizing)

        rewinds(conversation, 1)

        assert conversation.ended.status == "completed"
        assert shown(conversation) == []

    def test_messages_that_wait_belong_to_no_branch(self) -> None:
        """They begin a turn behind the point, after what is answered again."""
        conversation = talked("a", when_busy="queue")
        conversation.says("b")
        conversation.says("c")

        answers_again(conversation, 2)
        conversation.model_says("b!!")

        assert shown(conversation) == ["a", "a!", "b", "b!!", "c"]

    def test_an_imported_conversation_begins_nothing(self) -> None:
        """It stays in its branch, and what was to be answered waits for the next message."""
        conversation = talked("a")
        conversation.says("b")
        conversation.model_calls("look")
        edits(conversation, 2, "B")

        conversation.is_imported()
        failed = conversation.rests_in(Failed)
        conversation.says("c")

        assert len(failed.inbox) == 1
        assert shown(conversation)[-2:] == ["B", "c"]


class TestCondensedHistories:
    """A summary belongs to the branch in which it was made."""

    def test_a_summary_is_hidden_and_returns(self) -> None:
        """What it replaced is shown again where the conversation goes back in front of it."""
        conversation = talked("a", "b")
        conversation.says("c")
        conversation.model_says("c!")
        conversation.wants_it_condensed()
        conversation.history_is_condensed("a and b and c")
        conversation.says("d")
        conversation.model_says("d!")

        rewinds(conversation, 2)
        without = [message.text for message in conversation.said.current]
        switches(conversation, 4)

        assert (without, conversation.said.condensed is None) == (["a", "a!"], False)
        assert conversation.said.condensed is not None
        assert conversation.said.condensed.summary == "a and b and c"
        assert [message.text for message in conversation.said.current] == ["d", "d!"]

    def test_a_compaction_at_rest_is_stopped(self) -> None:
        """There is nothing left to condense."""
        conversation = talked("a", "b")
        conversation.wants_it_condensed()
        conversation.rests_in(Compacting)

        rewinds(conversation, 2)

        assert (conversation.rests_in(Idle).book.turn, conversation.said.condensed) == (2, None)


class TestMessagesOfAgents:
    """They are neither lost nor told twice."""

    def test_one_that_nobody_has_read_goes_along(self) -> None:
        """Also back again, once."""
        conversation = talked("a", "b")
        conversation.agent_says("news", silent=True)

        rewinds(conversation, 2)
        there = shown(conversation)
        switches(conversation, 2)

        assert there == ["a", "a!", "news"]
        assert shown(conversation) == ["a", "a!", "b", "b!", "news"]

    def test_it_stands_behind_what_was_said_later_there(self) -> None:
        """A turn of another branch may have come after it; no summary of that branch takes it for its own."""
        conversation = talked("a")
        for begin, text in ((conversation.says, "b"), (conversation.agent_says, "news"), (conversation.says, "c")):
            begin(text)
            conversation.model_stops()
        rewinds(conversation, 2)
        conversation.says("d")
        conversation.model_stops()
        switches(conversation, 3)

        step = switches(conversation, 5)

        assert shown(conversation) == ["a", "a!", "d", "news"]
        assert [one.turn for one in conversation.transcript] == [1, 1, 5, 5]
        assert conversation.transcript[-1].seq == step.state.book.seq

    def test_one_that_was_read_is_hidden_with_its_turn(self) -> None:
        """The model has answered it."""
        conversation = talked("a")
        conversation.agent_says("news", silent=True)
        conversation.says("b")
        conversation.model_says("b!")

        rewinds(conversation, 2)

        assert shown(conversation) == ["a", "a!", "news"]
        rewinds(conversation, 1)
        assert shown(conversation) == []

    def test_one_for_the_user_stays_owed(self) -> None:
        """Until a turn has passed it on, which the model is reminded of."""
        conversation = talked("a")
        conversation.agent_says("The taxi is here.", audience="user")

        rewinds(conversation, 2)
        owed = conversation.state.book.owed
        conversation.says("b")
        (request,) = [one for one in conversation.step.effects if isinstance(one, RequestLlm)]

        assert [one.said for one in owed] == [Heard(seq=4)]
        assert request.nudge is not None
        conversation.model_says("A taxi waits.")
        assert conversation.state.book.owed == ()


class TestWhatIsAnsweredAgain:
    """The messages of a turn enter the turn that answers them again."""

    def test_they_have_their_ids_and_stand_there_once(self) -> None:
        """Under the number of the new turn, in their order."""
        conversation = talked("a", when_busy="steer")
        conversation.says("b", event_id="b")
        conversation.model_calls("look")
        conversation.says("c", event_id="c")
        conversation.tool_ends("look")
        conversation.model_says("b and c!")

        answers_again(conversation, 2)

        said = [(one.message_id, one.turn) for one in conversation.transcript if one.role == "user"]
        assert said[1:] == [("b", 3), ("c", 3)]
        assert conversation.said.taken["b"] == 3

    def test_a_message_of_an_agent_is_not_owed_again(self) -> None:
        """It was passed on."""
        conversation = talked("a")
        conversation.agent_says("The taxi is here.", audience="user")
        conversation.model_says("A taxi waits.")

        answers_again(conversation, 2)

        assert conversation.state.book.owed == ()
        assert shown(conversation) == ["a", "a!", "The taxi is here."]

    def test_what_somebody_has_made_up_says_nothing(self) -> None:
        """A log that was written by hand may name messages that there are not."""
        conversation = talked("a")
        (known,) = messages_of(conversation.history.log, 1)

        rewinds(conversation, 1, again=(known.replace(event_id="made up", seq=1),))

        assert shown(conversation) == [""]


@given(traces())
def test_going_back_and_forth_shows_what_was_shown(trace: Trace) -> None:
    """Whatever happened, a conversation at rest that goes to its first turn and returns shows what it showed before,
    but for messages of agents, and its log still leads to the same transcript."""
    entries = [LogEntry.of(each.event, each.step) for each in trace if each.step is not None]
    said = Transcript()
    for entry in entries:
        said.add(entry)
    last = trace[-1]
    if not isinstance(last.after, Idle) or not last.after.book.turn or last.context.has_one_task:
        return
    turns, branches = last.after.book.turn, said.branches or Branches()
    newest = next((turn for turn in range(turns, 0, -1) if branches.shows(turn)), 0)
    before = [message for message in said.messages if message.audience is None]

    for number, to in enumerate((BranchPoint(turn=1, before=True), BranchPoint(turn=newest)), start=len(entries) + 1):
        said.add(LogEntry(number, entries[-1].event, (SwitchBranch(to=to, turns=turns),), None, turns))

    assert [message for message in said.messages if message.audience is None] == before
    assert all(one.turn <= other.turn for one, other in pairwise(said.messages))
