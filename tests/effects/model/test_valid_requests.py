"""Every request is valid for every provider, over a real socket to a strict server; and every answer is read, or
fails."""

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import aiohttp
import pytest
from hypothesis import given

from turnwise import Engine, File, LiteLlm, Policy, Retry, Texts, tool
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.effects.model.port import ModelRequest, read_content
from turnwise.effects.model.written_messages import BETWEEN
from turnwise.states import Message, RetryDue
from turnwise.states.openai_writing import legal_name

from ...support.cases import holds_for
from ...support.engine_scenarios import Gate, until
from ...support.pictures import GIF, PNG, data_url
from ...support.pictures import sent as sent_whole
from ...support.servers.openai_server import (
    Body,
    Exchange,
    OpenAiServer,
    Reply,
    breaks_off_after,
    calls,
    fails,
    hangs,
    has_no_choices,
    says,
    sends,
    streams,
)
from .test_request import MESSAGES, build, user

QUICK = Policy(retry=Retry(base=0.01))
AT_ONCE = Policy(retry=Retry(attempts=1))
FIND = ("find_table", {"cuisine": "Sushi"})
ADDRESS = "https://example.org/menu.png"


@tool(crash="pure")
async def find_table(cuisine: str) -> str:
    """Look for free tables."""
    return f"{cuisine} at 6:30 PM"


@tool(crash="pure")
async def look(at: str) -> list[str | File]:
    """Look at something."""
    return [f"This is the {at}.", File(PNG)]


def model_at(server: OpenAiServer, name: str = "openai/test") -> LiteLlm:
    """The model whose provider is this server."""
    return LiteLlm(name, api_base=server.url, api_key="test")


def shown_in(message: Body) -> list[str]:
    """The parts of a message as the server received it: its texts, and the URLs of its images."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [part["text"] if part["type"] == "text" else part["image_url"]["url"] for part in parts]


def roles(body: Body) -> list[str]:
    """The roles of a request's messages, in order."""
    return [message["role"] for message in body["messages"]]


# --- the server


def asks(text: Any = "Hello") -> Body:
    """A user's message."""
    return {"role": "user", "content": text}


def made(call_id: str = "Ab3456789", name: str = "find_table", arguments: str = "{}") -> Body:
    """A call of the model."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def gave(call_id: str = "Ab3456789", content: Any = "Sakura") -> Body:
    """A result of a tool."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def spoke(text: str = "Well.") -> Body:
    """A text of the model."""
    return {"role": "assistant", "content": text}


def picture(url: str) -> Body:
    """An image as a part."""
    return {"type": "image_url", "image_url": {"url": url}}


OFFER = find_table.definition()
ILLEGAL_OFFER = {**OFFER, "function": {**OFFER["function"], "name": "x:find"}}
SOUND: tuple[Body, ...] = (asks([{"type": "text", "text": "Hi"}, picture(ADDRESS)]), made(), gave(), spoke(), asks())
REFUSED: list[tuple[str, str, tuple[Body, ...], tuple[Body, ...]]] = [
    ("malformed arguments", "openai/test", (asks(), made(arguments="{"), gave()), (OFFER,)),
    ("arguments that are no object", "openai/test", (asks(), made(arguments="[]"), gave()), (OFFER,)),
    ("an illegal name in a call", "openai/test", (asks(), made(name="x:find"), gave()), (OFFER,)),
    ("an illegal name in the offer", "openai/test", (asks(),), (ILLEGAL_OFFER,)),
    ("two tools of one name", "openai/test", (asks(),), (OFFER, OFFER)),
    ("an illegal id", "openai/test", (asks(), made("call:1"), gave("call:1")), (OFFER,)),
    ("a repeated id", "openai/test", (asks(), made(), gave(), made(), gave()), (OFFER,)),
    ("calls without a list of tools", "openai/test", (asks(), made(), gave()), ()),
    ("a call without its result", "openai/test", (asks(), made(), asks()), (OFFER,)),
    ("a result without its call", "openai/test", (asks(), spoke(), gave()), (OFFER,)),
    ("two messages of a person in a row", "openai/test", (asks(), asks()), ()),
    ("two messages of the model in a row", "openai/test", (asks(), spoke(), spoke(), asks()), ()),
    ("a blank text", "openai/test", (asks(" \n"),), ()),
    ("a blank part", "openai/test", (asks([{"type": "text", "text": " "}, picture(ADDRESS)]),), ()),
    ("no part at all", "openai/test", (asks([]),), ()),
    ("a result without a text", "openai/test", (asks(), made(), gave(content="")), (OFFER,)),
    ("an image in a result", "openai/test", (asks(), made(), gave(content=[picture(ADDRESS)])), (OFFER,)),
    ("an image that is no URL", "openai/test", (asks([picture("menu.png")]),), ()),
    ("an image under another's media type", "openai/test", (asks([picture(data_url("image/png", GIF))]),), ()),
    ("a kind of image that few know", "openai/test", (asks([picture("data:image/bmp;base64,Qk0=")]),), ()),
    ("a person behind a result", "mistral/mistral-small", (asks(), made(), gave(), asks()), (OFFER,)),
]


