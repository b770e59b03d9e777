"""The world of a simulation: whoever carries out what a conversation asks for, in good ways and in bad ones.

It takes its time, answers at the same moment as others, breaks, returns what is no answer, and does not always stop
when it is told to. It also watches: what is begun must be stored already, and nothing is begun twice.

`WORLD` says who carries out which effect. One that is not in it gets any of the answers that the state waits for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ...states.effects import (
    EFFECTS,
    DeliverToUser,
    Effect,
    ExecuteTool,
    NotifyParent,
    RequestLlm,
    SendToAgent,
    StartTimer,
)
from ...states.events import Answer, AskUserQuestionPending, EffectFailed, LlmFailed, LlmResponse, ToolComplete
from .answers import acts, answer
from .clock import VirtualClock
from .disk import Disk
from .generated_values import CannotBeMade
from .random_source import RandomSource
from .story import Story

if TYPE_CHECKING:
    from ...effects.context import EffectContext
    from ...effects.dispatcher import Performer

Key = tuple[str, int]
"""An effect: its conversation, and its id there."""


class World:
    """Carries out effects. Once it is `calm` everything ends soon and well."""

    def __init__(self, dice: RandomSource, clock: VirtualClock, disk: Disk, story: Story) -> None:
        self.dice = dice
        self.clock = clock
        self.calm = False
        self.begun: dict[Key, Effect] = {}
        """All effects that were begun since the engine was opened."""
        self.times_begun: Counter[Key] = Counter()
        """How often each was begun, by all engines."""
        self.busy: dict[Key, Effect] = {}
        """Those that have not ended."""
        self._disk = disk
        self.story = story

    def performers(self) -> Mapping[type[Effect], Performer]:
        """Who carries out what."""
        return {kind: partial(self._perform, WORLD.get(kind, anything)) for kind in EFFECTS}

    def awaited(self, effect_id: int, context: EffectContext) -> tuple[type[Answer], ...]:
        """The answers that are waited for, as far as it is stored."""
        return self._disk.head(context.conversation_id).awaited().get(effect_id, ())

    async def _perform(self, how: Performance, effect: Any, context: EffectContext) -> Any:
        key = (context.conversation_id, effect.effect_id)
        self._check(key, effect)
        self.story.tell("world", f"begins {effect.type}:{effect.effect_id}")
        self.begun[key] = self.busy[key] = effect
        self.times_begun[key] += 1
        try:
            given = await how(self, effect, context)
            self.story.tell("world", f"answers {effect.type}:{effect.effect_id} with {_told(given)}")
            return given
        except BaseException as error:
            self.story.tell("world", f"leaves {effect.type}:{effect.effect_id} by {type(error).__name__}")
            raise
        finally:
            if self.busy.get(key) is effect:  # else the next engine has begun it again
                del self.busy[key]

    def _check(self, key: Key, effect: Effect) -> None:
        if key in self.begun:
            self.story.blame(f"{effect.type}:{key[1]} is begun twice")
        if not any(effect in row.effects for row in reversed(self._disk.rows[key[0]])):
            self.story.blame(f"{effect.type}:{key[1]} is begun before it is stored")
        if isinstance(effect, RequestLlm):
            awaited = self._disk.head(key[0]).awaited()
            others = [other for (where, _), other in self.busy.items() if where == key[0]]
            if any(isinstance(other, RequestLlm) and other.effect_id in awaited for other in others):
                self.story.blame(f"two model requests are in flight, one of them {key[1]}")

    async def take_time(self) -> None:
        """Work for a while."""
        if not self.calm:
            await asyncio.sleep(self.dice.seconds())

    async def take_long(self) -> None:
        """Work for as long as people wait for, and sometimes do not stop when told to."""
        stubborn = self.dice.chance(0.3)
        end = asyncio.get_running_loop().time() + self.dice.pick((3.0, 10.0, 90.0))
        while (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    def misbehave(self, effect_id: int) -> Any:
        """Break, or return what no log can hold."""
        match self.dice.number(0, 4):
            case 0:
                raise RuntimeError("something went wrong")
            case 1:
                raise self.dice.pick((SystemExit, KeyboardInterrupt))
            case 2:
                raise asyncio.CancelledError
            case 3:
                return self.dice.pick((None, "an answer", {"type": "tool_complete", "effect_id": effect_id}))
            case _:
                kind, broken = self.dice.pick(_BROKEN)
                return self.answers(kind, effect_id).model_copy(update=broken)

    def answers(self, kind: type[Answer], effect_id: int) -> Answer:
        """An answer of this type, now."""
        return answer(kind, self.dice, effect_id, self.clock.now())


_BROKEN: tuple[tuple[type[Answer], dict[str, object]], ...] = (
    (LlmResponse, {"content": "\ud83d"}),
    (ToolComplete, {"result": "done"}),
    (AskUserQuestionPending, {"at": "now", "questions": ()}),
)

Performance: TypeAlias = "Callable[[World, Any, EffectContext], Awaitable[Any]]"
"""Carries out an effect in a world. What it returns may be no answer at all."""


_MODEL: dict[type[Answer], float] = {LlmResponse: 16, LlmFailed: 3, EffectFailed: 1}
_TOOL: dict[type[Answer], float] = {ToolComplete: 17, EffectFailed: 2, AskUserQuestionPending: 1}


async def ask_model(world: World, effect: RequestLlm, context: EffectContext) -> Any:
    """A model streams, thinks, answers, fails or breaks. When it is told to stop it stops."""
    await world.take_time()
    if world.calm:
        return LlmResponse(effect_id=effect.effect_id, at=world.clock.now(), content="That is all.")
    for _ in range(world.dice.pick((0, 0, 1, 5))):
        context.progress(effect.effect_id, "token", {"text": "well ", "kind": "text"})
        await asyncio.sleep(0)
    if world.dice.chance(0.04):
        return world.misbehave(effect.effect_id)
    kind = world.dice.weighted(_MODEL)
    return world.answers(kind, effect.effect_id)


async def run_tool(world: World, effect: ExecuteTool, context: EffectContext) -> Any:
    """A tool works for a while or for long, asks, fails or breaks."""
    if not world.calm and world.dice.chance(0.2):
        await world.take_long()
    else:
        await world.take_time()
    context.progress(effect.effect_id, "tool_progress", {"call_id": effect.call.call_id, "text": "nearly there"})
    if not world.calm and world.dice.chance(0.05):
        return world.misbehave(effect.effect_id)
    if "question" in effect.call.acts and world.dice.chance(0.9) and not world.calm:
        return world.answers(AskUserQuestionPending, effect.effect_id)
    kind = ToolComplete if world.calm else world.dice.weighted(_TOOL)
    given = world.answers(kind, effect.effect_id)
    if not isinstance(given, ToolComplete):
        return given
    return given.model_copy(update={"result": given.result.model_copy(update={"acts": acts(world.dice, effect.call)})})


async def wait(world: World, effect: StartTimer, context: EffectContext) -> Any:
    """The engine's own timer, which on a busy machine may wake late."""
    from ...effects.timers import TimerPerformer

    due = await TimerPerformer(world.clock)(effect, context)
    if world.dice.chance(0.2):
        await world.take_time()
    return due


