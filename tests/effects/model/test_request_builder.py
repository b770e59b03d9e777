"""A request is valid for every provider, whatever the transcript holds."""

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.effects.model.litellm.llm import LiteLlm
from turnwise.effects.model.port import ModelRequest
from turnwise.effects.model.request import build_request
from turnwise.effects.model.written_messages import BEGINNING, request_digest
from turnwise.states import Image
from turnwise.states.effects import RequestLlm
from turnwise.states.openai_writing import legal_name
from turnwise.states.values.messages import Message, ToolCall
from turnwise.testing.strategies import NOON

from ...support.cases import holds_for
from ...support.pictures import GIF, PNG
from ...support.servers.openai_server import LEGAL_NAME, Body, OpenAiServer, says, violations

MODEL = "openai/test"
MISTRAL = "mistral/mistral-small"
SEAL = {"type": "thinking", "thinking": "Hm", "signature": "c2VhbA=="}


def user(text: str = "Hello", turn: int = 1, images: tuple[Image, ...] = ()) -> Message:
    """A user's message."""
    return Message(role="user", text=text, images=images, turn=turn)


def assistant(text: str = "", *made: ToolCall, **fields: Any) -> Message:
    """The model's message."""
    return Message(role="assistant", text=text, tool_calls=made, **{"model": MODEL, "turn": 1, **fields})


def call(call_id: str, name: str = "find_table", arguments: str = '{"party": 2}') -> ToolCall:
    """A call of a tool."""
    return ToolCall(call_id=call_id, name=name, arguments=arguments)


def result(call_id: str, text: str = "Sakura", error: bool = False, images: tuple[Image, ...] = ()) -> Message:
    """A tool's result."""
    return Message(role="tool", text=text, images=images, tool_call_id=call_id, error=error, turn=1)


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
    body: Body = {"model": request.model, "messages": list(request.messages)}
    if request.tools:
        body |= {"tools": list(request.tools), "tool_choice": request.tool_choice}
    sent: Body = json.loads(json.dumps(body))
    return sent


IDS = st.sampled_from(["a", "call_1_0", "call00001", "call00002", "123456789", "x" * 41, "ü" * 9, "12345678\n"])
NAMES = (
    st.sampled_from(["find_table", "x:find_table", "x_find_table", "", "n" * 65, "Wetter prüfen", "a\n"]) | st.text()
)
ARGUMENTS = st.sampled_from(
    ["{}", "", "null", "[1]", '{"a": NaN}', '{"a": 1}', '{"a": "\\ud800"}', "{", "[" * 100_000]
) | st.text(max_size=20)
IMAGES = st.sampled_from([(), (), (Image.of(PNG),), (Image.of("https://example.org/a.png"), Image.of(GIF))])
TEXTS = st.sampled_from(["", " \n", "Hello"]) | st.text(max_size=20)
CALLS = st.lists(st.builds(call, IDS, NAMES, ARGUMENTS), max_size=3)
MESSAGES = st.lists(
    st.one_of(
        st.builds(user, TEXTS, st.integers(1, 3), IMAGES),
        st.builds(
            lambda text, made, sealed, turn, model: assistant(
                text, *made, opaque=(SEAL,) if sealed else (), thinking="Hm", turn=turn, model=model
            ),
            TEXTS,
            CALLS,
            st.booleans(),
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
        request = build(user("One", images=(Image.of(PNG),)), user("Two"), user("", images=(Image.of(GIF),)))

        (message,) = request.messages
        assert [part["type"] for part in message["content"]] == ["text", "image_url", "text", "image_url"]

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
        image = Image.of("https://example.org/menu.jpg")

        request = build(user("What is this?", images=(image,)))

        assert request.messages[0]["content"] == [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "https://example.org/menu.jpg"}},
        ]

    def test_an_image_needs_no_text(self) -> None:
        """A blank part would be refused."""
        (message,) = build(user(" ", images=(Image.of(PNG),))).messages

        assert [part["type"] for part in message["content"]] == ["image_url"]

    def test_a_tool_s_images_stand_behind_the_last_result_of_the_round(self) -> None:
        """OpenAI refuses them in the results; a text names the tool and the id of the result."""
        messages = (
            assistant("", call("Ab3456789", "look"), call("b"), call("c", "x:look")),
            result("Ab3456789", "The door", images=(Image.of(PNG),)),
            result("b"),
            result("c", "", images=(Image.of(GIF), Image.of(PNG))),
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

    @pytest.mark.parametrize("elsewhere", [{"turn": 2}, {"model": "openai/other"}, {"opaque": ()}])
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
