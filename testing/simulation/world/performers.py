"""The performers of a simulation, which carry out what a conversation asks for, in good ways and in bad ones.

They take their time, answer at the same moment as others, fail, return what is no answer, and do not always stop when
they are told to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ....states.effects import (
    EFFECTS,
    TOOL_RUNS,
    AwaitedEffect,
    DeliverToUser,
    Effect,
    ExecuteTool,
    OutgoingEffect,
    RequestLlm,
    ResumeTool,
    StartTimer,
)
from ....states.events import Answer, AskUserQuestionPending, LlmResponse, ToolAborted, ToolComplete, ToolReconciled
from ....states.policy import ModelSpec
from ...generation.answers import answer
from ...generation.events import weight_of
from ...generation.vocabulary import Vocabulary
from ..environment.clock import VirtualClock
from ..environment.random_source import RandomSource
from ..storage.storage import Process
from .performed_effects import PerformedEffects
from .unused_model import UnusedLlm
from .vocabulary import CALM, SIMULATED
from .waiting_call import WaitingCall

if TYPE_CHECKING:
    from ....effects.context import EffectContext
    from ....effects.dispatcher import Performer
    from ....engine.engine import Engine

OpenEngine: TypeAlias = "Callable[..., Engine]"
"""Opens an engine: `Engine.open`, or a function that changes what is given to it."""

_BROKEN: tuple[tuple[type[Answer], dict[str, object]], ...] = (
    (LlmResponse, {"content": "\ud83d"}),
    (ToolComplete, {"result": "done"}),
    (AskUserQuestionPending, {"at": "now", "questions": ()}),
)
"""Answers that no log can hold: a type, and what is wrong with it."""


class _Interrupted(KeyboardInterrupt):
    """What a library raises for an interruption of its own. Ctrl-C itself would end the simulation."""


class OpensEngines(Protocol):
    """Opens the engines of a simulation, with models and with what carries out effects."""

    def open_engine(
        self, process: Process, open_engine: OpenEngine, models: Sequence[ModelSpec], **options: Any
    ) -> Engine:
        """Open an engine in this process, by this function, with these models and options."""
        ...


class World:
    """Carries out the effects of all processes. Once it is `calm` everything ends soon and well.

    Until then its answers are made of the vocabulary `SIMULATED`, or of another one that is given.
    """

    def __init__(
        self,
        chance: RandomSource,
        clock: VirtualClock,
        performed: PerformedEffects,
        vocabulary: Vocabulary = SIMULATED,
    ) -> None:
        self.chance = chance
        self.clock = clock
        self.performed = performed
        self.calm = False
        self._vocabulary = vocabulary

    def open_engine(
        self, process: Process, open_engine: OpenEngine, models: Sequence[ModelSpec], **options: Any
    ) -> Engine:
        """Open an engine in this process whose effects are carried out here. Deliveries are the engine's own affair if
        it has channels."""
        performers = dict(self.performers(process))
        if options.get("channels"):
            del performers[DeliverToUser]
        first, *others = map(UnusedLlm, models)
        return open_engine(model=first, fallback_models=others, performers=performers, **options)

    def performers(self, process: Process) -> Mapping[type[Effect], Performer]:
        """The performers of this process, one for each type of effect."""
        performers: dict[type[Effect], Performer] = {}
        for kind in EFFECTS:
            if issubclass(kind, AwaitedEffect):
                performers[kind] = partial(self._perform, process)
            elif issubclass(kind, OutgoingEffect):
                performers[kind] = self.send
        return performers

    # --- carrying out

    async def _perform(self, process: Process, effect: AwaitedEffect, context: EffectContext) -> Any:
        return await self.performed.record(process, effect, context, self.carry_out(effect, context))

    async def carry_out(self, effect: AwaitedEffect, context: EffectContext) -> Any:
        """Carry out an effect, well or badly. Returns its answer, or what is none."""
        if isinstance(effect, StartTimer):
            return await self._wake(effect, context)
        if isinstance(effect, ResumeTool) and (ended := await self._resume(effect, context)) is not None:
            return ended
        given = await self._work(effect, context)
        if isinstance(effect, TOOL_RUNS) and isinstance(given, AskUserQuestionPending) and given.suspends:
            context.suspended.hold(effect.first_id, WaitingCall(self.chance.seconds()))
        return given

    async def _resume(self, effect: ResumeTool, context: EffectContext) -> Answer | None:
        """Let a call go on that waits in this process. Returns an answer if it is to stop, or if it does not wait here:
        then its crash contract decides."""
        call, effect_id, at = context.suspended.take(effect.started_as), effect.effect_id, self.clock.now()
        if isinstance(call, WaitingCall):
            await call.go_on()
            return ToolAborted(effect_id=effect_id, at=at) if effect.reply == "cancelled" else None
        if effect.call.crash in ("at_most_once", "reconcile"):
            return ToolReconciled(effect_id=effect_id, at=at, verdict="unknown")
        if effect.reply == "cancelled":
            return ToolAborted(effect_id=effect_id, at=at)
        return ToolReconciled(effect_id=effect_id, at=at, verdict="did_not_run")

    async def _wake(self, effect: Any, context: EffectContext) -> Any:
        """A timer, which on a busy machine may wake late."""
        from ....effects.clock import TimerPerformer

        due = await TimerPerformer(self.clock)(effect, context)
        if self.chance.probably(0.2):
            await self.take_time()
        return due

    async def _work(self, effect: AwaitedEffect, context: EffectContext) -> Any:
        """Work for a while, or for long, and give any answer that the effect can have, or none that counts."""
        if isinstance(effect, ExecuteTool) and not self.calm and self.chance.probably(0.2):
            await self.take_long()
        else:
            await self.take_time()
        if self.calm:
            return self._answer(effect, effect.answers[0])
        await self._show_progress(effect, context)
        if self.chance.probably(0.04):
            return self._misbehave(effect)
        call = effect.call if isinstance(effect, TOOL_RUNS) else None
        kinds = [kind for kind in effect.answers if kind is not effect.ACKNOWLEDGES]
        return self._answer(effect, self.chance.weighted({kind: weight_of(kind, call) for kind in kinds}))

    async def _show_progress(self, effect: AwaitedEffect, context: EffectContext) -> None:
        if isinstance(effect, RequestLlm):
            for number in range(self.chance.pick((0, 0, 1, 5))):
                context.progress(effect.effect_id, "token", {"text": f"{number} ", "kind": "text"})
                await self.take_time()
        elif isinstance(effect, ExecuteTool):
            told = {"call_id": effect.call.call_id, "text": "nearly there"}
            context.progress(effect.effect_id, "tool_progress", told)

    async def send(self, effect: Any, context: EffectContext) -> None:
        """Send what nobody awaits, or fail on it."""
        await self.take_time()
        if not self.calm and self.chance.probably(0.1):
            raise RuntimeError("the connection is lost")

    # --- good ways and bad ones

    async def take_time(self) -> None:
        """Take a while, or no time at all."""
        if not self.calm:
            await asyncio.sleep(self.chance.seconds())

    async def take_long(self) -> None:
        """Work longer than people wait, and sometimes do not stop when told to."""
        stubborn = self.chance.probably(0.3)
        end = asyncio.get_running_loop().time() + self.chance.pick((3.0, 10.0, 90.0))
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    def _answer(self, effect: AwaitedEffect, kind: type[Answer]) -> Answer:
        call = effect.call if isinstance(effect, TOOL_RUNS) else None
        vocabulary = CALM if self.calm else self._vocabulary
        return answer(self.chance, vocabulary, kind, effect.effect_id, self.clock.now(), call)

    def _misbehave(self, effect: AwaitedEffect) -> Any:
        """Fail, or return what is no answer to this effect."""
        match self.chance.below(5):
            case 0:
                raise RuntimeError("something went wrong")
            case 1:
                raise self.chance.pick((SystemExit, _Interrupted))
            case 2:
                raise asyncio.CancelledError
            case 3:
                return self.chance.pick((None, "an answer", {"type": "tool_complete", "effect_id": effect.effect_id}))
            case _:
                kind, broken = self.chance.pick(_BROKEN)
                return self._answer(effect, kind).model_copy(update=broken)