class TestTheServer:
    """The server is as strict as the strictest provider; otherwise these tests would prove nothing."""

    async def test_it_accepts_what_all_providers_accept(self) -> None:
        """Otherwise a test could pass because everything is refused."""
        async with OpenAiServer([says("Hi.")]) as server:
            answer = await model_at(server).complete(ModelRequest("openai/test", SOUND, (OFFER,)), lambda _: None)

        assert answer.content == "Hi."

    @holds_for(("name", "messages", "tools"), [case[1:] for case in REFUSED])
    async def test_it_refuses_what_one_provider_refuses(
        self, name: str, messages: tuple[Body, ...], tools: tuple[Body, ...]
    ) -> None:
        """P35: malformed arguments, illegal names, repeated ids, calls without a list of tools, and more. Sent by hand,
        since litellm mends some of these on the way."""
        body = {"model": name, "messages": messages, **({"tools": tools} if tools else {})}
        async with (
            OpenAiServer([says("It got through.")]) as server,
            aiohttp.ClientSession() as client,
            client.post(f"{server.url}/chat/completions", json=body) as response,
        ):
            refusal = await response.json()

        assert response.status == 400
        assert refusal["error"]["type"] == "invalid_request_error"


# --- P35


class TestRemovedTools:
    """P35: a removed tool stays readable in the history but is not offered."""

    @pytest.mark.parametrize("left", [[], [look]], ids=["none is left", "another is left"])
    async def test_a_conversation_outlives_its_tools(self, database: Path, left: list[Any]) -> None:
        """The database is opened again without the tool; no provider refuses the history, and the tool cannot be
        called."""
        async with (
            OpenAiServer([calls(FIND), says("There is one."), says("As I said.")]) as server,
            Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("A table, please")
            await engine.close()
            async with Engine.open(database, model=model_at(server), tools=left) as again:
                turn = await (await again.get(conversation.id)).send("Which?")

        first, *_, last = server.requests
        assert turn.reply == "As I said."
        assert last["messages"][1]["tool_calls"][0]["function"]["name"] == "find_table"
        assert last["messages"][2]["content"] == "Sushi at 6:30 PM"
        assert [offer["function"]["name"] for offer in first["tools"]] == ["find_table"]
        assert [offer["function"]["name"] for offer in last["tools"]] == (["look"] if left else ["find_table"])
        if not left:
            assert last["tool_choice"] == "none"
            assert "no longer available" in last["tools"][0]["function"]["description"]

    async def test_a_call_of_a_removed_tool_is_an_error(self, database: Path) -> None:
        """The model remembers the tool from the history and calls it nevertheless."""
        async with (
            OpenAiServer([calls(FIND), says("One."), calls(FIND), says("I cannot look.")]) as server,
            Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("A table, please")
            await engine.close()
            async with Engine.open(database, model=model_at(server), tools=[look]) as again:
                turn = await (await again.get(conversation.id)).send("Another one")

        assert turn.reply == "I cannot look."
        assert server.requests[-1]["messages"][-1]["content"] == (
            "Error: There is no tool called find_table. Known: look."
        )


class TestNeighbours:
    """P35: consecutive messages of one role are merged."""

    async def test_messages_around_a_failure_become_one(self, database: Path) -> None:
        """Nobody answered the first."""
        async with (
            OpenAiServer([fails(400), says("Both.")]) as server,
            Engine.open(database, model=model_at(server)) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("One")
            turn = await conversation.send("Two", files=[PNG])

        assert turn.reply == "Both."
        assert [shown_in(message) for message in server.requests[1]["messages"]] == [
            ["One", "Two", data_url("image/png", PNG)]
        ]

    async def test_queued_messages_become_one(self, database: Path) -> None:
        """Sent while the model was busy, they begin the next turn together."""
        async with (
            OpenAiServer([hangs("Wait "), says("All.")]) as server,
            Engine.open(database, model=model_at(server), policy=Policy(when_busy="queue")) as engine,
        ):
            conversation = await engine.create()
            first = asyncio.ensure_future(conversation.send("One"))
            await server.asked()
            for text in ("Two", "Three"):
                await conversation.send(text, wait=False)
            server.release()
            await first
            await until(lambda: len(server.requests) == 2)

            assert server.requests[1]["messages"] == [asks("One"), spoke("Wait "), asks("Two\n\nThree")]

    @pytest.mark.parametrize("name", ["openai/test", "mistral/mistral-small"])
    async def test_a_message_after_a_cancelled_tool_is_accepted(self, database: Path, name: str) -> None:
        """P6: the result of the cancelled call stands directly before it, which a model of Mistral refuses."""
        gate = Gate()

        @tool
        async def wait() -> None:
            """Wait."""
            await gate()

        async with (
            OpenAiServer([calls(("wait", {})), says("Here.")]) as server,
            Engine.open(database, model=model_at(server, name), tools=[wait]) as engine,
        ):
            conversation = await engine.create()
            cancelled = asyncio.ensure_future(conversation.send("Wait"))
            await gate.arrived.wait()
            await conversation.cancel()
            await cancelled
            turn = await conversation.send("Are you there?")

        between = [spoke(BETWEEN)] if "mistral" in name else []
        assert turn.reply == "Here."
        assert server.requests[1]["messages"][3:] == [*between, asks("Are you there?")]


class TestImages:
    """P35: images pass in users' messages and in results of tools."""

    async def test_images_of_users_pass(self, database: Path) -> None:
        """As URLs and as files, with and without a text, and in every later request."""
        async with (
            OpenAiServer([says("A menu."), says("Two.")]) as server,
            Engine.open(database, model=model_at(server)) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("What is this?", files=[ADDRESS, GIF])
            await conversation.send("", files=[PNG])

        first, second = server.requests
        assert [shown_in(message) for message in first["messages"]] == [
            ["What is this?", ADDRESS, data_url("image/gif", GIF)]
        ]
        assert second["messages"][0] == first["messages"][0]
        assert shown_in(second["messages"][2]) == [data_url("image/png", PNG)]

    @pytest.mark.parametrize("name", ["openai/test", "mistral/pixtral-mistral"])
    async def test_images_of_tools_pass(self, database: Path, name: str) -> None:
        """Behind the last result of their round, with the name and the id of their call."""
        round_ = calls(("look", {"at": "door"}), ("find_table", {"cuisine": "Sushi"}), ("look", {"at": "menu"}))
        async with (
            OpenAiServer([round_, says("I see.")]) as server,
            Engine.open(database, model=model_at(server, name), tools=[look, find_table]) as engine,
        ):
            turn = await (await engine.create()).send("Look around")

        assert turn.reply == "I see."
        asked, called, door, table, menu, *rest = server.requests[1]["messages"]
        ids = [made["id"] for made in called["tool_calls"]]
        assert (asked["role"], roles({"messages": rest})[-1]) == ("user", "user")
        assert [result["tool_call_id"] for result in (door, table, menu)] == ids
        assert [result["content"] for result in (door, table, menu)] == [
            "This is the door.\n\n(1 image: see below.)",
            "Sushi at 6:30 PM",
            "This is the menu.\n\n(1 image: see below.)",
        ]
        assert shown_in(rest[-1]) == [
            f"Returned by the tool look (call {ids[0]}), not sent by the user:",
            data_url("image/png", PNG),
            f"Returned by the tool look (call {ids[2]}), not sent by the user:",
            data_url("image/png", PNG),
        ]

    async def test_images_are_not_fetched_here(self, database: Path) -> None:
        """A URL is passed to the provider unchanged: fetched here, it could name what only this machine can reach."""
        visits: list[str] = []

        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            visits.append("somebody")
            writer.close()

        listener = await asyncio.start_server(visit, "127.0.0.1", 0)
        address = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/a.png"
        async with (
            listener,
            OpenAiServer([says("I see.")]) as server,
            Engine.open(database, model=model_at(server)) as engine,
        ):
            await (await engine.create()).send("Look", files=[address])

        assert shown_in(server.requests[0]["messages"][0]) == ["Look", address]
        assert visits == []


async def test_what_a_model_gets_wrong_is_corrected(database: Path) -> None:
    """P35, P29: malformed arguments, an illegal name and repeated ids, all in one response; the server accepts the next
    request, and the transcript keeps what the model wrote."""
    wrong = calls(("find_table", '{"cuisine": '), ("x:find table", {}), FIND, ids=["call:0", "call:0", ""])
    async with (
        OpenAiServer([wrong, says("Sorry.")]) as server,
        Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
    ):
        conversation = await engine.create()
        turn = await conversation.send("A table, please")
        said = await conversation.transcript()

    sent = [call["function"] for call in server.requests[1]["messages"][1]["tool_calls"]]
    assert turn.reply == "Sorry."
    assert [call["name"] for call in sent] == ["find_table", legal_name("x:find table"), "find_table"]
    assert [json.loads(call["arguments"]) for call in sent] == [{}, {}, FIND[1]]
    assert said[1].tool_calls[0].raw_arguments == '{"cuisine": '
    assert [message.error for message in said[2:5]] == [True, True, False]


class TestOtherProtocols:
    """What litellm's own functions make of a request for providers with another protocol."""

    @given(messages=MESSAGES)
    def test_anthropic_gets_roles_in_turn_and_results_first(self, messages: list[Message]) -> None:
        """User and assistant alternate, each call is answered at the beginning of the next message, no text is blank,
        and images are bytes or URLs."""
        load_litellm()
        translate = resolve_name("litellm.litellm_core_utils.prompt_templates.factory:anthropic_messages_pt")
        request = sent_whole(build(user(), *messages, model="anthropic/claude-test"))

        sent = translate(messages=_copied(request), model="claude-test", llm_provider="anthropic")

        assert all(first["role"] != second["role"] for first, second in pairwise(sent))
        for before, after in zip(sent, [*sent[1:], {"content": []}], strict=True):
            wanted = [block["id"] for block in before["content"] if block["type"] == "tool_use"]
            head = after["content"][: len(wanted)]
            assert [block.get("tool_use_id") for block in head] == wanted
        blocks = [block for message in sent for block in message["content"]]
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        assert _images_in(request) == [_source(block) for block in blocks if block["type"] == "image"]

    @given(messages=MESSAGES)
    def test_gemini_gets_every_file(self, messages: list[Message]) -> None:
        """And every document, recording and video: as bytes or as URLs, in order."""
        load_litellm()
        translate = resolve_name("litellm.llms.vertex_ai.gemini.transformation:_gemini_convert_messages_with_history")
        request = sent_whole(build(user(), *messages, model="gemini/gemini-test"))

        sent = translate(messages=_copied(request), model="gemini-test")

        parts = [part for message in sent for part in message["parts"]]
        assert _files_in(request) == [
            part["file_data"]["file_uri"]
            if "file_data" in part
            else f"data:{part['inline_data']['mime_type']};base64,{part['inline_data']['data']}"
            for part in parts
            if part.keys() & {"file_data", "inline_data"}
        ]


def _copied(request: ModelRequest) -> list[Body]:
    copied: list[Body] = json.loads(json.dumps(request.messages))
    return copied


def _files_in(request: ModelRequest) -> list[str]:
    contents = [message["content"] for message in request.messages if isinstance(message["content"], list)]
    return [url for content in contents for part in content for url in _addresses(part)]


def _addresses(part: Body) -> list[str]:
    match part:
        case {"type": "image_url", "image_url": {"url": url}}:
            return [url]
        case {"type": "file", "file": {"file_data": url}} | {"type": "file", "file": {"file_id": url}}:
            return [url]
        case {"type": "input_audio", "input_audio": {"data": data, "format": kind}}:
            return [f"data:audio/{kind};base64,{data}"]
        case _:
            return []


def _images_in(request: ModelRequest) -> list[str]:
    contents = [message["content"] for message in request.messages if isinstance(message["content"], list)]
    return [part["image_url"]["url"] for content in contents for part in content if part["type"] == "image_url"]


def _source(block: Body) -> str:
    source = block["source"]
    return source["url"] if source["type"] == "url" else f"data:{source['media_type']};base64,{source['data']}"


# --- P30 and J23


class TestSilence:
    """P30: after tools empty content is handled by the policy, and a malformed response is a failure, never silence."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "empty", [says(), says(""), says(" \n"), streams({"content": None}), streams({"content": []})]
    )
    async def test_empty_answers_after_tools_end_with_the_policy_s_text(self, database: Path, empty: Reply) -> None:
        """However often the model is asked again: the user gets a sentence, and the turn says that it is incomplete."""

        def script(body: Body) -> Reply:
            return empty if "tool" in roles(body) else calls(FIND)

        policy = Policy(texts=Texts(ending="Nothing came to my mind."))
        async with (
            OpenAiServer(script) as server,
            Engine.open(database, model=model_at(server), tools=[find_table], policy=policy) as engine,
        ):
            conversation = await engine.create()
            turn = await conversation.send("A table, please")
            said = await conversation.transcript()

        assert (turn.status, turn.reply) == ("incomplete", "Nothing came to my mind.")
        assert (said[-1].role, said[-1].text) == ("assistant", "Nothing came to my mind.")

    MALFORMED: tuple[tuple[str, Reply], ...] = (
        ("no choices", has_no_choices()),
        ("an empty stream", breaks_off_after()),
        ("a web page", sends("<html>Welcome</html>", "text/html")),
        ("broken JSON", sends("{nope")),
        ("broken JSON in a stream", sends("data: {nope\n\n", "text/event-stream")),
        ("content that is a number", streams({"content": 7})),
        ("content that is a list of numbers", streams({"content": [7]})),
        ("a text that is none", streams({"content": [{"type": "text", "text": 7}]})),
        ("a text, and then nonsense", streams({"content": "Well"}, {"content": True})),
        ("calls that are no list", streams({"tool_calls": "find_table"})),
        ("calls that are texts", streams({"tool_calls": ["find_table"]})),
        ("a call of nothing", streams({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": None}]})),
        (
            "arguments that are a list",
            streams({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "find_table", "arguments": [1]}}]}),
        ),
        (
            "a name that is a number",
            streams({"tool_calls": [{"index": 0, "id": "a", "function": {"name": 7, "arguments": "{}"}}]}),
        ),
    )

    @pytest.mark.slow
    @pytest.mark.parametrize("malformed", [case[1] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
    async def test_a_malformed_response_is_a_failure(self, database: Path, malformed: Reply) -> None:
        """Also after tools: the turn fails with one sentence, nothing of the response is delivered, and the
        conversation goes on."""
        async with (
            OpenAiServer([calls(FIND), malformed, says("Better.")]) as server,
            Engine.open(database, model=model_at(server), tools=[find_table], policy=AT_ONCE) as engine,
        ):
            conversation = await engine.create()
            turn = await conversation.send("A table, please")
            said = await conversation.transcript()
            again = await conversation.retry()

        assert (turn.status, turn.reply) == ("failed", "")
        assert turn.failure is not None
        assert "sent an answer that cannot be read" in turn.failure
        assert [message.role for message in said] == ["user", "assistant", "tool"]
        assert again.reply == "Better."

    async def test_a_malformed_response_is_tried_again(self, database: Path) -> None:
        """P11: it may be a temporary fault of a proxy."""
        async with (
            OpenAiServer([streams({"content": 7}), says("Here.")]) as server,
            Engine.open(database, model=model_at(server), policy=QUICK) as engine,
        ):
            turn = await (await engine.create()).send("Hi")

        assert turn.reply == "Here."


TEXT = {"type": "text", "text": "Hello, "}
ALIKE: list[tuple[str, tuple[Any, ...]]] = [
    ("texts", ("Hello, ", "you.")),
    ("texts and nulls", (None, "Hello, ", None, "you.", None)),
    ("lists of parts", ([TEXT], [{"type": "text", "text": "you."}])),
    ("one list", ([TEXT, {"type": "text", "text": "you."}],)),
    ("a list between texts", ("Hel", [{"type": "text", "text": "lo, "}], "you.")),
    ("empty lists", ([], [TEXT], [], "you.")),
    ("parts of other kinds", ([TEXT, {"type": "reference", "reference_ids": [1]}, {"type": "text", "text": "you."}],)),
]
ONLY_OPENAI: list[tuple[str, tuple[Any, ...]]] = [
    ("texts in a list", (["Hello, ", "you."],)),
    ("a part alone", (TEXT, "you.")),
    ("output texts", ([{"type": "output_text", "text": "Hello, "}, {"type": "output_text", "text": "you."}],)),
]


class TestContentOfEveryShape:
    """J23: content as a string, a list of parts or null is read alike."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "contents"),
        [
            *(("openai/test", case[1]) for case in (*ALIKE, *ONLY_OPENAI)),
            *(("mistral/mistral-small", case[1]) for case in ALIKE),
        ],
        ids=[
            *(f"openai, {case[0]}" for case in (*ALIKE, *ONLY_OPENAI)),
            *(f"mistral, {case[0]}" for case in ALIKE),
        ],
    )
    async def test_a_text_is_read_in_every_shape(self, database: Path, name: str, contents: tuple[Any, ...]) -> None:
        """The reply is the same, and so are its joined tokens."""
        script = [streams(*({"content": content} for content in contents))]
        async with OpenAiServer(script) as server, Engine.open(database, model=model_at(server, name)) as engine:
            conversation = await engine.create()
            tokens: list[str] = []

            async def watch() -> None:
                async for update in conversation.updates():
                    if update.type == "token":
                        tokens.append(update.data["text"])

            watching = asyncio.ensure_future(watch())
            turn = await conversation.send("Hi")
            await until(lambda: "".join(tokens) == "Hello, you.")
            watching.cancel()

        assert turn.reply == "Hello, you."

    @pytest.mark.parametrize("name", ["openai/test", "mistral/mistral-small"])
    async def test_thinking_among_the_parts_is_kept_apart(self, database: Path, name: str) -> None:
        """Some models send their thinking as parts of the content."""
        thoughts = [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}, {"type": "text", "text": "yes."}]}
        ]
        async with (
            OpenAiServer([streams({"content": thoughts}, {"content": [TEXT]}, {"content": "you."})]) as server,
            Engine.open(database, model=model_at(server, name)) as engine,
        ):
            conversation = await engine.create()
            turn = await conversation.send("Hi")
            _, answer = await conversation.transcript()

        assert (turn.reply, answer.thinking) == ("Hello, you.", "Hm, yes.")

    async def test_arguments_as_an_object_are_read_like_their_json(self, database: Path) -> None:
        """Some servers send the arguments of a call in this way."""
        function = {"name": "find_table", "arguments": {"cuisine": "寿司"}}
        call = {"index": 0, "id": "a", "type": "function", "function": function}
        async with (
            OpenAiServer([streams({"tool_calls": [call]}), says("Found.")]) as server,
            Engine.open(database, model=model_at(server), tools=[find_table]) as engine,
        ):
            conversation = await engine.create()
            turn = await conversation.send("A table, please")
            said = await conversation.transcript()

        assert turn.reply == "Found."
        assert (said[1].tool_calls[0].raw_arguments, said[2].text) == ('{"cuisine": "寿司"}', "寿司 at 6:30 PM")

    def test_text_and_thinking_are_separated(self) -> None:
        """In order; a refusal counts as text."""
        parts = [{"type": "reasoning", "text": "a"}, "b", {"type": "refusal", "refusal": "c"}, {"type": "image_url"}]

        assert read_content(parts) == ("bc", "a")


