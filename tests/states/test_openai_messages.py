"""Messages in OpenAI's chat format: a given history is read, checked and repaired, and a conversation is written."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from hashlib import sha256
from itertools import dropwhile
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from turnwise.effects.given_files import TakenFiles
from turnwise.effects.model.request import assemble_context, build_request
from turnwise.states import DetailsChanged, InvalidInput, LogEntry, Request, ToolComplete, ToolResult, begin
from turnwise.states.openai_reading import MAX_MESSAGES, MAX_REPAIRS, repair_history
from turnwise.states.openai_writing import NO_RESULT, openai_messages
from turnwise.states.values.files import MAX_FILES
from turnwise.states.values.messages import effects_taken
from turnwise.testing.generation.events import event_in
from turnwise.testing.generation.states import EXTREME
from turnwise.testing.history import History
from turnwise.testing.laws import check_newest
from turnwise.testing.strategies import NOON, Drawn, changed, policies

from ..support.cases import holds_for
from ..support.conversation import Conversation, asking, call
from ..support.operations import LINEAR, growth
from ..support.pictures import MP4, PDF, PNG, WAV, base64, data_url, padded_png, shown, stored
from ..support.scenarios.openai_histories import (
    Given,
    any_histories,
    as_given,
    body_of,
    faults_in,
    next_request,
    opening,
    valid_histories,
)
from ..support.servers.openai_server import violations

# --- A given history is checked and repaired, so that a conversation can go on from any list of messages.


SYSTEM = ("system", "developer")
PDF_URL = data_url("application/pdf", PDF)


def calling(*ids: str, name: str = "find", arguments: str = "{}", **fields: Any) -> Given:
    """A message of the assistant with calls."""
    calls = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def result(call_id: str, text: str = "Sakura") -> Given:
    """A result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def user(content: Any = "Hello") -> Given:
    """A message of a user."""
    return {"role": "user", "content": content}


def repaired(*messages: Given) -> tuple[list[Given], list[str]]:
    """The messages after the repair, and what was repaired."""
    history = repair_history(messages, take_file=TakenFiles().take)
    return as_given(history.messages), list(history.repairs)


class TestAnyList:
    """Whatever list of mappings is given, a conversation goes on from it."""

    @given(
        any_histories(), st.sampled_from(["openai/test", "mistral/mistral-small"]), st.sampled_from(["", "Be kind."])
    )
    def test_the_next_request_is_valid_for_every_provider(self, messages: list[Given], model: str, system: str) -> None:
        """P35: for the strictest of all providers, whatever was handed over."""
        opened = opening(messages, system)
        effect, context, transcript = next_request(opened)
        assembled = assemble_context(effect, context, transcript, turn=1)

        request = build_request(effect.replace(model=model), assembled.system, assembled.messages, (), turn=1)

        assert violations(body_of(model, request.messages, request.tools, request.tool_choice)) == []
        assert "Go on." in str(request.messages[-1]["content"])

    @given(any_histories())
    def test_what_is_kept_is_in_order(self, messages: list[Given]) -> None:
        """Every call has exactly one result directly behind its message, ids are unique, and no message is empty."""
        opened = opening(messages)

        assert faults_in(as_given(opened.messages)) == []
        assert effects_taken(opened.messages) <= 1_000_000_000

    @given(any_histories())
    def test_a_repaired_history_needs_no_repair(self, messages: list[Given]) -> None:
        """A conversation that begins with the messages of another one has the same messages, and no repairs."""
        first = openai_messages_of(messages)

        again = repair_history(first)

        assert again.repairs == ()
        assert openai_messages_of(first) == first

    @given(any_histories())
    def test_the_list_is_not_changed(self, messages: list[Given]) -> None:
        """The application's own list stays as it is, and the same list gives the same history."""
        before = [dict(message) for message in messages]

        first = repair_history(messages)

        assert [*map(str, before)] == [*map(str, messages)]
        assert repair_history(messages) == first

    @given(any_histories())
    def test_nothing_is_changed_without_a_word(self, messages: list[Given]) -> None:
        """If no repair is reported, the messages are given back equal, and otherwise they are not those given."""
        history = repair_history(messages)

        unchanged = openai_messages_of(messages) == messages

        assert unchanged == (history.repairs == ())


