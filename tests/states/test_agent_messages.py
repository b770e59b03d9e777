"""Messages of other agents in pure form: for the user, for the agent, silent ones. No engine, no store."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.request import build_request
from turnwise.states import (
    AgentMail,
    AgentMessage,
    Cancelling,
    Closed,
    CompactHistory,
    Compacting,
    CompactionRequested,
    DeliverToUser,
    Effect,
    Empty,
    ExecuteTool,
    Failed,
    Heard,
    Idle,
    Limits,
    LlmRequesting,
    MemoryRecalling,
    ModelSpec,
    NotifyParent,
    PersistMessage,
    PersistToolResults,
    Policy,
    RecallMemory,
    Recovery,
    Refused,
    RequestLlm,
    RetryRequested,
    SelectProfile,
    Speech,
    StartTimer,
    State,
    SubAgents,
    Summarizing,
    Texts,
    ToolComplete,
    ToolExecuting,
    ToolResult,
    Usage,
    UserMessage,
)
from turnwise.states.dialogue import said_texts
from turnwise.states.presets import assistant, background, foreground, reply_flow, sub_agent, talk
from turnwise.states.states import Busy, InTurn
from turnwise.states.values.messages import write_message_for_user
from turnwise.states.values.turn import MAX_INBOX
from turnwise.testing.history import Observation

from ..support.cases import holds_for
from ..support.conversation import call, mailing, responding, talking
from ..support.scenarios.agents_and_flows import BUILDER, BUSY, COOK, GUIDE, Flow, busy_in, sent, stopped
from ..support.servers.openai_server import violations

TEXTS = Texts()
DONE = "The build is done."


def answering(**rules: Any) -> Flow:
    """A foreground agent in the middle of answering its user."""
    flow = Flow(foreground(), **rules)
    flow.says("Hello")
    return flow


def relaying(**rules: Any) -> Flow:
    """A foreground agent that was given a message for its user, in its first request."""
    flow = Flow(foreground(), **rules)
    flow.hears(DONE)
    flow.goes_on()
    return flow


def waiting(flow: Flow) -> list[str]:
    """The texts that wait, in order."""
    told = {entry.seq: entry.event.texts for entry in flow.history.log}
    return [told[one.seq][0] for one in getattr(flow.state, "inbox", ())]


def taken(flow: Flow) -> list[Observation]:
    """All steps that events led to so far."""
    return [observation for observation in flow.history.observations if observation.step is not None]


def is_entry(effect: Effect) -> bool:
    """Whether a message of a person or of another agent may enter the transcript by this event."""
    return isinstance(effect, PersistMessage) and isinstance(effect.said, Heard)


def kind_of(flow: Flow, seq: int) -> str:
    """Whether the message of this step wakes the agent as one for the user or as one for the agent; None for a silent
    message, and for a step without one."""
    event = next(entry.event for entry in flow.history.log if entry.seq == seq)
    if isinstance(event, AgentMessage):
        return "" if event.silent else "agent"
    return "person" if isinstance(event, UserMessage) else ""


class TestAMessageForTheUser:
    """D1: it begins a turn of its own, at once or after the one under way."""

    def test_at_rest_one_inference_starts(self) -> None:
        """D1, D6: foreground idle → one inference starts, and it sees the message once."""
        flow = Flow(foreground())

        flow.hears(DONE)

        flow.rests_in(LlmRequesting)
        assert flow.wanted() == [PersistMessage, RequestLlm]
        assert sent(flow) == [write_message_for_user(DONE, BUILDER)]

    def test_while_busy_it_waits_and_then_begins_the_next_turn(self) -> None:
        """D1: busy → right after the current turn."""
        flow = answering()
        flow.hears(DONE)
        assert waiting(flow) == [DONE]
        assert flow.wanted() == []

        flow.model_says("Hello!")

        assert flow.ended.turn == 1
        assert flow.rests_in(LlmRequesting).turn.number == 2
        assert sent(flow) == ["Hello", "Hello!", write_message_for_user(DONE, BUILDER)]

    def test_messages_are_kept_in_order_with_one_inference_each(self) -> None:
        """D1, D10: order kept; agent messages never merge."""
        flow = answering()
        for text in ("one", "two", "three"):
            flow.hears(text)

        turns = []
        while not isinstance(flow.state, Idle):
            flow.model_says("Fine.")
            turns.append(flow.transcript[-1].text)

        assert turns == ["one", "two", "three", "Fine."]
        assert len(flow.requests()) == 4

    @holds_for("kind", BUSY)
    def test_it_waits_in_every_busy_state(self, kind: type[State]) -> None:
        """D1: whatever is under way, the message waits, and enters once when that is over."""
        flow = busy_in(kind)

        flow.hears(DONE)
        assert waiting(flow) == [DONE]
        stopped(flow)
        flow.goes_on()

        assert flow.entered(DONE) == 1
        assert waiting(flow) == []
        assert isinstance(flow.state, InTurn | Compacting)
        assert flow.state.turn is not None and len(flow.state.turn.relay) == 1

    def test_it_waits_where_a_person_is_refused(self) -> None:
        """D1: another agent cannot try again by hand, so `when_busy` is a rule about people only."""
        flow = Flow(assistant())
        flow.says("Hello")

        flow.hears(DONE)

        assert waiting(flow) == [DONE]


class TestPeopleAndAgents:
    """D10: messages of people merge into one turn; messages of agents never merge, neither with each other nor with
    those of people."""

    def test_two_messages_of_people_become_one_turn(self) -> None:
        """D10: one turn; both stand in it."""
        flow = answering()
        flow.says("one")
        flow.says("two")

        flow.model_says("Hello!")
        flow.model_says("To both.")

        flow.rests_in(Idle)
        assert flow.ended.turn == 2
        assert [message.turn for message in flow.transcript if message.text in ("one", "two")] == [2, 2]

    @holds_for(
        ("came", "turns"),
        [
            ("ppa", ["pp", "a"]),
            ("app", ["a", "pp"]),
            ("pap", ["p", "a", "p"]),
            ("aapa", ["a", "a", "p", "a"]),
            ("uau", ["u", "a", "u"]),
            ("psp", ["psp"]),
            ("spa", ["sp", "a"]),
            ("aps", ["as", "p"]),
        ],
    )
    def test_who_came_with_whom(self, came: str, turns: list[str]) -> None:
        """D10: which of the messages that wait begin a turn together. `p` is a person's message, `a` and `u` are an
        agent's (for the agent, for the user), `s` is a silent one. A silent message enters before the next request,
        whatever waits before it."""
        flow = answering()
        say = {
            "p": lambda text: flow.says(text),
            "a": lambda text: flow.agent_says(text),
            "u": lambda text: flow.hears(text),
            "s": lambda text: flow.agent_says(text, silent=True),
        }
        for place, kind in enumerate(came):
            say[kind](f"{kind}{place}")

        while not isinstance(flow.state, Idle):
            flow.model_says("Fine.")

        together: dict[int, str] = {}
        for message in flow.transcript[1:]:
            if message.role == "user":
                together[message.turn] = together.get(message.turn, "") + message.text[0]
        assert list(together.values()) == turns

    def test_a_steered_message_that_came_too_late_does_not_join_an_agents(self) -> None:
        """D10: the turn that it was meant for is over, so it begins a turn of its own, after the agent's message that
        came first."""
        flow = answering()
        flow.hears(DONE)
        flow.says("And be quick", when_busy="steer")

        flow.model_says("Hello!")
        assert sent(flow)[-1] == write_message_for_user(DONE, BUILDER)
        flow.model_says("The build is done!")

        assert sent(flow)[-1] == "And be quick"
        assert flow.rests_in(LlmRequesting).turn.number == 3

    def test_a_steered_message_enters_the_turn_that_it_was_meant_for(self) -> None:
        """P37: also if an agent's message began that turn."""
        flow = relaying()
        flow.model_calls("look")
        flow.says("And be quick", when_busy="steer")

        flow.tool_ends("look")

        assert sent(flow)[-1] == "And be quick"
        assert flow.rests_in(LlmRequesting).turn.number == 1

    def test_a_steered_message_is_taken_back_among_those_of_agents(self) -> None:
        """P37: a message that is withdrawn before the next request never enters; the others keep their places."""
        flow = answering()
        flow.model_calls("look")
        flow.hears("one")
        flow.says("And be quick", when_busy="steer", event_id="steered")
        flow.agent_says("two", silent=True)

        flow.withdraws("steered")
        assert flow.step.withdrawn == ("steered",)
        assert waiting(flow) == ["one", "two"]
        flow.tool_ends("look")

        assert flow.entered("And be quick") == 0
        assert flow.entered("two") == 1
        assert waiting(flow) == ["one"]

    def test_once_it_has_entered_a_steered_message_stays(self) -> None:
        """P37: withdrawing it is refused with `not_waiting`."""
        flow = answering()
        flow.model_calls("look")
        flow.says("And be quick", when_busy="steer", event_id="steered")
        flow.tool_ends("look")

        with pytest.raises(Refused) as refused:
            flow.withdraws("steered")

        assert refused.value.code == "not_waiting"

    def test_a_message_that_waits_since_a_failure_may_be_taken_back(self) -> None:
        """P37: in Failed, a message that waits in an imported conversation can be withdrawn, a steered one too."""
        flow = answering(models=(ModelSpec(name="m"),))
        flow.says("And be quick", when_busy="steer", event_id="steered")
        flow.is_imported()
        flow.rests_in(Failed)

        flow.withdraws("steered")
        flow.tries_again()

        assert flow.entered("And be quick") == 0

    def test_a_message_that_waits_since_a_failure_is_steered_into_the_retry(self) -> None:
        """P37: a retry continues the same work, so in an imported conversation a steered message enters its turn."""
        flow = answering()
        flow.says("And be quick", when_busy="steer")
        flow.is_imported()

        flow.tries_again()

        assert sent(flow) == ["Hello", "And be quick"]

    @pytest.mark.slow
    def test_a_full_inbox_takes_nobody(self) -> None:
        """When a hundred messages wait, the next is refused, whoever sends it, and those that wait are kept."""
        flow = answering()
        for number in range(MAX_INBOX):
            flow.agent_says(f"note {number}", silent=bool(number % 2))

        codes = []
        for attempt in (lambda: flow.says("one"), lambda: flow.hears("two"), lambda: flow.agent_says("3", silent=True)):
            with pytest.raises(Refused) as refused:
                attempt()
            codes.append(refused.value.code)

        assert codes == ["busy"] * 3
        assert len(waiting(flow)) == MAX_INBOX

    @pytest.mark.slow
    def test_a_full_inbox_empties_turn_by_turn(self) -> None:
        """Of a hundred agents' messages the silent ones enter together, and each of the others gets a turn."""
        flow = answering()
        for number in range(MAX_INBOX):
            flow.agent_says(f"note {number}", silent=bool(number % 2))

        while not isinstance(flow.state, Idle):
            flow.model_says("Fine.")

        assert len(flow.requests()) == 1 + MAX_INBOX // 2
        assert all(flow.entered(f"note {number}") == 1 for number in range(MAX_INBOX))


