"""How earlier answers go back to a model: texts, thinking, calls, and the seals of each protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.model_server import (
    ANTHROPIC,
    GEMINI,
    OLLAMA,
    Answer,
    Call,
    Data,
    Dialect,
    Failure,
    Gemini,
    ModelServer,
    OpenAi,
    Piece,
    Thinking,
    answers,
    call,
    fails,
    thinks,
)
from turnwise import Engine, LiteLlm, LlmFailure, ModelAnswer, ModelCall, Turn, WaitsForApproval, presets, tool
from turnwise.engine.json_forms import message_data
from turnwise.states import Policy
from turnwise.testing import FunctionLlm

# --- What a model wrote for itself goes back to its family, and no other model gets it, over a real socket.


Json = dict[str, Any]

SEAL = "c2VhbGVkIGJ5IGl0cyBwcm92aWRlcg=="
LONG_SEAL = SEAL.strip("=") * 90
THINKING: Json = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096}
AT_ONCE = presets.assistant().replace(retry={"attempts": 1, "base": 0.01})


@tool(crash="pure")
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"Rain in {city}."


@tool(approval=True)
async def book(city: str) -> str:
    """Book a trip."""
    return f"Booked {city}."


def sealed(name: str, call_id: str, more: Json, **arguments: Any) -> Any:
    """A call with this id and these further fields."""
    made = call(name, **arguments)
    return type(made)(made.name, made.arguments, call_id, more=more)


def assistant(body: Json) -> list[Json]:
    """The messages of the assistant in a request."""
    return [message for message in body["messages"] if message["role"] == "assistant"]


def calls_in(body: Json) -> list[Json]:
    """The calls in a request."""
    return [made for message in assistant(body) for made in message.get("tool_calls") or ()]


async def ask(model: Any, *texts: str, policy: Policy | None = None, **options: Any) -> list[Turn]:
    """Say these texts to the model, and return the turns."""
    async with Engine.open("sqlite://", model=model, tools=[weather, book], policy=policy, **options) as engine:
        conversation = await engine.create()
        return [await conversation.send(text) for text in texts]


class TestReasoning:
    """A provider in thinking mode refuses a message with calls that comes back without its reasoning."""

    def needs_reasoning(self, name: str = "reasoning_content") -> Callable[[Json], Answer | Failure]:
        """Answer like such a provider."""

        def script(body: Json) -> Answer | Failure:
            if any(message.get("tool_calls") and not message.get(name) for message in assistant(body)):
                return fails(400, {"error": {"message": f"Missing `{name}`", "type": "invalid_request_error"}})
            if body["messages"][-1]["role"] == "tool":
                return answers("It rains.")
            return answers(thinks("Look ", "it up."), call("weather", city="Oslo"))

        return script

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "model",
        [
            "openai/some-reasoner",
            "deepseek/deepseek-chat",
            "moonshot/kimi-k2-thinking",
            "hosted_vllm/qwen3",
            "lm_studio/gpt-oss",
            "litellm_proxy/glm-5",
        ],
    )
    async def test_it_goes_back_with_the_calls_in_this_turn_and_later(self, model: str) -> None:
        """Under the same name, word for word."""
        async with ModelServer(self.needs_reasoning(), OpenAi(model)) as server:
            first, second = await ask(server.llm(), "Oslo?", "And again?")

        assert (first.reply, second.reply) == ("It rains.", "It rains.")
        assert [message.get("reasoning_content") for message in assistant(server.bodies[-1])[::2]] == [
            "Look it up."
        ] * 2
        assert len(server.requests) == 4

    async def test_another_model_does_not_get_it(self) -> None:
        """The fallback gets the call alone, with an id that every provider takes."""
        refuses = [answers(thinks("Hm."), call("weather", city="Oslo")), fails(503)]
        async with ModelServer(refuses) as first, ModelServer([answers("Rain.")]) as second:
            (turn,) = await ask(
                first.llm("openai/one"), "Oslo?", policy=AT_ONCE, fallback_models=[second.llm("openai/other")]
            )

        (message,) = assistant(second.bodies[0])
        assert turn.reply == "Rain."
        assert message.keys() <= {"role", "content", "tool_calls"}
        assert message["tool_calls"][0]["id"] == "call00001"

    @pytest.mark.parametrize("model", ["deepseek/deepseek-reasoner", "openai/kimi-k2-thinking", "openai/unheard-of"])
    async def test_a_model_that_needs_it_takes_the_calls_of_another(self, model: str) -> None:
        """It is filled in for makers that need it, and for any model that says so."""
        plain = [answers(call("weather", city="Oslo")), fails(503)]
        async with ModelServer(plain) as first, ModelServer(self.needs_reasoning(), OpenAi(model)) as second:
            (turn,) = await ask(first.llm("openai/one"), "Oslo?", policy=AT_ONCE, fallback_models=[second.llm()])

        assert turn.reply == "It rains."
        assert len(second.requests) == (2 if "unheard" in model else 1)

    @pytest.mark.parametrize("wanted", ["reasoning", "reasoning_content"])
    async def test_a_model_that_names_it_otherwise_gets_it_under_that_name(self, wanted: str) -> None:
        """And under the usual one too, if the provider says so."""
        dialect = OpenAi("openai/gpt-oss", lambda text: {"reasoning": text})
        async with ModelServer(self.needs_reasoning(wanted), dialect) as server:
            (turn,) = await ask(server.llm(), "Oslo?")

        assert turn.reply == "It rains."
        assert assistant(server.bodies[-1])[0][wanted] == "Look it up."

    async def test_a_field_that_the_provider_refuses_is_left_out_from_then_on(self) -> None:
        """A request without it is sent in the same turn, and the next one does not have it."""

        def script(body: Json) -> Answer | Failure:
            if any("reasoning_content" in message for message in assistant(body)):
                return fails(400, {"error": {"message": "property 'reasoning_content' is unsupported"}})
            if body["messages"][-1]["role"] == "tool":
                return answers("It rains.")
            return answers(thinks("Hm."), call("weather", city="Oslo"))

        async with ModelServer(script) as server:
            turns = await ask(server.llm(), "Oslo?", "Again?")

        assert [turn.reply for turn in turns] == ["It rains.", "It rains."]
        assert sum("reasoning_content" in str(body["messages"]) for body in server.bodies) == 1


class TestSignaturesOfCalls:
    """A call goes back with everything that its provider wrote on it."""

    def needs_seal(self, first: Any, is_sealed: Callable[[Json], bool]) -> Callable[[Json], Answer | Failure]:
        """Answer like a provider that refuses a call without its seal."""

        def script(body: Json) -> Answer | Failure:
            made = calls_in(body)
            if made and not is_sealed(made[0]):
                return fails(400, {"error": {"message": "Function call is missing a thought_signature", "code": 400}})
            return answers("It rains.") if body["messages"][-1]["role"] == "tool" else answers(*first)

        return script

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "call_id", [f"call_7__thought__{SEAL}", f"call_7__thought__{LONG_SEAL}", "functions.weather:0"]
    )
    async def test_an_id_goes_back_as_it_came(self, call_id: str) -> None:
        """However long it is, in its turn and in later ones."""
        script = self.needs_seal([sealed("weather", call_id, {}, city="Oslo")], lambda made: made["id"] == call_id)
        async with ModelServer(script) as server:
            turns = await ask(server.llm("openai/gemini-3-flash"), "Oslo?", "Well?")

        results = [one["tool_call_id"] for one in server.bodies[1]["messages"] if one["role"] == "tool"]
        assert [turn.reply for turn in turns] == ["It rains.", "It rains."]
        assert results == [call_id]

    async def test_a_repeated_id_goes_back_once(self) -> None:
        """No provider takes an id twice."""
        again = [answers(sealed("weather", "call_0", {}, city=city)) for city in ("Oslo", "Bergen")]
        async with ModelServer([*again, answers("Rain.")]) as server:
            await ask(server.llm(), "Oslo?")

        assert [made["id"] for made in calls_in(server.bodies[-1])] == ["call_0", "call00001"]

    async def test_gemini_takes_the_calls_of_another_model(self) -> None:
        """Over OpenAI's protocol too, where nobody else fills in that there is no signature."""
        foreign = FunctionLlm(_call_then_fail())
        script = self.needs_seal([], lambda made: "google" in made.get("extra_content", {}))
        async with ModelServer(script) as server:
            (turn,) = await ask(
                foreign, "Oslo?", policy=AT_ONCE, fallback_models=[server.llm("openai/gemini-3-pro-preview")]
            )

        assert turn.reply == "It rains."
        assert len(server.requests) == 1


