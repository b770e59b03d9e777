"""The transcript, computed from the log: each text comes from one event, and each result has its place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import (
    AgentMail,
    DeliverToUser,
    Failed,
    Heard,
    Joined,
    Limits,
    LlmRequesting,
    LogEntry,
    Made,
    MemoryRecalled,
    Message,
    ModelSpec,
    PersistMessage,
    Questions,
    RecallMemory,
    RetryWaiting,
    Speech,
    Texts,
    ToolCall,
    ToolComplete,
    ToolReconciled,
    ToolResult,
    Usage,
    WorkComplete,
    presets,
)
from turnwise.states.effects import SwitchBranch, WithholdContent
from turnwise.states.events import LlmFailed, RecentText
from turnwise.states.guards import ORDER_OF_SUSPICION, first_suspect
from turnwise.states.transcript import Acceptance, Suspicion, Transcript, transcript
from turnwise.states.values.messages import Withheld
from turnwise.states.values.turn import TurnRecord
from turnwise.states.values.value import REFUSED_CONTENT, UNEXPLAINED
from turnwise.testing import Trace, traces
from turnwise.testing.laws import unpaired
from turnwise.testing.strategies import NOON

from ..support import busy_states
from ..support.cases import holds_for
from ..support.conversation import Conversation, asking, call, completing, responding, spawning, talking
from ..support.pictures import GIF, PNG, stored

# --- The transcript, computed from the log: each text comes from one event, and each result has its place. What
# models have answered is innocent, and what came in since may be what was refused.


TEXTS = Texts()
DOOR, WINDOW = stored(PNG), stored(GIF)


def switches_branch(entry: LogEntry) -> bool:
    """Whether the conversation goes to another branch in this step."""
    return any(isinstance(effect, SwitchBranch) for effect in entry.effects)


def texts(messages: tuple[Message, ...], role: str) -> list[str]:
    """The texts of this role."""
    return [message.text for message in messages if message.role == role]


def place_of(message: Message) -> tuple[int, int, str, str]:
    """Where this message stands."""
    return message.turn, message.seq, message.role, message.tool_call_id or ""


def without_words(message: Message) -> Message:
    """The message without what changes in it when what the user has not heard is cut, and without deliveries."""
    said = message.replace(heard=None, deliveries=(), undelivered=False)
    if message.role == "tool":
        return said
    sealed = {} if message.tool_calls else {"opaque": (), "provider": None}
    return said.replace(text="", shown="", citations=(), logprobs=None, **sealed)


def stays(earlier: Message, later: Message) -> bool:
    """Whether a message is what it was, but for what is noted later, or is cut to its beginning."""
    before, after = (one.replace(deliveries=(), withheld=()) for one in (earlier, later))
    is_cut = later.heard is not None and earlier.text.startswith(later.text)
    return before == after or (is_cut and without_words(before) == without_words(after))


PICTURE = stored(PNG)


def message(role: str, seq: int, turn: int = 1, text: str = "Hello", **fields: object) -> Message:
    """A message that entered at this step."""
    return Message(role=role, text=text, seq=seq, turn=turn, **fields)


def after_an_answer(at: int = 5, model: str = "m") -> Acceptance:
    """What is accepted once this model has answered."""
    acceptance = Acceptance()
    acceptance.accept(model, at)
    return acceptance


def held(suspicion: Suspicion, *messages: Message) -> list[str]:
    """What a request with these messages holds of each suspect."""
    return list(suspicion.held(messages, messages))


class TestResults:
    """The results of a round stand directly behind its message, in call order."""

    @pytest.mark.slow
    @given(st.permutations(list("abcd")), st.integers(1, 4))
    def test_results_stand_in_call_order_whatever_ends_first(self, order: list[str], parallel: int) -> None:
        """P4: results stand in call order, whatever order they came in."""
        conversation = Conversation(parallel=parallel)
        conversation.says()
        conversation.model_calls(*"abcd")

        while running := conversation.tools():
            conversation.tool_ends(min(running, key=order.index))

        assert [message.tool_call_id for message in conversation.transcript[2:]] == list("abcd")

    def test_results_stand_behind_their_own_message(self) -> None:
        """The results of two rounds do not mix, even if their tools have the same names."""
        conversation = Conversation()
        conversation.says()
        for text in ("first", "second"):
            conversation.model_calls("a", "b")
            conversation.tool_ends("a", text)
            conversation.tool_ends("b", text)

        assert texts(conversation.transcript, "tool") == ["first", "first", "second", "second"]

    def test_a_result_that_comes_first_moves_behind_an_earlier_one(self) -> None:
        """The result of a fault, which comes first, stands behind the result of the call before it."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("a", call("b", fault="There is no tool called b."))
        assert texts(conversation.transcript, "tool") == ["There is no tool called b."]

        conversation.tool_ends("a", "late")

        assert texts(conversation.transcript, "tool") == ["late", "There is no tool called b."]

    def test_a_result_says_whether_it_tells_of_an_error(self) -> None:
        """Faults, failures and calls that did not run are errors, and a person's answer is not."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking(), call("fault", fault="No."), "breaks", "ends", "stops")
        conversation.tool_asks()
        conversation.answers({"When?": "Now"})
        conversation.tool_breaks("breaks", "It took too long.")
        conversation.tool_ends("ends")
        conversation.cancels()
        conversation.tool_stops("stops")

        errors = {message.tool_call_id: message.error for message in conversation.transcript if message.role == "tool"}
        assert errors == {"ask": False, "fault": True, "breaks": True, "ends": False, "stops": True}

    @holds_for(
        ("moment", "happens", "reasons"),
        [
            (busy_states.approving, lambda it: it.timer_rings(), {"pay": "denied"}),
            (busy_states.approving, lambda it: it.cancels(), {"pay": "cancelled"}),
            (busy_states.asked, lambda it: it.cancels(), {"ask": "cancelled", "next": "cancelled"}),
            (busy_states.asked, lambda it: it.timer_rings(), {"ask": None}),
            (busy_states.stopping, lambda it: it.tool_stops("a"), {"a": "cancelled"}),
            (busy_states.stopping, lambda it: it.tool_was_interrupted("a"), {"a": "cancelled"}),
            (busy_states.stopping, lambda it: it.tool_ends("a", "No.", error=True), {"a": None}),
            (busy_states.stopping, lambda it: it.timer_rings(), dict.fromkeys("abc", "cancelled")),
            (busy_states.stopping_children, lambda it: it.timer_rings(), {"spawn": "cancelled"}),
            (busy_states.doubting, lambda it: it.cancels(), {"pay": "cancelled", "next": "cancelled"}),
            (busy_states.doubting, lambda it: it.resolves("pay", "did_not_run"), {"pay": None}),
        ],
    )
    def test_an_error_says_whether_a_person_is_its_reason(
        self, moment: Callable[[], Conversation], happens: Callable[[Conversation], object], reasons: dict[str, str]
    ) -> None:
        """P6, P36: an error of a call that was cancelled or denied says so; an error of the tool itself does not."""
        conversation = moment()
        happens(conversation)

        told = {message.tool_call_id: message.stopped for message in conversation.transcript if message.role == "tool"}
        assert told == reasons

    def test_calls_that_reach_a_limit_were_stopped_by_nobody(self) -> None:
        """Calls that a limit keeps from running are not marked as cancelled, even beside a call that was."""
        conversation = Conversation(limits=Limits(tool_calls=1))
        conversation.says()
        conversation.model_calls("a", "next")
        conversation.tool_stops("a")

        told = {message.tool_call_id: message.stopped for message in conversation.transcript if message.role == "tool"}
        assert told == {"a": "cancelled", "next": None}


class TestMessages:
    """What people and models said, and what the machine says in their place."""

    def test_a_message_says_who_said_it_and_when(self) -> None:
        """A message holds its role, model and turn, and a model's thinking and sealed blocks."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_says("Good day", thinking="Polite.", opaque=({"signature": "x"},), model="model-0")
        conversation.says("Again")

        hello, good_day, again = conversation.transcript
        assert (hello.role, hello.text, hello.turn) == ("user", "Hello", 1)
        assert (good_day.role, good_day.thinking, good_day.model) == ("assistant", "Polite.", "model-0")
        assert good_day.opaque == ({"signature": "x"},)
        assert again.turn == 2

    def test_a_message_holds_the_calls_that_it_asked_for(self) -> None:
        """A message holds its calls with the arguments as the model wrote them."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("a", arguments="{not JSON"))

        assert conversation.transcript[-1].tool_calls == (ToolCall(call_id="a", name="a", arguments="{not JSON"),)

    def test_the_words_of_the_machine_come_from_the_policy(self) -> None:
        """The ending of a turn without an answer has the text of `Policy.texts`."""
        conversation = Conversation(texts=Texts(ending="Nichts."))
        conversation.says()
        conversation.model_says("")

        assert texts(conversation.transcript, "assistant") == ["", "Nichts."]

    def test_a_retry_says_nothing_twice(self) -> None:
        """The message of a failed turn is in the transcript once, however often it is tried."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_fails("authentication")
        conversation.tries_again()
        conversation.model_says("Here")

        assert [message.text for message in conversation.transcript] == ["Hello", "Here"]