# --- P9


class TestACancelInBackoff:
    """P9: after a cancel in backoff, a new message and one more failure, there are never two requests in flight; the
    old timer changes nothing."""

    async def test_the_old_timer_changes_nothing(self, database: Path) -> None:
        """It would be due before the new one, which is awaited here: three requests, one after the other."""
        policy = Policy(retry=Retry(base=0.2, factor=1.0))
        async with (
            OpenAiServer([fails(500), fails(500), says("Here.")]) as server,
            Engine.open(database, model=model_at(server), policy=policy) as engine,
        ):
            conversation = await engine.create()
            cancelled = asyncio.ensure_future(conversation.send("One"))
            await until(lambda: conversation.state.type == "retry_waiting")
            cancel = await conversation.cancel()
            turn = await conversation.send("Two")
            events = [entry.event for entry in await conversation.events()]

        assert (cancel.no_op, (await cancelled).status) == (False, "cancelled")
        assert turn.reply == "Here."
        assert (len(server.requests), server.most_at_once) == (3, 1)
        assert sum(isinstance(event, RetryDue) for event in events) == 1
        assert server.requests[1]["messages"] == server.requests[2]["messages"] == [asks("One\n\nTwo")]

    async def test_a_request_in_flight_stays_the_only_one(self, database: Path) -> None:
        """The old timer would be due while the new request is under way."""
        waited = asyncio.Event()

        async def answers_late(exchange: Exchange) -> Any:
            await waited.wait()
            return await says("Here.")(exchange)

        policy = Policy(retry=Retry(base=0.05))
        async with (
            OpenAiServer([fails(500), answers_late]) as server,
            Engine.open(database, model=model_at(server), policy=policy) as engine,
        ):
            conversation = await engine.create()
            cancelled = asyncio.ensure_future(conversation.send("One"))
            await until(lambda: conversation.state.type == "retry_waiting")
            await conversation.cancel()
            sent = asyncio.ensure_future(conversation.send("Two"))
            await server.asked(2)
            # A wait of the same length, begun later: the old timer would be due before it is over.
            asyncio.get_running_loop().call_later(policy.retry.base, waited.set)
            turn = await sent

            assert (await cancelled).status == "cancelled"
            assert turn.reply == "Here."
            assert (len(server.requests), server.most_at_once) == (2, 1)
