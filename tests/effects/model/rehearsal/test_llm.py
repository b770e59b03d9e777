"""The rehearsal model as an engine meets it: an `Llm` without a client library, a key or a network."""

import asyncio
import subprocess
import sys

import pytest

from turnwise import ConfigurationError, Engine, LiteLlm, ModelSpec
from turnwise.effects.model.performers.verification import read_verdict
from turnwise.effects.model.port import Llm, ModelAnswer, ModelRequest, Purpose, Token
from turnwise.effects.model.rehearsal import SUMMARY, RehearsalLlm
from turnwise.effects.model.rehearsal_words import CONDENSED

HELLO = ({"role": "user", "content": "Hello"},)
WEATHER = {
    "type": "function",
    "function": {"name": "check_weather", "description": "What the weather will be like.", "parameters": {}},
}


async def answer_to(purpose: Purpose) -> ModelAnswer:
    """What it answers to a request for this purpose."""
    return await RehearsalLlm(delay=0).complete(ModelRequest("rehearsal", HELLO, purpose=purpose), lambda _: None)


class TestThePort:
    """It is a model like any other."""

    def test_it_fills_the_port(self) -> None:
        """Its name is the one by which an engine chooses it."""
        assert isinstance(RehearsalLlm(), Llm)
        assert RehearsalLlm().name == "rehearsal"

    async def test_it_streams_word_by_word(self) -> None:
        """The tokens, joined, are the content, and the usage counts them."""
        shown: list[Token] = []

        answer = await RehearsalLlm(delay=0).complete(ModelRequest("rehearsal", HELLO), shown.append)

        assert len(shown) > 10
        assert "".join(token.text for token in shown) == answer.content
        assert answer.usage.output_tokens == len(shown)

    async def test_a_call_has_an_id_and_json_arguments(self) -> None:
        """As every provider sends them."""
        request = ModelRequest("rehearsal", ({"role": "user", "content": "The weather?"},), (WEATHER,))

        answer = await RehearsalLlm(delay=0).complete(request, lambda _: None)

        (call,) = answer.tool_calls
        assert (call.id, call.name, call.arguments) == ("call_0", "check_weather", "{}")
        assert answer.finish_reason == "tool_calls"

    async def test_it_calls_nothing_when_calls_are_not_allowed(self) -> None:
        """`tool_choice="none"` lists the tools and allows no call."""
        request = ModelRequest("rehearsal", ({"role": "user", "content": "The weather?"},), (WEATHER,), "none")

        answer = await RehearsalLlm(delay=0).complete(request, lambda _: None)

        assert answer.tool_calls == ()

    async def test_it_can_be_cancelled_between_two_words(self) -> None:
        """A cancel does not wait for the end of the answer."""
        spoke = asyncio.Event()
        model = RehearsalLlm(delay=0.01)
        task = asyncio.create_task(model.complete(ModelRequest("rehearsal", HELLO), lambda _: spoke.set()))
        await spoke.wait()

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_half_a_character_is_replaced(self) -> None:
        """A lone surrogate, as a tool's JSON may hold one, could be neither stored nor shown."""
        shown: list[Token] = []
        request = ModelRequest("rehearsal", ({"role": "user", "content": "half \ud83d"},))

        await RehearsalLlm(delay=0).complete(request, shown.append)

        assert "half �" in "".join(token.text for token in shown)


class TestPurposes:
    """Requests of the engine itself are recognised by their purpose."""

    async def test_it_accepts_every_claim_and_says_so(self) -> None:
        """S11: the answer to a check is a verdict that can be read."""
        verdict = read_verdict((await answer_to("check")).content)

        assert verdict.passed
        assert "rehearsal" in (verdict.reason or "")

    @pytest.mark.parametrize(("purpose", "text"), [("summarize", SUMMARY), ("condense", CONDENSED)])
    async def test_it_says_that_it_cannot_summarize(self, purpose: Purpose, text: str) -> None:
        """S12: in a sentence, for a turn as for a long history."""
        assert (await answer_to(purpose)).content == text


class TestTheEngine:
    """How an engine chooses it."""

    async def test_it_is_chosen_by_name_also_in_a_spec(self, database: str) -> None:
        """A `ModelSpec` gives it a window."""
        async with Engine.open(database, model=ModelSpec(name="rehearsal", window=50_000)) as engine:
            conversation = await engine.create()

            assert conversation.policy.models == (ModelSpec(name="rehearsal", window=50_000),)

    def test_litellm_does_not_know_it(self) -> None:
        """It is no provider of litellm's."""
        with pytest.raises(ConfigurationError):
            LiteLlm("rehearsal").check()

    @pytest.mark.slow
    def test_a_conversation_with_it_imports_no_client_library(self) -> None:
        """A program that uses it starts at once: litellm's import takes seconds."""
        program = (
            "import asyncio, sys\n"
            "from turnwise import Engine\n"
            "async def talk():\n"
            "    async with Engine.open('sqlite://') as engine:\n"
            "        await engine.check()\n"
            "        turn = await (await engine.create()).send('Hello')\n"
            "        assert turn.status == 'completed', turn\n"
            "asyncio.run(talk())\n"
            "assert not sys.modules.keys() & {'litellm', 'openai', 'httpx', 'aiohttp'}\n"
        )

        subprocess.run([sys.executable, "-c", program], check=True, timeout=200)
