"""Requests are written as each provider wants them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from turnwise import (
    ConfigurationError,
    Dialect,
    Engine,
    LiteLlm,
    LlmFailure,
    ModelRequest,
    ModelSettings,
    OpenAICompatible,
    Policy,
    Retry,
)
from turnwise.effects.model.openai.traits import copy_json
from turnwise.testing import RecordingChannel

from ....support.servers import openai_server
from ....support.servers.clients import served_model
from ....support.servers.model_server import Data, Json, ModelServer, Reply, answers
from ....support.servers.model_server import fails as foreign_rounds_fails
from ....support.servers.openai_server import Body, Exchange, OpenAiServer, calls, fails, says

# --- What servers refuse of a request over litellm and a real socket, and in which form they are asked from then on.


TOOL = {"type": "function", "function": {"name": "find_it", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "abcdefgh1", "type": "function", "function": {"name": "find_it", "arguments": "{}"}}
SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
ROUND = [USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
RESULT = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "found"}
ANSWERED = [*ROUND, RESULT]

Refuses = Callable[[Body], bool]


def roles(body: Body) -> list[str]:
    """Return the roles of the messages, in order."""
    return [message["role"] for message in body["messages"]]


def has_null(body: Body) -> bool:
    """Whether a message has no content."""
    return any(message.get("content") is None for message in body["messages"])


def has_blank(body: Body) -> bool:
    """Whether a message has no text."""
    return any(not str(message.get("content") or "").strip() for message in body["messages"])


def has_parts(body: Body) -> bool:
    """Whether a content is a list."""
    return any(isinstance(message.get("content"), list) for message in body["messages"])


def repeats(body: Body) -> bool:
    """Whether two messages of one role stand in a row, or the assistant begins."""
    order = [role for role in roles(body) if role != "system"]
    return order[0] != "user" or any(a == b != "tool" for a, b in pairwise(order))


def request(*messages: Any, tools: Any = (), choice: Any = "auto", **settings: Any) -> ModelRequest:
    """Return a request."""
    return ModelRequest("openai/m", messages or (USER,), tools, choice, settings=ModelSettings(**settings))


def fault(message: str, status: int = 400, **error: Any) -> tuple[int, Any]:
    """Return a refusal in OpenAI's shape."""
    return status, {"error": {"message": message, "type": "invalid_request_error", **error}}


def detail(
    *location: Any, message: str = "Extra inputs are not permitted", kind: str = "extra_forbidden"
) -> tuple[int, Any]:
    """Return a refusal in FastAPI's shape."""
    return 422, {"detail": [{"type": kind, "loc": ["body", *location], "msg": message}]}