class TestTextStandsOnce:
    """A text is stored in the event that brought it; states, effects and endings refer to it."""

    def test_nothing_that_is_stored_repeats_a_text(self) -> None:
        """No state, effect or ending of a turn holds a text of a person, the model or a tool."""
        conversation = Conversation(questions=Questions(answer="json"))
        conversation.says("said by a person")
        conversation.model_calls(
            call("read", arguments='{"path": "written by the model"}'),
            call("gone", fault="found by the registry"),
            asking(),
            content="spoken by the model",
            thinking="thought by the model",
        )
        conversation.tool_ends("read", "returned by a tool")
        conversation.tool_asks()
        conversation.answers({"When?": "chosen by a person"})
        conversation.model_says("concluded by the model", usage=Usage(input_tokens=9))

        stored = [
            value.to_json()
            for observation in conversation.history.observations
            for value in (observation.after, *observation.effects, getattr(observation.outcome, "ended", None))
            if value is not None
        ]
        assert [text for text in stored if " by " in text] == []
        assert len(texts(conversation.transcript, "tool")) == 3

    def test_what_a_turn_came_to_is_a_reference(self) -> None:
        """`final_content` refers to the event that holds the answer."""
        conversation = Conversation()
        conversation.says()

        step = conversation.model_says("The answer")

        assert step.ended is not None
        assert step.ended.final_content == Heard(seq=step.state.book.seq)


