"""What an answer costs: the prices are the application's own, those of litellm's list, read without litellm, or asked
of litellm, once for a model without a price. The list has the context windows, too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, LiteLlm, ModelRequest, ModelSpec
from turnwise.effects.model.litellm.costs import (
    UNLISTED,
    Costs,
    ModelList,
    estimated_tokens,
    listed_model,
)
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.effects.model.openai.tokens import Tokens
from turnwise.testing import FunctionLlm, ScriptedLlm

from ....support.cases import holds_for
from ....support.servers.model_server import ModelServer, answers


class PriceList:
    """Takes the place of litellm: a list of prices, and a count of how often it was searched."""

    def __init__(self, **prices: float | None) -> None:
        self.model_cost = prices
        self.searches = 0

    Usage = SimpleNamespace

    def cost_per_token(self, model: str, usage_object: Any) -> tuple[float, float]:
        """The price of the model, also under its name without the provider. Raises a plain Exception if there is none,
        as litellm does."""
        self.searches += 1
        price = self.model_cost.get(model, self.model_cost.get(model.partition("/")[2]))
        if price is None:
            raise Exception(f"This model isn't mapped yet: {model}")
        return price, 0.0


OWN = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}

LISTED = [
    "gpt-4.1-mini",
    "openai/gpt-4.1-mini",
    "openai/GPT-4.1-mini",
    "claude-sonnet-4-5",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-flash",
    "vertex_ai/gemini-2.5-flash",
    "mistral/mistral-large-latest",
    "groq/llama-3.3-70b-versatile",
    "azure/gpt-4o",
    "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "openrouter/anthropic/claude-sonnet-4.5",
]
NEWER_THAN_THE_LIST = ["anthropic/claude-someday-77", "claude-someday-77-1"]
UNKNOWN = ["openai/test", "azure/my-deployment", "nobody/gpt-4.1-mini", "rehearsal", "no such model", "/", ""]


async def specs(**options: Any) -> tuple[ModelSpec, ...]:
    """The models that a policy gets from an engine with these options."""
    async with Engine.open("sqlite://", **options) as engine:
        await engine.create()
        (summary,) = await engine.list()
        (opened,) = await (await engine.get(summary.id)).events()
        return tuple(opened.event.policy.models)  # type: ignore[attr-defined]


HELLO = ModelRequest("m", ({"role": "user", "content": "Hello"},))


def test_a_model_without_a_price_is_looked_for_once() -> None:
    """Until the list has changed, because an application has added prices."""
    prices, costs = PriceList(), Costs("measured")

    assert [costs.cost_of(Tokens(), prices) for _ in range(3)] == [None] * 3
    assert prices.searches == 1
    prices.model_cost["measured"] = 0.5
    assert [costs.cost_of(Tokens(), prices) for _ in range(2)] == [0.5] * 2


@pytest.mark.parametrize("name", ["measured", "own/measured"])
def test_a_price_may_be_added_to_a_model_that_the_list_has(name: str) -> None:
    """An application may have told the context window of its model first. The list does not grow with the price."""
    prices, costs = PriceList(measured=None, own=1.0), Costs(name)

    assert costs.cost_of(Tokens(), prices) is None
    prices.model_cost |= {name.partition("/")[2] or name: 0.5}
    assert costs.cost_of(Tokens(), prices) == 0.5


@pytest.mark.parametrize("model", ["openai/gpt-4.1-mini"])
def test_a_model_with_a_price_is_asked_for_again_after_a_failure(model: str) -> None:
    """A response whose cost cannot be computed says nothing about the next one."""
    prices, costs = PriceList(), Costs(model)

    assert [costs.cost_of(Tokens(), prices) for _ in range(2)] == [None, None]
    assert prices.searches == 2


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        (OWN, 1000e-6 + 200e-6),
        (OWN | {"cache_read_input_token_cost": 1e-7}, 80e-6 + 200e-6 + 200e-6),
        (OWN | {"cache_read_input_token_cost": 1e-7, "cache_creation_input_token_cost": 2e-6}, 80e-6 + 300e-6 + 200e-6),
        ({"input_cost_per_token": 1e-6}, 1000e-6),
        ({"input_cost_per_token": 0, "output_cost_per_token": 0}, 0.0),
    ],
)
def test_own_prices_win(prices: dict[str, float], cost: float) -> None:
    """Over those of the list, which is not even searched; a price that is not given for cached tokens is that of the
    input."""
    known = PriceList(**{"gpt-4.1-mini": 1.0})

    found = Costs("openai/gpt-4.1-mini", {"api_key": "none", **prices}).cost_of(Tokens(1000, 100, 800, 100), known)

    assert found == pytest.approx(cost)
    assert known.searches == 0


class TestTheList:
    """litellm's own list, read without litellm."""

    @holds_for("name", [*LISTED, *NEWER_THAN_THE_LIST])
    def test_it_says_what_litellm_says(self, name: str) -> None:
        """With and without the provider, in upper and lower case, by one of several names of a provider, and for a new
        model of a known family."""
        expected = load_litellm().get_model_info(name)["max_input_tokens"]

        assert listed_model(name).window == expected
        assert expected > 1000

    def test_a_local_model_needs_no_server(self) -> None:
        """litellm itself would ask ollama's server; the list has the usual models."""
        assert listed_model("ollama/llama3").window == 8192

    @pytest.mark.parametrize("name", UNKNOWN)
    def test_a_model_that_is_not_listed_has_no_window(self, name: str) -> None:
        """Nor has a model that is listed for another provider: the same model may have a smaller window elsewhere."""
        assert listed_model(name).window is None

    @pytest.mark.slow
    def test_litellm_is_not_imported(self) -> None:
        """Its import takes seconds; reading its list does not."""
        program = (
            "import sys\n"
            "from turnwise.effects.model.litellm.costs import listed_model\n"
            "assert listed_model('openai/gpt-4.1-mini').is_priced\n"
            "assert not [name for name in sys.modules if name.startswith('litellm')]\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize(
        "content", [None, "", "[]", '{"gpt-4.1-mini": 1}', '{"fallback_generalizations": {"rules": [1]}}']
    )
    def test_a_list_that_cannot_be_read_has_no_windows(self, content: str | None, tmp_path: Path) -> None:
        """A file that is missing, broken or of another shape leaves windows unknown, and nothing fails."""
        path = tmp_path / "list.json"
        if content is not None:
            path.write_text(content)

        assert ModelList.read(path).find("gpt-4.1-mini") == UNLISTED


