"""What an engine is put together from: the one place that knows which performer carries out which effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..effects.channels.delivery_dispatcher import DeliveryDispatcher
from ..effects.channels.performer import DeliveryPerformer
from ..effects.clock import Clock
from ..effects.dispatcher import Performer
from ..effects.model.litellm.llm import LiteLlm
from ..effects.model.performers.compaction import CondensePerformer
from ..effects.model.performers.model import ModelPerformer
from ..effects.model.performers.model_caller import ModelCaller
from ..effects.model.performers.summary import SummarizePerformer
from ..effects.model.performers.verification import VerifyPerformer
from ..effects.model.port import Llm, name_of
from ..effects.model.rehearsal.llm import REHEARSAL, RehearsalLlm
from ..effects.text import is_encodable
from ..effects.timers import TimerPerformer
from ..effects.tools.performer import ToolPerformer
from ..effects.tools.reconciliation import ReconcilePerformer
from ..effects.tools.registry import ToolRegistry
from ..states.effects import (
    CompactHistory,
    DeliverToUser,
    Effect,
    ExecuteTool,
    ReconcileTool,
    RequestLlm,
    StartTimer,
    SummarizeTurn,
    VerifyWork,
)
from ..states.errors import ConfigurationError
from ..states.policy.policy import ModelSpec
from .settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from .tracing.tracing import Tracing


@dataclass(frozen=True)
class Models:
    """The models of an engine, by name, in the order in which they are tried."""

    by_name: Mapping[str, Llm]
    specs: tuple[ModelSpec, ...]
    """The models as a policy names them, with their windows as far as they are known."""

    @classmethod
    def of(cls, model: str | ModelSpec | Llm, fallback_models: Iterable[str | ModelSpec | Llm]) -> Models:
        """The models given, each under its name.

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

    def warm(self) -> None:
        """Load what the models need, ahead of the first request."""
        for model in self.by_name.values():
            if isinstance(model, LiteLlm):
                model.warm()

    def check(self) -> None:
        """Raises `ConfigurationError` for a model that cannot be asked."""
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


def build_tracing(provider: TracerProvider | None) -> Tracing | None:
    """Spans for a host that asks for them; for others nothing is imported. Raises `ConfigurationError`."""
    if provider is None:
        return None
    try:
        from .tracing.tracing import Tracing
    except ModuleNotFoundError:
        raise ConfigurationError("Tracing needs the package opentelemetry-api: install turnwise[otel].") from None
    return Tracing(provider)


def build_performers(
    models: Models,
    registry: ToolRegistry,
    courier: DeliveryDispatcher,
    clock: Clock,
    settings: Settings,
    tracing: Tracing | None = None,
) -> Mapping[type[Effect], Performer]:
    """Who carries out what; the runner answers an effect that nobody carries out with a failure."""
    asking = ModelCaller(models.find, settings.llm_chat_timeout_sec)
    if tracing is not None:
        asking = tracing.asking(asking)
    performers: dict[type[Effect], Performer] = {
        RequestLlm: ModelPerformer(asking, registry, clock),
        VerifyWork: VerifyPerformer(asking, clock),
        SummarizeTurn: SummarizePerformer(asking, clock),
        CompactHistory: CondensePerformer(asking, clock),
        ExecuteTool: ToolPerformer(registry, clock),
        ReconcileTool: ReconcilePerformer(registry, clock),
        StartTimer: TimerPerformer(clock),
        DeliverToUser: DeliveryPerformer(courier),
    }
    return performers if tracing is None else tracing.performers(performers)