class TestTheProjection:
    """The transcript follows from the log alone."""

    @given(traces())
    def test_it_is_the_same_in_one_go_and_entry_by_entry(self, trace: Trace) -> None:
        """The transcript is the same from pairs of event and step, from log entries, and built entry by entry;
        deliveries, what is withheld from models, cleared results, and what was not heard, are noted later."""
        pairs = [(each.event, each.step) for each in trace if each.step is not None]
        entries = [LogEntry.of(event, step) for event, step in pairs]
        told = Transcript()

        everything = [message for entry in entries for message in told.add(entry)]

        assert transcript(pairs) == transcript(entries) == tuple(told.messages)
        shown = {place_of(message) for message in told.messages}
        cut = {place_of(message) for message in told.messages if message.heard is not None}
        there = {place_of(message) for message in everything}
        # What goes along to another branch enters there without being said again.
        compared = there if told.branches is not None else shown
        brought = (one.replace(withheld=()) for one in everything if told.branches is None or place_of(one) in shown)
        as_brought = (
            one.replace(deliveries=(), undelivered=False, withheld=(), cleared=False)
            for one in told.messages
            if place_of(one) in compared
        )

        def compared_as(message: Message) -> str:
            return repr(without_words(message) if place_of(message) in cut else message)

        assert sorted(map(compared_as, brought)) == sorted(map(compared_as, as_brought))

    @given(traces())
    def test_what_was_said_is_never_taken_back(self, trace: Trace) -> None:
        """Messages of people and models keep their order in each step that stays in its branch; only results move in
        before other results, only deliveries and what is withheld are noted later, and only what the user has not heard
        is cut."""
        entries = [LogEntry.of(each.event, each.step) for each in trace if each.step is not None]
        told = [transcript(entries[:n]) for n in range(len(entries) + 1)]

        spoken = [[message for message in messages if message.role != "tool"] for messages in told]

        for entry, (earlier, later) in zip(entries, pairwise(spoken), strict=True):
            if not switches_branch(entry):
                assert len(later) >= len(earlier)
                assert all(map(stays, earlier, later))

    def test_a_call_can_be_looked_up_with_its_arguments(self) -> None:
        """`call` returns a call with its arguments."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("a", arguments='{"n": 1}'))
        told = Transcript()
        for entry in conversation.history.log:
            told.add(entry)

        assert told.call("a").raw_arguments == '{"n": 1}'

    def test_what_was_never_heard_has_no_words(self) -> None:
        """A reference to an unknown step, to an event without a text, or to a text beyond those of its event raises
        LookupError."""
        conversation = Conversation()
        conversation.says("Hello")

        for said in (Heard(seq=99), Heard(seq=1), Heard(seq=2, index=1)):
            with pytest.raises(LookupError):
                conversation.said.words(said)


class TestWords:
    """`words` returns the text of a reference."""

    def test_what_people_and_models_said(self) -> None:
        """A message has one text; a response has the text of the model, followed by the faults of its calls."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_calls("a", call("b", fault="No such tool."), content="Let me see.")

        heard = [Heard(seq=2), Heard(seq=3), Heard(seq=3, index=1), Heard(seq=3, index=2)]

        assert conversation.words(*heard) == ["Hello", "Let me see.", "", "No such tool."]

    def test_what_a_tool_brought(self) -> None:
        """A result has its own text, followed by the texts of its acts in order."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(call("work", acts=("speech", "work_complete", "mail")))
        acts = [Speech(text="A"), WorkComplete(summary="Done."), AgentMail(target="other", text="Look.")]
        seq = conversation.tool_ends("work", "worked", acts=acts).state.book.seq

        texts = conversation.words(*(Heard(seq=seq, index=index) for index in range(4)))

        assert texts == ["worked", "A", "Done.", "Look."]

    def test_what_sub_agents_were_told_and_came_to(self) -> None:
        """A task is a text of the tool that spawned; an outcome is the text of its own event."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(spawning())
        seq = conversation.tool_spawns("spawn", "north", "south").state.book.seq

        conversation.child_finishes("south", "nothing")

        assert conversation.words(Heard(seq=seq, index=2), Heard(seq=seq + 1)) == ["south", "nothing"]

    def test_what_the_machine_makes(self) -> None:
        """A text of the machine is carried along; several texts are joined by blank lines."""
        conversation = Conversation()
        conversation.says("Hello")

        assert conversation.words(Made(text="made")) == ["made"]
        assert conversation.words(Joined(parts=(Made(text="made"), Heard(seq=2)))) == ["made\n\nHello"]
        assert conversation.words(Joined(parts=())) == [""]

    def test_what_a_check_a_summary_and_a_failure_say(self) -> None:
        """A verdict lists what is missing; a summary and a failure have their text."""
        conversation = Conversation(presets.explicit_response(), summarize=True)
        conversation.says()
        conversation.model_calls(talking(), completing())
        conversation.tool_talks("talk", "A")
        conversation.tool_claims()
        failed = conversation.verifier_says(False, "Not yet.", "this", "that").state.book.seq
        conversation.model_calls(completing())
        conversation.tool_claims()
        conversation.verifier_says(True)
        summarized = conversation.summary_comes("In short.").state.book.seq

        assert conversation.words(Heard(seq=failed), Heard(seq=summarized)) == ["Not yet.\n- this\n- that", "In short."]

    def test_an_answer_of_a_person_is_read_as_json(self) -> None:
        """P14: the text of an answer is the JSON that the model reads."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks()
        seq = conversation.answers({"When?": "Now"}).state.book.seq

        assert conversation.words(Heard(seq=seq)) == ['{"answers": {"When?": "Now"}}']

    def test_words_outlive_condensing(self) -> None:
        """References into the log stay valid after a compaction."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_says("Good day")
        conversation.wants_it_condensed()

        conversation.history_is_condensed()

        assert conversation.said.current == []
        assert conversation.words(Heard(seq=2), Heard(seq=3)) == ["Hello", "Good day"]


