"""What goes back to a provider, and how it is asked: thinking for as long as the policy says, beginnings of requests
that it can keep, its own tools, strict schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel

from turnwise import Engine, ModelRequest, ModelSettings, Output, Policy, presets, tool
from turnwise.effects.model.port import ModelAnswer, ModelCall
from turnwise.testing import FunctionLlm, call, reply

from ...support.servers.model_server import ANTHROPIC, GEMINI, OPENAI, RESPONSES, Dialect, ModelServer, answers, thinks
from ...support.servers.model_server import call as calls

SEAL = {"type": "thinking", "thinking": "Hm.", "signature": "c2VhbGVk"}
MARK = {"type": "ephemeral"}
CACHED = Policy(settings=ModelSettings(cache="auto"))


@tool(crash="pure")
def weather(city: str = "") -> str:
    """Tell the weather."""
    return "Rain."


def thinking(request: ModelRequest) -> list[int]:
    """Return the places of the messages of the model that hold sealed thinking, among those of the model."""
    said = [message for message in request.messages if message["role"] == "assistant"]
    return [place for place, message in enumerate(said) if "thinking_blocks" in message]


async def requests_of(turns: int, answer: Callable[[ModelRequest], Any], **options: Any) -> list[ModelRequest]:
    """Return the requests of so many turns of a conversation whose model answers like this."""
    model = FunctionLlm(answer, name="claude-test")
    async with Engine.open("sqlite://", model=model, tools=[weather], **options) as engine:
        conversation = await engine.create(system="You help.")
        for number in range(turns):
            await conversation.send(f"Message {number}")
    return list(model.requests)


def seals(request: ModelRequest) -> ModelAnswer:
    """Call a tool with sealed thinking, then answer with it."""
    if request.messages[-1]["role"] == "tool":
        return ModelAnswer(content="Rain.", opaque=(SEAL,), thinking="Hm.")
    return ModelAnswer(
        tool_calls=(ModelCall("a", "weather"),), opaque=(SEAL,), thinking="Hm.", finish_reason="tool_calls"
    )


class TestKeepThinking:
    """`Policy.keep_thinking` over three turns of two answers each."""

    @pytest.mark.parametrize(
        ("keep", "first_of_third_turn"),
        [("turn", []), (1, []), (2, [2, 3]), (3, [0, 1, 2, 3]), (99, [0, 1, 2, 3]), ("conversation", [0, 1, 2, 3])],
    )
    async def test_it_goes_back_for_so_long(self, keep: Any, first_of_third_turn: list[int]) -> None:
        """In its own turn in any case."""
        requests = await requests_of(3, seals, policy=Policy(keep_thinking=keep))

        assert thinking(requests[4]) == first_of_third_turn
        assert thinking(requests[5]) == [*first_of_third_turn, 4]

    async def test_a_beginning_that_is_kept_is_never_written_otherwise(self) -> None:
        """With "conversation" each request begins with all of the one before it."""
        requests = await requests_of(4, seals, policy=Policy(keep_thinking="conversation"))

        for one, other in pairwise(requests):
            assert other.messages[: len(one.messages)] == one.messages

    @pytest.mark.parametrize("wrong", [0, -1, "always"])
    def test_anything_else_is_refused(self, wrong: Any) -> None:
        """Where it is written."""
        with pytest.raises(ValueError):
            Policy(keep_thinking=wrong)

    async def test_another_model_never_gets_it(self) -> None:
        """However long it is kept."""
        requests: list[ModelRequest] = []

        def note(request: ModelRequest) -> ModelAnswer:
            requests.append(request)
            return reply("Well.")

        models = [FunctionLlm(seals, name="claude-test"), FunctionLlm(note, name="gpt-test")]
        async with Engine.open("sqlite://", model=models[0], models=models[1:], tools=[weather]) as engine:
            conversation = await engine.create(policy=Policy(keep_thinking="conversation"))
            await conversation.send("One")
            await conversation.set_policy(conversation.policy.replace(models=[{"name": "gpt-test"}]))
            await conversation.send("Two")

        assert thinking(requests[0]) == []


class TestStableMessages:
    """What a request says of itself."""

    async def test_the_stable_messages_are_those_of_later_requests(self) -> None:
        """Also where a search finds something else for each turn, and the time is stated."""
        script = [call("weather"), reply("Rain.")]
        policy = Policy(documents=True, fresh_context=True, keep_thinking="conversation")

        requests = await requests_of(
            3,
            lambda request: script[request.messages[-2]["role"] == "tool"],
            policy=policy,
            documents=lambda query: [f"About {query}"],
        )

        assert len(requests) == 6
        for place, one in enumerate(requests):
            assert one.stable >= len(one.messages) - 2
            for other in requests[place + 1 :]:
                assert other.messages[: one.stable] == one.messages[: one.stable]

    async def test_what_was_found_is_never_in_the_beginning(self) -> None:
        """It stands in the last message alone, once, and in no request of another turn."""
        requests = await requests_of(
            2, lambda request: reply("Well."), policy=Policy(documents=True), documents=lambda query: [f"About {query}"]
        )

        for request in requests:
            told = [place for place, one in enumerate(request.messages) if "Relevant documents:" in str(one["content"])]
            assert told == [len(request.messages) - 1]
            assert request.stable < len(request.messages)


def marked(value: Any) -> list[Any]:
    """Return whatever has a breakpoint, in the order of the request."""
    if isinstance(value, list):
        return [one for each in value for one in marked(each)]
    if not isinstance(value, dict):
        return []
    inner = [one for each in value.values() for one in marked(each)]
    return [*inner, value] if value.get("cache_control") else inner


async def bodies_of(dialect: Dialect, policy: Policy, texts: Sequence[str] = ("One", "Two"), **more: Any) -> list[Any]:
    """Return the bodies of the requests of a conversation whose turns call a tool each."""

    def script(body: Any) -> Any:
        last = str((body.get("messages") or body.get("contents") or body.get("input"))[-1])
        kinds = ("tool_result", "'tool'", "functionResponse", "function_response", "function_call_output")
        return answers("Rain.") if any(kind in last for kind in kinds) else answers(calls("weather", city="Oslo"))

    async with (
        ModelServer(script, dialect) as server,
        Engine.open("sqlite://", model=server.llm(**more), tools=[weather], policy=policy) as engine,
    ):
        conversation = await engine.create(system="You help.")
        for text in texts:
            turn = await conversation.send(text)
            assert turn.reply == "Rain."
        return server.bodies


class TestBreakpoints:
    """`ModelSettings.cache` over a real socket."""

    async def test_anthropic_is_told_where_requests_stay_the_same(self) -> None:
        """Behind the system message, where the next turn finds it, and behind all that stays: at most four."""
        bodies = await bodies_of(ANTHROPIC, CACHED)

        assert [len(marked(body)) for body in bodies] == [1, 2, 2, 3]
        assert all(body["system"][-1]["cache_control"] == MARK for body in bodies)
        assert marked(bodies[1]["messages"])[-1]["type"] == "tool_result"
        assert [one["type"] for one in marked(bodies[2]["messages"])] == ["text"]
        assert marked(bodies[2]["messages"])[0]["text"] == "Rain."

    async def test_without_a_system_message_the_tools_are_marked(self) -> None:
        """They stand first."""
        async with (
            ModelServer([answers("Hi.")], ANTHROPIC) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[weather], policy=CACHED) as engine,
        ):
            await (await engine.create()).send("Hello")

        assert [one["name"] for one in marked(server.bodies[0]["tools"])] == ["weather"]

    @pytest.mark.parametrize("policy", [Policy(), Policy(settings=ModelSettings(cache="off"))])
    async def test_it_is_not_told_unless_it_is_asked_for(self, policy: Policy) -> None:
        """Breakpoints cost something."""
        assert [marked(body) for body in await bodies_of(ANTHROPIC, policy)] == [[]] * 4

    async def test_a_gateway_is_told_in_the_parts(self) -> None:
        """OpenAI's protocol has no other place for it."""
        bodies = await bodies_of(OPENAI, CACHED, model="openrouter/anthropic/claude-sonnet-4.5")

        assert bodies[1]["messages"][-1]["content"][-1]["cache_control"] == MARK

    @pytest.mark.parametrize("dialect", [OPENAI, RESPONSES])
    async def test_openai_is_told_the_conversation(self, dialect: Dialect) -> None:
        """It finds its caches by this key; nothing in the messages changes."""
        bodies = await bodies_of(dialect, CACHED, model=dialect.model.replace("test", "gpt-4.1"))

        assert len({body["prompt_cache_key"] for body in bodies}) == 1
        assert [marked(body) for body in bodies] == [[]] * 4

    async def test_gemini_keeps_beginnings_by_itself(self) -> None:
        """It is told nothing."""
        assert [marked(body) for body in await bodies_of(GEMINI, CACHED)] == [[]] * 4