class TestSilentMessages:
    """D6: a silent message starts no turn, and enters the transcript exactly once."""

    def test_at_rest_the_history_grows_and_nothing_starts(self) -> None:
        """D6: a silent message → history grows, no inference; the next turn sees it once."""
        flow = Flow(foreground())
        flow.agent_says(DONE, silent=True)
        flow.rests_in(Idle)
        assert flow.wanted() == [PersistMessage]

        flow.says("Hello")
        flow.model_says("Hello!")
        flow.says("And?")

        assert flow.entered(DONE) == 1
        assert [text for text in sent(flow) if DONE in text] == [sent(flow)[0]]

    @holds_for("kind", BUSY)
    def test_in_every_busy_state_it_waits_and_enters_once(self, kind: type[State]) -> None:
        """D6: whatever the conversation does when the message comes, and however that ends."""
        flow = busy_in(kind)

        flow.agent_says(DONE, silent=True)
        assert flow.entered(DONE) == 0
        assert flow.wanted() == []
        stopped(flow)

        flow.rests_in(Idle)
        assert flow.entered(DONE) == 1
        flow.begins("And?")
        assert flow.entered(DONE) == 1

    def test_during_a_turn_it_enters_before_the_next_request(self) -> None:
        """D6: it follows the tools' results, so that the history stays valid."""
        flow = answering()
        flow.model_calls("look")

        flow.agent_says(DONE, silent=True)
        flow.tool_ends("look")

        assert flow.wanted() == [PersistToolResults, PersistMessage, RequestLlm]
        assert flow.roles() == ["user", "assistant", "tool", "user"]

    def test_where_no_request_follows_it_enters_at_rest(self) -> None:
        """D6: it enters when the turn has ended, and starts no turn."""
        flow = answering()
        flow.agent_says(DONE, silent=True)

        flow.model_says("Hello!")

        flow.rests_in(Idle)
        assert flow.entered(DONE) == 1
        assert len(flow.requests()) == 1

    def test_a_failed_request_that_is_made_again_does_not_let_it_in_twice(self) -> None:
        """D6: a retry sends the same request; a message that came in the meantime waits for the next request."""
        flow = answering()
        flow.model_fails()
        flow.agent_says(DONE, silent=True)

        flow.timer_rings()
        assert flow.entered(DONE) == 0
        flow.model_says("Hello!")

        assert flow.entered(DONE) == 1

    def test_where_a_turn_failed_it_enters_at_once(self) -> None:
        """D6: Failed is a state of rest, so the message enters; it does not retry the turn."""
        flow = answering()
        flow.model_fails("authentication")

        flow.agent_says(DONE, silent=True)

        flow.rests_in(Failed)
        assert flow.entered(DONE) == 1

    def test_silent_messages_keep_their_order_through_a_failure(self) -> None:
        """D6: a message that came during the turn precedes one that came after the failure."""
        flow = answering()
        flow.agent_says("first", silent=True)
        flow.model_fails("authentication")

        flow.agent_says("second", silent=True)
        flow.tries_again()

        assert [message.text for message in flow.transcript] == ["Hello", "first", "second"]

    def test_a_turn_that_waits_may_follow_a_silent_message(self) -> None:
        """D6: silent messages that wait enter with the turn that a person's message begins."""
        flow = answering()
        flow.agent_says(DONE, silent=True)
        flow.says("And?")

        flow.model_says("Hello!")

        assert [message.text for message in flow.transcript[-2:]] == [DONE, "And?"]
        assert flow.rests_in(LlmRequesting).turn.number == 2

    def test_a_silent_message_for_the_user_asks_for_no_relay(self) -> None:
        """D6, D7: it starts no turn, so no turn has to relay it; the next turn reads it."""
        flow = Flow(foreground())
        flow.hears(DONE, silent=True)
        flow.says("Hello")

        flow.model_says("Hello!")

        assert flow.delivered() == ["Hello!"]

    def test_a_silent_message_for_the_user_that_waited_asks_for_no_relay_either(self) -> None:
        """D6, D7: it enters with the turn that a person's message begins, and that turn is the person's."""
        flow = answering()
        flow.hears(DONE, silent=True)
        flow.says("And?")
        flow.model_says("Hello!")

        flow.model_says("")

        assert flow.entered(DONE) == 1
        assert flow.delivered() == ["Hello!", TEXTS.ending]

    def test_when_the_conversation_closes_it_is_withdrawn(self) -> None:
        """D14: the step tells the sender that the message was not read."""
        flow = answering()
        flow.agent_says(DONE, silent=True, event_id="note")

        flow.closes()

        flow.rests_in(Closed)
        assert flow.step.withdrawn == ("note",)
        assert flow.entered(DONE) == 0
        (notice,) = flow.mail()
        assert (notice.target, notice.silent, notice.returned) == ("researcher", True, True)
        assert flow.history.log[notice.said.seq - 1].event.texts == (DONE,)

    def test_the_message_of_a_user_is_withdrawn_without_a_notice(self) -> None:
        """D14: only agents are told; so is nobody whose message was read."""
        flow = answering()
        flow.says("One more thing", when_busy="queue")

        flow.closes()

        flow.rests_in(Closed)
        assert flow.mail() == []