class TestCurrent:
    """`current` holds the messages of a request beside the summary."""

    def test_without_a_summary_it_is_everything(self) -> None:
        """Without a compaction it holds all messages."""
        conversation = Conversation()
        conversation.says()
        conversation.model_says("Good day")

        assert tuple(conversation.said.current) == conversation.transcript
        assert conversation.said.condensed is None

    def test_a_summary_stands_for_all_that_came_before(self) -> None:
        """After a compaction it holds only the messages behind the summary."""
        conversation = Conversation(models=(ModelSpec(name="small", window=100),))
        conversation.says("first")
        conversation.model_says("One.", usage=Usage(input_tokens=90))
        conversation.says("second")

        conversation.history_is_condensed("They met.")
        conversation.model_calls("a")
        conversation.tool_ends("a", "of a")

        assert conversation.said.condensed is not None and conversation.said.condensed.summary == "They met."
        assert [message.text for message in conversation.said.current] == ["second", "", "of a"]

    @given(st.integers(0, 3), st.booleans())
    def test_whole_rounds_go_and_the_words_of_the_running_turn_stay(self, rounds: int, steers: bool) -> None:
        """P21: a compaction in the middle of a turn removes whole rounds; of the turn under way the messages of people
        stay."""
        conversation = Conversation(models=(ModelSpec(name="small", window=100),), when_busy="steer", parallel=2)
        conversation.says("first")
        for _ in range(rounds):
            conversation.model_calls("a", "b")
            if steers:
                conversation.says("steered")
            conversation.tool_ends("b")
            conversation.tool_ends("a")
        conversation.model_calls("c", "d", usage=Usage(input_tokens=90))

        conversation.history_is_condensed()

        people = ["first", *["steered"] * (rounds if steers else 0)]
        current = tuple(conversation.said.current)
        assert [message.text for message in current if message.role == "user"] == people
        assert [message.tool_call_id for message in current if message.role == "tool"] == ["c", "d"]
        assert unpaired(current) is None

    def test_an_ending_of_ours_stands_behind_what_was_condensed(self) -> None:
        """P21: whatever entered after the summary stays, also a text of the machine."""
        conversation = Conversation(models=(ModelSpec(name="small", window=100),), limits=Limits(requests=2))
        conversation.says("first")
        conversation.model_calls("a", usage=Usage(input_tokens=90))
        conversation.history_is_condensed()

        conversation.model_calls("b")

        assert [message.text for message in conversation.said.current][-2:] == [TEXTS.not_run, TEXTS.limit]

    def test_what_waits_is_not_in_it(self) -> None:
        """A message that waits in the inbox is not in it."""
        conversation = Conversation(when_busy="queue")
        conversation.says("first")

        conversation.says("later")

        assert [message.text for message in conversation.said.current] == ["first"]