WITH_TOOL = request(tools=(TOOL,), choice="none")
CASES: list[tuple[str, ModelRequest, Refuses, tuple[int, Any]]] = [
    ("stream_options", request(), lambda b: "stream_options" in b, fault("Unknown parameter: 'stream_options'.")),
    ("stream_options", request(), lambda b: "stream_options" in b, detail("stream_options")),
    ("stream_options", request(), lambda b: "stream_options" in b, fault("Unknown parameter.", param="stream_options")),
    ("stream_options", request(), lambda b: "stream_options" in b, (400, {"message": "include_usage: unknown field"})),
    ("streams", request(), lambda b: bool(b.get("stream")), fault("Streaming is not supported for this model.")),
    ("streams", request(), lambda b: bool(b.get("stream")), fault("This model does not support streaming.", 501)),
    (
        "streams",
        request(),
        lambda b: bool(b.get("stream")),
        fault("This model doesn't support tool use in streaming mode."),
    ),
    (
        "streams",
        request(),
        lambda b: bool(b.get("stream")),
        fault("Your organization must be verified to stream this model.", param="stream"),
    ),
    (
        "streams",
        request(),
        lambda b: bool(b.get("stream")),
        detail("stream", message="Input should be False", kind="literal_error"),
    ),
    ('tool_choice "none"', WITH_TOOL, lambda b: "tool_choice" in b, fault("tool_choice 'none' is not supported.")),
    (
        'tool_choice "none"',
        WITH_TOOL,
        lambda b: "tool_choice" in b,
        fault("Only 'auto' and 'required' tool choice values are allowed."),
    ),
    (
        'tool_choice "none"',
        WITH_TOOL,
        lambda b: "tool_choice" in b,
        detail("tool_choice", message="value is not a valid enumeration member"),
    ),
    (
        "messages with calls and no text",
        request(*ANSWERED, tools=(TOOL,)),
        has_null,
        fault("Invalid type for 'messages[1].content': expected a string, but got null instead."),
    ),
    (
        "messages with calls and no text",
        request(*ANSWERED, tools=(TOOL,)),
        has_null,
        detail("messages", 1, "content", message="none is not an allowed value"),
    ),
    (
        "messages with calls and no text",
        request(*ANSWERED, tools=(TOOL,)),
        has_null,
        fault("Failed to deserialize the JSON body: messages[1]: missing field `content`"),
    ),
    (
        "messages with calls and no text",
        request(*ANSWERED, tools=(TOOL,)),
        has_null,
        fault('can only concatenate str (not "NoneType") to str: content is None', 500),
    ),
    (
        "messages with calls and no text",
        request(*ANSWERED, tools=(TOOL,)),
        has_null,
        fault("Missing 'content' in message", 500),
    ),
    (
        "messages without text",
        request(*ANSWERED, tools=(TOOL,)),
        has_blank,
        fault("messages.1: content is required and must not be empty"),
    ),
    (
        "messages without text",
        request(USER, {"role": "assistant", "content": ""}, USER),
        has_blank,
        fault("messages: text content blocks must be non-empty"),
    ),
    (
        "messages without text",
        request(*ROUND, {**RESULT, "content": " "}, tools=(TOOL,)),
        lambda b: b["messages"][-1]["content"] == " ",
        fault("Message content must have at least 1 character."),
    ),
    (
        "text as a list of parts",
        request({"role": "user", "content": [{"type": "text", "text": "Hi"}]}),
        has_parts,
        fault("messages[0].content: invalid type: sequence, expected a string at line 1 column 40"),
    ),
    (
        "text as a list of parts",
        request({"role": "user", "content": [{"type": "text", "text": "Hi"}]}),
        has_parts,
        fault("json: cannot unmarshal array into Go struct field ChatMessage.messages.content of type string"),
    ),
    (
        "two messages of one role in a row",
        request(USER, USER),
        repeats,
        fault("Conversation roles must alternate user/assistant/user/assistant/...", 500),
    ),
    (
        "two messages of one role in a row",
        request(USER, USER),
        repeats,
        fault("Messages with consecutive user role are not allowed."),
    ),
    (
        "two messages of one role in a row",
        request({"role": "assistant", "content": "Hello"}, USER),
        repeats,
        fault("The first message must use the role 'user'."),
    ),
    ("system messages", request(SYSTEM, USER), lambda b: "system" in roles(b), fault("System role not supported")),
    (
        "system messages",
        request(SYSTEM, USER),
        lambda b: "system" in roles(b),
        fault("messages[0].role does not support 'system' with this model."),
    ),
    (
        "system messages",
        request(SYSTEM, USER),
        lambda b: "system" in roles(b),
        fault("Developer instruction is not enabled for models/gemma"),
    ),
    (
        "system messages behind the first message",
        request(SYSTEM, USER, SYSTEM),
        lambda b: roles(b).index("system") != 0 or roles(b).count("system") > 1,
        fault("System message must be at the beginning."),
    ),
    (
        "a message of the assistant as the last one",
        request(USER, {"role": "assistant", "content": "So"}),
        lambda b: roles(b)[-1] == "assistant",
        fault("This model does not support assistant message prefill. The conversation must end with a user message."),
    ),
    (
        "a message of the assistant as the last one",
        request(USER, {"role": "assistant", "content": "So"}),
        lambda b: roles(b)[-1] == "assistant",
        fault("Expected last role User or Tool for serving but got assistant"),
    ),
    (
        "a user's message behind the result of a tool",
        request(*ANSWERED, USER, tools=(TOOL,)),
        lambda b: "tool user" in " ".join(roles(b)),
        fault("Unexpected role 'user' after role 'tool'"),
    ),
    (
        "results without the name of their tool",
        request(*ANSWERED, tools=(TOOL,)),
        lambda b: "name" not in b["messages"][-1],
        fault("messages[2]: missing field `name`"),
    ),
    (
        "name in messages",
        request({**USER, "name": "Ann"}),
        lambda b: "name" in b["messages"][0],
        detail("messages", 0, "name"),
    ),
    (
        "strict in tools",
        request(tools=({**TOOL, "function": {**TOOL["function"], "strict": True}},)),
        lambda b: "strict" in json.dumps(b["tools"]),
        fault("Unknown field: strict"),
    ),
    (
        "temperature",
        request(temperature=0.2),
        lambda b: "temperature" in b,
        fault("Unsupported value: 'temperature' does not support 0.2 with this model."),
    ),
    (
        "top_p",
        request(temperature=0.2, top_p=0.5),
        lambda b: {"temperature", "top_p"} <= b.keys(),
        fault("`temperature` and `top_p` cannot both be specified for this model."),
    ),
    ("seed", request(seed=7), lambda b: "seed" in b, detail("seed")),
    (
        "max_tokens",
        request(max_tokens=7),
        lambda b: "max_tokens" in b,
        fault(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        ),
    ),
    (
        "the tool find_it",
        request(tools=(TOOL,)),
        lambda b: "tools" in b,
        fault("Invalid schema for function 'find_it': it is cursed.", code="invalid_function_parameters"),
    ),
    (
        "the tool find_it",
        request(tools=(TOOL,)),
        lambda b: "tools" in b,
        (
            400,
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "tools.0.custom.input_schema: JSON schema is invalid",
                },
            },
        ),
    ),
    (
        "more than 2 tools",
        request(tools=tuple({**TOOL, "function": {**TOOL["function"], "name": f"t{n}"}} for n in range(5))),
        lambda b: len(b["tools"]) > 2,
        fault("Invalid 'tools': array too long. Expected maximum length 2, but got an array with length 5."),
    ),
]