def openai_messages_of(messages: list[Given]) -> list[Given]:
    """The messages of a conversation that begins with these."""
    opened = opening(messages)
    return openai_messages([log_entry(opened)])


def log_entry(opened: Any) -> Any:
    """The first entry of a log."""
    from turnwise.states import LogEntry, begin

    return LogEntry.of(opened, begin(opened))


class TestAValidList:
    """A history in which nothing is wrong is kept as it is."""

    @given(valid_histories())
    def test_it_is_given_back_equal(self, messages: list[Given]) -> None:
        """Every member, the order of texts and images, names, refusals and ids; nothing is reported."""
        assert faults_in(messages) == []

        history = repair_history(messages)

        assert history.repairs == ()
        assert openai_messages_of(messages) == messages

    @given(valid_histories())
    def test_instructions_at_the_beginning_are_the_system_prompt(self, messages: list[Given]) -> None:
        """Those behind stay where they are."""
        effect, context, transcript = next_request(opening(messages))
        first = next((place for place, one in enumerate(messages) if one["role"] not in SYSTEM), len(messages))

        roles = [message.role for message in transcript.messages[:-1]]

        assert bool(context.system) == bool(first)
        assert roles == ["system" if one["role"] in SYSTEM else one["role"] for one in messages[first:]]
        assert effect.effect_id == effects_taken(opening(messages).messages) + 1

    def test_an_instruction_within_the_dialogue_is_sent_at_its_place(self) -> None:
        """As a user's message between tags, because many providers take a system message at the beginning only."""
        later = {"role": "developer", "content": "Answer in French."}
        effect, context, transcript = next_request(opening([{"role": "system", "content": "S"}, user(), later]))
        assembled = assemble_context(effect, context, transcript, turn=1)

        request = build_request(effect, assembled.system, assembled.messages, (), turn=1)

        content = "Hello\n\n<system_message>\nAnswer in French.\n</system_message>\n\nGo on."
        assert request.messages == ({"role": "system", "content": "S"}, {"role": "user", "content": content})

    def test_texts_and_images_keep_their_order_in_the_request(self) -> None:
        """A text behind an image stays behind it."""
        image = {"type": "image_url", "image_url": {"url": data_url("image/png", PNG), "detail": "low"}}
        parts = [{"type": "text", "text": "This one"}, image, {"type": "text", "text": "or that one:"}, image]
        effect, context, transcript = next_request(opening([user(parts)]))
        assembled = assemble_context(effect, context, transcript, turn=1)

        request = build_request(effect, "", assembled.messages, (), turn=1)

        sent = request.messages[0]["content"]
        assert [part.get("text", "image") for part in sent] == ["This one", "image", "or that one:", "image", "Go on."]


