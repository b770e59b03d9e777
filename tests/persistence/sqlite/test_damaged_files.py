"""Disks in trouble, and database files that are not what they were."""

from __future__ import annotations

import asyncio
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from turnwise import Conversation, Engine, EngineClosed, Refused, StoreError, UnknownConversation, tool
from turnwise.persistence.errors import StorageFailed
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.maintenance.replay import replay, replay_conversation
from turnwise.persistence.ports import LoadedConversation
from turnwise.persistence.records import StoredEntry
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states.transcript import Transcript
from turnwise.testing import ScriptedLlm, call, reply
from turnwise.testing.doubles import FunctionLlm

from ...support.engine_scenarios import Gate, answers_after, results, until
from ...support.fault_profile import LONG, portions
from ...support.store_internals import query
from ...support.walks import Walk

# --- Database files that are not what they were: a write-ahead log that was torn, bits that fell over.
#
# A conversation comes back as of some step that was committed, or it is said in a sentence what is wrong. Never is
# anything else made of it.


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


@pytest.mark.faults
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

    @pytest.mark.slow
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


@pytest.mark.faults
@pytest.mark.slow
class TestFlippedBits:
    """SQLite looks at the shape of its pages, and the chain at what stands in them."""

    @pytest.mark.timeout(0 if LONG else 300)
    async def test_no_conversation_is_another_one(self, whole: Path, tmp_path: Path) -> None:
        """Wherever a bit falls over: each conversation is what it was, or is refused with a typed error; and where the
        file can be opened at all, one bit spoils one conversation most often, and the others stay usable."""
        outcomes: list[str] = []
        for seed in range(600 * portions(5) if LONG else 120):
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

    @pytest.mark.timeout(0 if LONG else 300)
    async def test_an_engine_works_or_says_why_not(self, whole: Path, tmp_path: Path) -> None:
        """It opens, or refuses with a typed error; a conversation that is whole takes its next turn."""
        went_on = 0
        for seed in range(100 * portions(5) if LONG else 20):
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


# --- Disks that are full, fail, are locked or may only be read, in the middle of a conversation, and then are well
# again.
#
# P28: whatever the cause, memory equals the store, the caller gets a typed error of one sentence, and the conversation
# goes on when the cause is gone.


LONG_TEXT = "on the terrace, " * 10_000
"""More than any room that a file has left."""

Trouble = Callable[[Engine, Path], AbstractAsyncContextManager[None]]


async def pragma(engine: Engine, name: str, value: object) -> None:
    """Set a pragma on the connection that writes, unless the engine is closed."""
    with suppress(EngineClosed):
        await query(engine.store, f"PRAGMA {name} = {value}")


@asynccontextmanager
async def full(engine: Engine, path: Path) -> AsyncIterator[None]:
    """The file may not grow."""
    await pragma(engine, "max_page_count", 1)  # SQLite makes of it what it is now
    yield
    await pragma(engine, "max_page_count", 1_000_000)


