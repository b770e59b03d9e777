"""The windows of models: known by litellm's names without litellm, or given by the host."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, LiteLlm, ModelSpec
from turnwise.effects.model.litellm import context_windows
from turnwise.effects.model.litellm.context_windows import window_of
from turnwise.effects.model.litellm.library import load_litellm
from turnwise.testing import FunctionLlm, ScriptedLlm

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


@pytest.fixture
def unread() -> Iterator[None]:
    """The list is read anew before the test, and again behind it."""
    context_windows._listed.cache_clear()
    yield
    context_windows._listed.cache_clear()


async def specs(**options: Any) -> tuple[ModelSpec, ...]:
    """The models that a policy gets from an engine with these options."""
    async with Engine.open("sqlite://", **options) as engine:
        await engine.create()
        (summary,) = await engine.list()
        (opened,) = await (await engine.get(summary.id)).events()
        return tuple(opened.event.policy.models)  # type: ignore[attr-defined]


class TestTheList:
    """What litellm's own list says, read without litellm."""

    @pytest.mark.parametrize("name", [*LISTED, *NEWER_THAN_THE_LIST])
    def test_it_says_what_litellm_says(self, name: str) -> None:
        """With and without the provider, in any case, by a way of its provider, and for a new one of a family."""
        expected = load_litellm().get_model_info(name)["max_input_tokens"]

        assert window_of(name) == expected
        assert expected > 1000

    def test_a_local_model_needs_no_server(self) -> None:
        """litellm itself would ask the server of ollama; the list knows the usual models."""
        assert window_of("ollama/llama3") == 8192

    @pytest.mark.parametrize("name", UNKNOWN)
    def test_a_model_that_is_not_listed_has_no_window(self, name: str) -> None:
        """Neither has one that is listed for other providers: theirs may take less."""
        assert window_of(name) is None

    def test_litellm_is_not_imported(self) -> None:
        """Its import costs seconds; reading its list does not."""
        program = (
            "import sys\n"
            "from turnwise.effects.model.litellm.context_windows import window_of\n"
            "assert window_of('openai/gpt-4.1-mini')\n"
            "assert not [name for name in sys.modules if name.startswith('litellm')]\n"
        )

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize(
        "written", [None, "", "[]", '{"gpt-4.1-mini": 1}', '{"fallback_generalizations": {"rules": [1]}}']
    )
    def test_a_list_that_cannot_be_read_knows_nothing(
        self, written: str | None, unread: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A list that is gone, broken or of another shape leaves windows unknown; nothing fails over it."""
        path = tmp_path / "list.json"
        if written is not None:
            path.write_text(written)
        monkeypatch.setattr(context_windows, "_path", lambda: path)

        assert window_of("gpt-4.1-mini") is None


class TestTheEngine:
    """What a policy learns of the models that an engine is opened with."""

    async def test_a_name_brings_its_window(self) -> None:
        """The model, and those to fall back to; unknown ones have none."""
        known = await specs(model="openai/gpt-4.1-mini", fallback_models=["openai/test"])

        assert known == (
            ModelSpec(name="openai/gpt-4.1-mini", window=window_of("gpt-4.1-mini")),
            ModelSpec(name="openai/test", window=None),
        )

    async def test_the_host_knows_better(self) -> None:
        """A ModelSpec, or the window of a LiteLlm, stands for what the list says; one without a window leaves it."""
        smaller = ModelSpec(name="openai/gpt-4.1-mini", window=8_000)
        local = LiteLlm("openai/local", window=32_000, api_base="http://127.0.0.1:1")
        as_listed = ModelSpec(name="gpt-4o")

        known = await specs(model=smaller, fallback_models=[local, as_listed])

        assert [spec.window for spec in known] == [8_000, 32_000, window_of("gpt-4o")]

    async def test_an_object_of_the_port_may_have_a_window(self) -> None:
        """And it may have none."""
        model = ScriptedLlm([])
        model.window = 1_000  # type: ignore[attr-defined]

        known = await specs(model=model, fallback_models=[FunctionLlm(lambda request: "")])

        assert [spec.window for spec in known] == [1_000, None]

    @pytest.mark.parametrize("window", [0, -1, True, 1.5, "many"])
    def test_a_window_is_a_number_of_tokens(self, window: object) -> None:
        """Anything else is refused where the engine is opened."""
        model = ScriptedLlm([])
        model.window = window  # type: ignore[attr-defined]

        with pytest.raises(ConfigurationError, match="The window of the model scripted is a whole number of tokens"):
            Engine.open("sqlite://", model=model)