class TestCalls:
    """Each call has one result, directly behind the message that made it."""

    def test_a_call_without_a_result_gets_one(self) -> None:
        """At the end of the history and within it; the result says what is missing."""
        messages, repairs = repaired(calling("a", "b"), result("b"), user(), calling("c"))

        assert messages == [
            calling("a", "b"),
            result("b"),
            result("a", NO_RESULT),
            user(),
            calling("c"),
            result("c", NO_RESULT),
        ]
        assert [repair.split(":")[0] for repair in repairs] == ["messages[0]", "messages[3]"]
        assert repairs[0] == "messages[0]: The call 'a' of 'find' has no result; one that says so was added."

    def test_a_repeated_id_is_replaced_together_with_that_of_its_result(self) -> None:
        """Also twice within one message. The new id is one that the history does not use."""
        messages, repairs = repaired(
            calling("a", "a"),
            result("a", "1"),
            result("a", "2"),
            calling("a_r2", "a"),
            result("a_r2"),
            result("a", "4"),
        )

        ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        assert ids == ["a", "a_r3", "a_r2", "a_r4"]
        assert [(one["tool_call_id"], one["content"]) for one in messages if one["role"] == "tool"] == [
            ("a", "1"),
            ("a_r3", "2"),
            ("a_r2", "Sakura"),
            ("a_r4", "4"),
        ]
        assert repairs == [
            "messages[0]: The id 'a' is repeated; it became 'a_r3'.",
            "messages[3]: The id 'a' is repeated; it became 'a_r4'.",
        ]

    @pytest.mark.parametrize("stray", [result("x"), result("a", "again"), {"role": "tool", "content": "?"}])
    def test_a_result_of_no_call_is_left_out(self, stray: Given) -> None:
        """Of a call that was cut off, of one that has its result, and of none at all."""
        messages, repairs = repaired(calling("a"), result("a"), user(), stray)

        assert messages == [calling("a"), result("a"), user()]
        assert len(repairs) == 1
        assert repairs[0].endswith("which waits for none, was left out.")

    def test_a_late_result_moves_to_its_place(self) -> None:
        """Behind the message with its call, and this is reported."""
        messages, repairs = repaired(calling("a"), user("Well?"), result("a"))

        assert messages == [calling("a"), result("a"), user("Well?")]
        assert repairs == ["messages[2]: The result of the call 'a' was moved behind the message with the call."]

    def test_ids_that_are_numbers_become_texts(self) -> None:
        """And this is reported, of the call and of the result."""
        messages, repairs = repaired(calling(7), {**result("a"), "tool_call_id": 7})  # type: ignore[arg-type]

        assert messages == [calling("7"), result("7")]
        assert repairs == [
            "messages[0]: The id 7 is a number; it became a text.",
            "messages[1]: The tool_call_id 7 is a number; it became a text.",
        ]

    def test_results_keep_the_order_in_which_they_came(self) -> None:
        """OpenAI's format leaves it open, so it is no fault."""
        given = [calling("a", "b"), result("b"), result("a")]

        assert repaired(*given) == (given, [])

    def test_results_without_ids_belong_to_the_calls_in_their_order_or_by_name(self) -> None:
        """As programs for local models keep them, whose calls have no ids either."""
        calls = [{"function": {"name": name, "arguments": {"x": 1}}} for name in ("find", "weather")]
        messages, _ = repaired(
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "name": "weather", "content": "rain"},
            {"role": "tool", "content": "Sakura"},
        )

        assert faults_in(messages) == []
        names = {call["id"]: call["function"]["name"] for call in messages[0]["tool_calls"]}
        assert [(names[one["tool_call_id"]], one["content"]) for one in messages[1:]] == [
            ("weather", "rain"),
            ("find", "Sakura"),
        ]

    def test_the_older_format_of_calls_is_rewritten(self) -> None:
        """`function_call` and the role `function`, whose results name the function."""
        messages, repairs = repaired(
            {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": '{"a": 1}'}},
            {"role": "function", "name": "find", "content": "Sakura"},
        )

        assert faults_in(messages) == []
        assert messages[0]["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"a": 1}'}
        assert messages[1]["content"] == "Sakura"
        assert any("function_call was rewritten" in repair for repair in repairs)

    def test_items_of_the_responses_api_are_understood(self) -> None:
        """Calls that stand side by side are those of one response; each rewritten item is reported."""
        messages, repairs = repaired(
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Dinner?"}]},
            {"type": "function_call", "call_id": "a", "name": "find", "arguments": '{"party": 2}', "id": "fc_1"},
            {"type": "function_call", "call_id": "b", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "b", "output": "rain"},
            {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "Sakura"}]},
            {"type": "reasoning", "summary": []},
        )

        asked, called, *results = messages
        assert asked["content"] == [{"type": "text", "text": "Dinner?"}]
        assert [call["function"]["name"] for call in called["tool_calls"]] == ["find", "weather"]
        assert [one["tool_call_id"] for one in results] == ["b", "a"]
        assert faults_in(messages) == []
        assert {repair.split(":")[0] for repair in repairs} == {f"messages[{place}]" for place in range(6)}

    @holds_for(
        ("given_arguments", "kept"),
        [
            ("{", "{}"),
            ("", "{}"),
            ("[1]", "{}"),
            (None, "{}"),
            ({"a": 1}, '{"a": 1}'),
            ('{"a": NaN, "b": 1}', '{"b": 1}'),
            ('{"a": "\\ud83c"}', '{"a": "\N{REPLACEMENT CHARACTER}"}'),
            ("[" * 100_000, "{}"),
        ],
    )
    def test_arguments_become_a_json_object(self, given_arguments: Any, kept: str) -> None:
        """What can be saved of them is kept."""
        messages, repairs = repaired(calling("a", arguments=given_arguments), result("a"))

        assert messages[0]["tool_calls"][0]["function"]["arguments"] == kept
        assert len(repairs) == 1
        assert len(repairs[0]) < 200

    @pytest.mark.parametrize("wanted", ["i" * 201, "i" * 100_000, "call_10000000000_0"])
    def test_a_huge_id_is_replaced(self, wanted: str) -> None:
        """Whatever is huge about it: its length, or the number of an effect in it."""
        messages, repairs = repaired(calling(wanted), result(wanted))

        assert messages == [calling("history_0_2"), result("history_0_2")]
        assert repairs[0].endswith("is too long; it became 'history_0_2'.")

    @pytest.mark.slow
    def test_ten_thousand_calls_with_one_id_take_no_longer(self) -> None:
        """Each search for a new id goes on where the last one ended."""
        messages, _ = repaired(*[one for _ in range(5_000) for one in (calling("a"), result("a"))])

        assert faults_in(messages) == []


