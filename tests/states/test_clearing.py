"""Old results of tools are cleared from requests before anything is summarized."""

from typing import Any

import pytest

from turnwise.states import (
    BranchSwitched,
    Clearing,
    ClearResults,
    CompactHistory,
    Compacting,
    ExecuteTool,
    Failed,
    LlmRequesting,
    ModelSpec,
    PersistMessage,
    PersistToolResults,
    Policy,
    PolicyChanged,
    RecallMemory,
    Recent,
    Repeats,
    RequestLlm,
    Rewound,
    ToolExecuting,
    Usage,
)

from ..support.conversation import Conversation

WINDOW = (ModelSpec(name="small", window=1_000),)
HALF, LARGE, FULL = Usage(input_tokens=500), Usage(input_tokens=750), Usage(input_tokens=900)
LONG = "word " * 200


def working(rounds: int = 5, **rules: Any) -> Conversation:
    """A conversation with a model of 1,000 tokens, which has called a tool with a long result in so many rounds."""
    conversation = Conversation(**{"models": WINDOW, **rules})
    conversation.says("first")
    for _ in range(rounds):
        conversation.model_calls("look", usage=HALF)
        conversation.tool_ends("look", LONG)
    return conversation


def look(conversation: Conversation, usage: Usage, clearable: int) -> None:
    """The model calls the tool once more, in a response with these figures, and the tool returns a long result."""
    conversation.model_calls("look", usage=usage, clearable=clearable)
    conversation.tool_ends("look", LONG)


def cleared(conversation: Conversation) -> list[bool]:
    """Of each result, whether it was cleared."""
    return [message.cleared for message in conversation.said.messages if message.role == "tool"]


class TestWhen:
    """Near the window, and only where it helps."""

    def test_a_full_window_is_cleared_and_not_compacted(self) -> None:
        """The calls of the response run, and before the next request the results before the newest three go."""
        conversation = working()

        look(conversation, FULL, 400)

        assert conversation.wanted() == [PersistToolResults, ClearResults, RequestLlm]
        assert cleared(conversation) == [True, True, True, False, False, False]
        assert (conversation.state.book.window_used, conversation.state.book.clearable) == (500, 0)
        assert conversation.rests_in(LlmRequesting).turn.cleared

    @pytest.mark.parametrize("clearable", [0, 1])
    def test_what_does_not_make_room_is_not_cleared(self, clearable: int) -> None:
        """With 901 tokens of 1,000 used, and 900 that count as full, one token less is not enough."""
        conversation = working()

        conversation.model_calls("look", usage=Usage(input_tokens=901), clearable=clearable)

        assert conversation.wanted() == [PersistMessage, PersistToolResults, CompactHistory]
        assert conversation.rests_in(Compacting)

    def test_a_full_window_is_cleared_of_whatever_makes_room(self) -> None:
        """Two tokens are enough there, because a summary would lose more."""
        conversation = working()

        look(conversation, Usage(input_tokens=901), 2)

        assert ClearResults in conversation.wanted()

    @pytest.mark.parametrize(
        ("usage", "clearable", "clears"),
        [(LARGE, 100, True), (LARGE, 99, False), (Usage(input_tokens=749), 700, False)],
    )
    def test_before_that_a_large_part_is_cleared(self, usage: Usage, clearable: int, clears: bool) -> None:
        """From 75% of the window on, if a tenth of it becomes free: each clearing changes what providers cache."""
        conversation = working()

        look(conversation, usage, clearable)

        assert (ClearResults in conversation.wanted()) == clears

    @pytest.mark.parametrize(("least", "clears"), [(0.2, True), (0.21, False)])
    def test_how_large_a_part_is_a_rule(self, least: float, clears: bool) -> None:
        """Of 1,000 tokens 200 are worth it, where a fifth is enough."""
        conversation = working(clear_results=Clearing(least=least))

        look(conversation, LARGE, 200)

        assert (ClearResults in conversation.wanted()) == clears

    def test_at_the_beginning_of_a_turn(self) -> None:
        """What the last response of a turn filled is cleared for the next one."""
        conversation = working()
        conversation.model_says("Done.", usage=FULL, clearable=400)

        conversation.says("second")

        assert conversation.wanted() == [PersistMessage, ClearResults, RequestLlm]

    def test_a_request_that_did_not_fit(self) -> None:
        """It is sent once more without the old results, also if nobody knows the window; then it is compacted for."""
        conversation = working(models=(ModelSpec(name="unknown"),))

        conversation.model_fails("context_window", clearable=5)
        assert conversation.wanted() == [ClearResults, RequestLlm]
        conversation.model_fails("context_window", clearable=5)

        assert conversation.wanted() == [CompactHistory]

    def test_under_a_rule_that_shows_the_last_minutes_only(self) -> None:
        """Such a request holds the results of its turn, and cannot be compacted."""
        conversation = Conversation(models=WINDOW, dialogue=Recent())
        conversation.says("first")
        conversation.breaks(RecallMemory)

        look(conversation, LARGE, 300)

        assert ClearResults in conversation.wanted()

    def test_never_without_the_rule(self) -> None:
        """`Policy.clear_results=None`: a full window is compacted at once, and a request that did not fit, too."""
        conversation, other = working(clear_results=None), working(clear_results=None)

        conversation.model_calls("look", usage=FULL, clearable=400)
        other.model_fails("context_window", clearable=400)

        assert conversation.rests_in(Compacting) and other.rests_in(Compacting)

    def test_what_is_compacted_need_not_be_cleared(self) -> None:
        """After a compaction the window counts as free."""
        conversation = working()
        conversation.model_calls("look", usage=Usage(input_tokens=1_000), clearable=50)
        conversation.history_is_condensed()

        assert (conversation.state.book.window_used, conversation.state.book.clearable) == (0, 0)
        assert conversation.wanted() == [RequestLlm]


