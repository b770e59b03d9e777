"""Messages that come during a turn, as the pure machine takes them: they wait, they steer the turn, or they are
withdrawn."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise.states import (
    AgentMessage,
    Closed,
    CloseRequested,
    CompactionRequested,
    Context,
    Failed,
    Idle,
    LlmRequesting,
    MessageWithdrawn,
    PersistMessage,
    PersistToolResults,
    Recovery,
    Refused,
    RequestLlm,
    ToolExecuting,
    UserMessage,
    Waiting,
    transition,
)
from turnwise.states.transcript import Transcript
from turnwise.states.values.turn import MAX_INBOX
from turnwise.testing.strategies import NOON

from ..support.conversation import Conversation


def waiting(conversation: Conversation) -> list[str]:
    """The texts of the messages that wait, in order."""
    log = conversation.history.log
    said = {entry.seq: entry.event.text for entry in log if isinstance(entry.event, UserMessage | AgentMessage)}
    return [said[message.seq] for message in getattr(conversation.state, "inbox", ())]


def told(conversation: Conversation) -> list[tuple[str, str, int]]:
    """Who said what, in which turn."""
    return [(message.role, message.text, message.turn) for message in conversation.transcript]


def working(**rules: Any) -> Conversation:
    """A conversation in the middle of a round of two tools."""
    conversation = Conversation(**rules)
    conversation.says("Hello")
    conversation.model_calls("a", "b")
    return conversation


class TestQueued:
    """A queued message begins the next turn."""

    def test_it_waits_for_the_end_of_the_turn(self) -> None:
        """P17, D10: the step that ends the turn lets it in and begins its turn."""
        conversation = Conversation(when_busy="queue")
        conversation.says("Hello")
        conversation.says("And rain?")
        assert waiting(conversation) == ["And rain?"]

        step = conversation.model_says("Good day")

        assert step.ended is not None and step.ended.turn == 1
        assert conversation.rests_in(LlmRequesting).turn.number == 2
        assert told(conversation) == [("user", "Hello", 1), ("assistant", "Good day", 1), ("user", "And rain?", 2)]
        assert waiting(conversation) == []

    def test_the_words_of_the_machine_belong_to_the_turn_that_ended(self) -> None:
        """Results and replies that the machine writes at the end of a turn belong to that turn, not to the next."""
        conversation = working(when_busy="queue")
        conversation.says("And rain?")
        conversation.cancels()
        conversation.tool_stops("a")
        conversation.says("And wind?")
        conversation.model_says("")

        turns = [(message.role, message.turn) for message in conversation.transcript]
        assert turns == [
            ("user", 1),
            ("assistant", 1),
            ("tool", 1),
            ("tool", 1),
            ("user", 2),
            ("assistant", 2),
            ("assistant", 2),
            ("user", 3),
        ]

    def test_it_does_not_enter_between_two_requests(self) -> None:
        """Only a steered message enters the turn that is under way."""
        conversation = working(when_busy="queue")
        conversation.says("And rain?")

        conversation.tool_ends("a")
        conversation.tool_ends("b")

        assert conversation.wanted() == [PersistToolResults, RequestLlm]
        assert waiting(conversation) == ["And rain?"]

    def test_messages_that_waited_begin_one_turn_together(self) -> None:
        """P17: in the order in which they came."""
        conversation = Conversation(when_busy="queue")
        for text in ("a", "b", "c"):
            conversation.says(text)

        conversation.model_says("One")

        assert told(conversation)[2:] == [("user", "b", 2), ("user", "c", 2)]
        assert len(conversation.requests()) == 2

    def test_the_transcript_knows_which_turn_took_a_message(self) -> None:
        """After a message has entered, the transcript finds its turn by its id; before that it does not."""
        conversation = Conversation(when_busy="queue")
        conversation.says("a")
        conversation.says("b")
        so_far = list(conversation.history.log)
        conversation.model_says("One")

        before, after = Transcript(), Transcript()
        for entry in so_far:
            before.add(entry)
        for entry in conversation.history.log:
            after.add(entry)

        assert before.taken == {"request-1": 1}
        assert after.taken == {"request-1": 1, "request-2": 2}
        assert [m.message_id for m in after.messages if m.role == "user"] == ["request-1", "request-2"]


class TestSteered:
    """A steered message enters the turn that is under way, before its next request (case P37)."""

    def test_it_enters_behind_the_results(self) -> None:
        """P37: the round ends first; then the model reads the results and the message."""
        conversation = working(when_busy="steer")
        conversation.says("Only rain")

        conversation.tool_ends("a")
        assert waiting(conversation) == ["Only rain"]
        conversation.tool_ends("b")

        assert conversation.wanted() == [PersistToolResults, PersistMessage, RequestLlm]
        assert conversation.roles() == ["user", "assistant", "tool", "tool", "user"]
        assert conversation.transcript[-1].turn == 1

    def test_it_begins_the_next_turn_if_this_one_ends_first(self) -> None:
        """P37: it is never lost."""
        conversation = Conversation(when_busy="steer")
        conversation.says("Hello")
        conversation.says("Only rain")

        conversation.model_says("Good day")

        assert told(conversation)[2:] == [("user", "Only rain", 2)]

    @pytest.mark.parametrize(("policy", "wish"), [("refuse", "steer"), ("queue", "steer"), ("steer", None)])
    def test_a_message_may_wish_to_steer(self, policy: str, wish: str | None) -> None:
        """The message's own wish takes precedence over the policy."""
        conversation = working(when_busy=policy)

        conversation.happens(UserMessage, text="Only rain", when_busy=wish)

        (message,) = conversation.rests_in(ToolExecuting).inbox
        assert message.steer

    @pytest.mark.parametrize(("policy", "wish"), [("refuse", "queue"), ("steer", "queue"), ("queue", None)])
    def test_a_message_may_wish_to_wait(self, policy: str, wish: str | None) -> None:
        """The same holds for a message that wants to wait."""
        conversation = working(when_busy=policy)

        conversation.happens(UserMessage, text="And rain?", when_busy=wish)

        (message,) = conversation.rests_in(ToolExecuting).inbox
        assert not message.steer

    def test_a_message_may_wish_to_be_refused(self) -> None:
        """Its sender learns at once that the conversation is busy."""
        conversation = working(when_busy="queue")

        with pytest.raises(Refused) as refused:
            conversation.happens(UserMessage, text="Now!", when_busy="refuse")

        assert refused.value.code == "busy"


