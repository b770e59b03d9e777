"""The models of an engine: which are given, and which of them a conversation asks."""

from __future__ import annotations

from typing import Any

import pytest

from turnwise import ConfigurationError, Engine, ModelSpec
from turnwise.engine.models import Models
from turnwise.testing import ScriptedLlm

from ..support.cases import holds_for


class TestChecking:
    """`engine.check()` makes sure that the models could be asked."""

    @pytest.mark.parametrize("where", ["model", "fallback_models", "models"])
    async def test_every_registered_model_is_checked(self, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also those that a conversation has yet to choose. A blank key is a missing one."""
        monkeypatch.setenv("OPENAI_API_KEY", "")
        options: dict[str, Any] = {"model": ScriptedLlm([])}
        options[where] = "openai/gpt-4.1-mini" if where == "model" else ["openai/gpt-4.1-mini"]

        with pytest.raises(ConfigurationError) as caught:
            await Engine.open("sqlite://", **options).check()

        assert caught.value.sentence == "There is no key for the model 'openai/gpt-4.1-mini': set OPENAI_API_KEY."


class TestGivenModels:
    """`Engine.open(model=…, fallback_models=[…], models=[…])`."""

    def test_those_beside_the_chain_are_registered(self) -> None:
        """They are known by name and not asked by default; a model that is repeated is one model."""
        first = ScriptedLlm([], name="first")

        models = Models.of(first, ["rehearsal"], [first, "rehearsal", ModelSpec(name="openai/x", window=900)])

        assert list(models.by_name) == ["first", "rehearsal", "openai/x"]
        assert [spec.name for spec in models.chain] == ["first", "rehearsal"]
        assert models.specs["openai/x"].window == 900

    @holds_for(
        ("options", "sentence"),
        [
            ({"models": [ScriptedLlm([], name="rehearsal")]}, "Two models are called rehearsal."),
            ({"models": ["openai/x", "openai/x"]}, "Two models are called openai/x."),
            ({"fallback_models": ["rehearsal"]}, "Two models are called rehearsal."),
            ({"models": "openai/x"}, "The models are given as a list."),
            ({"models": ModelSpec(name="openai/x")}, "The models are given as a list."),
            ({"models": {"openai/x": "openai/y"}}, "The models are given as a list."),
            ({"fallback_models": {"openai/x": "openai/y"}}, "The models to fall back to are given as a list."),
            ({"models": 5}, "The models are given as a list."),
            ({"fallback_models": "openai/x"}, "The models to fall back to are given as a list."),
            ({"models": [5]}, "A model is a name that litellm knows, or an object with the method `complete`."),
            ({"models": [" "]}, "A model needs a name."),
        ],
    )
    def test_what_cannot_be_asked_is_refused(self, options: dict[str, Any], sentence: str) -> None:
        """At once, before anything is opened."""
        with pytest.raises(ConfigurationError) as caught:
            Engine.open("sqlite://", **options)

        assert caught.value.sentence == sentence