class TestWhat:
    """Long results of older rounds."""

    def test_how_many_rounds_keep_their_results_is_a_rule(self) -> None:
        """One at least: the model has not seen the newest results yet."""
        conversation = working(clear_results=Clearing(rounds=1))

        look(conversation, FULL, 400)

        assert cleared(conversation) == [True] * 5 + [False]

    def test_short_results_stay(self) -> None:
        """A line in place of them would be no shorter."""
        conversation = working(0)
        for text in ("x" * 400, "x" * 401, LONG, LONG, LONG):
            conversation.model_calls("look", usage=HALF)
            conversation.tool_ends("look", text)

        look(conversation, FULL, 300)

        assert cleared(conversation) == [False, True, True, False, False, False]

    def test_the_text_stays_in_the_transcript(self) -> None:
        """Only what models are shown changes."""
        conversation = working()

        look(conversation, FULL, 400)

        assert [message.text for message in conversation.said.messages if message.role == "tool"] == [LONG] * 6
        assert conversation.said.hides_results

    def test_what_is_cleared_stays_cleared(self) -> None:
        """Also when the rules change, so that a beginning that a provider caches does not change back."""
        conversation = working()
        look(conversation, FULL, 400)
        conversation.model_says("Done.")

        conversation.happens(PolicyChanged, policy=Policy(models=WINDOW, clear_results=None))

        assert cleared(conversation) == [True, True, True, False, False, False]

    def test_a_call_whose_result_is_not_shown_may_be_made_again(self) -> None:
        """`Policy.repeats` must not refer the model to a result that it does not see."""
        conversation = working(0, repeats=Repeats(window=9))
        conversation.model_calls("look", usage=HALF)
        conversation.tool_ends("look", LONG)
        conversation.model_calls("find", usage=FULL, clearable=400)
        conversation.tool_ends("find", LONG)

        conversation.model_calls("look")

        assert ExecuteTool in conversation.wanted()
        assert conversation.rests_in(ToolExecuting)

    def test_after_a_rewind_the_window_is_that_of_the_earlier_turn(self) -> None:
        """What the request says of it is what the next request is judged by."""
        conversation = working()
        conversation.model_says("Done.", usage=HALF)
        conversation.says("second")
        conversation.model_says("Done, too.", usage=HALF)

        conversation.happens(Rewound, before=2, window_used=900, clearable=400)
        conversation.says("again")

        assert ClearResults in conversation.wanted()

    def test_another_branch_shows_what_was_not_cleared_there(self) -> None:
        """A clearing holds where it was made, and in what follows it there."""
        conversation = working(2)
        conversation.model_says("Done.", usage=HALF)
        conversation.says("second")
        for _ in range(3):
            look(conversation, HALF, 0)
        look(conversation, FULL, 400)
        conversation.model_says("Done, too.", usage=HALF)
        there = cleared(conversation)

        conversation.happens(Rewound, before=2)
        elsewhere = cleared(conversation)
        conversation.happens(BranchSwitched, turn=2, branch=conversation.state.book.branch)

        assert there == [True] * 3 + [False] * 3
        assert elsewhere == [False] * 2
        assert cleared(conversation) == there

    def test_a_turn_that_fails_has_lost_nothing(self) -> None:
        """The results of the turn can be read whole, and are shown to the next one as far as they were."""
        conversation = working(models=(ModelSpec(name="unknown"),))
        conversation.model_fails("context_window", clearable=5)

        conversation.model_fails("authentication")

        assert conversation.rests_in(Failed)
        assert cleared(conversation) == [True, True, False, False, False]
