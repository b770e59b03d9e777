"""What people and the assistant said to each other, under every kind of rules, and what a request holds of the past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import (
    AgentMail,
    AgentMessage,
    AskUserQuestionPending,
    Event,
    FileReference,
    HistoryMessage,
    LlmFailed,
    LlmResponse,
    LlmStopped,
    LogEntry,
    Message,
    MessageWithdrawn,
    Policy,
    RecentText,
    RetryRequested,
    Speech,
    ToolCall,
    ToolComplete,
    ToolResult,
    UserCancel,
    UserMessage,
    UserQuestionResponse,
    WorkComplete,
    presets,
)
from turnwise.states.context import Context
from turnwise.states.dialogue import DatedText, SaidText, may_say, of_turn, recent_texts, said_texts, user_text
from turnwise.states.values.messages import Heard

from ..support.walks import NOON, WHEN, Walk

# --- What people and the assistant said to each other, under every kind of rules.

TABLE = FileReference(url="https://example.com/table.png", media_type="image/png")


def texts_of(walk: Walk) -> list[SaidText]:
    """The texts of a whole log, read as a store reads it: one step at a time."""
    events: dict[int, Event] = {}
    context, found = Context(), []
    for event, step in walk.steps:
        entry = LogEntry.of(event, step)
        context = context.after(event)
        texts = said_texts(entry, context, events.get)
        stored = f"[{','.join(effect.to_json() for effect in entry.effects)}]"
        assert not texts or may_say(event.type, stored)
        found += texts
        events[entry.seq] = event
    for text in found:
        if text.source is not None:
            assert events[text.source.seq].texts[text.source.index] == text.text
    return found


def dialogue(walk: Walk) -> list[str]:
    """The texts in order, each behind the first letter of who said it."""
    return [f"{text.role[0]}: {text.text}" for text in texts_of(walk)]


def acts(walk: Walk, name: str, *brought: Any) -> Walk:
    """A tool is called, whose result brings these acts."""
    kinds = tuple({"speech": "speech", "work_complete": "work_complete", "mail": "mail"}[act.type] for act in brought)
    call = ToolCall(call_id=f"call-{len(walk.steps)}", name=name, exclusive=True, acts=kinds)
    walk.answer(LlmResponse, content="thinking aloud", tool_calls=(call,), finish_reason="tool_calls")
    return walk.answer(ToolComplete, result=ToolResult(text="tool result", acts=brought))


class TestAnAssistant:
    """Its text is its reply."""

    def test_messages_and_replies_are_found_once(self) -> None:
        """With the turn and the moment of each, and where it stands in the log."""
        walk = Walk().turn("one").say("two").answer(LlmResponse, content="Two.", thinking="hm")

        found = texts_of(walk)

        assert [(one.turn, one.role, one.text) for one in found] == [
            (1, "user", "one"),
            (1, "assistant", "About one: Sakura has one."),
            (2, "user", "two"),
            (2, "assistant", "Two."),
        ]
        assert [one.at for one in found] == [walk.steps[place][0].at for place in (1, 4, 5, 6)]
        assert [one.source for one in found] == [Heard(seq=seq) for seq in (2, 5, 6, 7)]

    def test_a_text_beside_a_call_is_not_delivered(self) -> None:
        """What the model says while it works is shown, and is no reply."""
        walk = acts(Walk().say("one"), "look").answer(LlmResponse, content="Done.")

        assert dialogue(walk) == ["u: one", "a: Done."]

    @pytest.mark.parametrize(
        ("policy", "stopped", "said"),
        [
            (Policy(), {"content": "It ra"}, ["a: It ra"]),
            (Policy(), {"content": "It ra", "speaks": True}, []),
            (Policy(text="thought"), {"content": "It ra"}, []),
            (Policy(text="thought"), {"content": "It ra", "spoken": True}, ["a: It ra"]),
        ],
    )
    def test_what_was_shown_of_a_stopped_answer_was_said(
        self, policy: Policy, stopped: dict[str, Any], said: list[str]
    ) -> None:
        """P8: though it was not delivered. A text that might not have reached the user was not."""
        walk = Walk(policy=policy).say("one").request(UserCancel).answer(LlmStopped, **stopped)

        assert dialogue(walk) == ["u: one", *said]

    def test_lines_of_the_tool_protocol_are_removed(self) -> None:
        """The text that the user received is found, under the rules of that moment."""
        walk = Walk(policy=Policy(marker="TOOL"))
        walk.say("one").answer(LlmResponse, content="TOOL look\nHere it is.")

        (_, reply) = texts_of(walk)

        assert (reply.text, reply.source) == ("Here it is.", None)

    def test_a_question_is_found_with_its_answer(self) -> None:
        """And with the notes of the person who answered; a question that nobody answered is not."""
        walk = Walk().question()
        assert dialogue(walk) == ["u: A table for two?"]

        notes = {WHEN.question: {"notes": "later is fine"}}
        walk.request(UserQuestionResponse, answers={WHEN.question: "6:30 PM"}, annotations=notes)

        assert dialogue(walk)[1:] == ["a: When?", "u: 6:30 PM\nlater is fine"]

    def test_several_choices_are_one_text(self) -> None:
        """One choice a line."""
        both = WHEN.replace(multi_select=True)
        walk = Walk().say().call("ask_user_question").answer(AskUserQuestionPending, questions=(both,))
        walk.request(UserQuestionResponse, answers={WHEN.question: ("6:30 PM", "8:15 PM")})

        assert dialogue(walk)[-1] == "u: 6:30 PM\n8:15 PM"

    def test_a_blank_text_is_left_out(self) -> None:
        """Such as that of a message that holds only an image."""
        walk = Walk().request(UserMessage, text="", files=(TABLE,))

        assert texts_of(walk) == []

    def test_a_message_that_is_withdrawn_is_never_found(self) -> None:
        """One that waited is found when a turn takes it up, as of the moment at which it was sent."""
        walk = Walk(policy=Policy(when_busy="queue")).say("one").say("two").say("three")
        sent = walk.steps[-1][0].at
        walk.request(MessageWithdrawn, message_id="walk-3").answer(LlmResponse, content="One.")

        assert dialogue(walk) == ["u: one", "a: One.", "u: three"]
        assert (texts_of(walk)[-1].at, texts_of(walk)[-1].turn) == (sent, 2)

    def test_a_failed_turn_says_its_message_once(self) -> None:
        """Also when it is tried again."""
        walk = Walk().say("one").answer(LlmFailed, kind="authentication", sentence="No.")
        walk.request(RetryRequested).answer(LlmResponse, content="Now.")

        assert dialogue(walk) == ["u: one", "a: Now."]

    def test_a_reply_that_the_machine_words_is_found(self) -> None:
        """The user received it: the reason why there is no other."""
        walk = (
            Walk(policy=Policy(on_failure="reply")).say("one").answer(LlmFailed, kind="authentication", sentence="No.")
        )

        assert len(dialogue(walk)) == 2
        assert texts_of(walk)[1].source is None

    def test_a_given_history_is_read(self) -> None:
        """Its users and assistants, in their order, as of the turn 0."""
        given = (
            HistoryMessage(role="system", content="Be brief."),
            HistoryMessage(role="user", content=[{"type": "text", "text": "one"}]),
            HistoryMessage(role="assistant", content=None, tool_calls=[]),
            HistoryMessage(role="tool", tool_call_id="x", content="result"),
            HistoryMessage(role="assistant", content="two"),
        )

        assert dialogue(Walk(messages=given)) == ["u: one", "a: two"]
        assert {(text.turn, text.at) for text in texts_of(Walk(messages=given))} == {(0, NOON)}


class TestOtherRules:
    """Only what the user received counts."""

    def test_speech_at_the_end_of_a_turn_is_found(self) -> None:
        """Under `explicit_response`, neither the claim nor the last text is delivered beside it."""
        walk = acts(
            Walk(policy=presets.explicit_response().replace(verify=0)).say("one"), "speak", Speech(text="Hello.")
        )
        acts(walk, "done", WorkComplete(summary="greeted"))

        assert dialogue(walk) == ["u: one", "a: Hello."]

    def test_speech_for_now_is_found_at_its_moment(self) -> None:
        """Under `talk`, the text of the model is its thinking."""
        walk = acts(Walk(policy=presets.talk()).say("one"), "talk", Speech(text="Hm.", when="now"))
        spoken = walk.steps[-1][0].at
        walk.answer(LlmResponse, content="I have greeted the user.")

        assert dialogue(walk) == ["u: one", "a: Hm."]
        assert texts_of(walk)[1].at == spoken

    def test_a_text_that_nobody_receives_is_not_found(self) -> None:
        """That of an agent whose text is a thought."""
        walk = Walk(policy=presets.background()).say("one").answer(LlmResponse, content="thought")

        assert dialogue(walk) == ["u: one"]

    def test_the_mail_of_agents_is_found_where_a_user_received_it(self) -> None:
        """An agent's message is none of a person; passed on to the user, it was said by the assistant."""
        walk = Walk(policy=presets.foreground())
        walk.request(AgentMessage, origin="worker", text="for the agent", audience="agent")
        walk.answer(LlmResponse, content="Noted.")
        assert dialogue(walk) == ["a: Noted."]

        walk.request(AgentMessage, origin="worker", text="for the user", audience="user")
        while walk.state.type != "idle":
            walk.answer(LlmResponse, content="")
        assert dialogue(walk)[1:] == ["a: for the user"]

    @pytest.mark.parametrize(
        ("policy", "agent"),
        [
            (presets.sub_agent(), {"role": "sub_agent", "parent": "parent"}),
            (presets.background(), {"role": "background", "works_for": "foreground"}),
            (presets.assistant(), {"role": "background"}),
        ],
    )
    def test_an_agent_without_a_user_has_no_dialogue(self, policy: Policy, agent: dict[str, Any]) -> None:
        """Another agent gives it its task, and reads its result, whatever its policy is."""
        history = (HistoryMessage.model_validate({"role": "user", "content": "given"}),)
        walk = Walk(policy=policy, messages=history, **agent).say("task")

        assert dialogue(walk.answer(LlmResponse, content="result")) == []

    def test_mail_to_agents_is_not_found(self) -> None:
        """Its sender's user did not receive it."""
        walk = acts(Walk().say("one"), "mail", AgentMail(target="worker", text="secret plan"))

        assert dialogue(walk) == ["u: one"]


