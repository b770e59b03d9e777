"""Finds in the log what came of a compaction that somebody asked for.

Such a compaction is not a turn, so its outcome is not kept in memory; the log has everything that happened.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...states.effects import Abort, CompactHistory
from ...states.errors import CompactionFailed
from ...states.events import Answer, EffectFailed
from ...states.states import Compacting, State
from ...states.step import LogEntry


def asked_for(entries: Iterable[LogEntry]) -> tuple[CompactHistory, ...]:
    """Return the compactions that these steps ask for. `Pure.`"""
    return tuple(effect for entry in entries for effect in entry.effects if isinstance(effect, CompactHistory))


def goes_on(state: State, asked: CompactHistory) -> bool:
    """Return whether the compaction that was asked for still runs, in whatever attempt. `Pure.`"""
    return isinstance(state, Compacting) and state.turn is None and state.up_to == asked.up_to


def failure_of(asked: CompactHistory, entries: Iterable[LogEntry]) -> CompactionFailed | None:
    """Return why the compaction that was asked for failed; None if it did not fail, or was stopped.

    `entries` are the entries of the log after the step that asked for it, in order, up to its end or beyond. `Pure.`
    """
    effect_id = asked.effect_id
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