def refused(refusal: tuple[int, Any]) -> Any:
    """Return a reply with this status and this body."""

    async def reply(exchange: Exchange) -> web.StreamResponse:
        return web.json_response(refusal[1], status=refusal[0])

    return reply


def model_at(server: OpenAiServer, **options: Any) -> LiteLlm | OpenAICompatible:
    """Return a model that is served by the server."""
    return served_model(server.url, "openai/m", **options)


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server be as strict as a test says, and no stricter."""
    monkeypatch.setattr(openai_server, "violations", lambda *_: [])


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize(("told", "asked", "refuses", "refusal"), CASES)
@pytest.mark.usefixtures("each_client")
class TestLearning:
    """A refusal is understood, and the request is sent as the server takes it."""

    @pytest.mark.slow
    async def test_from_then_on(
        self,
        told: str,
        asked: ModelRequest,
        refuses: Refuses,
        refusal: tuple[int, Any],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The next request has that form at once, and one warning tells it."""
        caplog.set_level(logging.WARNING, "turnwise.model")

        def answer(body: Body) -> Any:
            return refused(refusal) if refuses(body) else says("Fine.")

        async with OpenAiServer(answer) as server:
            model = model_at(server)
            shown: list[str] = []
            first = await model.complete(asked, lambda token: shown.append(token.text))
            before = len(server.requests)
            second = await model.complete(asked, lambda token: None)

        assert (first.content, second.content, "".join(shown)) == ("Fine.", "Fine.", "Fine.")
        assert len(server.requests) == before + 1
        assert [record.getMessage() for record in caplog.records] == [
            f"The model openai/m does not take {told}, so its requests are sent without."
        ]


