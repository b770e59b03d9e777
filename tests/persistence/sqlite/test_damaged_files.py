"""Database files that are not what they were: a write-ahead log that was torn, bits that fell over.

A conversation comes back as of some step that was committed, or it is said in a sentence what is wrong. Never is
anything else made of it.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from turnwise import Engine, Refused, StoreError, UnknownConversation
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.maintenance.replay import replay, replay_conversation
from turnwise.persistence.ports import LoadedConversation
from turnwise.persistence.records import StoredEntry
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.testing import ScriptedLlm, reply

from ...support.fault_profile import LONG
from ...support.walks import Walk

pytestmark = pytest.mark.faults

SECTOR = 512
"""Bytes that a disk writes at once."""

FRAME = 24 + 4096
"""Bytes of a page in the write-ahead log, with its header."""


def turns(name: str, number: int) -> Walk:
    """A conversation of so many turns."""
    walk = Walk(name)
    for turn in range(number):
        walk.turn(f"table {turn} " + "on the terrace, " * 40)
    return walk


WALK = turns("torn", 3)


class Snapshot(NamedTuple):
    """A database and its write-ahead log as they stood at one moment, and how many steps were in the database itself,
    without the log."""

    main: bytes
    log: bytes
    steps: int

    def torn(self, folder: Path, log: bytes) -> Path:
        """The database with another write-ahead log beside it."""
        path = folder / "torn.db"
        path.write_bytes(self.main)
        path.with_name("torn.db-wal").write_bytes(log)
        return path


@pytest.fixture
async def snapshot(tmp_path: Path) -> Snapshot:
    """What a process that was killed leaves behind: its last commits stand in the write-ahead log alone."""
    path, steps = tmp_path / "whole.db", 3
    store = await SqliteStore.open(path)
    opened, step = WALK.steps[0]
    log = await store.create("torn", opened, step)  # type: ignore[arg-type]
    for event, step in WALK.steps[1:steps]:
        await log.append(event, step)
    await store.close()
    store = await SqliteStore.open(path)
    log = (await store.load("torn")).log
    for event, step in WALK.steps[steps:]:
        await log.append(event, step)
    snapshot = Snapshot(path.read_bytes(), path.with_name("whole.db-wal").read_bytes(), steps)
    await store.close()
    return snapshot


async def steps_in(path: Path) -> int:
    """How many steps the conversation has, which must be the first ones that were stored, whole."""
    store = await SqliteStore.open(path)
    try:
        loaded, entries = await store.load("torn"), await store.entries("torn")
        number = len(entries)
        check_same(loaded, entries, WALK, number)
        assert (await replay_conversation(store, "torn")).divergence is None
        await loaded.log.append(*WALK.steps[number]) if number < len(WALK.steps) else None
    finally:
        await store.close()
    return number


def check_same(loaded: LoadedConversation, entries: Sequence[StoredEntry], walk: Walk, number: int) -> None:
    """The conversation is what the walk was after so many steps."""
    was = [(event, step.effects, step.ended) for event, step in walk.steps[:number]]
    assert [(entry.event, entry.effects, entry.ended) for entry in entries] == was
    assert loaded.state == walk.steps[number - 1][1].state
    assert replay(entries).divergence is None


def places(size: int) -> Iterator[int]:
    """Where a write-ahead log is torn: at every sector, and in the middle of every frame."""
    everywhere = sorted({*range(0, size, SECTOR), *range(32 + FRAME // 2, size, FRAME), size - 1, size})
    yield from everywhere if LONG else sorted({*everywhere[:: max(1, len(everywhere) // 45)], *everywhere[-3:]})


class TestTornWriteAheadLogs:
    """The last thing that was written before the power went did not all get there."""

    @pytest.mark.timeout(300)
    async def test_the_conversation_comes_back_as_of_a_step(self, snapshot: Snapshot, tmp_path: Path) -> None:
        """Wherever the log ends, all steps up to some commit are there, whole, and the next one can be stored; a longer
        log never holds fewer."""
        found = [await steps_in(snapshot.torn(tmp_path, snapshot.log[:place])) for place in places(len(snapshot.log))]

        assert found == sorted(found)
        assert (found[0], found[-1]) == (snapshot.steps, len(WALK.steps))
        assert len(set(found)) == len(WALK.steps) - snapshot.steps + 1

    @pytest.mark.slow
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("rest", [b"\0", b"\xff", b"turn"], ids=["zeros", "ones", "something else"])
    async def test_what_stands_behind_the_tear_does_not_count(
        self, snapshot: Snapshot, rest: bytes, tmp_path: Path
    ) -> None:
        """The file is as long as it was to be, and holds something else from some sector on."""
        size, found = len(snapshot.log), []
        for place in [*places(size)][:: 1 if LONG else 4]:
            behind = (rest * (size // len(rest) + 1))[: size - place]
            found.append(await steps_in(snapshot.torn(tmp_path, snapshot.log[:place] + behind)))

        assert found == sorted(found)
        assert found[0] == snapshot.steps

    async def test_an_engine_goes_on(self, snapshot: Snapshot, tmp_path: Path) -> None:
        """It takes up what is there, and the next turn works."""
        for place in (0, len(snapshot.log) // 3, len(snapshot.log) // 2, len(snapshot.log)):
            model = ScriptedLlm([reply("Go on.")] * 3)
            async with Engine.open(snapshot.torn(tmp_path, snapshot.log[:place]), model=model) as engine:
                conversation = await engine.get("torn")
                await conversation.cancel()
                turn = await conversation.send("And now?")

                assert turn.reply == "Go on."
                assert (await conversation.replay()).divergence is None
                assert (await examine(engine.store)).findings == ()


# --- bits that fell over

KEPT = ("first", "second", "third")


@cache
def kept(name: str) -> Walk:
    """A conversation in the database whose bits fall over; in the second one something is still to be done."""
    return turns(name, 4).say("Another one?") if name == "second" else turns(name, 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of three conversations, closed."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    asyncio.run(fill(path))
    return path


async def fill(path: Path) -> None:
    """Store the three."""
    store = await SqliteStore.open(path)
    for name in KEPT:
        await kept(name).into(store)
    await store.close()


def flipped(whole: Path, folder: Path, seed: int) -> Path:
    """A copy in which one bit is another."""
    chance, path = random.Random(seed), folder / f"{seed}.db"
    data = bytearray(whole.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return path


async def read(store: SqliteStore, name: str) -> str:
    """What comes of reading a conversation: it is what it was, or an error of ours says that something is wrong."""
    try:
        loaded, entries = await store.load(name), await store.entries(name)
        check_same(loaded, entries, kept(name), len(kept(name).steps))
    except (StoreError, UnknownConversation) as error:
        assert error.sentence.count("\n") == 0
        return "refused"
    return "as it was"


@pytest.mark.slow
class TestFlippedBits:
    """SQLite looks at the shape of its pages, and the chain at what stands in them."""

    @pytest.mark.timeout(300)
    async def test_no_conversation_is_another_one(self, whole: Path, tmp_path: Path) -> None:
        """Wherever a bit falls over: each conversation is what it was, or is refused with a typed error; and where the
        file can be opened at all, one bit spoils one conversation most often, and the others stay usable."""
        outcomes: list[str] = []
        for seed in range(3_000 if LONG else 120):
            path = flipped(whole, tmp_path, seed)
            try:
                store = await SqliteStore.open(path)
            except StoreError:
                continue
            try:
                outcomes += [await read(store, name) for name in KEPT]
                for look in (store.list(), store.claim(10), store.outbox(KEPT)):
                    with suppress(StoreError):
                        await look
            finally:
                await store.close()
            path.unlink()

        assert {*outcomes} == {"as it was", "refused"}
        assert outcomes.count("as it was") > len(outcomes) / 2

    @pytest.mark.timeout(300)
    async def test_an_engine_works_or_says_why_not(self, whole: Path, tmp_path: Path) -> None:
        """It opens, or refuses with a typed error; a conversation that is whole takes its next turn."""
        went_on = 0
        for seed in range(500 if LONG else 20):
            path = flipped(whole, tmp_path, 10_000 + seed)
            model = ScriptedLlm([reply("Go on.")] * 10)
            try:
                async with Engine.open(path, model=model) as engine:
                    for name in KEPT:
                        try:
                            conversation = await engine.get(name)
                            await conversation.cancel()
                            turn = await conversation.send("And now?")
                        except (StoreError, UnknownConversation):
                            continue
                        except Refused as refused:  # what must be looked up in the log cannot be read
                            assert refused.code == "storage"
                            continue
                        assert turn.reply == "Go on."
                        went_on += 1
            except StoreError:
                continue

        assert went_on > 30

    async def test_without_one_everything_is_as_it_was(self, whole: Path, tmp_path: Path) -> None:
        """So what the others find is the bit."""
        store = await SqliteStore.open(shutil.copy(whole, tmp_path))
        try:
            assert [await read(store, name) for name in KEPT] == ["as it was"] * 3
        finally:
            await store.close()