class TestRelay:
    """D7: a message that an agent has for the user reaches the user."""

    def test_the_agent_tells_it_in_its_own_words(self) -> None:
        """D7: the text of the turn is delivered, and nothing else."""
        flow = relaying()

        flow.model_says("Your build is ready!")

        assert flow.delivered() == ["Your build is ready!"]
        assert [one.relayed for one in flow.ended.deliveries] == [False]

    def test_a_turn_that_delivers_nothing_is_reminded_once(self) -> None:
        """D7: if its turn delivers nothing → one nudge."""
        flow = relaying()

        flow.model_says("")

        assert flow.nudge() == TEXTS.relay
        flow.model_says("Your build is ready!")
        assert flow.delivered() == ["Your build is ready!"]

    def test_reminded_in_vain_it_delivers_the_text_itself(self) -> None:
        """D7: if the reminder has no effect, the message itself is delivered and recorded, without an error reply
        beside it."""
        flow = relaying()
        flow.model_says("")

        flow.model_says("")

        flow.rests_in(Idle)
        assert flow.delivered() == [DONE]
        (delivered,) = flow.ended.deliveries
        (effect,) = (one for one in flow.step.effects if isinstance(one, DeliverToUser))
        assert (delivered.relayed, effect.relayed, effect.ordinal) == (True, True, 1)
        assert (flow.ended.silent, len(flow.requests())) == (False, 2)

    def test_text_that_is_only_a_thought_delivers_nothing(self) -> None:
        """D7: under the preset `talk` the agent must use a tool to say it."""
        flow = relaying(**dict(talk()))

        flow.model_says("I will tell them.")
        assert flow.nudge() == TEXTS.relay
        flow.model_says("I told them.")

        assert flow.delivered() == [DONE]

    def test_what_is_said_by_tool_counts(self) -> None:
        """D7: a speech that is delivered at once relays the message."""
        flow = relaying(**dict(talk()))
        flow.model_calls(talking())
        flow.tool_talks("talk", "Your build is ready!")

        flow.model_says("I told them.")

        assert flow.delivered() == ["Your build is ready!"]
        assert flow.requests()[-1].nudge is None

    def test_what_is_said_by_tool_for_the_end_counts(self) -> None:
        """D7: so does a speech that is delivered when the turn ends."""
        flow = relaying(text="fallback")
        flow.model_calls(responding())
        flow.tool_responds("respond", "Your build is ready!")

        flow.model_says("I told them.")

        assert flow.delivered() == ["Your build is ready!"]

    def test_with_words_of_its_own_nothing_need_be_passed_on(self) -> None:
        """D7: if the turn ends without a text, speeches that wait for its end tell the user enough: neither the message
        nor an error reply is delivered beside them."""
        flow = relaying(nudges=0)
        flow.model_calls(responding())
        flow.tool_responds("respond", "Your build is ready!")

        for _ in range(2):  # after results it is asked once more
            flow.model_says("")

        flow.rests_in(Idle)
        assert flow.delivered() == ["Your build is ready!"]

    def test_left_to_the_prompt_nothing_is_relayed(self) -> None:
        """D7: under the policy `prompt_only`, as in the seed. Nobody asked anything, so a model that says nothing is
        not answered for."""
        for thoughts in ([""], ["Hm.", ""], ["Hm.", "Hm."]):
            flow = relaying(relay="prompt_only", empty=Empty(until_limit=True))

            for thinking in thoughts:
                flow.model_says("", thinking=thinking)

            flow.rests_in(Idle)
            assert flow.delivered() == []
            assert len(flow.requests()) == len(thoughts)

    def test_left_to_the_prompt_a_person_who_steers_is_answered(self) -> None:
        """D7: whoever says something waits for an answer, also in a turn that a message began."""
        flow = relaying(relay="prompt_only")
        flow.says("Well?", when_busy="steer")
        flow.model_calls("look")
        flow.tool_ends("look")

        flow.model_says("")
        flow.model_says("")

        assert flow.delivered() == [TEXTS.ending]

    def test_without_reminders_the_text_is_delivered_at_once(self) -> None:
        """D7: a host that disables nudges still wants the message to arrive."""
        flow = relaying(nudges=0)

        flow.model_says("")

        assert flow.delivered() == [DONE]
        assert len(flow.requests()) == 1

    def test_at_the_limit_the_text_is_delivered_too(self) -> None:
        """D7: the sentence about the limit does not say what the message says."""
        flow = relaying(limits=Limits(requests=1, last="plain"))

        flow.model_calls("look")

        assert flow.delivered() == [TEXTS.limit, DONE]
        assert [one.relayed for one in flow.ended.deliveries] == [False, True]

    def test_after_an_error_reply_the_text_is_delivered_too(self) -> None:
        """D7: the same holds where a failure ends in a reply."""
        flow = relaying(on_failure="reply")

        flow.model_fails("authentication")

        assert flow.delivered() == [f"{TEXTS.error} The model is not well.", DONE]

    def test_an_internal_message_may_be_answered_with_nothing(self) -> None:
        """D8: it is not for the user, so nothing must be delivered."""
        flow = Flow(foreground(), texts=Texts(ending=""))
        flow.agent_says(DONE)

        flow.model_says("")

        flow.rests_in(Idle)
        assert flow.delivered() == []
        assert (flow.ended.silent, len(flow.requests())) == (True, 1)

    def test_a_cancelled_relay_is_owed_to_the_next_turn(self) -> None:
        """D7, S8: a person stopped it, so nothing is delivered then. The next turn is reminded of the message in each
        request until it says something, and delivers it if it says nothing."""
        flow = relaying()

        flow.cancels()

        assert [one.origin for one in flow.rests_in(Idle).book.owed] == [BUILDER]
        assert flow.delivered() == []
        wrapped = write_message_for_user(DONE, BUILDER)
        reminder = f"{TEXTS.overdue}\n\n{wrapped}"
        flow.says("What was that?")
        assert sent(flow) == [wrapped, "What was that?", reminder]
        flow.model_calls("look")
        flow.tool_ends("look")
        assert sent(flow)[-1] == reminder
        while not isinstance(flow.state, Idle):
            flow.model_says("")
        assert flow.delivered() == [DONE]
        assert flow.state.book.owed == ()

    def test_a_turn_that_speaks_has_done_its_duty(self) -> None:
        """D7: the words of the agent are taken for the message, as in the turn that it began."""
        flow = relaying()
        flow.cancels()
        flow.says("What was that?")

        flow.model_says("Your build is done.")

        assert flow.delivered() == ["Your build is done."]
        assert flow.rests_in(Idle).book.owed == ()

    def test_it_is_owed_however_often_a_turn_is_cancelled_or_fails(self) -> None:
        """D7: in every state, until a turn has done it; whoever begins that turn."""
        flow = relaying()
        for begin in (flow.says, lambda: flow.agent_says("It rains."), flow.hears):
            flow.cancels()
            begin()
            flow.goes_on()
        flow.model_fails("authentication")
        assert len(flow.rests_in(Failed).book.owed) == 2
        flow.says("Hello?")

        flow.model_says("")
        flow.model_says("")

        assert flow.delivered() == [DONE, DONE]

    def test_a_message_said_before_a_cancel_does_not_do_the_duty(self) -> None:
        """D7, B8: what was said by then may be anything, so the next turn passes the message on."""
        flow = relaying(**dict(talk()))
        flow.model_calls(talking())
        flow.tool_talks("talk", "One moment.")

        flow.cancels()

        assert len(flow.rests_in(Idle).book.owed) == 1

    def test_an_error_reply_beside_words_of_the_agent_leaves_it_owed(self) -> None:
        """D7: the turn failed behind a word of the agent, so the message is not passed on with the error, and is not
        lost either."""
        flow = relaying(**{**dict(talk()), "on_failure": "reply"})
        flow.model_calls(talking())
        flow.tool_talks("talk", "One moment.")

        flow.model_fails("authentication")

        assert len(flow.rests_in(Idle).book.owed) == 1

    def test_a_prompt_only_relay_that_fails_is_owed_too(self) -> None:
        """D7: the prompt was not answered, so the next turn is prompted again; a turn that completes ends the duty."""
        flow = relaying(relay="prompt_only", on_failure="reply")
        flow.model_fails("authentication")
        assert len(flow.rests_in(Idle).book.owed) == 1
        flow.says("Hello")

        assert sent(flow)[-1] == f"{TEXTS.overdue}\n\n{write_message_for_user(DONE, BUILDER)}"
        flow.model_says("Hello. Your build is done.")

        assert flow.rests_in(Idle).book.owed == ()

    def test_a_duty_lapses_and_its_sender_is_told(self) -> None:
        """D7, D14: after `Policy.relay_deadline` seconds the next turn no longer passes it on."""
        flow = relaying(relay_deadline=60)
        flow.cancels()
        flow.now += timedelta(seconds=61)

        flow.says("Hello")

        assert sent(flow)[-1] == "Hello"
        assert flow.rests_in(LlmRequesting).book.owed == ()
        (notice,) = flow.mail()
        assert (notice.target, notice.returned, notice.silent) == (BUILDER, True, True)

    def test_a_clock_that_was_set_back_lets_nothing_lapse(self) -> None:
        """D7: a moment that seems to lie ahead is not older than the deadline."""
        flow = relaying(relay_deadline=60)
        flow.cancels()
        flow.now -= timedelta(days=365)

        flow.says("Hello")

        assert len(flow.rests_in(LlmRequesting).book.owed) == 1

    def test_after_a_clock_was_set_back_it_lapses_in_time(self) -> None:
        """D7: the deadline is counted from the moment at which the clock was right again."""
        flow = relaying(relay_deadline=60)
        flow.now += timedelta(days=3_652)
        flow.cancels()
        flow.now -= timedelta(days=3_653)
        flow.says("Hello")
        flow.cancels()
        flow.now += timedelta(seconds=61)

        flow.says("Again")

        assert flow.rests_in(LlmRequesting).book.owed == ()

    def test_a_close_tells_the_sender(self) -> None:
        """D14: nobody will pass the message on any more, whether its turn runs or is over."""
        for prepare in (lambda flow: None, Flow.cancels):
            flow = relaying()
            prepare(flow)

            flow.closes()

            assert [(one.target, one.returned) for one in flow.mail()] == [(BUILDER, True)]

    def test_the_model_reads_it_although_the_history_was_condensed(self) -> None:
        """D7, P21: the reminder holds the message, whatever the request holds of the past."""
        flow = relaying()
        flow.cancels()
        flow.happens(CompactionRequested)
        flow.history_is_condensed("Nothing was said.")

        flow.says("Hello")

        assert sent(flow)[-1].endswith(write_message_for_user(DONE, BUILDER))

    def test_a_relay_cancelled_while_tools_run_delivers_nothing(self) -> None:
        """D7, S8: also when the tools acknowledge the cancel later."""
        flow = relaying()
        flow.model_calls("look")

        stopped(flow)

        flow.rests_in(Idle)
        assert flow.delivered() == []

    def test_a_relay_waits_through_failure_and_retry(self) -> None:
        """D7: a turn that failed delivered nothing, so its retry must relay the message."""
        flow = relaying()
        for _ in range(2):
            flow.model_fails("authentication")
            assert flow.delivered() == []
            assert len(flow.rests_in(Failed).book.owed) == 1
            flow.tries_again()

        flow.model_says("")
        assert flow.nudge() == TEXTS.relay
        flow.model_says("")

        assert flow.delivered() == [DONE]

    def test_a_relay_that_failed_is_taken_over_by_the_next_turn(self) -> None:
        """D7: whatever begins the next turn, it relays both messages if neither was delivered."""
        flow = relaying()
        flow.model_fails("authentication")

        flow.hears("And it was tested.")
        flow.model_says("")
        flow.model_says("")

        assert flow.delivered() == [DONE, "And it was tested."]

    def test_a_person_who_speaks_after_a_failed_relay_hears_of_it(self) -> None:
        """D7: the turn of the person's message must relay it."""
        flow = relaying()
        flow.model_fails("authentication")
        flow.says("Hello?")
        assert sent(flow)[:2] == [write_message_for_user(DONE, BUILDER), "Hello?"]

        flow.model_says("")
        flow.model_says("")

        assert flow.delivered() == [DONE]

    def test_a_relay_that_was_told_is_not_owed_after_the_next_failure(self) -> None:
        """D7: each message is relayed once."""
        flow = relaying()
        flow.model_fails("authentication")
        flow.tries_again()
        flow.model_says("Your build is ready!")

        flow.says("Thanks")
        flow.model_fails("authentication")

        assert flow.rests_in(Failed).book.owed == ()

    def test_a_process_that_dies_too_often_leaves_the_relay_to_the_retry(self) -> None:
        """D7, D9: the state holds what must be relayed, not a process."""
        flow = relaying(recovery=Recovery(resumes=0))

        flow.resumes()
        flow.rests_in(Failed)
        flow.tries_again()
        flow.model_says("")
        flow.model_says("")

        assert flow.delivered() == [DONE]

    def test_a_relay_waits_while_the_history_is_condensed(self) -> None:
        """D7, P21: compaction keeps the message, and the turn still has to relay it."""
        flow = relaying(models=(ModelSpec(name="m", window=100),))
        flow.model_calls("look", usage=Usage(input_tokens=100))
        assert CompactHistory in flow.wanted()

        flow.history_is_condensed("Nothing was said.")
        assert write_message_for_user(DONE, BUILDER) in sent(flow)
        flow.model_says("")
        flow.model_says("")

        assert flow.delivered() == [DONE]

    def test_a_relay_whose_profile_cannot_be_chosen_goes_on(self) -> None:
        """J2, D7: a turn whose router failed still relays the message, unless it is cancelled."""
        flow = Flow(reply_flow(), profiles=(COOK, GUIDE), when_busy="queue")
        flow.hears(DONE)
        flow.breaks(SelectProfile)
        flow.rests_in(MemoryRecalling)

        flow.cancels()

        flow.rests_in(Idle)
        assert flow.delivered() == []

    def test_a_relay_is_summarized_after_it_was_delivered(self) -> None:
        """S12: the summary is for display."""
        flow = relaying(summarize=True)

        flow.model_says("Your build is ready!")

        flow.rests_in(Summarizing)
        assert flow.delivered() == ["Your build is ready!"]

    def test_a_claim_of_completed_work_with_nothing_said_is_asked_about_first(self) -> None:
        """S17, D7: the agent is reminded; what it still does not say is relayed."""
        flow = relaying(text="thought", ends_on="work_complete")
        flow.model_calls(call("complete", acts=("work_complete",)))
        flow.tool_claims()
        assert flow.nudge() == TEXTS.answer_missing

        flow.model_says("All done.")

        assert flow.delivered() == [DONE]