@pytest.mark.usefixtures("lenient")
@pytest.mark.usefixtures("each_client")
class TestNotLearning:
    """What is not known is not guessed."""

    @pytest.mark.parametrize(
        "refusal",
        [
            fault("The request is not valid."),
            fault("Bad luck.", param="messages"),
            fault("No such thing."),
            fault("internal error in upstream", 500),
            fault("You exceeded your quota for streaming.", 429),
            fault("Incorrect API key: not supported for stream.", 401),
        ],
    )
    async def test_a_refusal_that_names_nothing_known(self, refusal: tuple[int, Any]) -> None:
        """The request is sent once, and fails."""
        async with OpenAiServer(lambda body: refused(refusal)) as server:
            with pytest.raises(LlmFailure):
                await model_at(server).complete(request(SYSTEM, *ANSWERED, tools=(TOOL,)), lambda token: None)

        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        "sentence",
        [
            "Unexpected error while streaming the response, please try again",
            "stream not available",
            "An unexpected system error occurred",
            "failed to read content of upstream, no text",
            "upstream error: tools and function find_it timed out",
        ],
    )
    async def test_a_server_that_fails_for_a_moment(self, sentence: str) -> None:
        """It is asked once, and nothing is learned of it."""
        async with OpenAiServer([fails(500, sentence), says("Fine.")]) as server:
            model = model_at(server)
            with pytest.raises(LlmFailure):
                await model.complete(request(SYSTEM, *ANSWERED, tools=(TOOL,)), lambda token: None)
            await model.complete(request(SYSTEM, *ANSWERED, tools=(TOOL,)), lambda token: None)

        assert model.refused == ()
        assert server.requests[1]["stream"] is True

    @pytest.mark.parametrize(
        ("sentence", "name", "bad", "good"),
        [
            ("max_tokens is too large: 999999. This model supports at most 4096.", "max_tokens", 999_999, 50),
            ("temperature must be between 0 and 1", "temperature", 1.5, 0.2),
            ("Invalid 'top_p': decimal above maximum value.", "top_p", 0.99, 0.5),
        ],
    )
    async def test_a_value_is_left_out_of_its_request(self, sentence: str, name: str, bad: Any, good: Any) -> None:
        """The next one, with another value, is sent with it."""

        def answer(body: Body) -> Any:
            return fails(400, sentence) if body.get(name) == bad else says("Fine.")

        async with OpenAiServer(answer) as server:
            model = model_at(server)
            for value in (bad, good):
                await model.complete(request(**{name: value}), lambda token: None)

        assert [body.get(name) for body in server.requests] == [bad, None, good]
        assert model.refused == ()

    async def test_bystanders_of_a_refusal(self) -> None:
        """Parameters that a refusal names as taken are sent on."""
        sentence = "temperature and top_p work, but seed is not supported"

        def answer(body: Body) -> Any:
            return fails(400, sentence) if "seed" in body else says("Fine.")

        async with OpenAiServer(answer) as server:
            model = model_at(server)
            await model.complete(request(temperature=0.2, top_p=0.5, seed=1), lambda token: None)

        assert model.refused == ("seed",)

    async def test_what_did_not_help_is_forgotten(self) -> None:
        """A server that refuses every form is asked a few times, and the next request begins anew."""
        refusal = fault("stream_options, streaming and content: null are not supported; find_it is invalid.")
        async with OpenAiServer(lambda body: refused(refusal)) as server:
            model = model_at(server)
            with pytest.raises(LlmFailure):
                await model.complete(request(*ANSWERED, tools=(TOOL,)), lambda token: None)

        assert 1 < len(server.requests) <= 13
        assert model.refused == ()


