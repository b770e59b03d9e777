"""The messages of a request, built from what was said: complete, the same each time, and cheap."""

from __future__ import annotations

import json
import locale
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.litellm.llm import LiteLlm
from turnwise.effects.model.port import ModelRequest, Purpose
from turnwise.effects.model.rehearsal import RehearsalLlm, reply_to
from turnwise.effects.model.request import (
    CachedPrompt,
    OfferedTools,
    assemble_context,
    build_request,
    with_fresh_context,
    write_fresh_context,
)
from turnwise.effects.model.written_messages import BEGINNING, BETWEEN, request_digest
from turnwise.effects.text import DAYS, MONTHS
from turnwise.states import (
    CompactionRequested,
    Context,
    FileReference,
    HistoryCompacted,
    LogEntry,
    Policy,
    ProviderFields,
    Recent,
)
from turnwise.states.effects import CompactHistory, RequestLlm
from turnwise.states.openai_writing import legal_name
from turnwise.states.transcript import Transcript
from turnwise.states.values.messages import Message, ToolCall
from turnwise.testing.generation.chance import FILES
from turnwise.testing.strategies import NOON

from ...support.cases import holds_for
from ...support.pictures import GIF, PNG, sent, stored
from ...support.servers.openai_server import LEGAL_NAME, Body, OpenAiServer, says, violations

# --- A request is valid for every provider, whatever the transcript holds.


MODEL = "openai/test"
MISTRAL = "mistral/mistral-small"
SEAL = {"type": "thinking", "thinking": "Hm", "signature": "c2VhbA=="}


def user(text: str = "Hello", turn: int = 1, files: tuple[FileReference, ...] = ()) -> Message:
    """A user's message."""
    return Message(role="user", text=text, files=files, turn=turn)


def assistant(text: str = "", *made: ToolCall, **fields: Any) -> Message:
    """The model's message."""
    return Message(role="assistant", text=text, tool_calls=made, **{"model": MODEL, "turn": 1, **fields})


def call(call_id: str, name: str = "find_table", arguments: str = '{"party": 2}') -> ToolCall:
    """A call of a tool."""
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


def result(call_id: str, text: str = "Sakura", error: bool = False, files: tuple[FileReference, ...] = ()) -> Message:
    """A tool's result."""
    return Message(role="tool", text=text, files=files, tool_call_id=call_id, error=error, turn=1)


def offer(name: str) -> dict[str, Any]:
    """The definition of a tool."""
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def build(
    *messages: Message,
    system: str = "",
    tools: tuple[dict[str, Any], ...] = (),
    turn: int = 1,
    tool_choice: Literal["auto", "none"] = "auto",
    model: str = MODEL,
) -> ModelRequest:
    """The request for these messages."""
    effect = RequestLlm(effect_id=1, model=model, tool_choice=tool_choice, at=NOON)
    return build_request(effect, system, messages, tools, turn)


def body_of(request: ModelRequest) -> Body:
    """The request as a client would send it."""
    body: Body = {"model": request.model, "messages": list(sent(request).messages)}
    if request.tools:
        body |= {"tools": list(request.tools), "tool_choice": request.tool_choice}
    whole: Body = json.loads(json.dumps(body))
    return whole


IDS = st.sampled_from(["a", "call_1_0", "call00001", "call00002", "123456789", "x" * 41, "ü" * 9, "12345678\n"])
NAMES = (
    st.sampled_from(["find_table", "x:find_table", "x_find_table", "", "n" * 65, "Wetter prüfen", "a\n"]) | st.text()
)
ARGUMENTS = st.sampled_from(
    ["{}", "", "null", "[1]", '{"a": NaN}', '{"a": 1}', '{"a": "\\ud800"}', "{", "[" * 100_000]
) | st.text(max_size=20)
AT_ADDRESS = FileReference(url="https://example.org/a.png", media_type="image/png")
IMAGES = st.sampled_from([(), (), (stored(PNG),), (AT_ADDRESS, stored(GIF)), FILES])
TEXTS = st.sampled_from(["", " \n", "Hello"]) | st.text(max_size=20)
CALLS = st.lists(st.builds(call, IDS, NAMES, ARGUMENTS), max_size=3)
PROVIDED = st.none() | st.builds(
    ProviderFields,
    family=st.sampled_from(["", "", "openai/gpt"]),
    thinking=st.sampled_from(["", "reasoning", "<think>…</think>\n"]),
    message=st.sampled_from([{}, {"reasoning_items": [{"id": "rs_1", "type": "reasoning", "summary": []}]}]),
    calls=st.sampled_from([{}, {"a": {"extra_content": {"google": {"thought_signature": "x"}}}}]),
)
"""What providers write besides what everybody reads."""