class TestContents:
    """Texts and images are kept, and what a model is not sent is left out."""

    @pytest.mark.parametrize("kind", ["thinking", "search_result", "custom"])
    def test_an_unknown_part_is_left_out_and_reported(self, kind: str) -> None:
        """The other parts stay."""
        text = {"type": "text", "text": "Listen:"}

        messages, repairs = repaired(user([text, {"type": kind, kind: {}}]))

        assert messages == [user([text])]
        assert repairs == [f"messages[0]: A part of the type '{kind}' was left out."]

    @pytest.mark.parametrize(
        "url",
        [
            "http://example.org/a.png",
            "ftp://x",
            "data:image/png;base64,###",
            "data:text/plain;base64,aGVsbG8=",
            data_url("image/png", padded_png(20_000_001)),
        ],
        ids=["http", "ftp", "no base64", "no image", "too large"],
    )
    def test_an_image_that_cannot_be_sent_is_left_out(self, url: str) -> None:
        """The limits are those of images that people send."""
        image = {"type": "image_url", "image_url": {"url": url}}

        messages, repairs = repaired(user([{"type": "text", "text": "Look:"}, image]))

        assert messages == [user([{"type": "text", "text": "Look:"}])]
        assert len(repairs) == 1
        assert repairs[0].startswith("messages[0]: An image was left out: ")

    def test_the_media_type_of_an_image_is_corrected(self) -> None:
        """Many programs write `image/jpg`, or whatever the name of the file said."""
        image = {"type": "image_url", "image_url": {"url": data_url("image/jpg", PNG), "detail": "low"}}

        messages, repairs = repaired(user([image]))

        corrected = {"type": "image_url", "image_url": {"detail": "low"}, "stored_file": shown(DOOR)["stored_file"]}
        assert messages == [user([corrected])]
        assert repairs == ["messages[0]: The media type of an image was corrected."]

    def test_too_many_images_are_left_out(self) -> None:
        """The first ones of a message are kept."""
        image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}

        messages, repairs = repaired(user([image] * (MAX_FILES + 2)))

        assert messages == [user([image] * MAX_FILES)]
        assert len(repairs) == 2

    @pytest.mark.parametrize(
        ("part", "stored_as"),
        [
            ({"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}}, ("audio/wav", "")),
            ({"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}}, ("application/pdf", "a.pdf")),
            ({"type": "file", "file": {"filename": "a.csv", "file_data": base64(b"a,b")}}, ("text/csv", "a.csv")),
            ({"type": "input_file", "filename": "a.pdf", "file_data": PDF_URL}, ("application/pdf", "a.pdf")),
            ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64(PNG)}}, None),
            (
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": base64(PDF)},
                    "title": "Menu",
                },
                ("application/pdf", "Menu"),
            ),
            (
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Menü, 5 %"}},
                ("text/plain", ""),
            ),
            ({"type": "video_url", "video_url": {"url": data_url("video/mp4", MP4)}}, ("video/mp4", "")),
            ({"type": "audio_url", "audio_url": {"url": data_url("audio/wav", WAV)}}, ("audio/wav", "")),
            ({"type": "document_url", "document_url": PDF_URL, "document_name": "b.pdf"}, ("application/pdf", "b.pdf")),
        ],
    )
    def test_files_of_every_shape_are_stored(self, part: Given, stored_as: tuple[str, str] | None) -> None:
        """A reference with the digest of the bytes stands in their place."""
        taken = TakenFiles()
        history = repair_history([user([part])], take_file=taken.take)

        (kept,) = history.messages[0].files
        (file,) = taken.files
        assert history.repairs == ()
        assert (kept.media_type, kept.name) == (stored_as or ("image/png", ""))
        assert sha256(file.data or b"").hexdigest() == kept.sha256
        assert file.data in (WAV, PDF, b"a,b", PNG, "Menü, 5 %".encode(), MP4)

    @pytest.mark.parametrize(
        ("part", "kept"),
        [
            ({"type": "input_file", "file_url": "https://example.org/a"}, ("a", "application/pdf")),
            ({"type": "document", "source": {"type": "url", "url": "https://example.org/b"}}, ("b", "application/pdf")),
            ({"type": "document_url", "document_url": "https://example.org/c.pdf"}, ("c.pdf", "application/pdf")),
            ({"type": "video_url", "video_url": {"url": "https://example.org/d"}}, ("d", "video/mp4")),
            ({"type": "audio_url", "audio_url": {"url": "https://example.org/e.wav"}}, ("e.wav", "audio/wav")),
        ],
    )
    def test_files_at_an_address_are_written_as_a_conversation_does(self, part: Given, kept: tuple[str, str]) -> None:
        """What nobody says is what is usual for files of that kind."""
        messages, repairs = repaired(user([part]))

        path, media_type = kept
        written = {"type": "file", "file": {"file_id": f"https://example.org/{path}", "format": media_type}}
        assert messages == [user([written])]
        assert len(repairs) == 1
        assert repaired(*messages) == (messages, [])

    @pytest.mark.parametrize(
        ("part", "why"),
        [
            ({"type": "file", "file": {"file_id": "file-1"}}, "A file was left out: it has neither"),
            ({"type": "file", "file": {"file_data": "###"}}, "A file was left out: it is a data: URL whose base64"),
            ({"type": "file", "file": {"file_data": "UEsDBA=="}}, "A file was left out: it cannot be sent: no model"),
            ({"type": "input_audio", "input_audio": {}}, "A recording was left out: it has neither"),
            ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "pcm16"}}, "A recording was left out: "),
            ({"type": "document", "source": {"type": "file", "file_id": "f"}}, "A document was left out: it has"),
            ({"type": "document", "source": None}, "A document was left out: it has neither"),
            ({"type": "video_url", "video_url": {"url": "ftp://x"}}, "A video was left out: it is at no https://"),
        ],
    )
    def test_a_file_that_cannot_be_sent_is_left_out(self, part: Given, why: str) -> None:
        """The repair says why."""
        messages, repairs = repaired(user([{"type": "text", "text": "Look:"}, part]))

        assert messages == [user([{"type": "text", "text": "Look:"}])]
        assert len(repairs) == 1
        assert repairs[0].startswith(f"messages[0]: {why}")

    def test_a_recording_under_another_format_is_corrected(self) -> None:
        """A provider would refuse it."""
        part = {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "mp3"}}

        history = repair_history([user([part])], take_file=TakenFiles().take)

        assert history.messages[0].files[0].media_type == "audio/wav"
        assert history.repairs == ("messages[0]: The media type of a recording was corrected.",)

    def test_a_file_that_is_stored_already_is_kept(self) -> None:
        """The messages of a conversation may be written with references in place of bytes."""
        message = user([{"type": "text", "text": "Look:"}, shown(DOOR)])

        assert repaired(message) == ([message], [])

    def test_a_reference_that_cannot_be_read_is_left_out(self) -> None:
        """It would be shown to nobody."""
        broken = {"type": "stored_file", "stored_file": {"sha256": "no digest", "media_type": "image/png"}}

        messages, repairs = repaired(user([{"type": "text", "text": "Look:"}, broken]))

        assert messages == [user([{"type": "text", "text": "Look:"}])]
        assert repairs == ["messages[0]: A file was left out: its reference cannot be read."]

    def test_bytes_that_cannot_be_stored_are_left_out(self) -> None:
        """The pure core has no place for them, and never holds any."""
        image = {"type": "image_url", "image_url": {"url": data_url("image/png", PNG)}}

        history = repair_history([user([{"type": "text", "text": "Look:"}, image])])

        assert as_given(history.messages) == [user([{"type": "text", "text": "Look:"}])]
        assert history.repairs == ("messages[0]: An image was left out: there is no place for its bytes.",)

    @holds_for("content", ["", " \n", None, [], [{"type": "text", "text": " "}]])
    @holds_for("role", ["user", "system", "developer", "assistant"])
    def test_an_empty_message_is_left_out(self, role: str, content: Any) -> None:
        """Providers refuse it."""
        messages, repairs = repaired(user(), {"role": role, "content": content})

        assert messages == [user()]
        assert repairs[-1] == "messages[1]: An empty message was left out."

    @pytest.mark.parametrize(
        ("content", "kept"), [({"ok": True}, '{"ok": true}'), ([1, 2], "[1, 2]"), (7, "7"), (None, "")]
    )
    def test_what_a_tool_returned_becomes_a_text(self, content: Any, kept: str) -> None:
        """Programs that keep the value itself are understood."""
        messages, repairs = repaired(calling("a"), {"role": "tool", "tool_call_id": "a", "content": content})

        assert messages[1]["content"] == kept
        assert len(repairs) == 1

    @pytest.mark.parametrize("message", [{}, {"content": "Hello"}, {"role": "robot", "content": "Hello"}, {"role": 3}])
    def test_a_message_of_no_role_is_left_out(self, message: Given) -> None:
        """Nobody knows who said it."""
        messages, repairs = repaired(message, user())

        assert messages == [user()]
        assert len(repairs) == 1

    def test_half_a_character_is_replaced(self) -> None:
        """Wherever it stands: in texts, in names of members, and deep inside."""
        messages, repairs = repaired({"role": "user", "content": "a\ud83c", "x\udc00": [{"y": "\ud800"}]})

        assert messages == [{"role": "user", "content": "a\ufffd", "x\ufffd": [{"y": "\ufffd"}]}]
        assert repairs == ["messages[0]: Half a character (a lone surrogate) was replaced."]

    def test_what_json_cannot_hold_is_left_out(self) -> None:
        """The other members stay, however deep they are nested."""
        deep: Any = 1
        for _ in range(100):
            deep = [deep]

        messages, repairs = repaired({**user(), "at": object(), "x": [float("nan"), 1], "deep": deep, 3: "three"})  # type: ignore[dict-item]

        (message,) = messages
        assert (message["content"], message["x"], set(message)) == ("Hello", [1], {"role", "content", "x", "deep"})
        assert repairs == ["messages[0]: What JSON cannot hold (NaN, or objects of Python) was left out."]

    def test_values_that_contain_each_other_are_cut_off(self) -> None:
        """A list that holds itself, or one list many times, has no end as JSON."""
        endless: list[Any] = []
        endless += [endless, endless]

        messages, repairs = repaired({**user(), "x": endless})

        assert messages[0]["content"] == "Hello"
        assert len(repairs) == 1