class TestAgentsWithoutAUser:
    """D12: the text of an agent without a user reaches no user."""

    @holds_for("rules", [background(), assistant(), reply_flow(), sub_agent()])
    @holds_for("role", ["background", "sub_agent"])
    @holds_for("end", ["text", "empty", "limit", "failure"])
    def test_no_end_of_a_turn_delivers_anything(self, rules: Any, role: str, end: str) -> None:
        """D12: whatever rules a host set, and however the turn ends."""
        remembers_nothing: dict[str, Any] = {"recall": False, "dialogue": "transcript", "documents": False}
        flow = Flow(rules, role=role, limits=Limits(requests=1, last="plain"), **remembers_nothing)
        flow.agent_says("Build it.")

        match end:
            case "text":
                flow.model_says(DONE)
            case "empty":
                flow.model_says("")
            case "limit":
                flow.model_calls("look")
            case "failure":
                flow.model_fails("authentication")

        assert isinstance(flow.state, Closed if role == "sub_agent" else Idle | Failed)
        assert flow.delivered() == []
        assert flow.ended.silent

    def test_a_message_for_the_user_that_comes_to_one_is_no_relay(self) -> None:
        """D12: such an agent has no user to pass it on to."""
        flow = Flow(background(), role="background")
        flow.hears(DONE)

        flow.model_says("")

        flow.rests_in(Idle)
        assert flow.delivered() == []

    def test_a_background_agents_text_is_still_the_content_of_its_turn(self) -> None:
        """D12: so that whoever looks at the turn can read it."""
        flow = Flow(background(), role="background")
        flow.agent_says("Build it.")

        flow.model_says(DONE)

        assert flow.words(flow.ended.final_content) == [DONE]

    @pytest.mark.parametrize(
        ("ends", "status", "said"),
        [
            (lambda flow: flow.model_says(DONE), "completed", [DONE]),
            (lambda flow: flow.model_says(""), "failed", [TEXTS.ending]),
            (lambda flow: flow.model_fails("authentication"), "failed", [f"{TEXTS.error} The model is not well."]),
            (lambda flow: flow.cancels(), "cancelled", []),
        ],
    )
    def test_a_sub_agent_tells_its_parent_how_it_ended(self, ends: Any, status: str, said: list[str]) -> None:
        """P25: its last text is its result; without a text of its own it has failed. The parent is told exactly
        once."""
        flow = Flow(sub_agent(), role="sub_agent")
        flow.says("Look it up.")

        ends(flow)

        (told,) = (effect for effect in flow.step.effects if isinstance(effect, NotifyParent))
        assert (told.status, flow.words(told.said)) == (status, said)

    def test_a_sub_agent_at_its_limit_answers_with_its_last_text(self) -> None:
        """P25: it gets one last request without tools; its result is its last text, also one from before that
        request."""
        flow = Flow(sub_agent(), role="sub_agent", limits=Limits(requests=2))
        flow.says("Look it up.")
        flow.model_calls("look", content="It seems to be 18 degrees.")
        flow.tool_ends("look")
        assert flow.requests()[-1].tool_choice == "none"

        flow.model_says("")

        (told,) = (effect for effect in flow.step.effects if isinstance(effect, NotifyParent))
        assert (told.status, flow.words(told.said)) == ("incomplete", ["It seems to be 18 degrees."])