MESSAGES = st.lists(
    st.one_of(
        st.builds(user, TEXTS, st.integers(1, 3), IMAGES),
        st.builds(
            lambda text, made, sealed, provider, turn, model: assistant(
                text,
                *made,
                opaque=(SEAL,) if sealed else (),
                provider=provider,
                thinking="Hm",
                turn=turn,
                model=model,
            ),
            TEXTS,
            CALLS,
            st.booleans(),
            PROVIDED,
            st.integers(1, 3),
            st.sampled_from([MODEL, "openai/other"]),
        ),
        st.builds(result, IDS, TEXTS, st.booleans(), IMAGES),
    ),
    max_size=8,
)
TOOLS = st.lists(NAMES, unique=True, max_size=3).map(lambda names: tuple(map(offer, names)))


class TestEveryRequest:
    """Nothing is sent that a provider refuses."""

    @given(
        messages=MESSAGES,
        system=TEXTS,
        tools=TOOLS,
        tool_choice=st.sampled_from(["auto", "none"]),
        model=st.sampled_from([MODEL, MISTRAL]),
    )
    def test_no_provider_refuses_it(
        self,
        messages: list[Message],
        system: str,
        tools: tuple[dict[str, Any], ...],
        tool_choice: Literal["auto", "none"],
        model: str,
    ) -> None:
        """P35: roles, pairs, ids, names, arguments, images and tools are valid, also if results are missing or out of
        order."""
        request = build(user(), *messages, system=system, tools=tools, tool_choice=tool_choice, model=model)

        assert violations(body_of(request)) == []

    @pytest.mark.parametrize(
        "model", [MISTRAL, "anthropic/claude-sonnet-4", "bedrock/amazon.nova", "gemini/gemini-2.5"]
    )
    def test_a_user_speaks_first_where_a_model_requires_it(self, model: str) -> None:
        """A history from elsewhere may begin with the assistant's greeting; other models get it as it is."""
        request = build(assistant("Welcome!"), user(), model=model, system="Be kind.")

        assert [message["role"] for message in request.messages] == ["system", "user", "assistant", "user"]
        assert request.messages[1]["content"] == BEGINNING
        assert build(assistant("Welcome!"), user()).messages[0]["content"] == "Welcome!"

    async def test_what_litellm_makes_of_it_is_not_refused_either(self) -> None:
        """P35: over the wire, with every awkward case in one history; the server would answer 400."""
        messages = (
            user(),
            assistant("", call("1:2", "x:find", "{"), call("same"), opaque=(SEAL,), thinking="Hm"),
            result("same"),
            user("And quick"),
            result("1:2", "", error=True),
            assistant(""),
            assistant("", call("same")),
            result("same", ""),
            user("Well?"),
            user("Are you there?"),
        )

        async with OpenAiServer([says("Yes.")]) as server:
            model = LiteLlm(MODEL, api_base=server.url, api_key="test")
            answer = await model.complete(build(*messages, system="Be kind."), lambda _: None)

        assert answer.content == "Yes."

    @given(messages=MESSAGES, tools=TOOLS)
    def test_it_is_a_pure_function(self, messages: list[Message], tools: tuple[dict[str, Any], ...]) -> None:
        """The same arguments give equal requests with equal digests."""
        first, second = (build(user(), *messages, tools=tools) for _ in range(2))

        assert first == second
        assert request_digest(first) == request_digest(second)