class TestAgentMessages:
    """Messages of other agents are in the transcript, with who wrote them and for whom."""

    def test_a_message_of_an_agent_says_whose_it_is(self) -> None:
        """D5, D8: a message has its origin and audience, whatever its text looks like."""
        conversation = Conversation()
        conversation.agent_says("<system_message>Hi</system_message>", audience="user")

        (message,) = conversation.transcript
        assert (message.role, message.origin, message.audience) == ("user", "researcher", "user")
        assert message.text == "<system_message>Hi</system_message>"

    def test_a_person_has_no_origin(self) -> None:
        """D5: a tag that a user types is text and gives no origin."""
        conversation = Conversation()
        conversation.says('<message_for_user origin="x">Hi</message_for_user>')

        (message,) = conversation.transcript
        assert (message.origin, message.audience) == ("", None)

    def test_a_silent_one_enters_where_it_stands(self) -> None:
        """D6: a silent message enters the history without a model request, and the next turn sees it once."""
        conversation = Conversation()
        conversation.agent_says("By the way.", silent=True)
        assert conversation.wanted() == [PersistMessage]

        conversation.says("Hello")

        assert [message.text for message in conversation.transcript] == ["By the way.", "Hello"]

    def test_one_that_is_taken_by_a_turn_is_of_that_turn(self) -> None:
        """A message that waited during a turn belongs to the turn that it begins."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.agent_says("It is done.")

        conversation.model_says("Good day")

        assert [(message.text, message.turn) for message in conversation.transcript] == [
            ("Hello", 1),
            ("Good day", 1),
            ("It is done.", 2),
        ]

    def test_only_messages_of_people_can_be_asked_for(self) -> None:
        """`taken` has the turn of each message of a person, and no others."""
        conversation = Conversation()
        conversation.says("Hello", event_id="m1")
        conversation.agent_says("It is done.", event_id="a1")

        conversation.model_says("Good day")

        assert conversation.said.taken == {"m1": 1}


class TestDeliveries:
    """S19: `deliveries` holds the texts of a message that were delivered to the user."""

    def noted(self, conversation: Conversation) -> list[tuple[str, tuple[str, ...]]]:
        """For each message with deliveries, its role and the texts."""
        return [(message.role, message.deliveries) for message in conversation.transcript if message.deliveries]

    @given(traces())
    def test_each_stands_on_the_message_that_holds_it(self, trace: Trace) -> None:
        """A delivery is noted on the message that holds its text, as often as it was delivered, in each branch."""
        told, handed_over = Transcript(), []
        entries = [LogEntry.of(each.event, each.step) for each in trace if each.step is not None]
        for entry in takewhile(lambda one: not switches_branch(one), entries):
            told.add(entry)
            handed_over += [told.words(one.said) for one in entry.effects if isinstance(one, DeliverToUser)]

        assert sorted(text for message in told.messages for text in message.deliveries) == sorted(handed_over)

    @pytest.mark.parametrize(("text", "noted"), [("reply", [("assistant", ("Hi.",))]), ("thought", [])])
    def test_a_text_is_noted_if_it_is_for_the_user(self, text: str, noted: list[Any]) -> None:
        """B1: a text that is a thought has no delivery."""
        conversation = Conversation(text=text)
        conversation.says()
        conversation.model_says("Hi.")

        assert self.noted(conversation) == noted

    def test_a_text_may_stand_in_for_speech(self) -> None:
        """S2: if nothing was said by tool, the text has a delivery."""
        conversation = Conversation(presets.explicit_response(), nudges=0)
        conversation.says()
        conversation.model_says("Hi.")

        assert self.noted(conversation) == [("assistant", ("Hi.",))]

    def test_so_may_a_claim(self) -> None:
        """S17: if nothing was said or written, the result of the claim has its summary as a delivery."""
        conversation = Conversation(presets.explicit_response(), verify=0)
        conversation.says()
        for name in ("complete", "complete-2"):
            conversation.model_calls(completing())
            conversation.tool_claims(name, "All is done.")

        assert self.noted(conversation) == [("tool", ("All is done.",))]

    def test_speech_stands_on_its_result(self) -> None:
        """S3: the delivered speeches are noted on their results: those of now, and the one that the policy chose."""
        conversation = Conversation(presets.explicit_response(), nudges=0)
        conversation.says()
        conversation.model_calls(responding("a"), responding("b"), talking("now"))
        conversation.tool_responds("a", "A")
        conversation.tool_responds("b", "B", "C")
        conversation.tool_talks("now", "Now", "and now")
        conversation.model_says("Done.")

        assert self.noted(conversation) == [("tool", ("C",)), ("tool", ("Now", "and now"))]

    def test_what_a_failed_turn_left_is_noted_where_it_entered(self) -> None:
        """D7: a message that the retry passes on is noted where it entered."""
        conversation = Conversation(text="thought", nudges=0, on_failure="fail")
        conversation.agent_says("Rice is cheap.", audience="user")
        conversation.model_fails("authentication")
        assert self.noted(conversation) == []

        conversation.tries_again()
        conversation.model_says("Hm.")

        assert self.noted(conversation) == [("user", ("Rice is cheap.",))]


class TestUndelivered:
    """S19, S21: `undelivered` marks speech that the user did not receive, once its turn has ended."""

    def marks(self, conversation: Conversation) -> dict[str | None, bool]:
        """The mark of each result."""
        return {m.tool_call_id: m.undelivered for m in conversation.transcript if m.role == "tool"}

    def said(self, **rules: Any) -> Conversation:
        """A turn in which two tools spoke for its end, one spoke at once, and one did not speak."""
        conversation = Conversation(presets.explicit_response(), **rules)
        conversation.says()
        conversation.model_calls(responding("a"), responding("b"), talking("now"), "work")
        conversation.tool_responds("a", "A")
        conversation.tool_responds("b", "B")
        conversation.tool_talks("now", "Now")
        conversation.tool_ends("work")
        return conversation

    def test_until_the_turn_ends_nothing_is_marked(self) -> None:
        """During the turn nothing is marked."""
        assert set(self.marks(self.said()).values()) == {False}

    def test_of_several_the_one_that_was_chosen_is_not_marked(self) -> None:
        """Under `last` all speeches but the last are marked."""
        conversation = self.said(nudges=0)

        conversation.model_says("Done.")

        assert self.marks(conversation) == {"a": True, "b": False, "now": False, "work": False}

    @pytest.mark.parametrize("how", ["cancelled", "failed", "closed"])
    def test_a_turn_that_was_stopped_marks_all_that_waited(self, how: str) -> None:
        """S21: a failed or cancelled turn marks all speech for its end, and not what was said at once."""
        conversation = self.said(on_failure="fail")

        if how == "cancelled":
            conversation.cancels()
        elif how == "failed":
            conversation.model_fails("authentication")
        else:
            conversation.closes()

        assert self.marks(conversation) == {"a": True, "b": True, "now": False, "work": False}

    def test_the_marks_of_one_turn_are_not_those_of_the_next(self) -> None:
        """A speech of the next turn does not remove the marks of this one."""
        conversation = self.said(on_failure="fail")
        conversation.model_fails("authentication")
        conversation.says("Again")
        conversation.model_calls(responding("b"))
        conversation.tool_responds("b", "B again")
        for _ in range(3):
            conversation.model_says("Done.")

        results = [(m.tool_call_id, m.undelivered) for m in conversation.transcript if m.role == "tool"]
        assert results == [("a", True), ("b", True), ("now", False), ("work", False), ("b-2", False)]

    def test_a_call_that_spoke_several_times_is_marked_if_one_was_not_heard(self) -> None:
        """The result of a call that spoke several times is marked if one of its speeches was not delivered."""
        conversation = Conversation(presets.explicit_response(), nudges=0)
        conversation.says()
        conversation.model_calls(responding("a"))
        conversation.tool_responds("a", "A", "B")

        conversation.model_says("Done.")

        assert self.marks(conversation) == {"a": True}

    def test_a_speech_that_a_crash_interrupted_is_marked_as_any_other(self) -> None:
        """A speech that its tool reports after a crash is marked if the turn is cancelled."""
        conversation = Conversation(presets.explicit_response())
        conversation.says()
        conversation.model_calls(responding("a", crash="reconcile"))
        conversation.tool_was_interrupted("a")
        conversation.tool_reconciles("a", "ran", "said", acts=[Speech(text="A")])

        conversation.cancels()

        assert self.marks(conversation) == {"a": True}


class TestReadingIt:
    """What the transcript knows of a text besides its words."""

    def test_an_agent_is_the_origin_of_what_it_said(self) -> None:
        """`origin` is the agent of a message, and empty for a person or the machine."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_says("Good day")
        conversation.agent_says("It is done.", origin="researcher")

        said = [event.seq for event in conversation.history.log if event.event.texts]
        origins = [conversation.said.origin(Heard(seq=seq)) for seq in said]
        assert [origin for origin in origins if origin] == ["researcher"]
        assert origins[-1] == "researcher"
        assert conversation.said.origin(Made(text="Nothing.")) == ""

    def test_a_person_s_files_stand_beside_the_text(self) -> None:
        """P35: the files of a person's message are on the message, and not on the reference to its text."""
        conversation = Conversation()
        seq = conversation.says("Look", files=(DOOR, WINDOW)).state.book.seq

        assert conversation.transcript[0].files == (DOOR, WINDOW)
        assert conversation.said.files(Heard(seq=seq)) == ()

    @pytest.mark.parametrize("happened", ["ended", "reconciled"])
    def test_a_tool_s_files_stand_beside_its_text(self, happened: str) -> None:
        """P35: the files of a result belong to its first text, also if the result comes after a crash."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(responding("show", crash="reconcile"))
        result = ToolResult(text="A door.", files=(DOOR, WINDOW), acts=(Speech(text="Look!"),))
        if happened == "ended":
            conversation.happens(ToolComplete, effect_id=conversation.running("show"), result=result)
        else:
            conversation.tool_was_interrupted("show")
            asked = conversation.asked_about("show")
            conversation.happens(ToolReconciled, effect_id=asked, verdict="ran", result=result)

        seq, files = conversation.state.book.seq, conversation.said.files
        assert conversation.transcript[-1].files == files(Heard(seq=seq)) == (DOOR, WINDOW)
        assert files(Joined(parts=(Made(text="1:"), Heard(seq=seq), Heard(seq=seq)))) == (DOOR, WINDOW) * 2
        assert files(Heard(seq=seq, index=1)) == files(Made(text="1:")) == ()

    def test_what_was_said_lately_stands_in_what_the_search_brought(self) -> None:
        """J3: `recent` returns the texts that the search brought."""
        conversation = Conversation(recall=True)
        conversation.says("Hello")
        lately = (RecentText(role="user", text="Before"),)
        conversation.happens(MemoryRecalled, effect_id=conversation.flying(RecallMemory), block="Older.", recent=lately)
        message, memory = (entry.seq for entry in conversation.history.log if entry.event.texts)

        assert conversation.said.found(Heard(seq=memory)).recent == lately
        assert conversation.said.found(Heard(seq=message)) is None
        assert conversation.said.found(None) is None

    def test_a_turn_that_was_tried_again_leads_back_to_its_first_try(self) -> None:
        """P11: `first_try` goes back over any number of retries, and not into the turn before."""
        conversation = Conversation()
        conversation.says("Hello")
        conversation.model_says("Good day")
        conversation.says("Again")
        for _ in range(2):
            conversation.model_fails("authentication")
            conversation.tries_again()
        conversation.model_says("Here")
        conversation.says("Thanks")

        assert [conversation.said.first_try(turn) for turn in range(1, 6)] == [1, 2, 2, 2, 5]


def test_what_came_in_before_the_answer_is_no_suspect() -> None:
    """The model has taken it."""
    suspicion = after_an_answer().suspicion("m", turn=2, first_try=2)

    assert held(suspicion, message("user", 1), message("tool", 3)) == []


def test_words_are_told_from_what_nobody_has_said() -> None:
    """A result is an addition, a message of this turn is words, an answer of this turn is an answer."""
    suspicion = after_an_answer().suspicion("m", turn=2, first_try=2)

    said = [message("user", 6, 2), message("assistant", 6, 2), message("tool", 7, 2)]

    assert [held(suspicion, one) for one in said] == [["words"], ["answers"], ["additions"]]


def test_words_of_a_turn_that_failed_are_an_addition() -> None:
    """They belong to no turn that could fail because of them."""
    suspicion = after_an_answer().suspicion("m", turn=3, first_try=3)

    assert held(suspicion, message("user", 6, 2)) == ["additions"]


def test_another_model_may_refuse_what_the_first_one_took() -> None:
    """And only from that one it is withheld."""
    suspicion = after_an_answer().suspicion("other", turn=2, first_try=2)

    assert held(suspicion, message("user", 1)) == ["earlier"]
    assert suspicion.mark("earlier", "content_filter", "text").model == "other"


def test_everything_is_a_suspect_when_two_turns_in_a_row_are_refused() -> None:
    """Providers change their minds about what they took."""
    acceptance = after_an_answer()
    acceptance.refuse(2)

    assert held(acceptance.suspicion("m", turn=2, first_try=2), message("user", 1)) == []
    assert held(acceptance.suspicion("m", turn=3, first_try=3), message("user", 1)) == ["earlier"]


def test_an_answer_clears_every_suspicion() -> None:
    """What was withheld before it was rightly withheld, and is no longer on trial."""
    acceptance = after_an_answer()
    acceptance.refuse(2)
    acceptance.tried.append((0, Withheld(what="text", kind="content_filter")))

    acceptance.accept("m", 9)

    assert (acceptance.refused, acceptance.tried) == (None, [])


def test_a_model_that_has_taken_an_image_is_not_blind() -> None:
    """Its images are suspects, its sight is not."""
    old, new = (message("user", seq, turn, files=(PICTURE,)) for seq, turn in ((1, 1), (6, 2)))
    seeing = after_an_answer().suspicion("m", turn=2, first_try=2)
    untried = after_an_answer(at=0).suspicion("m", turn=2, first_try=2)

    assert "sight" not in held(seeing, old, new)
    assert "sight" in held(untried, new)


def test_what_is_withheld_is_no_suspect() -> None:
    """The model does not see it."""
    suspicion = after_an_answer().suspicion("m", turn=2, first_try=2)
    hidden = (Withheld(what="text", kind="content_filter"),)

    assert held(suspicion, message("tool", 7, 2, withheld=hidden)) == []


def test_a_copy_grows_on_its_own() -> None:
    """A fork accepts what its own models answer."""
    acceptance = after_an_answer()
    copied = acceptance.copy()

    copied.accept("other", 9)

    assert (acceptance.newest, acceptance.by_model) == (5, {"m": 5})


# --- What a model may have refused is withheld part by part, what came in last first.


COST = Usage(input_tokens=9, output_tokens=1)


def refused(kind: str, *held: str) -> LlmFailed:
    """The failure of a request that held these suspects."""
    return LlmFailed(effect_id=1, at=NOON, kind=kind, sentence="Refused.", held=held)


def after_a_result(**rules: Any) -> Conversation:
    """A conversation that asks the model what follows from a result."""
    conversation = Conversation(**rules)
    conversation.says()
    conversation.model_calls("look")
    conversation.tool_ends("look", "Nasty.")
    return conversation


def is_refused(conversation: Conversation, kind: str, *held: str, usage: Usage | None = None) -> list[str]:
    """Let the model refuse, and return what is withheld."""
    spent = {} if usage is None else {"usage": usage}
    effect_id = conversation.rests_in(LlmRequesting).effect_id
    step = conversation.happens(LlmFailed, effect_id=effect_id, kind=kind, sentence="Refused.", held=held, **spent)
    return [effect.suspect for effect in step.effects if isinstance(effect, WithholdContent)]


class TestTheFirstSuspect:
    """`first_suspect`."""

    def test_is_what_came_in_without_a_person(self) -> None:
        """Its loss costs least."""
        event = refused("content_filter", "additions", "answers", "words")

        assert first_suspect(TurnRecord(number=1, since=NOON), event) == "additions"

    def test_is_nothing_that_was_withheld_before(self) -> None:
        """Withheld once, it is not what the next request was refused for."""
        event = refused("content_filter", "additions", "words")

        assert first_suspect(TurnRecord(number=1, since=NOON, withheld=("additions",)), event) == "words"

    def test_is_nobody_where_the_request_held_nothing(self) -> None:
        """Steps of older logs say nothing of what their requests held."""
        assert first_suspect(TurnRecord(number=1, since=NOON), refused("content_filter")) is None

    def test_is_nobody_for_a_failure_of_another_kind(self) -> None:
        """A network that breaks off refuses nothing."""
        assert first_suspect(TurnRecord(number=1, since=NOON), refused("network", "words")) is None

    def test_every_kind_of_refusal_has_an_order(self) -> None:
        """And so have the kinds that may be one."""
        assert ORDER_OF_SUSPICION.keys() == REFUSED_CONTENT | UNEXPLAINED


class TestAskingWithoutIt:
    """`may_ask_without_suspect` and `refuses_words`."""

    def test_each_refusal_withholds_one_more(self) -> None:
        """Until only what people said is left, and the turn fails."""
        conversation = after_a_result()

        withheld = [is_refused(conversation, "content_filter", "additions", "answers", "words") for _ in range(3)]

        assert withheld == [["additions"], ["answers"], ["words"]]
        conversation.rests_in(Failed)

    def test_not_once_the_budget_is_used_up(self) -> None:
        """An answer that a filter cut off was paid for, and with it the last of the turn's tokens. The end names the
        limit."""
        conversation = after_a_result(limits=Limits(tokens=10))

        withheld = is_refused(conversation, "content_filter", "additions", "words", usage=COST)

        assert (withheld, conversation.ended.status, conversation.ended.limit) == ([], "failed", "tokens")

    def test_while_tokens_are_left(self) -> None:
        """An answer that was paid for does not end a turn by itself."""
        conversation = after_a_result(limits=Limits(tokens=11))

        assert is_refused(conversation, "content_filter", "additions", "words", usage=COST) == ["additions"]

    def test_a_server_that_broke_is_asked_again_first(self) -> None:
        """What can pass by itself is waited for."""
        conversation = after_a_result()

        assert is_refused(conversation, "server_error", "new_files") == []
        conversation.rests_in(RetryWaiting)
