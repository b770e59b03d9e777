"""How an effect that was in flight when a process died is asked for again, under the id that it had.

A handler that creates an effect with more fields than an id registers, with `asked_again`, how the same effect is
created for a state that waits for it. `handlers.resuming` uses this.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, cast

from ..context import Context
from ..effects import AwaitedEffect
from ..state import Busy

E = TypeVar("E", bound=AwaitedEffect)

Again: TypeAlias = Callable[[Any, int, datetime, Context], E]
"""Creates the effect with this id again, for a state that waits for it, at this moment."""

_AGAIN: dict[type[AwaitedEffect], Again[Any]] = {}


def asked_again(kind: type[E]) -> Callable[[Again[E]], Again[E]]:
    """Register the function that creates effects of this type again."""

    def register(make: Again[E]) -> Again[E]:
        _AGAIN[kind] = make
        return make

    return register


def again(state: Busy, effect_id: int, kind: type[E], at: datetime, context: Context) -> E:
    """Create the effect of this type again that the state waits for under this id. `Pure.`"""
    if kind in _AGAIN:
        return cast(E, _AGAIN[kind](state, effect_id, at, context))
    make: Callable[..., E] = kind
    return make(effect_id=effect_id)