def test_a_text_whose_event_cannot_be_read_is_left_out() -> None:
    """The others of the same step are found."""
    walk = Walk(policy=Policy(when_busy="queue")).say("one").say("two").answer(LlmResponse, content="One.")
    entry = LogEntry.of(*walk.steps[-1])

    assert [text.text for text in said_texts(entry, walk.context, lambda _: None)] == ["One."]


# --- What a request holds of the past if it looks back only some minutes.


RECENT_DIALOGUE_NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def said(seconds_ago: float, text: str = "Hello", role: str = "user") -> DatedText:
    """A text of so many seconds before noon."""
    return DatedText(RECENT_DIALOGUE_NOON - timedelta(seconds=seconds_ago), RecentText(role=role, text=text))


def words(*texts: DatedText, now: datetime = RECENT_DIALOGUE_NOON, seconds: float = 300.0) -> list[str]:
    """The words of the texts that are recent enough."""
    return [text.text for text in recent_texts(texts, now, seconds)]


class TestTheWindow:
    """J3: the window of five minutes includes its boundary."""

    @pytest.mark.parametrize(
        ("seconds_ago", "is_in"),
        [(0, True), (299, True), (300, True), (300.000001, False), (301, False), (86_400, False)],
    )
    def test_a_text_just_as_old_as_the_window_is_in(self, seconds_ago: float, is_in: bool) -> None:
        """J3: with a window of 300 s, a text of 299 s or 300 s is included and one of 301 s is not."""
        assert bool(words(said(seconds_ago))) == is_in

    def test_a_text_that_a_faster_clock_dated_later_is_in(self) -> None:
        """A text from a machine whose clock is ahead is included."""
        assert words(said(-2)) == ["Hello"]

    def test_texts_of_several_conversations_stand_in_the_order_of_time(self) -> None:
        """J3: texts of several conversations are ordered by time, and those of one moment keep their order."""
        texts = (said(10, "third"), said(20, "first"), said(20, "second"), said(400, "long ago"))

        assert words(*texts) == ["first", "second", "third"]

    def test_moments_are_compared_as_moments(self) -> None:
        """Times in different time zones are compared as moments."""
        berlin = timezone(timedelta(hours=2))

        assert words(said(300), now=RECENT_DIALOGUE_NOON.astimezone(berlin)) == ["Hello"]

    def test_who_spoke_is_kept(self) -> None:
        """Both roles of the dialogue are included."""
        texts = (said(2, "Hello"), said(1, "Good day", role="assistant"))

        assert [text.role for text in recent_texts(texts, RECENT_DIALOGUE_NOON, 300)] == ["user", "assistant"]

    @given(
        st.lists(st.floats(-1e6, 1e6)),
        st.floats(0, allow_nan=False, allow_infinity=False),
        st.sampled_from([RECENT_DIALOGUE_NOON, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
    )
    def test_any_window_at_any_moment_is_answered(self, ages: list[float], seconds: float, now: datetime) -> None:
        """Any window at any moment leaves out what is too old, and nothing else."""
        texts = [said(age, str(place)) for place, age in enumerate(ages)]

        found = words(*texts, now=now, seconds=seconds)

        old = {text.said.text for text in texts if (now - text.at).total_seconds() > seconds}
        assert set(found) == {str(place) for place in range(len(ages))} - old


class TestATurnByItself:
    """J3: the messages of the turn under way are included in full."""

    HISTORY = (
        Message(role="user", text="one", turn=1),
        Message(role="assistant", text="two", turn=1),
        Message(role="user", text="note", turn=1, origin="builder", audience="agent"),
        Message(role="user", text="three", turn=2),
        Message(role="assistant", text="four", turn=2),
        Message(role="tool", text="five", turn=2, tool_call_id="five"),
    )

    def test_it_holds_what_was_said_in_it_and_what_waited_for_it(self) -> None:
        """J3, D6: it holds the messages of the turn with its tool results, and a silent message that came before it."""
        assert [message.text for message in of_turn(self.HISTORY, 2)] == ["note", "three", "four", "five"]

    def test_a_turn_that_was_tried_again_holds_both_tries(self) -> None:
        """A turn that is tried again holds the first try too, which brought the message."""
        assert [message.text for message in of_turn(self.HISTORY, 1)][:2] == ["one", "two"]

    def test_where_nothing_was_said_there_is_nothing(self) -> None:
        """An empty transcript, or a turn to come, gives no messages and no error."""
        assert list(of_turn((), 1)) == []
        assert list(of_turn(self.HISTORY[:2], 2)) == []

    def test_a_note_that_begins_the_history_belongs_to_the_first_turn(self) -> None:
        """D6: a silent message at the beginning of the history belongs to the first turn."""
        history = [message.replace(audience="agent", turn=0) for message in self.HISTORY[:1]] + [*self.HISTORY[1:]]

        assert list(of_turn(history, 1)) == history

    @given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, None, "agent"]))), st.integers(0, 12))
    def test_it_is_what_a_walk_from_the_beginning_finds(self, said: list[tuple[int, Any]], turn: int) -> None:
        """It begins at the first message of the turn or of a later one, or at the notes in front of that."""
        turns = accumulate(after for after, _ in said)
        history = [
            Message(role="user", turn=of, audience=audience) for of, (_, audience) in zip(turns, said, strict=True)
        ]

        start = next((place for place, message in enumerate(history) if message.turn >= turn), len(history))
        while start > 0 and history[start - 1].audience is not None:
            start -= 1

        assert of_turn(history, turn) == history[start:]


def test_the_text_of_a_user_is_all_that_they_wrote_in_a_turn() -> None:
    """Messages that joined the turn count, and blank ones and those of others do not."""
    said = [("user", "before", 1), ("user", "Hello", 2), ("assistant", "Hi", 2), ("user", " ", 2), ("user", "And?", 2)]
    messages = [Message(role=role, text=text, turn=turn) for role, text, turn in said]

    assert user_text(messages, 2) == "Hello\n\nAnd?"
    assert user_text(messages, 3) == ""