@pytest.mark.usefixtures("lenient")
@pytest.mark.usefixtures("each_client")
class TestByHand:
    """What is known beforehand is set, and costs no refused request."""

    async def test_every_form(self) -> None:
        """All at once."""
        dialect = Dialect(
            stream=False,
            tool_choice_none=False,
            null_content=False,
            repeated_roles=False,
            system_role="user",
            max_tokens="max_completion_tokens",
            without=("seed",),
            without_tools=["find_it"],
        )
        other = {**TOOL, "function": {**TOOL["function"], "name": "other"}}
        asked = request(SYSTEM, USER, *ANSWERED, tools=(TOOL, other), choice="none", seed=1, max_tokens=5)
        async with OpenAiServer([says("Fine.")]) as server:
            answer = await model_at(server, dialect=dialect).complete(asked, lambda token: None)
        (body,) = server.requests

        assert answer.content == "Fine."
        assert not {"stream_options", "tool_choice", "seed", "max_tokens"} & body.keys()
        assert (body.get("stream", False), body["max_completion_tokens"]) == (False, 5)
        assert [one["function"]["name"] for one in body["tools"]] == ["other"]
        assert roles(body) == ["user", "assistant", "tool"]
        assert body["messages"][0]["content"] == "Be brief.\n\nHi\n\nHi"
        assert body["messages"][1]["content"] == ""

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({"stream": "no"}, "The stream of a Dialect cannot be 'no'."),
            ({"system_role": "boss"}, "The system_role of a Dialect cannot be 'boss'."),
            ({"without": "seed"}, "The without of a Dialect cannot be 'seed'."),
            ({"most_tools": 0}, "The most_tools of a Dialect cannot be 0."),
            ({"max_tokens": "length"}, "The max_tokens of a Dialect cannot be 'length'."),
        ],
    )
    def test_what_cannot_be(self, options: dict[str, Any], sentence: str) -> None:
        """One sentence says so."""
        with pytest.raises(ConfigurationError, match="^" + sentence.replace(".", r"\.") + "$"):
            Dialect(**options)

    def test_something_else(self) -> None:
        """A dict is none."""
        with pytest.raises(ConfigurationError, match=r"^The dialect of a model must be a Dialect\.$"):
            LiteLlm("openai/m", dialect={"stream": False})  # type: ignore[arg-type]


@pytest.mark.usefixtures("lenient")
@pytest.mark.usefixtures("each_client")
class TestTurns:
    """A whole turn with a server that takes little."""

    async def test_calls_without_streams(self) -> None:
        """Calls and texts of a server that sends no streams are those of a turn like any other."""

        def find_it(what: str) -> str:
            """Find it."""
            return f"found {what}"

        def answer(body: Body) -> Any:
            if body.get("stream"):
                return fails(400, "stream is not supported")
            if has_null(body):
                return fails(400, "content must be a string, not null")
            return (
                says("Here.")
                if roles(body)[-1] == "tool"
                else calls(("find_it", {"what": "a"}), ("find_it", {"what": "b"}))
            )

        channel = RecordingChannel("out")
        options: dict[str, Any] = {"tools": [find_it], "channels": [channel], "policy": Policy(retry=Retry(attempts=1))}
        async with (
            OpenAiServer(answer) as server,
            Engine.open("sqlite://", model=model_at(server), **options) as engine,
        ):
            conversation = await engine.create()
            turn = await conversation.send("Hi")
            texts = [message.text for message in await conversation.transcript() if message.role == "tool"]

        assert turn.reply == "Here."
        assert texts == ["found a", "found b"]
        assert len(server.requests) == 4

    async def test_a_tool_that_is_refused_is_told_by_the_check(self) -> None:
        """The turn goes on with the others."""

        def cursed() -> str:
            """Be refused."""
            return ""

        def fine() -> str:
            """Be taken."""
            return ""

        def answer(body: Body) -> Any:
            named = any(one["function"]["name"] == "cursed" for one in body["tools"])
            return fails(400, "Invalid schema for function 'cursed': no.") if named else says("Fine.")

        async with (
            OpenAiServer(answer) as server,
            Engine.open("sqlite://", model=model_at(server), tools=[cursed, fine]) as engine,
        ):
            turn = await (await engine.create()).send("Hi")
            told = await engine.check()

        assert turn.reply == "Fine."
        assert told == ("The tool cursed is left out for the model openai/m, which refuses it.",)