class TestSystem:
    """The system prompt is the instructions at the beginning, or the one that is given."""

    def test_several_instructions_at_the_beginning_are_joined(self) -> None:
        """They are given back one by one."""
        messages = [{"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Be brief."}, user()]

        history = repair_history(messages)

        assert history.system == "Be kind.\n\nBe brief."
        assert openai_messages_of(messages) == messages

    def test_a_given_prompt_replaces_them(self) -> None:
        """And this is reported."""
        history = repair_history([{"role": "system", "content": "Old."}, user()], "New.")

        assert (history.system, as_given(history.messages)) == ("New.", [user()])
        assert history.repairs == (
            "messages[0]: The system message was replaced by the one that was given as `system`.",
        )


class Answer(BaseModel):
    """A message as the libraries of providers return it."""

    role: str = "assistant"
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None


class TestWhatIsHandedOver:
    """A list of mappings, or of the objects that libraries return."""

    def test_objects_of_the_libraries_are_messages(self) -> None:
        """Programs append the model's message, or its calls, as they got them."""

        class Function(BaseModel):
            name: str = "find"
            arguments: str = "{}"

        class Call(BaseModel):
            id: str = "a"
            type: str = "function"
            function: Function = Function()

        expected = [{key: value for key, value in calling("a").items() if value is not None}, result("a")]

        assert repaired(Answer(tool_calls=[Call()]), result("a")) == (expected, [])  # type: ignore[arg-type]
        assert repaired({"role": "assistant", "tool_calls": [Call()]}, result("a")) == (expected, [])

    def test_any_mapping_will_do(self) -> None:
        """And any iterable of them."""
        assert as_given(repair_history(iter([MappingProxyType(user())])).messages) == [user()]

    @holds_for("given_messages", ["Hello", b"x", user(), 3, None, ["Hello"], [user(), None], [[]], object()])
    def test_anything_else_is_refused_in_one_sentence(self, given_messages: Any) -> None:
        """It names the message that is none."""
        with pytest.raises(InvalidInput) as refused:
            repair_history(given_messages)

        assert str(refused.value).count(". ") == 0

    def test_there_is_a_limit(self) -> None:
        """An endless iterator ends, too."""
        endless = iter(lambda: user(), None)

        with pytest.raises(InvalidInput, match=f"at most {MAX_MESSAGES:,} messages"):
            repair_history(endless)  # type: ignore[arg-type]

    def test_what_is_reported_has_a_limit(self) -> None:
        """The last sentence counts the others, and the sentences follow the messages."""
        history = repair_history([calling("a"), *[user("") for _ in range(MAX_REPAIRS + 5)]])

        assert len(history.repairs) == MAX_REPAIRS + 1
        assert history.repairs[-1] == "6 more repairs were made."

    def test_the_result_is_a_copy(self) -> None:
        """What the program changes later in its list does not change the history."""
        messages = [calling("a"), result("a")]
        before = deepcopy(messages)

        history = repair_history(messages)
        messages[0]["tool_calls"][0]["id"] = "b"

        assert as_given(history.messages) == before