def _call_then_fail(**opaque: Any) -> Callable[[Any], Any]:
    asked: Iterator[int] = iter(range(100))

    def answer(request: Any) -> ModelAnswer:
        if next(asked):
            raise LlmFailure("server_error", "It is down.")
        return ModelAnswer(
            tool_calls=(ModelCall("1", "weather", '{"city": "Oslo"}', opaque=opaque),), finish_reason="tool_calls"
        )

    return answer


class Claude:
    """Answers by a script, and refuses what Anthropic refuses about thinking. `faults` are its refusals."""

    def __init__(self, *script: Answer | Failure) -> None:
        self.faults: list[str] = []
        self._script = list(script)
        self._sealed: dict[str, str] = {}

    def __call__(self, body: Json) -> Answer | Failure:
        """Answer a request."""
        if fault := self._fault_of(body):
            self.faults.append(fault)
            return fails(400, {"type": "error", "error": {"type": "invalid_request_error", "message": fault}})
        reply = self._script.pop(0)
        for piece in reply.pieces if isinstance(reply, Answer) else ():
            if isinstance(piece, Thinking):
                self._sealed[piece.signature] = "".join(piece.pieces)
        return reply

    def _fault_of(self, body: Json) -> str:
        for block in blocks_in(body):
            if block["type"] == "thinking" and self._sealed.get(block["signature"]) != block["thinking"]:
                return "Invalid `signature` in `thinking` block"
        if body.get("thinking", {}).get("type") != "enabled":
            return ""
        for message in reversed(body["messages"]):
            if message["role"] == "user" and any(block["type"] != "tool_result" for block in message["content"]):
                break
            first = message
        else:
            return ""
        begins = first["content"][0]["type"] if message is not body["messages"][-1] else "thinking"
        return "" if "thinking" in begins else f"Expected `thinking` or `redacted_thinking`, but found `{begins}`."