class TestSending:
    """D4, D14: a message to another agent leaves with the step that takes the tool's result."""

    def sending(self, **rules: Any) -> Flow:
        """A background agent that runs a tool which writes to another agent."""
        flow = Flow(background(), role="background", **rules)
        flow.agent_says("Build it.")
        flow.model_calls(mailing(), "next")
        return flow

    @pytest.mark.parametrize("facts", [{}, {"audience": "user"}, {"silent": True}])
    def test_it_is_sent_in_the_step_of_the_result(self, facts: dict[str, Any]) -> None:
        """D14: it is an outbox row of the sender's step, with a key of its own."""
        flow = self.sending()

        flow.tool_mails("mail", DONE, "front", **facts)

        (mail,) = flow.mail()
        assert mail in flow.step.effects
        assert (mail.target, flow.words(mail.said)) == ("front", [DONE])
        assert (mail.audience, mail.silent) == (facts.get("audience", "agent"), facts.get("silent", False))
        assert mail.effect_id not in flow.in_flight()

    def test_it_is_sent_while_the_turn_is_being_cancelled(self) -> None:
        """D11, D14: if the tool ends although its turn is cancelled, the message is still sent."""
        flow = self.sending()
        flow.cancels()
        flow.rests_in(Cancelling)

        flow.tool_mails("mail", DONE)

        flow.rests_in(Idle)
        assert [flow.words(mail.said) for mail in flow.mail()] == [[DONE]]
        assert flow.mail()[0] in flow.step.effects
        assert flow.results()["mail"] == "done"

    def test_what_was_sent_stays_sent(self) -> None:
        """D11: a cancel after that step takes nothing back."""
        flow = self.sending()
        flow.tool_mails("mail", DONE)
        mail = flow.mail()[0]

        stopped(flow)

        assert mail.effect_id not in [getattr(effect, "effect_id", None) for effect in flow.step.effects]

    def test_several_letters_are_sent_in_order(self) -> None:
        """D1: in the order of the calls, each with an id of its own."""
        flow = self.sending()

        flow.tool_ends("mail", acts=[AgentMail(target="front", text=text) for text in ("one", "two")])

        assert [flow.words(mail.said) for mail in flow.mail()] == [["one"], ["two"]]
        assert len({mail.effect_id for mail in flow.mail()}) == 2

    def test_an_error_sends_nothing(self) -> None:
        """D3, D4: without a target or a text the caller gets an error result, nothing is sent, and the turn goes on."""
        flow = self.sending()

        flow.tool_ends("mail", "There is no such agent.", error=True, acts=[AgentMail(target="front", text=DONE)])

        assert flow.mail() == []
        assert flow.rests_in(ToolExecuting)
        assert flow.tools() == ["next"]

    @pytest.mark.parametrize("act", [AgentMail(target="front", text=DONE), Speech(text=DONE), SubAgents(tasks=(DONE,))])
    def test_a_tool_that_does_not_declare_it_does_nothing(self, act: Any) -> None:
        """D2: a result with an act that the tool did not declare is not carried out, and the model is told."""
        flow = Flow(background(), role="background")
        flow.agent_says("Build it.")
        flow.model_calls("look")

        flow.tool_ends("look", acts=[act])

        assert flow.mail() == []
        assert flow.delivered() == []
        assert flow.results() == {"look": TEXTS.act_not_declared}

    def test_a_tool_that_ends_after_its_turn_sends_nothing(self) -> None:
        """D14: the turn ended at the deadline of the cancel; a later result changes nothing."""
        flow = self.sending()
        running = flow.running("mail")
        flow.cancels()
        flow.timer_rings()
        flow.rests_in(Idle)

        result = ToolResult(text="done", acts=(AgentMail(target="front", text=DONE),))
        late = flow.happens(ToolComplete, effect_id=running, result=result)

        assert late.ignored
        assert flow.mail() == []