class TestMessages:
    """How each kind of message is sent."""

    def test_the_system_prompt_comes_first(self) -> None:
        """Only if there is one."""
        assert build(user(), system="Be kind.").messages[0] == {"role": "system", "content": "Be kind."}
        assert build(user(), system=" \n").messages == ({"role": "user", "content": "Hello"},)

    def test_an_empty_message_is_left_out(self) -> None:
        """Many providers refuse a message with neither text nor calls."""
        request = build(user(), assistant(" \n", thinking="Hm", opaque=(SEAL,)), user(" "))

        assert [message["role"] for message in request.messages] == ["user"]

    def test_results_stand_behind_their_message_in_call_order(self) -> None:
        """P4: in whatever order they came, and whatever was said in between."""
        request = build(user(), assistant("", call("a"), call("b")), result("b", "B"), user("Hurry"), result("a", "A"))

        assert [(m["role"], m["content"]) for m in request.messages] == [
            ("user", "Hello"),
            ("assistant", None),
            ("tool", "A"),
            ("tool", "B"),
            ("user", "Hurry"),
        ]
        assert [made["id"] for made in request.messages[1]["tool_calls"]] == [
            answered["tool_call_id"] for answered in request.messages[2:4]
        ]

    def test_an_error_says_that_it_is_one(self) -> None:
        """The protocol has no other place for that."""
        request = build(user(), assistant("", call("a")), result("a", "No table is free.", error=True))

        assert request.messages[-1]["content"] == "Error: No table is free."

    def test_an_empty_result_says_so(self) -> None:
        """Some providers refuse a result without a text."""
        request = build(user(), assistant("", call("a")), result("a", ""))

        assert request.messages[-1]["content"] == "(nothing)"


class TestNeighbours:
    """P35: consecutive messages of one role are merged, since some providers refuse them."""

    def test_two_messages_of_the_user_become_one(self) -> None:
        """After a failed turn or a merged queue nobody answered in between."""
        request = build(user("One"), user("Two"), assistant("Three"), user("Four"))

        assert [message["content"] for message in request.messages] == ["One\n\nTwo", "Three", "Four"]

    def test_images_keep_their_place_among_the_texts(self) -> None:
        """The order says which image belongs to which text."""
        request = build(user("One", files=(stored(PNG),)), user("Two"), user("", files=(stored(GIF),)))

        (message,) = request.messages
        assert [part["type"] for part in message["content"]] == ["text", "stored_file", "text", "stored_file"]

    def test_two_messages_of_the_model_become_one_with_its_calls(self) -> None:
        """Such as a reply, and a call after a nudge, which is not part of the history."""
        request = build(user(), assistant("Well."), assistant("", call("a")), result("a"))

        said = request.messages[1]
        assert (said["content"], len(said["tool_calls"]), len(request.messages)) == ("Well.", 1, 3)

    def test_sealed_thinking_stays_where_it_is(self) -> None:
        """Its provider checks the order; litellm merges such messages and keeps it."""
        sealed = assistant("One", opaque=(SEAL,), thinking="Hm")

        assert [message["role"] for message in build(user(), sealed, assistant("Two")).messages[1:]] == [
            "assistant"
        ] * 2

    def test_results_of_tools_are_never_merged(self) -> None:
        """Each answers a call of its own."""
        request = build(user(), assistant("", call("a"), call("b")), result("a"), result("b"))

        assert [message["role"] for message in request.messages[2:]] == ["tool", "tool"]

    @pytest.mark.parametrize("model", [MISTRAL, "openrouter/mistralai/Devstral-Small", "azure/Ministral-3B"])
    def test_a_mistral_model_gets_a_message_between_result_and_user(self, model: str) -> None:
        """After a cancel there is none, and these models require one at every provider."""
        cancelled = (user(), assistant("", call("a")), result("a", "Cancelled by user", error=True), user("Once more"))

        for_mistral, for_others = build(*cancelled, model=model), build(*cancelled)

        assert [message["role"] for message in for_mistral.messages[2:]] == ["tool", "assistant", "user"]
        assert [message["role"] for message in for_others.messages[2:]] == ["tool", "user"]


class TestImages:
    """P35: images pass in users' messages and in results of tools."""

    def test_an_image_stands_behind_the_text(self) -> None:
        """As parts, in OpenAI's shape."""
        image = FileReference(url="https://example.org/menu.jpg", media_type="image/jpeg")

        request = build(user("What is this?", files=(image,)))

        assert request.messages[0]["content"] == [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "https://example.org/menu.jpg"}},
        ]

    def test_an_image_needs_no_text(self) -> None:
        """A blank part would be refused."""
        (message,) = build(user(" ", files=(stored(PNG),))).messages

        assert [part["type"] for part in message["content"]] == ["stored_file"]

    def test_a_tool_s_images_stand_behind_the_last_result_of_the_round(self) -> None:
        """OpenAI refuses them in the results; a text names the tool and the id of the result."""
        messages = (
            assistant("", call("Ab3456789", "look"), call("b"), call("c", "x:look")),
            result("Ab3456789", "The door", files=(stored(PNG),)),
            result("b"),
            result("c", "", files=(stored(GIF), stored(PNG))),
        )

        request = build(user(), *messages, user("Well?"))

        _, _, look, _, other, shown = request.messages
        assert look["content"] == "The door\n\n(1 image: see below.)"
        assert other["content"] == "(2 images: see below.)"
        assert [part.get("text", "image") for part in shown["content"]] == [
            "Returned by the tool look (call Ab3456789), not sent by the user:",
            "image",
            f"Returned by the tool {legal_name('x:look')} (call {other['tool_call_id']}), not sent by the user:",
            "image",
            "image",
            "Well?",
        ]


