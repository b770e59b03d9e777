"""The messages of a conversation in OpenAI's chat format: what it began with, and what was said since."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.states import Image, LogEntry, Request, ToolComplete, ToolResult, begin
from turnwise.states.openai_writing import NO_RESULT, openai_messages
from turnwise.testing.generation.events import event_in
from turnwise.testing.generation.states import EXTREME
from turnwise.testing.history import History
from turnwise.testing.laws import check_newest
from turnwise.testing.strategies import NOON, Drawn, changed, policies

from ..support.conversation import Conversation, asking, call
from ..support.pictures import PNG, data_url
from ..support.scenarios.openai_histories import Given, faults_in, opening, valid_histories

DOOR = Image.of(PNG)


@st.composite
def continued(draw: st.DrawFn) -> tuple[list[Given], list[LogEntry]]:
    """A valid history, and the log of a conversation that goes on from it in any way."""
    given_messages = draw(valid_histories(4))
    history, chance = History(), Drawn(draw)
    history.take(opening(given_messages).replace(policy=draw(policies())))
    for number in range(draw(st.integers(0, 25))):
        event = event_in(chance, EXTREME, history.state)
        name = {"event_id": f"request-{number}"} if isinstance(event, Request) else {}
        history.take(changed(event, at=NOON + timedelta(seconds=number), **name))
        check_newest(history)
    return given_messages, history.log


class TestEveryConversation:
    """Whatever happened, its messages are a history that another conversation can begin with."""

    @pytest.mark.slow
    @given(continued())
    def test_a_conversation_with_its_messages_has_the_same_messages(
        self, went: tuple[list[Given], list[LogEntry]]
    ) -> None:
        """They begin with the given history, and nothing in them needs to be repaired. All laws hold meanwhile."""
        given_messages, log = went
        messages = openai_messages(log)
        again = opening(messages)

        assert messages[: len(given_messages)] == given_messages
        assert faults_in(messages) == []
        assert again.repairs == ()
        assert openai_messages([LogEntry.of(again, begin(again))]) == messages


class TestWhatWasSaidSince:
    """It is written in the format in which the history was given."""

    def test_calls_and_results_are_written_as_openai_has_them(self) -> None:
        """Arguments as the text of the model, results in call order, and errors that say so."""
        conversation = Conversation(parallel=2)
        conversation.says("Dinner?", images=[DOOR])
        conversation.model_calls(
            call("find", raw_arguments='{"party":  2}'), call("x:pay", fault="No."), content="Let me see."
        )
        conversation.tool_ends("find", "Sakura")
        conversation.model_says("Sakura has a table.")

        image = {"type": "image_url", "image_url": {"url": data_url("image/png", PNG)}}
        first, asked, found, failed, said = openai_messages(conversation.history.log)
        assert first == {"role": "user", "content": [{"type": "text", "text": "Dinner?"}, image]}
        assert [one["function"]["arguments"] for one in asked["tool_calls"]] == ['{"party":  2}', "{}"]
        assert (asked["content"], asked["tool_calls"][0]["id"]) == ("Let me see.", "find")
        assert (found["content"], failed["content"]) == ("Sakura", "Error: No.")
        assert said == {"role": "assistant", "content": "Sakura has a table."}

    def test_images_of_a_result_stand_behind_it(self) -> None:
        """In a user's message, because OpenAI takes no images in results."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls("look")
        looked = ToolResult(text="A door", images=(DOOR,))
        conversation.happens(ToolComplete, effect_id=conversation.running("look"), result=looked)

        *_, found, shown = openai_messages(conversation.history.log)

        assert found["content"] == "A door\n\n(1 image: see below.)"
        assert (shown["role"], [part["type"] for part in shown["content"]]) == ("user", ["text", "image_url"])

    def test_a_call_that_waits_has_a_result_that_says_so(self) -> None:
        """A conversation that waits for a person is a valid history, too."""
        conversation = Conversation()
        conversation.says()
        conversation.model_calls(asking())
        conversation.tool_asks()

        assert openai_messages(conversation.history.log)[-1] == {
            "role": "tool",
            "tool_call_id": "ask",
            "content": NO_RESULT,
        }

    def test_new_calls_stand_behind_given_ones_of_the_same_name(self) -> None:
        """Results find their own call, although the history holds calls and results, too."""
        given_call = {"id": "a", "type": "function", "function": {"name": "a", "arguments": "{}"}}
        history: list[Given] = [
            {"role": "assistant", "content": None, "tool_calls": [given_call]},
            {"role": "tool", "tool_call_id": "a", "content": "old"},
        ]
        conversation = Conversation(messages=history, parallel=2)
        conversation.says()
        conversation.model_calls("b", "c")
        conversation.tool_ends("c", "2")
        conversation.tool_ends("b", "1")

        results = [one["content"] for one in openai_messages(conversation.history.log) if one["role"] == "tool"]
        assert results == ["old", "1", "2"]

    def test_what_was_condensed_is_still_told(self) -> None:
        """A summary replaces messages in requests only, also those that were given."""
        history: list[Given] = [{"role": "assistant", "content": "Welcome!"}, {"role": "user", "content": "Hello"}]
        conversation = Conversation(messages=history)
        conversation.wants_it_condensed()
        conversation.history_is_condensed("They greeted.")

        assert conversation.history.current == ()
        assert openai_messages(conversation.history.log) == history