SEARCHING = Policy(settings=ModelSettings(server_tools=("web_search", "code_execution")))


class TestServerTools:
    """`ModelSettings.server_tools` over a real socket."""

    @pytest.mark.parametrize(
        ("dialect", "model", "expected"),
        [
            (
                ANTHROPIC,
                None,
                [
                    {"type": "web_search_20250305", "name": "web_search"},
                    {"type": "code_execution_20250825", "name": "code_execution"},
                ],
            ),
            (GEMINI, "gemini/gemini-3-pro-preview", [{"googleSearch": {}}, {"code_execution": {}}]),
            (
                RESPONSES,
                None,
                [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}],
            ),
        ],
    )
    async def test_each_provider_is_asked_in_its_own_words(
        self, dialect: Dialect, model: str | None, expected: list[Any]
    ) -> None:
        """Beside the tools of the conversation."""
        bodies = await bodies_of(dialect, SEARCHING, model=model or dialect.model)

        told = [tool for body in bodies for tool in body["tools"]]
        assert all(told.count(one) == len(bodies) for one in expected)
        assert "weather" in str(told)

    async def test_where_a_search_is_a_parameter_it_is_asked_for_so(self, caplog: pytest.LogCaptureFixture) -> None:
        """What the provider does not have is told once."""
        bodies = await bodies_of(OPENAI, SEARCHING, model="openai/gpt-4o-search-preview")

        assert [body.get("web_search_options") for body in bodies] == [{}] * len(bodies)
        assert [one.getMessage() for one in caplog.records if "code_execution" in one.getMessage()] == [
            "The model openai/gpt-4o-search-preview has no tool code_execution of its provider, so it is asked without."
        ]

    async def test_what_a_provider_defines_is_sent_as_it_is(self) -> None:
        """For all tools that have no name here; also without tools of the conversation."""
        own = {"type": "file_search", "vector_store_ids": ["vs_1"]}
        async with (
            ModelServer([answers("Hi.")], RESPONSES) as server,
            Engine.open("sqlite://", model=server.llm()) as engine,
        ):
            await (await engine.create()).send("Hello", settings=ModelSettings(server_tools=(own,)))

        assert server.bodies[0]["tools"] == [own]

    def test_a_name_that_nobody_has_is_refused(self) -> None:
        """Where it is written."""
        with pytest.raises(ValueError):
            ModelSettings(server_tools=("time_travel",))  # type: ignore[arg-type]


