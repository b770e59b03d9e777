"""What must hold of a database after its processes were killed: one function for each invariant.

Each yields a sentence for each breach. The doctor checks that the database is consistent in itself: that each log is
complete and unchanged, replays, and keeps the rules of every log. The functions here compare the database with the
journal, which holds what was seen from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ...states.effects import DeliverToUser
from ...states.events import Answer, EffectFailed, Request, ToolAborted
from ...states.states import State
from ...states.step import LogEntry
from ..conversation_checks import open_work, runs_beyond_contract
from .journal import Seen


@dataclass(frozen=True)
class Found:
    """One conversation as it is stored, and what was seen from outside. `left` are the deliveries that are still to be
    made."""

    id: str
    entries: Sequence[LogEntry]
    state: State
    left: frozenset[int]
    seen: Seen


Check: TypeAlias = Callable[[Found], Iterator[str]]


def what_was_taken_is_there(found: Found) -> Iterator[str]:
    """Each request that was acknowledged is stored."""
    stored = {entry.event.event_id for entry in found.entries if isinstance(entry.event, Request)}
    for conversation_id, event_id in sorted(found.seen.taken):
        if conversation_id == found.id and event_id not in stored:
            yield f"the request {event_id} was taken, and is lost"


def what_was_answered_was_begun(found: Found) -> Iterator[str]:
    """Each effect that was answered has been begun."""
    answers = [entry.event for entry in found.entries if isinstance(entry.event, Answer)]
    for answer in answers:
        by_dispatcher = isinstance(answer, EffectFailed | ToolAborted)
        if not by_dispatcher and not found.seen.begun[found.id, answer.effect_id]:
            yield f"the effect {answer.effect_id} was answered, and never begun"


def nothing_runs_twice_that_must_not(found: Found) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so."""
    yield from runs_beyond_contract(found.entries, lambda effect_id: found.seen.begun[found.id, effect_id])


def what_was_said_arrives_in_order(found: Found) -> Iterator[str]:
    """Each delivery has arrived or is still to be made, and the first arrivals through each channel are in order."""
    wanted = [one.effect_id for entry in found.entries for one in entry.effects if isinstance(one, DeliverToUser)]
    for (conversation_id, channel), arrived in found.seen.arrived.items():
        if conversation_id == found.id:
            first = list(dict.fromkeys(arrived))
            if first != [effect_id for effect_id in wanted if effect_id in first]:
                yield f"deliveries arrived through {channel} in the order {first}"
            for effect_id in wanted:
                if effect_id not in first and effect_id not in found.left:
                    yield f"the delivery {effect_id} never arrived through {channel}, and is no longer to be made"


def it_is_at_rest(found: Found) -> Iterator[str]:
    """Nothing is open."""
    yield from open_work(found.state)
    if found.left:
        yield f"{sorted(found.left)} are still to be delivered"


ALWAYS: tuple[Check, ...] = (
    what_was_taken_is_there,
    what_was_answered_was_begun,
    nothing_runs_twice_that_must_not,
    what_was_said_arrives_in_order,
)
"""What must hold at any moment."""

AT_REST: tuple[Check, ...] = (*ALWAYS, it_is_at_rest)
"""What must hold once nothing is left to be done."""


def check_after_crashes(database: Path, journal: Path, *, at_rest: bool = True) -> list[str]:
    """Return a sentence for each invariant that does not hold. With `at_rest` nothing may be left to be done.

    The database must not be open in an engine. Nothing is changed.
    """
    return asyncio.run(_check(database, Seen.read(journal), AT_REST if at_rest else ALWAYS))


async def _check(database: Path, seen: Seen, checks: Sequence[Check]) -> list[str]:
    from ...persistence.errors import Damaged
    from ...persistence.maintenance.doctor import examine
    from ...persistence.opening import open_store

    store = await open_store(database, read_only=True)
    try:
        findings = (await examine(store)).findings
        faults = [f"{one.conversation_id or 'the database'}: {one.sentence}" for one in findings]
        outbox, summaries = await store.outbox(await store.ids()), await store.list()
        if not summaries:
            faults.append("there are no conversations")
        for summary in summaries:
            try:
                loaded, entries = await store.load(summary.id), await store.entries(summary.id)
            except Damaged:
                continue  # as the doctor said
            left = frozenset(one.effect_id for one in outbox if one.conversation_id == summary.id)
            found = Found(summary.id, entries, loaded.state, left, seen)
            faults += [f"{summary.id}: {fault}" for check in checks for fault in check(found)]
    finally:
        await store.close()
    return faults
