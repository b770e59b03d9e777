"""What must hold of the log of a simulated conversation, and of the effects that it asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ....states.effects import AwaitedEffect, ControlEffect
from ... import laws
from ...conversation_checks import open_work, runs_beyond_contract
from ...history import History
from ..storage.disk import identity
from .ending import Ending

SINGLE_STEP_LAWS = (laws.is_taken_or_refused, laws.is_deterministic, laws.can_be_stopped, laws.can_be_left)
"""Laws about a single step, which cost several times what all others do. Property tests hold generated states to them;
here the store and the replay hold each step to the first two, and users who want it to end to the others."""

LAWS = tuple(law for law in laws.LAWS if law not in SINGLE_STEP_LAWS)


def the_log_is_whole(ending: Ending) -> Iterator[str]:
    """It has no gap, no request twice, and no effect with two answers."""
    if [row.seq for row in ending.rows] != list(range(1, len(ending.rows) + 1)):
        yield f"the log has the steps {[row.seq for row in ending.rows]}"
    for name, times in Counter(identity(row.event) for row in ending.rows).items():
        if times > 1 and name is not None:
            yield f"{name} is in the log {times} times"


def the_log_replays(ending: Ending) -> Iterator[str]:
    """Its events alone lead to each effect, each end of a turn and each state once more; and the laws hold."""
    history = History()
    for row in ending.rows:
        step = history.take(row.event).step
        if step is None or (step.effects, step.ended, step.state) != (row.effects, row.ended, row.state):
            yield f"step {row.seq}, {row.event.type}, replays differently: {history.newest!r:.300}"
            return
        try:
            laws.check_newest(history, *LAWS)
        except laws.LawBroken as broken:
            yield str(broken)
            return


def effects_are_carried_out(ending: Ending) -> Iterator[str]:
    """The last process of each host has begun the effects that it stored, unless they were taken back; and everything
    that was begun has ended."""
    if ending.performed.busy:
        yield f"{sorted(id_ for _, _, id_ in ending.performed.busy)} are still being carried out"
    if ending.is_cut_short:
        return
    effects = [(row, effect) for row in ending.rows for effect in row.effects]
    taken_back = {effect.effect_id for _, effect in effects if isinstance(effect, ControlEffect)}
    last = {process.name for process in ending.last}
    for row, effect in effects:
        if row.writer not in last or not isinstance(effect, AwaitedEffect) or effect.effect_id in taken_back:
            continue
        if (row.writer, ending.key, effect.effect_id) not in ending.performed.begun:
            yield f"the effect {effect.effect_id}, which {row.writer} stored at step {row.seq}, was never begun"


def at_most_once_holds(ending: Ending) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so."""
    begun = ending.performed.times_begun
    yield from runs_beyond_contract([row.entry for row in ending.rows], lambda id_: begun[ending.key, id_])


def the_conversation_is_at_rest(ending: Ending) -> Iterator[str]:
    """Nothing is open."""
    if not ending.is_cut_short:
        yield from open_work(ending.state)
