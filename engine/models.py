"""The models of an engine: those that it was opened with, and the turns that wait because theirs cannot be asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..effects.clock import Clock
from ..effects.context import EffectContext
from ..effects.dispatcher import Performer
from ..effects.model.families import family_of
from ..effects.model.litellm.llm import LiteLlm
from ..effects.model.outputs import way_of
from ..effects.model.port import Llm, name_of, ready_of, takes
from ..effects.model.rehearsal import REHEARSAL, RehearsalLlm
from ..effects.text import is_encodable
from ..states.context import Context
from ..states.errors import ConfigurationError
from ..states.events import Answer
from ..states.policy import ModelSpec, Policy
from ..states.states import State
from ..states.values.files import FileKind
from ..states.values.output import OutputSchema, OutputWay
from ..states.values.value import MAX_QUOTED, later, shortened

logger: logging.Logger = logging.getLogger("turnwise.engine")

_GivenModel = str | ModelSpec | Llm
"""A model as an application gives it: a name, a name with a window, or an object of the port."""


@dataclass(frozen=True)
class Models:
    """The models of an engine: all of them by name, and those that a conversation asks if it has chosen none."""

    by_name: Mapping[str, Llm]
    specs: Mapping[str, ModelSpec]
    """The models as a policy names them, by name, with their windows as far as they are known."""

    chain: tuple[ModelSpec, ...]
    """The models that are asked by default: the first one, then those to fall back to, in order."""

    @classmethod
    def of(
        cls, model: _GivenModel, fallback_models: Iterable[_GivenModel], models: Iterable[_GivenModel] = ()
    ) -> Models:
        """Return the models given, each under its name. `models` are not asked by default; one of the others may be
        repeated among them.

        Raises `ConfigurationError` for one that cannot be asked, and if two share a name.
        """
        chain = (model, *_checked("The models to fall back to", fallback_models))
        others = [given for given in _checked("The models", models) if given not in chain]
        by_name: dict[str, Llm] = {}
        specs: dict[str, ModelSpec] = {}
        for given in (*chain, *others):
            asked = _model_of(given)
            spec = _spec_of(asked)
            if spec.name in by_name:
                raise ConfigurationError(f"Two models are called {spec.name}.")
            by_name[spec.name] = asked
            specs[spec.name] = spec
        return cls(by_name, specs, tuple(specs.values())[: len(chain)])

    def with_named(self, named: Iterable[ModelSpec]) -> Models:
        """Return these models, and those that profiles and settings name, made from their names where they are not
        among these. Raises `ConfigurationError`."""
        new = {spec.name: _model_of(spec) for spec in named if spec.name not in self.by_name}
        specs = {name: _spec_of(model) for name, model in new.items()}
        return Models({**self.by_name, **new}, {**self.specs, **specs}, self.chain)

    def find(self, name: str) -> Llm:
        """The model of this name. A conversation that waited for a person while the engine was opened with other
        models ends its turn with the model that it began with, which is made from its name."""
        return self.by_name[name] if name in self.by_name else _make_model(name)

    def takes(self, name: str, kind: FileKind) -> bool | None:
        """Whether the model of this name can be shown files of this kind; None if that is not known."""
        return takes(self.find(name), kind)

    def family_of(self, name: str) -> str:
        """The family of the model of this name."""
        return family_of(self.find(name))

    def output_way(self, name: str, schema: OutputSchema, has_tools: bool) -> OutputWay:
        """How the model of this name is asked for an answer with this schema, beside other tools or without."""
        return way_of(self.find(name), schema, has_tools=has_tools)

    def know(self, specs: Iterable[ModelSpec]) -> bool:
        """Whether the engine has all of these models."""
        return all(spec.name in self.specs for spec in specs)

    def describe_unknown(self, name: str) -> str:
        """The sentence that says that there is no model of this name, and which models there are."""
        known = ", ".join(self.by_name)
        return shortened(f"This engine has no model called {shortened(name, MAX_QUOTED)}. Known: {known}.")

    def is_priced(self, name: str) -> bool:
        """Whether it is known what a request to this model costs. An object of the port counts as priced unless it says
        otherwise."""
        return bool(getattr(self.find(name), "is_priced", True))

    def beginning_with(self, name: str) -> tuple[ModelSpec, ...]:
        """The models of a conversation that chooses this one: it is asked first, then those to fall back to. Raises
        `ConfigurationError` for an unknown name."""
        if not isinstance(name, str):
            raise ConfigurationError("A conversation chooses its model by name.")
        if name not in self.specs:
            raise ConfigurationError(self.describe_unknown(name))
        return (self.specs[name], *(spec for spec in self.chain[1:] if spec.name != name))

    def with_windows(self, policy: Policy) -> Policy:
        """The policy with the windows of its models, where it leaves them out and they are known."""
        models = tuple(map(self._with_window, policy.models))
        profiles = tuple(
            profile if profile.model is None else profile.replace(model=self._with_window(profile.model))
            for profile in policy.profiles
        )
        is_same = (models, profiles) == (policy.models, policy.profiles)
        return policy if is_same else policy.model_copy(update={"models": models, "profiles": profiles})

    def _with_window(self, spec: ModelSpec) -> ModelSpec:
        return self.specs.get(spec.name, spec) if spec.window is None else spec

    def get_ready(self) -> asyncio.Task[None] | None:
        """Begin to load what the models need, ahead of the first request; None if they need nothing."""
        waits = [ready for model in self.by_name.values() if (ready := ready_of(model)) is not None]
        return asyncio.ensure_future(_until_ready(waits)) if waits else None

    @property
    def loading(self) -> tuple[str, ...]:
        """What the models wait for before their first requests, each once."""
        waits = (getattr(model, "loading", None) for model in self.by_name.values())
        return tuple(dict.fromkeys(name for name in waits if isinstance(name, str)))

    async def find_fault(self, specs: Iterable[ModelSpec]) -> str | None:
        """Return why none of these models can be asked, as it is said of the first one: its provider is not known, or
        its key is missing. None if one of them can be asked, as far as that is known without asking it.

        The first call loads what the models need, in a thread.
        """
        faults = []
        for spec in specs:
            model = self.find(spec.name)
            if not isinstance(model, LiteLlm) or model.can_be_asked:
                return None
            try:
                await model.ready()
                model.check()
            except ConfigurationError as error:
                faults.append(error.sentence)
            except Exception:  # the request reports it
                return None
            else:
                return None
        return faults[0] if faults else None

    def refused_tools(self) -> Iterator[str]:
        """Yield a sentence for each tool without which a model is asked, because its server has refused it."""
        for name, model in self.by_name.items():
            for tool in getattr(model, "refused_tools", ()):
                yield f"The tool {tool} is left out for the model {shortened(name, MAX_QUOTED)}, which refuses it."

    def check(self) -> None:
        """Raise `ConfigurationError` for a model that cannot be asked."""
        for model in self.by_name.values():
            if isinstance(model, LiteLlm):
                model.check()


def _checked(what: str, given: Iterable[_GivenModel]) -> Iterable[_GivenModel]:
    if isinstance(given, str | ModelSpec | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{what} are given as a list.")
    return given


def _model_of(given: _GivenModel) -> Llm:
    if isinstance(given, str):
        return _make_model(given)
    if isinstance(given, ModelSpec):
        return _make_model(given.name, given.window)
    if not isinstance(given, Llm):
        raise ConfigurationError("A model is a name that litellm knows, or an object with the method `complete`.")
    return given


def _make_model(name: str, window: int | None = None) -> Llm:
    """The model of this name: the rehearsal model, or one of litellm's."""
    return RehearsalLlm(window=window) if name == REHEARSAL else LiteLlm(name, window=window)