STEPS: tuple[tuple[type[Effect], Callable[[Flow, str], object]], ...] = (
    (Effect, lambda flow, text: flow.says(text)),
    (Effect, lambda flow, text: flow.says(text, when_busy="steer")),
    (Effect, lambda flow, text: flow.hears(text)),
    (Effect, lambda flow, text: flow.agent_says(text)),
    (Effect, lambda flow, text: flow.agent_says(text, silent=True)),
    (Effect, lambda flow, text: flow.hears(text, silent=True)),
    (Effect, lambda flow, text: flow.withdraws(newest_waiting(flow))),
    (Effect, lambda flow, text: flow.cancels()),
    (Effect, lambda flow, text: flow.tries_again()),
    (Effect, lambda flow, text: flow.wants_it_condensed()),
    (Effect, lambda flow, text: flow.resumes()),
    (RequestLlm, lambda flow, text: flow.model_says(f"Answer to {text}")),
    (RequestLlm, lambda flow, text: flow.model_says("")),
    (RequestLlm, lambda flow, text: flow.model_says("", thinking="Hm.")),
    (RequestLlm, lambda flow, text: flow.model_calls(call("look", call_id=text, arguments=text))),
    (RequestLlm, lambda flow, text: flow.model_calls(call("look", call_id=text))),
    (RequestLlm, lambda flow, text: flow.model_calls(talking(call_id=text))),
    (RequestLlm, lambda flow, text: flow.model_calls(call("look", call_id=text), usage=FULL)),
    (RequestLlm, lambda flow, text: flow.model_says(text, usage=FULL)),
    (RequestLlm, lambda flow, text: flow.model_fails("authentication")),
    (RequestLlm, lambda flow, text: flow.model_fails("server_error")),
    (StartTimer, lambda flow, text: flow.timer_rings()),
    (ExecuteTool, lambda flow, text: flow.tool_talks(running(flow), text)),
    (ExecuteTool, lambda flow, text: flow.tool_ends(running(flow), text)),
    (ExecuteTool, lambda flow, text: flow.tool_stops(running(flow))),
    (CompactHistory, lambda flow, text: flow.history_is_condensed()),
    (CompactHistory, lambda flow, text: flow.breaks(CompactHistory, "internal")),
    (SelectProfile, lambda flow, text: flow.router_chooses("guide")),
    (SelectProfile, lambda flow, text: flow.breaks(SelectProfile)),
    (RecallMemory, lambda flow, text: flow.recall_finds("Something.")),
    (RecallMemory, lambda flow, text: flow.breaks(RecallMemory)),
)
"""What may happen to an agent, with a text of its own, while an effect of this type is in flight; or at any time."""