def blocks_in(body: Json) -> list[Json]:
    """The blocks of the assistant in a request of Anthropic's."""
    said = (message["content"] for message in body["messages"] if message["role"] == "assistant")
    return [block for content in said if isinstance(content, list) for block in content]


def seals_in(body: Json) -> list[str]:
    """The signatures in a request of Anthropic's."""
    return [block["signature"] for block in blocks_in(body) if block["type"] == "thinking"]


OSLO = (thinks("Look ", "at Oslo.", signature="S1"), sealed("weather", "toolu_1", {}, city="Oslo"))
ROME = (thinks("And Rome.", signature="S2"), sealed("weather", "toolu_2", {}, city="Rome"))
BOOK = (thinks("Book it.", signature="S1"), sealed("book", "toolu_1", {}, city="Oslo"))
DOWN = fails(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
DENIED = fails(401, {"type": "error", "error": {"type": "authentication_error", "message": "no"}})


class TestSealedThinking:
    """Anthropic wants the sealed thinking of a round back, or a request that asks for none."""

    async def test_every_round_of_a_turn_has_its_own(self) -> None:
        """And no later turn has any."""
        claude = Claude(answers(*OSLO), answers(*ROME), answers("Rain."), answers("Bye."))
        async with ModelServer(claude, ANTHROPIC) as server:
            turns = await ask(server.llm(**THINKING), "Go", "Thanks")

        assert [turn.reply for turn in turns] == ["Rain.", "Bye."]
        assert claude.faults == []
        assert [seals_in(body) for body in server.bodies] == [[], ["S1"], ["S1", "S2"], []]

    async def test_ids_of_calls_go_back(self) -> None:
        """As they came."""
        claude = Claude(answers(*OSLO), answers("Rain."))
        async with ModelServer(claude, ANTHROPIC) as server:
            await ask(server.llm(**THINKING), "Go")

        assert [block["id"] for block in blocks_in(server.bodies[1]) if block["type"] == "tool_use"] == ["toolu_1"]

    async def test_a_turn_that_is_tried_again_continues_the_one_before(self) -> None:
        """However often, and a later turn does not."""
        claude = Claude(answers(*OSLO), DENIED, answers(*ROME), DENIED, answers("Rain."), answers("Bye."))
        async with (
            ModelServer(claude, ANTHROPIC) as server,
            Engine.open("sqlite://", model=server.llm(**THINKING), tools=[weather]) as engine,
        ):
            conversation = await engine.create()
            failed = [await conversation.send("Go"), await conversation.retry()]
            turn = await conversation.retry()
            await conversation.send("Thanks")

        assert ([one.status for one in failed], turn.reply) == (["failed", "failed"], "Rain.")
        assert claude.faults == []
        assert [seals_in(body) for body in server.bodies[-3:]] == [["S1", "S2"], ["S1", "S2"], []]

    @pytest.mark.parametrize("is_sibling", [False, True])
    async def test_another_model_makes_a_request_without_thinking(self, is_sibling: bool) -> None:
        """A sibling too, since a signature belongs to one model."""
        first, second = Claude(answers(*OSLO), DOWN), Claude(answers("Rain."))
        name = "anthropic/claude-opus-4-1" if is_sibling else "anthropic/claude-sonnet-4-5"
        async with ModelServer(first, ANTHROPIC) as one, ModelServer(second, ANTHROPIC) as other:
            model = one.llm(**THINKING) if is_sibling else FunctionLlm(_call_then_fail())
            (turn,) = await ask(model, "Go", policy=AT_ONCE, fallback_models=[other.llm(name, **THINKING)])

        assert turn.reply == "Rain."
        assert second.faults == []
        assert "thinking" not in other.bodies[0]

    async def test_models_of_one_declared_family_share_it(self) -> None:
        """Under whatever names an engine has them."""
        claude = Claude(answers(*OSLO), DOWN, answers("Rain."))
        async with ModelServer(claude, ANTHROPIC) as server:
            name = ANTHROPIC.model
            model, other = (LiteLlm(one, model=name, **_at(server)) for one in ("first", "second"))
            (turn,) = await ask(model, "Go", policy=AT_ONCE, fallback_models=[other])

        assert turn.reply == "Rain."
        assert seals_in(server.bodies[-1]) == ["S1"]

    async def test_a_name_that_means_another_model_now_does_not_get_it(self, database: Path) -> None:
        """The family is stored with the answer."""
        first = Claude(answers(*BOOK))
        async with ModelServer(first, ANTHROPIC) as one, ModelServer([answers("Booked.")]) as other:
            model = LiteLlm("main", model=ANTHROPIC.model, **_at(one))
            async with Engine.open(database, model=model, tools=[book]) as engine:
                conversation = await engine.create()
                waits = await conversation.send("Book")
            assert isinstance(waits, WaitsForApproval)
            now = LiteLlm("main", model="openai/test", api_base=other.url, api_key="test")
            async with Engine.open(database, model=now, tools=[book]) as engine:
                turn = await (await engine.get(conversation.id)).approve(waits.call_id, True)

        assert turn.reply == "Booked."
        assert assistant(other.bodies[0])[0].keys() <= {"role", "content", "tool_calls"}

    async def test_an_approval_in_another_process(self, database: Path) -> None:
        """The round goes on with what was sealed, and the request can be read later as it was sent."""
        claude = Claude(answers(*BOOK), answers("Booked."))
        async with ModelServer(claude, ANTHROPIC) as server:
            async with Engine.open(database, model=server.llm(**THINKING), tools=[book]) as engine:
                conversation_id = (await engine.create()).id
                waits = await (await engine.get(conversation_id)).send("Book")
            assert isinstance(waits, WaitsForApproval)
            async with Engine.open(database, model=server.llm(**THINKING), tools=[book]) as engine:
                conversation = await engine.get(conversation_id)
                turn = await conversation.approve(waits.call_id, True)
                asked = [step.seq for step in await conversation.steps() if step.requests]
                views = [await conversation.model_request(seq) for seq in asked]

        assert turn.reply == "Booked."
        assert claude.faults == []
        assert seals_in(server.bodies[-1]) == ["S1"]
        assert [view.is_exact for view in views] == [True, True]

    async def test_a_copy_of_a_turn_that_failed_tries_it_again(self) -> None:
        """It has what was sealed, too."""
        claude = Claude(answers(*OSLO), DENIED, answers("Rain."))
        async with (
            ModelServer(claude, ANTHROPIC) as server,
            Engine.open("sqlite://", model=server.llm(**THINKING), tools=[weather]) as engine,
        ):
            conversation = await engine.create()
            await conversation.send("Go")
            turn = await (await conversation.fork()).retry()

        assert turn.reply == "Rain."
        assert seals_in(server.bodies[-1]) == ["S1"]


class TestWhatIsStored:
    """What a provider wrote stays with its message in the log, and is shown to nobody."""

    def told(self) -> FunctionLlm:
        """Return a model that writes fields of its own."""
        details = [{"type": "reasoning.encrypted", "data": SEAL, "id": "c-1"}]
        called = ModelCall("c-1", "weather", '{"city": "Oslo"}', opaque={"extra_content": {"google": SEAL}})
        first = ModelAnswer(
            thinking="Hm.",
            tool_calls=(called,),
            opaque_fields={"reasoning_details": details},
            thinking_field="reasoning",
        )
        script = iter([first])
        return FunctionLlm(lambda request: next(script, ModelAnswer(content="Rain.")))

    async def test_it_goes_back_after_a_restart(self, database: Path) -> None:
        """With its call, in a later turn of another process."""
        async with Engine.open(database, model=self.told(), tools=[weather]) as engine:
            conversation = await engine.create()
            await conversation.send("Oslo?")
        model = FunctionLlm(lambda request: ModelAnswer(content="Bye."))
        async with Engine.open(database, model=model, tools=[weather]) as engine:
            await (await engine.get(conversation.id)).send("Well?")

        (message, _) = (one for one in model.requests[-1].messages if one["role"] == "assistant")
        (made,) = message["tool_calls"]
        assert message["reasoning"] == "Hm."
        assert message["reasoning_details"] == [{"type": "reasoning.encrypted", "data": SEAL, "id": "c-1"}]
        assert (made["id"], made["extra_content"]) == ("c-1", {"google": SEAL})

    async def test_no_state_no_view_and_no_export_has_it(self) -> None:
        """Only the event has it, and the transcript that follows from it."""
        async with Engine.open("sqlite://", model=self.told(), tools=[weather]) as engine:
            conversation = await engine.create()
            await conversation.send("Oslo?")
            steps = await conversation.steps()
            said = await conversation.transcript()
            exported = await conversation.messages()

        assert sum(SEAL in str(step.event) for step in steps) == 1
        assert not any(SEAL in str((step.state, step.effects)) for step in steps)
        assert [SEAL in str(message.provider) for message in said] == [False, True, False, False]
        assert SEAL not in str(list(map(message_data, said)))
        assert SEAL not in str(exported)


def _at(server: ModelServer) -> Json:
    return {"api_base": server.url, "api_key": "test", **THINKING}


# --- Where each protocol keeps what its models seal, and that it comes back there, over a real socket.


def signed(city: str, signature: str = "", **more: Any) -> Call:
    """A call with this signature and these further fields."""
    made = call("weather", city=city)
    return Call(made.name, made.arguments, f"call_{city}", signature=signature, more=more)


async def asked_twice(dialect: Dialect, *pieces: Piece) -> list[Json]:
    """Let the model answer with these pieces first, and return the bodies of the request behind the result and of the
    one of the next turn."""
    script = [answers(*pieces), answers("It rains."), answers("Bye.")]
    async with (
        ModelServer(script, dialect) as server,
        Engine.open("sqlite://", model=server.llm(), tools=[weather]) as engine,
    ):
        conversation = await engine.create()
        replies = [(await conversation.send(text)).reply for text in ("Oslo?", "Thanks")]

    assert replies == ["It rains.", "Bye."]
    return server.bodies[1:]


def parts_in(body: Json) -> list[Json]:
    """The parts of the first content of Gemini's in a request."""
    return next(content["parts"] for content in body["contents"] if content["role"] == "model")


def first_in(body: Json) -> Json:
    """The first message of the assistant in a request."""
    return next(message for message in body["messages"] if message["role"] == "assistant")


class TestGemini:
    """Over its own protocol a signature stands on a part."""

    dialect = Gemini("gemini/gemini-3-pro-preview")

    async def test_the_first_of_parallel_calls_is_signed(self) -> None:
        """The other is not, and gets no signature."""
        for body in await asked_twice(self.dialect, signed("Oslo", SEAL), signed("Rome")):
            assert [part.get("thoughtSignature") for part in parts_in(body)] == [SEAL, None]

    async def test_a_text_before_the_calls_is_signed(self) -> None:
        """Each signature stays on its part."""
        part = {"text": "Let me see.", "thoughtSignature": "dGV4dA=="}
        for body in await asked_twice(self.dialect, Data(GEMINI.response([part])), signed("Oslo", SEAL)):
            assert [part.get("thoughtSignature") for part in parts_in(body)] == ["dGV4dA==", SEAL]

    async def test_the_id_of_a_call_goes_back(self) -> None:
        """On the call and on its response."""
        part = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}, "id": "fc-1"}, "thoughtSignature": SEAL}
        for body in await asked_twice(Gemini("gemini/gemini-3.5-pro"), Data(GEMINI.response([part]))):
            (made,) = parts_in(body)
            assert (made["function_call"]["id"], made["thoughtSignature"]) == ("fc-1", SEAL)

    async def test_over_openais_protocol(self) -> None:
        """In `extra_content`, also of a parallel call that is not signed."""
        more = {"extra_content": {"google": {"thought_signature": SEAL}}}
        for body in await asked_twice(OpenAi("openai/gemini-3-pro"), signed("Oslo", **more), signed("Rome")):
            assert [made.get("extra_content") for made in first_in(body)["tool_calls"]] == [more["extra_content"], None]


