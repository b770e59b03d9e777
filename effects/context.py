"""What a performer may look at while it carries out an effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..states.context import Context
from ..states.projections.transcript import Transcript
from .receipts import Receipts

LiveKind = Literal["token", "tool_progress", "delivered", "delivery_failed"]
"""What may be shown of an effect. Live updates are never stored."""

UNAWAITED: frozenset[LiveKind] = frozenset({"delivered", "delivery_failed"})
"""What is shown of effects that no state awaits, so at any time."""


@dataclass(frozen=True)
class EffectContext:
    """The conversation as committed when its effects were started.

    `show(effect_id, kind, data)` passes something on to whoever watches; what comes from an effect that is no longer
    awaited is dropped. `receipts` is where it is noted what has reached its target.
    """

    conversation_id: str
    turn: int
    context: Context
    transcript: Transcript
    show: Callable[[int, LiveKind, dict[str, Any]], None]
    receipts: Receipts

    def key(self, effect_id: int) -> str:
        """The key under which the world outside may recognise a repeated effect."""
        return f"{self.conversation_id}/{effect_id}"