FULL = Usage(input_tokens=100)
ANY_RULES = st.sampled_from(
    [
        foreground().model_copy(update={"models": (ModelSpec(name="m", window=100),)}),
        foreground().model_copy(update={"on_failure": "reply", "texts": Texts(ending="", limit="")}),
        reply_flow().model_copy(update={"profiles": (COOK, GUIDE), "when_busy": "queue"}),
        reply_flow().model_copy(update={"on_failure": "fail", "limits": Limits(requests=2, last="plain")}),
        talk().model_copy(update={"when_busy": "steer", "limits": Limits(requests=3)}),
    ]
)


MOMENTS = st.lists(st.integers(0, 10_000), max_size=40)


def newest_waiting(flow: Flow) -> str:
    """The id of the message that came last, of those that wait, or an id that was never used."""
    inbox = getattr(flow.state, "inbox", ())
    return str(inbox[-1].event_id) if inbox else "nobody"


def running(flow: Flow) -> str:
    """The call that runs."""
    return next(effect.call.call_id for effect in flow.in_flight().values() if isinstance(effect, ExecuteTool))


def lives(flow: Flow, moments: list[int]) -> Iterator[None]:
    """Let one of the events happen that are possible now. A refusal changes nothing."""
    for number, moment in enumerate(moments):
        flying = tuple({type(effect) for effect in flow.in_flight().values()})
        possible = [step for needed, step in STEPS if needed is Effect or issubclass(needed, flying)]
        with suppress(Refused):
            possible[moment % len(possible)](flow, f"text {number}")
        yield