class TestRoom:
    """An inbox holds `MAX_INBOX` messages."""

    def holding(self, count: int) -> LlmRequesting:
        """A conversation in which so many messages wait."""
        state = transition(Idle(), UserMessage(event_id="0", at=NOON, text="Hello"), Context()).state
        inbox = tuple(Waiting(event_id=f"waiting-{n}", seq=n) for n in range(count))
        return state.model_copy(update={"inbox": inbox})

    def test_the_last_place_is_taken(self) -> None:
        """One less than the bound: the message is accepted."""
        message = UserMessage(event_id="1", at=NOON, text="One more", when_busy="queue")

        step = transition(self.holding(MAX_INBOX - 1), message, Context())

        assert len(step.state.inbox) == MAX_INBOX

    def test_where_there_is_no_room_a_message_is_refused(self) -> None:
        """The sender is told, and may send it again."""
        message = UserMessage(event_id="1", at=NOON, text="One more", when_busy="queue")

        with pytest.raises(Refused) as refused:
            transition(self.holding(MAX_INBOX), message, Context())

        assert refused.value.code == "busy"


class TestTakenBack:
    """A message that waits can be withdrawn, once."""

    def test_it_never_enters(self) -> None:
        """P37: the others keep their places."""
        conversation = Conversation(when_busy="queue")
        for text in ("a", "b", "c", "d"):
            conversation.says(text)

        step = conversation.happens(MessageWithdrawn, message_id="request-3")
        conversation.model_says("One")

        assert step.withdrawn == ("request-3",)
        assert [text for _, text, _ in told(conversation)] == ["a", "One", "b", "d"]

    def test_what_does_not_wait_cannot_be_taken_back(self) -> None:
        """It has entered already, or was never sent."""
        conversation = Conversation(when_busy="queue")
        conversation.says("a")
        conversation.says("b")

        with pytest.raises(Refused) as refused:
            conversation.happens(MessageWithdrawn, message_id="request-1")

        assert refused.value.code == "not_waiting"
        assert waiting(conversation) == ["b"]

    def test_a_step_that_takes_nothing_back_says_so(self) -> None:
        """Whoever waits for a message need not ask why it was withdrawn."""
        conversation = Conversation(when_busy="queue")

        steps = [conversation.says("a"), conversation.says("b"), conversation.model_says("One")]

        assert [step.withdrawn for step in steps] == [(), (), ()]

    def test_a_close_takes_back_all_that_waits(self) -> None:
        """The step names the messages that will never be answered."""
        conversation = working(when_busy="queue")
        conversation.says("And rain?")
        conversation.says("And wind?")
        conversation.closes()

        step = conversation.tool_stops("a")

        conversation.rests_in(Closed)
        assert step.withdrawn == ("request-3", "request-4")