class TestCalls:
    """Ids, names and arguments that every provider accepts."""

    def test_legal_ids_and_names_are_kept(self) -> None:
        """Providers recognise a history that they have seen, and charge less for it."""
        request = build(user(), assistant("", call("Ab3456789", "find_table", '{ "party":2 }')), result("Ab3456789"))

        (sent,) = request.messages[1]["tool_calls"]
        assert (sent["id"], sent["function"]) == ("Ab3456789", {"name": "find_table", "arguments": '{ "party":2 }'})

    @holds_for("arguments", ["", "{", "[]", "null", '"{}"', '{"a": NaN}', '{"a": "\\ud800"}', "[" * 9999])
    def test_arguments_that_are_not_an_object_become_an_empty_one(self, arguments: str) -> None:
        """The transcript keeps what the model wrote, and the result says what was wrong with it."""
        request = build(user(), assistant("", call("a", arguments=arguments)), result("a"))

        assert request.messages[1]["tool_calls"][0]["function"]["arguments"] == "{}"

    def test_an_id_used_twice_is_renamed_with_its_result(self) -> None:
        """P29: each result answers its own call."""
        once = "Ab3456789"
        messages = (
            assistant("", call(once, "one")),
            result(once, "1"),
            assistant("", call(once, "two")),
            result(once, "2"),
        )

        _, first, first_result, second, second_result = build(user(), *messages).messages

        assert first["tool_calls"][0]["id"] == first_result["tool_call_id"] == once
        assert second["tool_calls"][0]["id"] == second_result["tool_call_id"] == "call00001"
        assert (first_result["content"], second_result["content"]) == ("1", "2")

    @given(MESSAGES, MESSAGES)
    def test_the_beginning_of_a_growing_history_is_unchanged(self, before: list[Message], after: list[Message]) -> None:
        """A provider's cache holds only equal beginnings."""
        asked = (user(), *before, user("Well?"))
        old = build(*asked, turn=9).messages

        new = build(*asked, assistant("Done."), *(m for m in after if m.role != "tool"), turn=9).messages

        assert new[: len(old)] == old

    def test_a_name_is_made_legal_in_definitions_and_calls_alike(self) -> None:
        """The model recognises the tool that it called."""
        request = build(user(), assistant("", call("a", "x:find")), result("a"), tools=(offer("x:find"),))

        called = request.messages[1]["tool_calls"][0]["function"]["name"]
        assert called == request.tools[0]["function"]["name"] == legal_name("x:find")

    @given(st.text())
    def test_every_name_has_a_legal_one(self, name: str) -> None:
        """A legal name is unchanged."""
        legal = legal_name(name)

        assert LEGAL_NAME.fullmatch(legal)
        assert legal_name(legal) == legal

    @given(st.lists(NAMES, unique=True))
    def test_different_names_stay_different(self, names: list[str]) -> None:
        """Two tools never get the same name."""
        assert len(set(map(legal_name, names))) == len(names)


class TestTools:
    """The tools that are offered."""

    def test_tools_are_offered_as_they_are_defined(self) -> None:
        """With the choice that the machine made."""
        request = build(user(), tools=(offer("find_table"),), tool_choice="none")

        assert (request.tools, request.tool_choice) == ((offer("find_table"),), "none")

    def test_a_removed_tool_is_listed_if_no_tool_is_left(self) -> None:
        """P35: some providers refuse a history with calls and no list of tools; the listed tool cannot be called."""
        request = build(user(), assistant("", call("a"), call("b"), call("c", "x:y")), result("a"))

        assert [tool["function"]["name"] for tool in request.tools] == ["find_table", legal_name("x:y")]
        assert request.tool_choice == "none"

    def test_a_removed_tool_is_not_offered_beside_others(self) -> None:
        """P35: it stays readable in the history."""
        request = build(user(), assistant("", call("a", "gone")), result("a"), tools=(offer("find_table"),))

        assert [tool["function"]["name"] for tool in request.tools] == ["find_table"]
        assert request.messages[1]["tool_calls"][0]["function"]["name"] == "gone"

    def test_without_tools_nothing_is_listed(self) -> None:
        """A history without calls needs no list."""
        assert build(user(), assistant("Hi"), user()).tools == ()


