"""Context windows and prices of models: read from litellm's list without litellm, or given by the application."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, LiteLlm, ModelSpec
from turnwise.effects.model.litellm.costs import UNLISTED, ModelList, listed_model
from turnwise.effects.model.litellm.loading import load_litellm
from turnwise.testing import FunctionLlm, ScriptedLlm

from ....support.cases import holds_for

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