class TestAfterAFailure:
    """A message that waits when a turn fails begins the next one, as a message that comes a moment later does."""

    def test_it_begins_the_next_turn(self) -> None:
        """Law 13: nobody has to do anything for it; the failed turn has its own end."""
        conversation = Conversation(when_busy="queue")
        conversation.says("Hello")
        conversation.says("And rain?")
        conversation.model_fails("authentication")

        assert conversation.ended.status == "failed"
        assert conversation.rests_in(LlmRequesting).turn.number == 2
        assert told(conversation) == [("user", "Hello", 1), ("user", "And rain?", 2)]

    def test_messages_of_people_begin_it_together_and_those_of_agents_one_by_one(self) -> None:
        """Each of them is answered or fails by itself, so this ends."""
        conversation = Conversation(when_busy="queue")
        conversation.says("Hello")
        conversation.says("And rain?")
        conversation.says("And wind?")
        conversation.agent_says("It rains.")
        conversation.model_fails("authentication")
        assert waiting(conversation) == ["It rains."]
        conversation.model_fails("authentication")
        conversation.model_fails("authentication")

        assert conversation.rests_in(Failed).turn == 3
        assert [text for _, text, _ in told(conversation)] == ["Hello", "And rain?", "And wind?", "It rains."]

    def test_a_silent_message_begins_none(self) -> None:
        """It enters the transcript, and the failed turn can be tried again."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.agent_says("It rains.", silent=True)
        conversation.model_fails("authentication")

        assert conversation.rests_in(Failed).inbox == ()
        assert [text for _, text, _ in told(conversation)] == ["Hello", "It rains."]

    def test_one_that_comes_while_a_failed_conversation_is_condensed(self) -> None:
        """It begins a turn when that is done, and does not wait for somebody to try the failed one again."""
        conversation = Conversation(when_busy="queue")
        conversation.says("Hello")
        conversation.model_fails("authentication")
        conversation.happens(CompactionRequested)
        conversation.says("And rain?")
        conversation.history_is_condensed("Nothing was said.")

        assert conversation.rests_in(LlmRequesting).turn.number == 2

    def test_after_a_crash_loop(self) -> None:
        """A process that died too often ends its turn only."""
        conversation = Conversation(when_busy="queue", recovery=Recovery(resumes=0))
        conversation.says("Hello")
        conversation.says("And rain?")
        conversation.resumes()

        assert conversation.ended.status == "failed"
        assert conversation.rests_in(LlmRequesting).turn.number == 2


class TestAfterAnImport:
    """A conversation that is imported with a turn under way fails there, and the message that waits still waits."""

    def failed(self) -> Conversation:
        """A conversation that was imported while a message waited."""
        conversation = Conversation(when_busy="queue")
        conversation.says("Hello")
        conversation.says("And rain?")
        conversation.is_imported()
        return conversation

    def test_it_is_neither_lost_nor_answered(self) -> None:
        """Law 13: it is still in the inbox."""
        conversation = self.failed()

        assert [message.event_id for message in conversation.rests_in(Failed).inbox] == ["request-2"]
        assert told(conversation) == [("user", "Hello", 1)]

    def test_a_message_takes_it_along(self) -> None:
        """The next message begins a turn with both, in the order in which they came."""
        conversation = self.failed()

        conversation.says("And wind?")

        assert told(conversation)[1:] == [("user", "And rain?", 2), ("user", "And wind?", 2)]

    def test_a_retry_leaves_it_waiting(self) -> None:
        """The failed turn is retried as it was; the message begins the turn after it."""
        conversation = self.failed()
        conversation.tries_again()
        assert waiting(conversation) == ["And rain?"]

        conversation.model_says("Good day")

        assert told(conversation)[1:] == [("assistant", "Good day", 2), ("user", "And rain?", 3)]

    def test_it_can_be_taken_back(self) -> None:
        """The conversation stays failed."""
        conversation = self.failed()

        conversation.happens(MessageWithdrawn, message_id="request-2")

        assert conversation.rests_in(Failed).inbox == ()

    def test_a_close_takes_it_back(self) -> None:
        """The step names it."""
        conversation = self.failed()

        assert conversation.happens(CloseRequested).withdrawn == ("request-2",)