@tool(crash="pure")
def book(table: int, time: str) -> str:
    """Book a table."""
    return "Booked."


class Guest(BaseModel):
    """Someone who comes along."""

    name: str
    diet: str | None = None


@tool(crash="pure")
def invite(guest: Guest, seats: int = 1, notes: list[str] | None = None, when: str = "noon") -> str:
    """Invite someone."""
    return f"{guest.name}, {guest.diet}, {seats}, {notes}, {when}"


@tool(crash="pure")
def remember(facts: dict[str, str]) -> str:
    """Remember facts by name."""
    return "Remembered."


class TestStrictTools:
    """`ModelSettings.strict`."""

    async def test_tools_are_strict_whose_schema_can_be_written_so(self) -> None:
        """One that takes an object with any fields is sent as without the setting, as are all where it is not set."""
        async with (
            ModelServer([answers("Hi.")]) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[book, weather, remember]) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("Hello", settings=ModelSettings(strict=True))
            await conversation.send("Hello")

        first, second = ({one["function"]["name"]: one["function"] for one in body["tools"]} for body in server.bodies)
        assert [one.get("strict") for one in first.values()] == [True, True, None]
        assert first["book"]["parameters"]["additionalProperties"] is False
        assert first["book"]["parameters"]["required"] == ["table", "time"]
        assert first["remember"] == second["remember"]
        assert not any("strict" in one for one in second.values())

    @pytest.mark.parametrize("dialect", [OPENAI, RESPONSES], ids=["chat", "responses"])
    async def test_null_is_an_argument_that_is_not_given(self, dialect: Dialect) -> None:
        """All fields are required, also of nested objects, and the function runs with its own defaults."""
        written = '{"guest": {"name": "Ada", "diet": null}, "seats": null, "notes": null, "when": null}'
        async with (
            ModelServer([answers(calls("invite", written)), answers("Done.")], dialect) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[invite]) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("Invite Ada", settings=ModelSettings(strict=True))
            said = await conversation.messages()

        (told,) = server.bodies[0]["tools"]
        told = told.get("function", told)
        assert told["strict"] is True
        assert told["parameters"] == {
            "type": "object",
            "properties": {
                "guest": {
                    "type": "object",
                    "description": "Someone who comes along.",
                    "properties": {
                        "name": {"type": "string"},
                        "diet": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    },
                    "required": ["name", "diet"],
                    "additionalProperties": False,
                },
                "seats": {"description": "(null: 1)", "anyOf": [{"type": "integer"}, {"type": "null"}]},
                "notes": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
                "when": {"description": '(null: "noon")', "anyOf": [{"type": "string"}, {"type": "null"}]},
            },
            "required": ["guest", "seats", "notes", "when"],
            "additionalProperties": False,
        }
        (made,) = [one for message in said for one in message.get("tool_calls", ())]
        (result,) = [message["content"] for message in said if message["role"] == "tool"]
        assert json.loads(made["function"]["arguments"]) == {"guest": {"name": "Ada"}}
        assert result == "Ada, None, 1, None, noon"

    async def test_the_tool_for_a_typed_answer_is_strict_too(self) -> None:
        """It stands behind the others, also where these were strict in a request without it."""
        form = Output(Guest, way="tool")
        answer = calls("final_result", '{"name": "Ada", "diet": null}')
        async with (
            ModelServer([answers("Hi."), answers(answer)]) as server,
            Engine.open("sqlite://", model=server.llm(), tools=[book]) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("Hello", settings=ModelSettings(strict=True))
            await conversation.send("Who?", output=form, settings=ModelSettings(strict=True))

        first, second = ([one["function"] for one in body["tools"]] for body in server.bodies)
        assert [(one["name"], one["strict"]) for one in first] == [("book", True)]
        assert [(one["name"], one["strict"]) for one in second] == [("book", True), ("final_result", True)]
        assert second[1]["parameters"]["required"] == ["name", "diet"]


async def test_thinking_of_gemini_and_responses_is_kept_for_the_conversation() -> None:
    """Over a real socket: the seals of an earlier turn stand in the request of the next one."""
    policy = presets.assistant().replace(keep_thinking="conversation")
    for dialect in (ANTHROPIC, RESPONSES):
        first = answers(thinks("Hm.", signature="c2VhbGVk"), "Rain.")
        async with (
            ModelServer([first, answers("Bye.")], dialect) as server,
            Engine.open("sqlite://", model=server.llm(), policy=policy) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("The weather?")
            await conversation.send("Thanks.")

        assert "c2VhbGVk" in str(server.bodies[1])