def _spec_of(model: Llm) -> ModelSpec:
    name = name_of(model)
    if not name.strip() or not is_encodable(name):
        raise ConfigurationError("A model needs a name.")
    window = getattr(model, "window", None)
    if window is not None and not (type(window) is int and window >= 1):
        raise ConfigurationError(f"The window of the model {name} is a whole number of tokens, above 0.")
    return ModelSpec(name=name, window=window)


async def _until_ready(waits: Iterable[Callable[[], Awaitable[None]]]) -> None:
    for ready in waits:
        try:
            await ready()
        except Exception:  # the first request reports it to its caller
            logger.warning("A model could not be loaded ahead.", exc_info=True)


CHECK_AGAIN = 10.0
"""Seconds after which a model that could not be asked is checked again: its key may have been set in the process. The
check sends nothing."""


class BlockedTurns:
    """The turns that wait because the model that they ask first cannot be asked here: its key is missing, or it is not
    known. They would fail for good otherwise, whoever began them: a person, a schedule, or another agent. What they
    wait with is left open, as in a crash, until the key is there or another engine takes them over.

    `find_fault` returns why no model of a turn under way can be asked; the state says which turn, if it is given.
    """

    def __init__(self, find_fault: Callable[[Context, State | None], Awaitable[str | None]], clock: Clock) -> None:
        self._find_fault = find_fault
        self._clock = clock
        self._faults: dict[str, str] = {}
        self._told: set[str] = set()

    @property
    def faults(self) -> tuple[str, ...]:
        """Why turns wait: each reason once."""
        return tuple(dict.fromkeys(self._faults.values()))

    async def must_wait(self, conversation_id: str, context: Context, state: State | None = None) -> bool:
        """Whether the turn of this conversation has to wait, which is noted, and logged once for each reason."""
        fault = await self._find_fault(context, state)
        if fault is None:
            self._faults.pop(conversation_id, None)
            return False
        self._faults[conversation_id] = fault
        if fault not in self._told:
            self._told.add(fault)
            logger.warning("A turn waits for an engine that can ask its model. %s", fault)
        return True

    def once_askable(self, perform: Performer) -> Performer:
        """Return the performer, which begins once the models of its turn can be asked."""

        async def performed_once_askable(effect: Any, context: EffectContext) -> Answer | None:
            if await self.must_wait(context.conversation_id, context.context):
                await self.until_askable(context.conversation_id, context.context)
            return await perform(effect, context)

        return performed_once_askable

    async def until_askable(
        self,
        conversation_id: str,
        context: Context,
        state: State | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Return when the turn need not wait, or no longer, or is no longer wanted."""
        try:
            while is_wanted() and await self.must_wait(conversation_id, context, state):
                await self._clock.sleep_until(later(self._clock.now(), CHECK_AGAIN))
        finally:
            self._faults.pop(conversation_id, None)
