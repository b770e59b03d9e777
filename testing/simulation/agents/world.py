"""What carries out the effects of simulated agents: the engine's own performers, where agents are concerned.

Model requests, mail, sub-agents and the built-in tools for agents are carried out by the engine itself. The tools of
the application, checks, summaries and the like are simulated, as in the simulation of one conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ....states.effects import EFFECTS, AwaitedEffect, Effect, ExecuteTool, RequestLlm, SpawnSubAgent
from ....states.policy import ModelSpec
from ..storage.storage import Process
from ..world.performers import OpenEngine, World
from ..world.vocabulary import MODEL_NAMES
from .models import SimulatedLlm, SimulatedModels
from .vocabulary import BUILT_IN, tools

if TYPE_CHECKING:
    from ....effects.context import EffectContext
    from ....effects.dispatcher import Performer
    from ....engine.engine import Engine

    Performers = Mapping[type[Effect], Performer]

BY_THE_ENGINE = (RequestLlm, ExecuteTool, SpawnSubAgent)
"""The awaited effects that the engine carries out itself; of tools those for agents only."""


class AgentsWorld:
    """Opens the engines of a simulation of agents. `simulated` carries out what they do not."""

    def __init__(self, simulated: World, models: SimulatedModels) -> None:
        self.simulated = simulated
        self._models = models

    def open_engine(
        self, process: Process, open_engine: OpenEngine, models: Sequence[ModelSpec], **options: Any
    ) -> Engine:
        """Open an engine in this process."""
        from ....engine.composition import PortWrappers, wrapped_ports

        first, *others = (SimulatedLlm(spec, self._models) for spec in models)
        names = {spec.name for spec in models}  # a turn of an earlier process may ask another one
        more = [SimulatedLlm(ModelSpec(name=name), self._models) for name in MODEL_NAMES if name not in names]
        awaited = (kind for kind in EFFECTS if issubclass(kind, AwaitedEffect))
        simulated = {kind: self.simulated.carry_out for kind in awaited if kind not in BY_THE_ENGINE}
        with wrapped_ports(PortWrappers(performers=partial(self._recorded, process))):
            return open_engine(
                model=first, fallback_models=others, models=more, tools=tools(), performers=simulated, **options
            )

    def _recorded(self, process: Process, performers: Performers) -> Performers:
        """These performers, each of which records what it carries out."""
        recorded = dict(performers)
        recorded.setdefault(SpawnSubAgent, self.simulated.carry_out)
        for kind, performer in recorded.items():
            if issubclass(kind, AwaitedEffect):
                recorded[kind] = self._recorder(process, kind, performer)
        return recorded

    def _recorder(self, process: Process, kind: type[Effect], performer: Performer) -> Performer:
        from ....effects.dispatcher import with_abort_of

        perform = partial(self._execute, performer) if kind is ExecuteTool else performer

        async def record(effect: Any, context: EffectContext) -> Any:
            performing: Any = perform(effect, context)
            return await self.simulated.performed.record(process, effect, context, performing)

        return with_abort_of(performer, record)

    async def _execute(self, performer: Performer, effect: ExecuteTool, context: EffectContext) -> Any:
        """Run a tool: those for agents as the engine does, after a while."""
        if effect.call.name not in BUILT_IN:
            return await self.simulated.carry_out(effect, context)
        await self.simulated.take_time()
        return await performer(effect, context)
