"""The models of an engine: those that it was opened with, by their names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Thread

from ...effects.model.litellm.llm import LiteLlm
from ...effects.model.port import Llm, name_of
from ...effects.model.rehearsal.llm import REHEARSAL, RehearsalLlm
from ...effects.text import is_encodable
from ...states.errors import ConfigurationError
from ...states.policy.policy import ModelSpec

logger = logging.getLogger("turnwise.engine")


@dataclass(frozen=True)
class Models:
    """The models of an engine, by name, in the order in which they are tried."""

    by_name: Mapping[str, Llm]
    specs: tuple[ModelSpec, ...]
    """The models as a policy names them, with their windows as far as they are known."""

    @classmethod
    def of(cls, model: str | ModelSpec | Llm, fallback_models: Iterable[str | ModelSpec | Llm]) -> Models:
        """Return the models given, each under its name.

        Raises `ConfigurationError` for one that cannot be asked, and if two share a name.
        """
        if isinstance(fallback_models, str) or not isinstance(fallback_models, Iterable):
            raise ConfigurationError("The models to fall back to are given as a list.")
        by_name: dict[str, Llm] = {}
        specs: list[ModelSpec] = []
        for given in (model, *fallback_models):
            asked = _model_of(given)
            spec = _spec_of(asked)
            if spec.name in by_name:
                raise ConfigurationError(f"Two models are called {spec.name}.")
            by_name[spec.name] = asked
            specs.append(spec)
        return cls(by_name, tuple(specs))

    def find(self, name: str) -> Llm:
        """The model of this name. A conversation that waited for a person while the engine was opened with other
        models ends its turn with the model that it began with, which is made from its name."""
        return self.by_name[name] if name in self.by_name else _make_model(name)

    def warm_in_background(self) -> None:
        """Load what the models need, ahead of the first request, in a thread; models that need nothing start none."""
        if any(isinstance(model, LiteLlm) for model in self.by_name.values()):
            Thread(target=self._warm, daemon=True, name="turnwise-warm").start()

    def _warm(self) -> None:
        try:
            for model in self.by_name.values():
                if isinstance(model, LiteLlm):
                    model.warm()
        except Exception:  # the first request reports it to its caller
            logger.warning("The models could not be loaded ahead.", exc_info=True)

    def check(self) -> None:
        """Raise `ConfigurationError` for a model that cannot be asked."""
        for model in self.by_name.values():
            if isinstance(model, LiteLlm):
                model.check()


def _make_model(name: str, window: int | None = None) -> Llm:
    """The model of this name: the rehearsal model, or one of litellm's."""
    return RehearsalLlm(window=window) if name == REHEARSAL else LiteLlm(name, window=window)


def _model_of(given: str | ModelSpec | Llm) -> Llm:
    if isinstance(given, str):
        return _make_model(given)
    if isinstance(given, ModelSpec):
        return _make_model(given.name, given.window)
    if not isinstance(given, Llm):
        raise ConfigurationError("A model is a name that litellm knows, or an object with the method `complete`.")
    return given


def _spec_of(model: Llm) -> ModelSpec:
    name = name_of(model)
    if not name.strip() or not is_encodable(name):
        raise ConfigurationError("A model needs a name.")
    window = getattr(model, "window", None)
    if window is not None and not (type(window) is int and window >= 1):
        raise ConfigurationError(f"The window of the model {name} is a whole number of tokens, above 0.")
    return ModelSpec(name=name, window=window)