def lived(rules: Policy, moments: list[int]) -> Flow:
    """A conversation of an agent to which all of this happened."""
    flow = Flow(rules)
    deque(lives(flow, moments), maxlen=0)
    return flow


@pytest.mark.slow
class TestWhateverHappens:
    """Messages of people and agents in any order, at any moment."""

    @given(ANY_RULES, MOMENTS)
    def test_every_message_is_in_one_place(self, rules: Policy, moments: list[int]) -> None:
        """Law 13, D6: each message has entered once, was withdrawn, or still waits; silent messages wait only while the
        agent is busy."""
        flow = lived(rules, moments)

        for entry in flow.history.log:
            if isinstance(entry.event, UserMessage | AgentMessage):
                (text,) = entry.event.texts
                gone = sum(entry.event.event_id in one.outcome.withdrawn for one in taken(flow))
                assert flow.entered(text) + gone + waiting(flow).count(text) == 1
        if not isinstance(flow.state, Busy):
            assert not any(one.silent for one in getattr(flow.state, "inbox", ()))

    @given(ANY_RULES, MOMENTS)
    def test_agents_never_share_a_turn(self, rules: Policy, moments: list[int]) -> None:
        """D10: of the messages that begin a turn, one is an agent's, or all are people's."""
        flow = lived(rules, moments)

        for observation in taken(flow):
            began = observation.after.book.turn > observation.before.book.turn
            if began and not isinstance(observation.event, RetryRequested):
                entering = {effect.said.seq for effect in observation.effects if is_entry(effect)}
                kinds = [kind_of(flow, seq) for seq in entering if kind_of(flow, seq)]
                assert kinds == ["agent"] or set(kinds) == {"person"}

    @given(ANY_RULES, MOMENTS)
    def test_what_is_for_the_user_reaches_the_user(self, rules: Policy, moments: list[int]) -> None:
        """D7: a turn that had to relay a message delivered a text of its agent or the message itself, or it leaves it
        to the next one: no duty is lost but by a close."""
        flow = lived(rules, moments)

        for observation in taken(flow):
            ended = observation.outcome.ended
            if ended is not None and isinstance(observation.before, InTurn):
                owed = observation.before.turn.relay
                told = any(isinstance(one.said, Heard) for one in ended.deliveries)
                left = [one.said for one in observation.after.book.owed]
                assert told or set(owed) <= set(left) or isinstance(observation.after, Closed)

    @given(ANY_RULES, MOMENTS)
    def test_every_request_is_valid(self, rules: Policy, moments: list[int]) -> None:
        """P35: whatever the transcript holds, the request that is made of it is valid."""
        flow = Flow(rules)
        for _ in lives(flow, moments):
            if isinstance(flow.state, LlmRequesting):
                framed, effect = flow.framed(), flow.requests()[-1]
                request = build_request(effect, framed.system, framed.messages, (), flow.state.book.turn)
                body = {"model": request.model, "messages": list(request.messages)}
                if request.tools:
                    body |= {"tools": list(request.tools), "tool_choice": request.tool_choice}
                assert violations(body) == []
                assert any(message["role"] == "user" for message in request.messages)


def test_a_relayed_message_keeps_marked_lines() -> None:
    """D7, J13: the marker is of this model's protocol, and the message is passed on unchanged, never blank."""
    flow = Flow(foreground(), marker="TOOL", nudges=0)
    flow.hears("TOOL prices fell")

    flow.model_says("")

    (entry,) = [entry for entry in flow.history.log if entry.ended is not None]
    said = said_texts(entry, flow.history.context, lambda seq: flow.history.log[seq - 1].event)
    assert [text.text for text in said] == ["TOOL prices fell"]