class TestPrices:
    """Whether it is known what a request costs."""

    @holds_for("name", [*LISTED, "dashscope/qwen-flash"])
    def test_a_listed_model_has_the_price_that_litellm_computes(self, name: str) -> None:
        """Whatever the number is."""
        litellm = load_litellm()
        response = litellm.ModelResponse(model=name, usage=litellm.Usage(prompt_tokens=1000, completion_tokens=1000))

        assert listed_model(name).is_priced
        assert litellm.completion_cost(completion_response=response, model=name) > 0

    def test_a_local_model_is_free(self) -> None:
        """Zero is a price: a limit on the cost is never reached."""
        assert listed_model("ollama/llama3").is_priced

    @holds_for("name", [*NEWER_THAN_THE_LIST, *UNKNOWN])
    def test_another_model_has_none(self, name: str) -> None:
        """Also a new model of a known family, whose window is known."""
        assert not listed_model(name).is_priced

    def test_a_price_may_be_given_as_an_option(self) -> None:
        """litellm computes the cost of an answer with it."""
        assert not LiteLlm("openai/local").is_priced
        assert LiteLlm("openai/local", input_cost_per_token=1e-6, output_cost_per_token=1e-6).is_priced


class TestTheEngine:
    """The windows that stand in the policy of a conversation."""

    async def test_a_listed_name_has_its_window(self) -> None:
        """The model and the fallback models; a model that is not listed has none."""
        known = await specs(model="openai/gpt-4.1-mini", fallback_models=["openai/test"])

        assert known == (
            ModelSpec(name="openai/gpt-4.1-mini", window=listed_model("gpt-4.1-mini").window),
            ModelSpec(name="openai/test", window=None),
        )

    async def test_a_given_window_replaces_that_of_the_list(self) -> None:
        """In a `ModelSpec` or a `LiteLlm`; a `ModelSpec` without a window keeps that of the list."""
        smaller = ModelSpec(name="openai/gpt-4.1-mini", window=8_000)
        local = LiteLlm("openai/local", window=32_000, api_base="http://127.0.0.1:1")
        as_listed = ModelSpec(name="gpt-4o")

        known = await specs(model=smaller, fallback_models=[local, as_listed])

        assert [spec.window for spec in known] == [8_000, 32_000, listed_model("gpt-4o").window]

    async def test_an_object_of_the_port_may_have_a_window(self) -> None:
        """Or none."""
        model = ScriptedLlm([])
        model.window = 1_000  # type: ignore[attr-defined]

        known = await specs(model=model, fallback_models=[FunctionLlm(lambda request: "")])

        assert [spec.window for spec in known] == [1_000, None]

    @pytest.mark.parametrize("window", [0, -1, True, 1.5, "many"])
    def test_a_window_is_a_number_of_tokens(self, window: object) -> None:
        """Anything else is refused when the engine is opened."""
        model = ScriptedLlm([])
        model.window = window  # type: ignore[attr-defined]

        with pytest.raises(ConfigurationError, match="The window of the model scripted is a whole number of tokens"):
            Engine.open("sqlite://", model=model)


class TestTheTokensThatNobodyHasTold:
    """P8: of an answer that broke off or was stopped."""

    messages = ({"role": "user", "content": "Tell me about the weather in Tokyo."},)

    @pytest.mark.parametrize("model", ["openai/gpt-4o", "anthropic/claude-sonnet-4-5", "ollama/llama-3", "unknown"])
    def test_litellm_counts_them(self, model: str) -> None:
        """With a tokenizer that is on this machine, whatever the model is."""
        tokens = estimated_tokens(model, ModelRequest(model, self.messages), "It rains. It rains.", load_litellm())

        assert 12 <= tokens.input <= 18
        assert tokens.output == 6

    def test_an_answer_of_which_nothing_came_has_none(self) -> None:
        """Only the request was read."""
        assert estimated_tokens("openai/gpt-4o", ModelRequest("m", self.messages), "", load_litellm()).output == 0


def test_what_litellm_cannot_count_is_estimated_by_its_characters() -> None:
    """Four of them are about a token, in the texts and in the arguments of calls."""

    class CountsNothing:
        @staticmethod
        def token_counter(*given: Any, **named: Any) -> int:
            raise ValueError("another version")

    call = {"function": {"name": "look", "arguments": '{"at":1}'}}
    messages = (
        {"role": "user", "content": "12345678"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "1234"}, {"type": "image_url", "image_url": {"url": "…"}}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
    )

    assert estimated_tokens("m", ModelRequest("m", messages), "12345", CountsNothing) == Tokens(5, 2)


async def test_own_prices_are_those_of_one_model() -> None:
    """Another model of the same name in the process has none of them."""
    async with ModelServer([answers("Hi")]) as server:
        priced = await server.llm(input_cost_per_token=1e-6).complete(HELLO, lambda token: None)
        other = await server.llm().complete(HELLO, lambda token: None)

    assert (priced.usage.cost, other.usage.cost) == (pytest.approx(1e-5), None)