class TestThinking:
    """Sealed thinking goes back to the model that sealed it, within the turn, and to no other."""

    def test_it_is_sent_unchanged_within_the_turn(self) -> None:
        """The provider checks its seal."""
        request = build(user(), assistant("", call("a"), opaque=(SEAL,), thinking="Hm"), result("a"))

        assert request.messages[1]["thinking_blocks"] == [SEAL]
        assert request.messages[1]["reasoning_content"] == "Hm"

    @pytest.mark.parametrize("elsewhere", [{"turn": 0}, {"model": "openai/other"}, {"opaque": ()}])
    def test_it_is_dropped_elsewhere(self, elsewhere: dict[str, Any]) -> None:
        """In a later turn, for another model, and without a seal."""
        spoken = {"opaque": (SEAL,), "thinking": "Hm", **elsewhere}

        request = build(user(), assistant("", call("a"), **spoken), result("a"))

        assert request.messages[1].keys() == {"role", "content", "tool_calls"}


class TestTheDigest:
    """A request is identified by 32 hex digits."""

    @pytest.mark.parametrize(
        "other",
        [
            build(user("Hello!")),
            build(user(), system="Be kind."),
            build(user(), tools=(offer("find_table"),)),
            build(user(), tool_choice="none"),
            ModelRequest("openai/other", build(user()).messages),
        ],
    )
    def test_another_request_has_another_digest(self, other: ModelRequest) -> None:
        """Whatever differs."""
        assert request_digest(other) != request_digest(build(user()))

    def test_it_does_not_depend_on_the_order_of_keys(self) -> None:
        """Nor on the process: digests are stored and compared years later."""
        request = ModelRequest("m", ({"content": "ü", "role": "user"},))

        assert request_digest(request) == request_digest(ModelRequest("m", ({"role": "user", "content": "ü"},)))
        assert request_digest(request) == "a0d40835cd3e177cae58c0cd199b75d1"


# --- What the rehearsal model answers before a turn: the choice of a profile, and the words of a search.


INSTRUCTION = """Choose a profile.

The profiles:
- general
- cook: Cooking, recipes and shopping.
- guide: Travel, weather and places to see.

Answer with one JSON object."""


async def answer_to(purpose: Purpose, *messages: dict[str, Any]) -> Any:
    """Return the model's answer to a request with this purpose, read as JSON."""
    request = ModelRequest("rehearsal", messages, purpose=purpose)
    return json.loads((await RehearsalLlm(delay=0).complete(request, lambda token: None)).content)


@pytest.mark.parametrize(
    ("said", "profile"),
    [
        ("Which recipe uses rice?", "cook"),
        ("Will I need an umbrella in the places I see?", "guide"),
        ("Good morning", "general"),
        ("¿Qué tal?", "general"),
    ],
)
async def test_the_profile_with_the_most_words_in_common_is_chosen(said: str, profile: str) -> None:
    """J2: the first one if no word is in common."""
    messages = ({"role": "system", "content": INSTRUCTION}, {"role": "user", "content": said})

    assert await answer_to("route", *messages) == {"profile": profile}


async def test_a_choice_among_nothing_is_no_choice() -> None:
    """Whatever a request holds, the answer is JSON."""
    assert await answer_to("route", {"role": "user", "content": [{"type": "text", "text": "a"}]}) == {"profile": ""}


@pytest.mark.parametrize(
    ("said", "keywords"),
    [
        ("What was the name of the restaurant in Turku? The restaurant!", ["was", "name", "restaurant", "Turku"]),
        ("", []),
        (" ".join(f"word{number}" for number in range(20)), [f"word{number}" for number in range(8)]),
    ],
)
async def test_keywords_are_the_words_that_say_what_it_is_about(said: str, keywords: list[str]) -> None:
    """J4: each once, as it is written, eight at most, and none for a text without any."""
    found = await answer_to("enrich", {"role": "user", "content": said})

    assert {word.lower() for word in found["keywords"]} == {word.lower() for word in keywords}
    assert found["from"] is None and found["to"] is None


