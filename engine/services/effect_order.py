"""Hands the effects of a step to the dispatcher in their order: those that it starts, and those that it stops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...effects.context import EffectContext
from ...states.effects import ControlEffect, Effect
from ..ports import Dispatcher


def dispatch_in_order(
    effects: Sequence[Effect], dispatcher: Dispatcher, conversation_id: str, context: Callable[[], EffectContext]
) -> None:
    """Start and stop effects in the order of their step. A step may start an effect and stop it at once: a process has
    ended while a sub-agent was being stopped, and the next one takes both over. Raises what the dispatcher raises."""
    begin = 0
    for end, effect in enumerate(effects):
        if isinstance(effect, ControlEffect):
            if begin < end:
                dispatcher.dispatch(tuple(effects[begin:end]), context())
            dispatcher.abort(conversation_id, effect.effect_id)
            begin = end + 1
    if begin < len(effects):
        dispatcher.dispatch(tuple(effects[begin:]), context())