def _details(text: str) -> Json:
    return {"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text, "index": 0}]}


class TestFurtherFields:
    """What a provider adds to OpenAI's protocol comes back under its name."""

    @pytest.mark.parametrize(
        "model",
        ["openrouter/anthropic/claude-sonnet-4.5", "openrouter/google/gemini-3-pro", "openrouter/deepseek/deepseek-v4"],
    )
    async def test_reasoning_details_of_openrouter(self, model: str) -> None:
        """Joined from their pieces, with what is encrypted for a call by its id."""
        dialect = OpenAi(model, _details)
        secret = {"type": "reasoning.encrypted", "data": SEAL, "id": "call_Oslo", "index": 1}
        chunk = {"index": 0, "delta": {"reasoning_details": [secret]}, "finish_reason": None}
        data = Data({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [chunk]})

        for body in await asked_twice(dialect, thinks("Look ", "it up."), data, signed("Oslo")):
            message = first_in(body)
            told = {"type": "reasoning.text", "text": "Look it up.", "index": 0}
            assert message["reasoning_details"] == [told, secret]
            assert message["reasoning"] == "Look it up."
            assert (message["tool_calls"][0]["id"], "reasoning_content" in message) == ("call_Oslo", False)

    async def test_fields_that_nobody_knows(self) -> None:
        """On a call."""
        for body in await asked_twice(OpenAi("openai/custom"), signed("Oslo", x_seal={"a": [1, None, SEAL]})):
            assert first_in(body)["tool_calls"][0]["x_seal"] == {"a": [1, None, SEAL]}

    @pytest.mark.parametrize("model", ["hosted_vllm/qwen3", "lm_studio/gpt-oss", "openai/gpt-oss"])
    async def test_thinking_under_another_name(self, model: str) -> None:
        """As the server named it, and not under the usual name."""
        dialect = OpenAi(model, lambda text: {"reasoning": text})
        for body in await asked_twice(dialect, thinks("Hm."), signed("Oslo")):
            message = first_in(body)
            assert (message["reasoning"], "reasoning_content" in message) == ("Hm.", False)

    async def test_thinking_of_ollama(self) -> None:
        """In the field of its own protocol."""
        for body in await asked_twice(OLLAMA, thinks("Hm."), signed("Oslo")):
            assert first_in(body)["thinking"] == "Hm."
