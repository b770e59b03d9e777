"""Records which effects the processes of a simulation carry out, and checks that they may.

An effect must be stored before it begins, by the very process that begins it, and no process begins it twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeAlias

from ....states.effects import AwaitedEffect, Effect, RequestLlm
from ....states.events import Answer
from ..environment.event_trace import EventTrace
from ..storage.disk import Disk, LogKey
from ..storage.storage import Process

if TYPE_CHECKING:
    from ....effects.context import EffectContext

Key: TypeAlias = tuple[str, LogKey, int]
"""An effect that a process carries out: the name of the process, the conversation, and the id of the effect."""


class PerformedEffects:
    """The effects that were begun by all processes, and those that are being carried out."""

    def __init__(self, disk: Disk, trace: EventTrace) -> None:
        self.trace = trace
        self.begun: set[Key] = set()
        self.times_begun: Counter[tuple[LogKey, int]] = Counter()
        """How often each effect was begun, by its conversation and id."""
        self.busy: dict[Key, Effect] = {}
        """The effects that are being carried out."""
        self._disk = disk

    async def record(
        self, process: Process, effect: AwaitedEffect, context: EffectContext, carrying_out: Awaitable[Any]
    ) -> Any:
        """Carry out an effect in this process, and record when it begins and how it ends."""
        key = self._begin(process, effect, context)
        where = self._disk.name(context.conversation_id)
        try:
            given = await carrying_out
            told = given.type if isinstance(given, Answer) else repr(given)
            self.trace.record("world", f"{where}answers {effect.type}:{effect.effect_id} with {told}")
            return given
        except BaseException as error:
            self.trace.record("world", f"{where}leaves {effect.type}:{effect.effect_id} by {type(error).__name__}")
            raise
        finally:
            self.busy.pop(key, None)

    def _begin(self, process: Process, effect: AwaitedEffect, context: EffectContext) -> Key:
        key = (process.name, self._disk.key_of(context.conversation_id), effect.effect_id)
        if not process.is_dead:
            name = f"{process.name} {self._disk.name(context.conversation_id)}"
            self.trace.record("world", f"{name}begins {effect.type}:{effect.effect_id}")
            self._check(process, key, effect)
            self.begun.add(key)
            self.times_begun[key[1:]] += 1
        self.busy[key] = effect
        return key

    def _check(self, process: Process, key: Key, effect: AwaitedEffect) -> None:
        rows = self._disk.steps_of(key[1][0])
        if key in self.begun:
            self.trace.report_fault(f"{effect.type}:{effect.effect_id} is begun twice by {process.name}")
        if not any(row.writer == process.name and effect in row.effects for row in reversed(rows)):
            self.trace.report_fault(f"{effect.type}:{effect.effect_id} is begun, and {process.name} has not stored it")
        if isinstance(effect, RequestLlm):
            awaited = rows[-1].state.awaited()
            others = [other for (name, where, _), other in self.busy.items() if (name, where) == key[:2]]
            if any(isinstance(other, RequestLlm) and other.effect_id in awaited for other in others):
                self.trace.report_fault(f"two model requests are in flight, one of them {effect.effect_id}")