# --- What is learned of the rounds that a model takes, from the refusals of its server.


def asked(**fields: Any) -> ModelRequest:
    """Return a request with a round that has these fields."""
    called = {"role": "assistant", "content": None, "tool_calls": [{**CALL}], **fields}
    result = {"role": "tool", "tool_call_id": "abcdefgh1", "content": "Found."}
    return ModelRequest("m", ({"role": "user", "content": "Find it."}, called, result))


def foreign_rounds_refused(sentence: str) -> Reply:
    """Refuse with this sentence."""
    return foreign_rounds_fails(400, {"error": {"message": sentence, "type": "invalid_request_error"}})


def round_in(body: Json) -> Json:
    """Return the message with the call."""
    found: Json = body["messages"][1]
    return found


async def test_what_did_not_help_is_forgotten() -> None:
    """A form that was refused as well is not that of the next request."""
    async with ModelServer([foreign_rounds_refused("Missing reasoning_content")]) as server:
        model = server.llm()
        for _ in range(2):
            with pytest.raises(LlmFailure):
                await model.complete(asked(), lambda token: None)

    sent = list(map(round_in, server.bodies))
    assert sent[0] == sent[len(sent) // 2]
    assert "reasoning_content" not in sent[0]
    assert "reasoning_content" in sent[1]


async def test_what_helps_is_known_from_then_on() -> None:
    """The second request has the reasoning from the beginning, in the middle of a stream as well as before it."""
    for refusal in (foreign_rounds_refused("Missing reasoning_content"), _within_a_stream("Missing reasoning_content")):
        async with ModelServer(_unless(lambda one: "reasoning_content" in one, refusal)) as server:
            model = server.llm()
            for _ in range(2):
                await model.complete(asked(), lambda token: None)

        assert [round_in(body).get("reasoning_content") for body in server.bodies] == [None, " ", " "]
        assert model.refused == ("calls without reasoning_content",)


async def test_a_refusal_is_read_whatever_its_case() -> None:
    """The next request is sent without the field, too."""
    async with ModelServer(
        _unless(lambda one: "providerData" not in one, foreign_rounds_refused("Unknown name PROVIDERDATA"))
    ) as server:
        model = server.llm()
        for _ in range(2):
            await model.complete(asked(providerData="x"), lambda token: None)

    assert ["providerData" in round_in(body) for body in server.bodies] == [True, False, False]


async def test_what_this_program_says_of_a_failure_is_no_refusal() -> None:
    """An error within a stream names no form, and the sentence about it speaks of a stream."""
    async with ModelServer([_within_a_stream("Something is wrong.")]) as server:
        model = server.llm()
        with pytest.raises(LlmFailure):
            await model.complete(asked(), lambda token: None)

    assert (len(server.requests), model.refused) == (1, ())


def _within_a_stream(sentence: str) -> Reply:
    error = {"message": sentence, "type": "invalid_request_error"}
    return answers(Data({"error": error}), finish=None, usage=None)


def _unless(is_taken: Any, refusal: Reply) -> Any:
    return lambda body: answers("Fine.") if is_taken(round_in(body)) else refusal


# --- What litellm is given shares nothing with the request that it could change.


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=20)


def containers(value: Any) -> list[Any]:
    """The lists and dicts in the value, at any depth."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [
        *([value] if isinstance(value, list | dict) else []),
        *(found for one in inner for found in containers(one)),
    ]


@given(JSON)
def test_a_copy_is_equal_and_has_containers_of_its_own(value: Any) -> None:
    """At every depth."""
    copied = copy_json(value)

    assert copied == value
    assert {id(one) for one in containers(copied)}.isdisjoint(id(one) for one in containers(value))


def test_tuples_become_lists() -> None:
    """The messages of a request are a tuple, and litellm takes a list."""
    assert copy_json(({"role": "user", "content": "Hi"},)) == [{"role": "user", "content": "Hi"}]