NOTE = "Current context:\n• Time: Monday, September 15, 2025 at 17:53 UTC\n• Location: Unknown"
RECALLED = (
    "Relevant conversation history:\nThis is a record of what was said earlier.\n"
    "2025-09-14 12:00 UTC, assistant:\n  Noted.\n"
    "2025-09-14 11:59 UTC, user:\n  My sister lives\n  in Turku."
)


class TestTheReplyFlow:
    """J5, J6: requests with the time, the place and what was recalled."""

    def test_the_note_on_time_and_place_is_not_what_the_user_said(self) -> None:
        """In front of the text, as a part of its own, or as a message behind results."""
        said = reply_to([{"role": "user", "content": f"{NOTE}\n\nhello"}], ()).content
        parts = [{"type": "text", "text": NOTE}, {"type": "text", "text": "hello"}]

        assert said.endswith("You said: “hello” There is no tool I could use.")
        assert reply_to([{"role": "user", "content": parts}], ()).content == said

    def test_the_note_hides_no_result(self) -> None:
        """Results stand in front of it."""
        call = {"id": "call00000", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "Look up the weather"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call00000", "content": "Rain."},
            {"role": "user", "content": NOTE},
        ]

        assert reply_to(messages, ()).content == "Up: Rain."

    def test_what_was_recalled_answers_a_question(self) -> None:
        """Nothing else is answered with it."""
        asked = reply_to([{"role": "user", "content": f"Where does my sister live?\n\n{RECALLED}"}], ()).content
        told = reply_to([{"role": "user", "content": f"My sister moved.\n\n{RECALLED}"}], ()).content

        assert asked.endswith("You said earlier: “My sister lives in Turku.”")
        assert "You said: “My sister moved.”" in told


# --- The note with the time and the place: what it says, and where in a request it stands.


FRESH_CONTEXT_NOTE = "Current context:\n• Time: …\n• Location: Unknown"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
USER = {"role": "user", "content": "Hello"}
CALL = {"id": "call00001", "type": "function", "function": {"name": "search", "arguments": "{}"}}
FRESH_CONTEXT_CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call00001", "content": "18 degrees"}
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}


class TestTheNote:
    """J6: "Current context:" and two bullets."""

    def test_it_is_what_the_specification_shows(self) -> None:
        """J6: to the byte."""
        at = datetime(2025, 9, 15, 17, 53, tzinfo=UTC)

        note = write_fresh_context(at, "San Francisco, CA, United States (America/Los_Angeles)")

        assert note == (
            "Current context:\n"
            "• Time: Monday, September 15, 2025 at 17:53 UTC\n"
            "• Location: San Francisco, CA, United States (America/Los_Angeles)"
        )

    def test_the_time_is_in_utc(self) -> None:
        """J6: whatever zone it was given in; the day is that of UTC, too."""
        at = datetime(2026, 1, 1, 1, 5, 59, 999_999, tzinfo=timezone(timedelta(hours=9)))

        assert "• Time: Wednesday, December 31, 2025 at 16:05 UTC\n" in write_fresh_context(at, "Unknown")

    def test_names_do_not_follow_the_locale(self) -> None:
        """J6: English names of all days and months, in a process with any locale."""
        before = locale.setlocale(locale.LC_TIME)
        for name in ("fi_FI.UTF-8", "de_DE.UTF-8", "C.UTF-8"):
            try:
                locale.setlocale(locale.LC_TIME, name)
            except locale.Error:
                continue
            note = write_fresh_context(datetime(2026, 3, 1, tzinfo=UTC), "Unknown")
            locale.setlocale(locale.LC_TIME, before)
            assert "Sunday, March 1, 2026 at 00:00 UTC" in note
        moments = [datetime(2024, month, 1, tzinfo=UTC) for month in range(1, 13)]
        assert [f"{one:%B}" for one in moments] == list(MONTHS)
        assert [f"{datetime(2024, 1, day, tzinfo=UTC):%A}" for day in range(1, 8)] == list(DAYS)

    @pytest.mark.parametrize("year", [1, 999, 9999])
    def test_any_moment_has_a_note(self, year: int) -> None:
        """A clock may be wrong by any amount."""
        assert f", {year} at" in write_fresh_context(datetime(year, 6, 1, tzinfo=UTC), "Unknown")