def _with_reversed_results(count: int) -> list[Given]:
    ids = [f"c{number}" for number in range(count)]
    return [calling(*ids), *(result(call_id) for call_id in reversed(ids))]


def _with_results_at_the_end(count: int) -> list[Given]:
    ids = [f"c{number}" for number in range(count)]
    return [*(calling(call_id) for call_id in ids), *(result(call_id) for call_id in ids)]


def _with_results_by_name(count: int) -> list[Given]:
    calls = [call for number in range(count) for call in calling("", name=f"t{number}")["tool_calls"]]
    results = [{"role": "tool", "name": f"t{count - number}", "content": "Sakura"} for number in range(count)]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _with_one_id(count: int) -> list[Given]:
    return [calling(*["c"] * count), *[result("c")] * count]


@pytest.mark.slow
class TestCost:
    """A history comes from outside, so a longer one costs as much more as it is longer."""

    @pytest.mark.parametrize(
        "made", [_with_reversed_results, _with_results_at_the_end, _with_results_by_name, _with_one_id]
    )
    def test_it_grows_as_the_history_does(self, made: Callable[[int], list[Given]]) -> None:
        """In whatever order the results stand, and however they name their calls."""
        assert growth(made, repair_history, 150) < LINEAR


# --- The messages of a conversation in OpenAI's chat format: what it began with, and what was said since.