async def send_out(world: World, effect: Any, context: EffectContext) -> None:
    """What nobody waits for goes out, or breaks on its way."""
    await world.take_time()
    if not world.calm and world.dice.chance(0.1):
        raise RuntimeError("the line is dead")


async def anything(world: World, effect: Any, context: EffectContext) -> Any:
    """Any answer that is waited for, failures less often; a failure where it is no longer waited for, or none of them
    can be made."""
    await world.take_time()
    kinds = world.awaited(effect.effect_id, context) or (EffectFailed,)
    try:
        kind = world.dice.weighted({kind: 1 if kind is EffectFailed else 6 for kind in kinds})
        return world.answers(kind, effect.effect_id)
    except CannotBeMade:
        if EffectFailed not in kinds:
            world.story.blame(f"ANSWERS does not know how to answer {effect.type}")
            raise
        return world.answers(EffectFailed, effect.effect_id)


WORLD: dict[type[Effect], Performance] = {
    RequestLlm: ask_model,
    ExecuteTool: run_tool,
    StartTimer: wait,
    DeliverToUser: send_out,
    SendToAgent: send_out,
    NotifyParent: send_out,
}
"""Who carries out which effect."""


def _told(given: object) -> str:
    return given.type if isinstance(given, Answer) else repr(given)