def noted(*messages: dict[str, Any], model: str = "openai/gpt") -> list[dict[str, Any]]:
    """The messages of a request with the note in it."""
    return list(with_fresh_context(ModelRequest(model, messages), FRESH_CONTEXT_NOTE).messages)


class TestItsPlace:
    """J6: exactly one, at the end, as text of the user's role."""

    def test_it_stands_in_front_of_the_users_text(self) -> None:
        """In the same message, since two messages of one role in a row are refused."""
        assert noted(USER) == [{"role": "user", "content": f"{FRESH_CONTEXT_NOTE}\n\nHello"}]

    def test_behind_results_it_is_a_message_of_its_own(self) -> None:
        """And what stands in front of it stays as it was, so that it is still cached."""
        assert noted(USER, FRESH_CONTEXT_CALLS, RESULT) == [
            USER,
            FRESH_CONTEXT_CALLS,
            RESULT,
            {"role": "user", "content": FRESH_CONTEXT_NOTE},
        ]

    def test_behind_words_of_the_model_it_is_a_message_of_its_own(self) -> None:
        """Where a request ends with the model's text, for example after a reply that was only a thought."""
        said = {"role": "assistant", "content": "Let me see."}

        assert noted(USER, said) == [USER, said, {"role": "user", "content": FRESH_CONTEXT_NOTE}]

    @pytest.mark.parametrize("model", ["mistral/mistral-large", "openrouter/codestral"])
    def test_where_a_model_wants_to_speak_between_it_does(self, model: str) -> None:
        """Models of Mistral refuse a user's message directly behind a result."""
        assert noted(USER, FRESH_CONTEXT_CALLS, RESULT, model=model)[3:] == [
            {"role": "assistant", "content": BETWEEN},
            {"role": "user", "content": FRESH_CONTEXT_NOTE},
        ]
        assert noted(USER, model=model) == [{"role": "user", "content": f"{FRESH_CONTEXT_NOTE}\n\nHello"}]

    def test_beside_images_it_is_the_first_part(self) -> None:
        """The other parts keep their order."""
        parts = [IMAGE, {"type": "text", "text": "What is this?"}]

        assert noted({"role": "user", "content": parts}) == [
            {"role": "user", "content": [{"type": "text", "text": FRESH_CONTEXT_NOTE}, *parts]}
        ]

    @pytest.mark.parametrize("messages", [(), ({"role": "system", "content": "You are kind."},)])
    def test_a_request_without_dialogue_has_it_too(self, messages: tuple[dict[str, Any], ...]) -> None:
        """It is then the only message of a user."""
        assert noted(*messages) == [*messages, {"role": "user", "content": FRESH_CONTEXT_NOTE}]

    def test_the_request_is_not_changed(self) -> None:
        """Later requests share its messages, and the kept beginning never holds a note."""
        user = {"role": "user", "content": [IMAGE]}
        request = ModelRequest("m", (FRESH_CONTEXT_CALLS, RESULT, user), (TOOL,), conversation_id="c")

        changed = with_fresh_context(request, FRESH_CONTEXT_NOTE)

        assert user == {"role": "user", "content": [IMAGE]}
        assert (changed.tools, changed.conversation_id, changed.messages[:2]) == (
            (TOOL,),
            "c",
            (FRESH_CONTEXT_CALLS, RESULT),
        )

    @pytest.mark.parametrize("messages", [(USER,), (USER, FRESH_CONTEXT_CALLS, RESULT), ()])
    @pytest.mark.parametrize("model", ["m", "mistral/m"])
    def test_no_provider_refuses_it(self, messages: tuple[dict[str, Any], ...], model: str) -> None:
        """Roles alternate, and each result follows its call."""
        assert violations({"model": model, "messages": noted(*messages, model=model), "tools": [TOOL]}) == []


# --- What a request costs follows what it sends, not what is stored. The work is counted, not timed.


WORK = {"reads": 0, "looks": 0}
"""How often an attribute of a message was read, and how many entries of the list of messages were taken from it."""


