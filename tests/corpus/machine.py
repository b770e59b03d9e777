"""Conversations of the pure machine, which no engine carried out: `simulated.db` and `walks.db`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias, TypeVar

from turnwise.persistence.maintenance.export import export_conversation, first_line, import_records, last_line
from turnwise.persistence.maintenance.reading import read_export
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store
from turnwise.states import Closed, Context, Event, Opened, Refused, Step, begin, transition
from turnwise.testing.generation.chance import NOON, Seeded
from turnwise.testing.generation.events import candidates, request
from turnwise.testing.generation.states import EXTREME
from turnwise.testing.generation.vocabulary import PLAIN

from ..support.kept_walks import WALKS
from ..walking import RecordedChoices, opening_of, read_walks, walk

SEEDS, LENGTH = range(300), 40
"""How many conversations are simulated, to choose from, and how long each may be."""

T = TypeVar("T")

_WORDS = replace(EXTREME, schedule=PLAIN.schedule)
"""What the events are made of. An engine that takes the conversations over can keep an ordinary schedule only."""

Log: TypeAlias = Sequence[tuple[Event, Step]]


async def write_simulated(database: Path) -> None:
    """Write conversations in which what happens was chosen at random, from values that break programs. Together they
    hold each event before each state that it led to, and each effect, as far as one that was simulated does. One of
    them was imported."""
    chosen = dict(_covering({f"simulated-{seed}": _simulated(seed) for seed in SEEDS}, _kinds))
    store = await open_store(database)
    await _store(store, chosen)
    name = next(iter(chosen))
    lines = (line.encode() for line in (first_line(), *await export_conversation(store, name), last_line(1)))
    await import_records(store, (record._replace(id="imported") for record in read_export(lines)))
    await store.close()


async def write_walks(database: Path) -> None:
    """Write kept walks, each up to some step. Together they take each row of the table that a walk takes."""
    walks = {f"walk-{kept[0]}": kept for kept in read_walks(WALKS)}
    rows = {name: [step.pair[1] for step in walk(seed, RecordedChoices(some))] for name, (seed, some) in walks.items()}
    chosen = {
        name: _walked(*walks[name])[: len(taken) + 1]
        for name, taken in _covering(rows, lambda row: (row.source, row.place))
    }
    store = await open_store(database)
    await _store(store, chosen)
    await store.close()


async def _store(store: Store, logs: dict[str, Log]) -> None:
    """Store these logs, and the conversation that the sub-agents among them name as their parent."""
    opened = Opened(event_id="opened", at=NOON)
    await store.create("parent", opened, begin(opened))
    for name, ((first, began), *following) in logs.items():
        assert isinstance(first, Opened)
        log = await store.create(name, first, began)
        for event, step in following:
            await log.append(event, step)


def _simulated(seed: int) -> Log:
    chance = Seeded(seed)
    opened = request(chance, _WORDS, Opened, f"{seed}-opened", NOON)
    log: list[tuple[Event, Step]] = [(opened, begin(opened))]
    context = Context().after(opened)
    for place in range(1, LENGTH):
        at, state = NOON + timedelta(seconds=place), log[-1][1].state
        if isinstance(state, Closed):
            break
        events = candidates(chance, _WORDS, state, at)
        event = chance.pick(events)
        try:
            step = transition(state, event, context)
        except Refused:
            continue
        if not step.ignored:
            log.append((event, step))
            context = context.after(event)
    return log


def _walked(seed: int, choices: Sequence[int]) -> Log:
    opened = opening_of(seed)
    log: list[tuple[Event, Step]] = [(opened, begin(opened))]
    log += (
        (each.event, transition(each.state, each.event, each.context)) for each in walk(seed, RecordedChoices(choices))
    )
    return log


def _kinds(entry: tuple[Event, Step]) -> Iterator[Hashable]:
    event, step = entry
    yield type(event), type(step.state)
    yield from map(type, step.effects)


def _covering(
    logs: dict[str, Sequence[T]], kinds: Callable[[T], Iterable[Hashable]]
) -> Iterator[tuple[str, Sequence[T]]]:
    """Yield some of these logs, each up to the last step that is needed, so that together they hold every kind."""
    firsts = {name: _firsts(log, kinds) for name, log in logs.items()}
    left = {kind for found in firsts.values() for kind in found}
    while left:
        name = max(firsts, key=lambda each: len(left & firsts[each].keys()))
        found = firsts.pop(name)
        yield name, logs[name][: 1 + max(found[kind] for kind in left & found.keys())]
        left -= found.keys()


def _firsts(log: Sequence[T], kinds: Callable[[T], Iterable[Hashable]]) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for place, entry in enumerate(log):
        for kind in kinds(entry):
            found.setdefault(kind, place)
    return found
