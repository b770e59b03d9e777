"""Waiting for a condensing that somebody asked for, and finding in the log what came of it.

It is no turn, so no outcome of it is kept in memory; but the log has all that happened.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..states.effects import Abort, CompactHistory
from ..states.errors import CompactionFailed
from ..states.events import Answer, EffectFailed
from ..states.log import LogEntry
from ..states.states import Compacting, State


def goes_on(state: State, begun: Compacting) -> bool:
    """Whether the condensing that began in the state `begun` is still under way, in whatever attempt. `Pure.`"""
    return isinstance(state, Compacting) and state.turn is None and state.up_to == begun.up_to


def failure_of(begun: Compacting, entries: Iterable[LogEntry]) -> CompactionFailed | None:
    """Why the condensing that began in the state `begun` failed; None if it did not, or was stopped.

    `entries` are those of the conversation, in order, the end of the condensing among them. `Pure.`
    """
    effect_id = begun.effect_id
    for entry in entries:
        event, effects = entry.event, entry.effects
        if any(isinstance(effect, Abort) and effect.effect_id == effect_id for effect in effects):
            return None
        if not isinstance(event, Answer) or event.effect_id != effect_id:
            continue
        again = [effect.effect_id for effect in effects if isinstance(effect, CompactHistory) and effect.turn is None]
        if not isinstance(event, EffectFailed):
            return None
        if not again:
            return CompactionFailed(event.kind, event.sentence)
        effect_id = again[0]
    return None