@asynccontextmanager
async def failing(engine: Engine, path: Path) -> AsyncIterator[None]:
    """The operating system lets no file of this process grow much beyond the write-ahead log."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = path.with_name(f"{path.name}-wal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40_960, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@asynccontextmanager
async def locked(engine: Engine, path: Path) -> AsyncIterator[None]:
    """Another program writes, and takes its time."""
    await pragma(engine, "busy_timeout", 10)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@asynccontextmanager
async def read_only(engine: Engine, path: Path) -> AsyncIterator[None]:
    """The file may only be read."""
    await pragma(engine, "query_only", "ON")
    yield
    await pragma(engine, "query_only", "OFF")


TROUBLES = pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        (full, "the disk is full"),
        (failing, "the disk failed"),
        (locked, "another program holds it locked"),
        (read_only, "it may only be read"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)


async def check_memory(engine: Engine, conversation: Conversation) -> None:
    """The conversation in memory is the one in the store, and its log leads to it."""
    loaded = await engine.store.load(conversation.id)
    assert conversation.state == loaded.state
    stored = Transcript()
    for entry in await engine.store.entries(conversation.id):
        stored.add(entry)
    same = tuple(stored.messages) == await conversation.transcript()  # too long to be shown in a failure
    assert same
    assert (await conversation.replay()).divergence is None
    assert (await examine(engine.store)).findings == ()


@pytest.mark.faults
@TROUBLES
class TestInTheMiddle:
    """The trouble begins at some moment of a conversation."""

    async def test_a_message_is_refused_and_can_be_sent_again(
        self, database: Path, trouble: Trouble, cause: str
    ) -> None:
        """Nothing of it is left, and under the same id it is said once (P3)."""
        async with Engine.open(database, model=ScriptedLlm([reply("One."), reply("Two.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            before = conversation.state

            async with trouble(engine, database):
                with pytest.raises(Refused) as refused:
                    await conversation.send(LONG_TEXT, message_id="m1")
                assert conversation.state == before
                await check_memory(engine, conversation)
            turn = await conversation.send(LONG_TEXT, message_id="m1")

            assert refused.value.code == "storage"
            assert isinstance(refused.value.__cause__, StorageFailed)
            assert refused.value.__cause__.sentence == f"{database} cannot be used now: {cause}."
            assert turn.reply == "Two."
            assert len(await conversation.transcript()) == 4
            await check_memory(engine, conversation)

    async def test_an_answer_of_the_model_is_kept(
        self, database: Path, trouble: Trouble, cause: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is asked once; the turn ends when the answer can be stored, and whoever waits is told then."""
        gate = Gate()
        llm = FunctionLlm(answers_after(gate, LONG_TEXT))

        async with Engine.open(database, model=llm) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Hi"))
            await gate.arrived.wait()
            async with trouble(engine, database):
                gate.opened.set()
                await until(lambda: "An answer could not be stored" in caplog.text)
                with pytest.raises(Refused) as refused:
                    await conversation.send("Are you there?", when_busy="queue")
                assert conversation.state.type == "llm_requesting"
                await check_memory(engine, conversation)

            assert refused.value.code == "storage"
            assert (await turn).reply == LONG_TEXT
            assert len(llm.requests) == 1
            await check_memory(engine, conversation)

    async def test_a_tool_runs_once(
        self, database: Path, trouble: Trouble, cause: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its result is kept until it can be stored."""
        gate, ran = Gate(), []

        @tool
        async def pay() -> str:
            """Pay."""
            ran.append("pay")
            await gate()
            return LONG_TEXT

        llm = ScriptedLlm([call("pay"), reply("Paid.")])
        async with Engine.open(database, model=llm, tools=[pay]) as engine:
            conversation = await engine.create()
            turn = asyncio.ensure_future(conversation.send("Pay."))
            await gate.arrived.wait()
            async with trouble(engine, database):
                gate.opened.set()
                await until(lambda: "An answer could not be stored" in caplog.text)
                await check_memory(engine, conversation)

            assert (await turn).reply == "Paid."
            assert ran == ["pay"]
            assert len(results(await conversation.transcript())) == 1
            await check_memory(engine, conversation)

    async def test_no_half_of_a_conversation_is_made(self, database: Path, trouble: Trouble, cause: str) -> None:
        """A conversation that cannot be made is said not to be; the next one is made."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            await engine.create()

            async with trouble(engine, database):
                with pytest.raises(StorageFailed) as failed:
                    await engine.create(system=LONG_TEXT)
                assert len(await engine.list()) == 1
            turn = await (await engine.create(system=LONG_TEXT)).send("Hi")

            assert failed.value.sentence == f"{database} cannot be used now: {cause}."
            assert turn.reply == "Hello."

    async def test_the_next_process_finds_what_was_stored(
        self, database: Path, trouble: Trouble, cause: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The engine is closed in the middle of the trouble: the answer is lost, as in a crash, and asked for again."""
        gate = Gate()
        llm = FunctionLlm(answers_after(gate, LONG_TEXT), name="scripted")
        engine = await Engine.open(database, model=llm)
        conversation = await engine.create()
        await conversation.send("Hi", message_id="m1", wait=False)
        await gate.arrived.wait()
        async with trouble(engine, database):
            gate.opened.set()
            await until(lambda: "An answer could not be stored" in caplog.text)
            ending = asyncio.ensure_future(engine.close())
            await asyncio.wait([ending], timeout=0.05)
        await ending

        async with Engine.open(database, model=ScriptedLlm([reply("Again.")])) as engine:
            again = await engine.get(conversation.id)
            assert (await again.send("Hi", message_id="m1")).reply == "Again."
            await check_memory(engine, again)


@pytest.mark.faults
class TestReleased:
    """A lock that is released soon is no trouble at all."""

    async def test_a_turn_waits_for_another_program(self, database: Path) -> None:
        """Nothing is refused where the other program is done within the time that SQLite waits."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            with closing(sqlite3.connect(database, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                turn = asyncio.ensure_future(conversation.send("Hi"))
                await asyncio.sleep(0.1)
                assert not turn.done()
                other.execute("COMMIT")

                assert (await turn).reply == "Hello."


NOBODY = """
import asyncio, os, sys
from pathlib import Path
from turnwise import Engine, TurnwiseError
from turnwise.testing import ScriptedLlm, reply
from turnwise.persistence.sqlite.store import SqliteStore

path, door = Path(sys.argv[1]), sys.argv[2]

async def warm():
    # What is imported late must be there before the rights are gone.
    async with Engine.open(path.with_name("warm.db"), model=ScriptedLlm([reply("Hello.")])) as engine:
        conversation = await engine.create()
        await conversation.send("Hi")
        await conversation.replay()

async def use():
    try:
        if door == "read":
            store = await SqliteStore.open(path, read_only=True)
            print(len(await store.list()))
            await store.close()
        else:
            async with Engine.open(path, model=ScriptedLlm([])) as engine:
                await engine.create()
    except TurnwiseError as error:
        print(error)

asyncio.run(warm())
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(use())
"""
"""A program of somebody who has no rights but those of all the world; it says how many conversations it found, or why
it could not."""


@pytest.mark.faults
@pytest.mark.slow
class TestWithoutRights:
    """Whoever may not write is told so, in one sentence."""

    @pytest.fixture
    async def folder(self) -> AsyncIterator[Path]:
        """A folder that everybody may enter, with a database in it."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory(prefix="turnwise-rights-") as name:
            folder = Path(name)
            async with Engine.open(folder / "kept.db", model=ScriptedLlm([])) as engine:
                await engine.create()
            folder.chmod(0o755)
            yield folder
            folder.chmod(0o755)

    def said(self, path: Path, door: str) -> str:
        """What somebody without rights is told."""
        ran = subprocess.run([sys.executable, "-c", NOBODY, path, door], capture_output=True, text=True, timeout=200)
        assert (ran.returncode, ran.stderr) == (0, "")
        return ran.stdout.removesuffix("\n")

    def test_a_folder_that_may_not_be_written_to(self, folder: Path) -> None:
        """No database is made in it."""
        (folder / "theirs").mkdir(mode=0o555)

        said = self.said(folder / "kept.db", "write"), self.said(folder / "theirs" / "new.db", "write")

        assert said[1] == f"{folder / 'theirs' / 'new.db'} cannot be created: its folder does not allow it."
        assert said[0] == f"{folder / 'kept.db'} cannot be used now: it cannot be opened."

    def test_a_file_that_may_not_be_read(self, folder: Path) -> None:
        """Files are for their owner alone, so another one cannot look into them."""
        assert self.said(folder / "kept.db", "read") == f"{folder / 'kept.db'} cannot be used now: it cannot be opened."

    def test_a_file_that_may_only_be_read(self, folder: Path) -> None:
        """An engine refuses to open it, and nothing in it is changed."""
        path = folder / "kept.db"
        path.chmod(0o444)
        (folder / "kept.db.lock").chmod(0o666)
        before = path.read_bytes()

        said = self.said(path, "write")

        assert said == f"{path} cannot be used now: it may only be read."
        assert path.read_bytes() == before

    def test_a_file_that_may_only_be_read_is_read(self, folder: Path) -> None:
        """By whoever may make SQLite's own files beside it."""
        folder.chmod(0o777)
        (folder / "kept.db").chmod(0o444)

        assert self.said(folder / "kept.db", "read") == "1"