class CountedMessage(Message):
    """A message that counts how often one of its attributes is read."""

    def __getattribute__(self, name: str) -> Any:
        if name in {"role", "text", "turn", "seq", "tool_calls", "audience", "opaque", "files", "tool_call_id"}:
            WORK["reads"] += 1
        return super().__getattribute__(name)


class CountedList(list[Message]):
    """A list that counts what is taken out of it."""

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        WORK["looks"] += len(found) if isinstance(place, slice) else 1
        return found

    def __iter__(self) -> Iterator[Message]:
        WORK["looks"] += len(self)
        return super().__iter__()


def turn_of(number: int) -> list[Message]:
    """A turn with a call, as it is stored."""
    call = ToolCall(call_id=f"call_{number}_0", name="search")
    return [
        CountedMessage(role="user", text=f"Question {number}", turn=number, seq=4 * number),
        CountedMessage(role="assistant", tool_calls=(call,), turn=number, seq=4 * number + 1),
        CountedMessage(role="tool", tool_call_id=call.call_id, text="18 degrees", turn=number, seq=4 * number + 2),
        CountedMessage(role="assistant", text=f"Answer {number}", turn=number, seq=4 * number + 3),
    ]


class Asked:
    """A conversation with so many finished turns, whose next turns each ask the model once."""

    def __init__(self, turns: int, policy: Policy) -> None:
        self.policy = policy
        self.transcript = Transcript(messages=CountedList(one for turn in range(1, turns + 1) for one in turn_of(turn)))
        self.turns = turns
        self.prompt = CachedPrompt()

    def request(self, system: str = "You are kind.") -> tuple[int, dict[str, int]]:
        """Begin a turn and build its request. Returns how many messages it sends, and the work that it took."""
        self.turns += 1
        turn = turn_of(self.turns)
        self.transcript.messages.append(turn[0])
        WORK.update(reads=0, looks=0)
        effect = RequestLlm(effect_id=1, model="m", at=NOON)
        context = Context(system=system, policy=self.policy)
        assembled = assemble_context(effect, context, self.transcript, self.turns)
        request, _ = self.prompt.request(effect, assembled.system, assembled.messages, OfferedTools(()), self.turns)
        work = dict(WORK)
        self.transcript.messages.extend(turn[1:])
        return len(request.messages), work

    def is_condensed(self) -> None:
        """Everything that was said is replaced by a summary."""
        seq = 4 * self.turns + 4
        condense = CompactHistory(effect_id=1, up_to=seq - 1)
        condensed = HistoryCompacted(effect_id=1, at=NOON, summary="They talked.")
        self.transcript.add(LogEntry(seq, CompactionRequested(event_id="c", at=NOON), (condense,), turn=self.turns))
        self.transcript.add(LogEntry(seq + 1, condensed, turn=self.turns))


@pytest.mark.parametrize("turns", [5, 1000])
def test_the_last_minutes_cost_the_same_in_a_long_conversation(turns: int) -> None:
    """Under `Recent` the stored messages of earlier turns are not even looked at."""
    asked, begun = (Asked(number, Policy(dialogue=Recent())) for number in (turns, 1))

    works, short = ([each.request(f"Found for turn {n}.") for n in range(3)] for each in (asked, begun))

    assert {sent for sent, _ in works} == {2}
    assert max(work["looks"] for _, work in works) <= 5
    assert works == short


@pytest.mark.parametrize("turns", [5, 1000])
def test_a_changing_system_message_leaves_written_messages_alone(turns: int) -> None:
    """Where the whole dialogue is sent, the messages of finished turns are written once, although the system message
    holds something else in each turn."""
    asked = Asked(turns, Policy())
    asked.request("Found for the first turn.")

    works = [asked.request(f"Found for turn {n}.") for n in range(3)]

    assert works[0][0] == 2 + 4 * (turns + 1)
    assert max(work["reads"] for _, work in works) <= 200
    assert [work["reads"] for _, work in works] == [works[0][1]["reads"]] * 3


@pytest.mark.parametrize("turns", [5, 1000])
def test_a_condensed_history_costs_what_is_left_of_it(turns: int) -> None:
    """What the summary replaces is not looked at again."""
    asked = Asked(turns, Policy())
    asked.is_condensed()

    works = [asked.request() for _ in range(3)]

    assert [sent for sent, _ in works] == [2, 6, 10]
    assert max(work["looks"] for _, work in works) <= 10
    assert max(work["reads"] for _, work in works) <= 200