DOOR = stored(PNG)


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


def with_newest_prompt(given: list[Given], prompts: list[str]) -> list[Given]:
    """The history that a conversation began with, if its system prompt was changed to these since."""
    if not prompts:
        return given
    said = [*dropwhile(lambda message: message.get("role") in ("system", "developer"), given)]
    return [{"role": "system", "content": prompts[-1]}, *said] if prompts[-1].strip() else said


class TestEveryConversation:
    """Whatever happened, its messages are a history that another conversation can begin with."""

    @pytest.mark.slow
    @given(continued())
    def test_a_conversation_with_its_messages_has_the_same_messages(
        self, went: tuple[list[Given], list[LogEntry]]
    ) -> None:
        """They begin with the given history, before which the newest system prompt stands in place of the given one if
        it has changed. Nothing in them needs to be repaired. All laws hold meanwhile."""
        given_messages, log = went
        messages = openai_messages(log)
        again = opening(messages)

        prompts = [entry.event.system for entry in log if isinstance(entry.event, DetailsChanged)]
        begins = with_newest_prompt(given_messages, [prompt for prompt in prompts if prompt is not None])
        assert messages[: len(begins)] == begins
        assert faults_in(messages) == []
        assert again.repairs == ()
        assert openai_messages([LogEntry.of(again, begin(again))]) == messages


class TestWhatWasSaidSince:
    """It is written in the format in which the history was given."""

    def test_calls_and_results_are_written_as_openai_has_them(self) -> None:
        """Arguments as the text of the model, results in call order, and errors that say so."""
        conversation = Conversation(parallel=2)
        conversation.says("Dinner?", files=[DOOR])
        conversation.model_calls(
            call("find", raw_arguments='{"party":  2}'), call("x:pay", fault="No."), content="Let me see."
        )
        conversation.tool_ends("find", "Sakura")
        conversation.model_says("Sakura has a table.")

        image = shown(DOOR)
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
        looked = ToolResult(text="A door", files=(DOOR,))
        conversation.happens(ToolComplete, effect_id=conversation.running("look"), result=looked)

        *_, found, behind = openai_messages(conversation.history.log)

        assert found["content"] == "A door\n\n(1 image: see below.)"
        assert (behind["role"], [part["type"] for part in behind["content"]]) == ("user", ["text", "stored_file"])

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
