"""A deleted conversation leaves nothing in the bytes of its file, nor in the index."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection

from turnwise import Engine, UnknownConversation
from turnwise.persistence.errors import TracesLeft
from turnwise.persistence.maintenance.doctor import Finding, examine
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.sqlite.search import NAME
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import HistoryMessage, LlmResponse, UserQuestionResponse
from turnwise.states.values.acts import MemoryQuery, MemoryScope
from turnwise.testing import ScriptedLlm

from ...support.store_internals import query
from ...support.walks import WHEN, Walk

# --- A deleted conversation leaves nothing in the bytes of its file, and nobody waits for that.
#
# No time is measured: what one transaction writes is counted in the write-ahead log, and what others store meanwhile in
# steps.


PIECE = 2 * 2**20
"""The bytes that a transaction may add to the write-ahead log: a piece, and the pages of indexes that belong to it."""


def bytes_of(database: Path) -> bytes:
    """All that stands in the file and in the files beside it."""
    return b"".join(path.read_bytes() for path in sorted(database.parent.glob(f"{database.name}*")))


async def findings_in(database: Path) -> tuple[Finding, ...]:
    """What the doctor finds in a database that nobody has open."""
    store = await SqliteStore.open(database, read_only=True)
    try:
        return (await examine(store)).findings
    finally:
        await store.close()


async def fill(store: SqliteStore, name: str, turns: int, text: str) -> Walk:
    """Store a conversation of so many turns."""
    walk = Walk(name)
    for number in range(turns):
        walk.turn(f"{text} {number} " + random.Random(number).randbytes(4000).hex())
    await walk.into(store)
    return walk


class Commits:
    """Watches the connection of a store that writes: the bytes that each commit has added to the write-ahead log, which
    is not emptied meanwhile."""

    def __init__(self, store: SqliteStore, database: Path) -> None:
        self.store = store
        self.log = database.with_name(f"{database.name}-wal")
        self.sizes: list[int] = []
        self._before = 0

    async def watch(self) -> None:
        """Begin."""

        def begin(connection: Connection) -> None:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.execute("PRAGMA wal_autocheckpoint = 0")
            self._before = self.log.stat().st_size
            driver.set_trace_callback(self._note)

        await self.store.database.writing.run(begin)

    def _note(self, _: str) -> None:
        size = self.log.stat().st_size if self.log.exists() else 0
        if size > self._before:
            self.sizes.append(size - self._before)
        self._before = size


@pytest.mark.slow
class TestALargeFile:
    """More than is rewritten at once."""

    async def test_no_transaction_writes_more_than_a_piece(self, store: SqliteStore, database: Path) -> None:
        """The conversation has many times as much, and the file still more."""
        await fill(store, "goes", 1000, "SECRET")
        await fill(store, "stays", 300, "kept")
        size = database.stat().st_size + database.with_name(f"{database.name}-wal").stat().st_size
        commits = Commits(store, database)
        await commits.watch()

        await store.delete("goes")

        assert size > 10 * PIECE
        assert sum(commits.sizes) > PIECE
        assert max(commits.sizes) < PIECE
        assert await store.ids() == ("stays",)

    async def test_others_store_their_steps_meanwhile(self, store: SqliteStore, database: Path) -> None:
        """A step that is handed in while a conversation is erased is stored between two pieces."""
        await fill(store, "goes", 500, "SECRET")
        walk = await fill(store, "stays", 300, "kept")
        log = (await store.load("stays")).log
        deleting = asyncio.ensure_future(store.delete("goes"))
        steps = 0
        for _ in range(20):
            known = len(walk.steps)
            walk.turn("meanwhile")
            for event, step in walk.steps[known:]:
                await log.append(event, step)
                steps += not deleting.done()
        await deleting

        assert steps > 10
        assert (await replay_conversation(store, "stays")).divergence is None

    async def test_it_is_gone_at_once_and_its_bytes_when_the_store_closes(self, database: Path) -> None:
        """Its text is nowhere but in gaps when the deletion returns; no byte of it is left behind the close, also of
        what was found by searching. The others are whole."""
        store = await SqliteStore.open(database)
        logs = {}
        walks = {f"CONVERSATION{number:02}.": Walk(f"EVENT{number:02}." * 20, owner="anna") for number in range(20)}
        for name, walk in walks.items():
            logs[name] = await walk.into(store, name)
        chance = random.Random(1)
        for _ in range(400):
            name, walk = chance.choice(list(walks.items()))
            known = len(walk.steps)
            walk.turn(f"SECRET{name[-3:]}" * chance.choice([1, 100, 1000]))
            for event, step in walk.steps[known:]:
                await logs[name].append(event, step)
        everything = MemoryQuery(MemoryScope("other", "anna", 1), ("SECRET00",), None, None, 5)
        found = await store.search(everything)

        for number in range(5):
            await store.delete(f"CONVERSATION{number:02}.")
        gone = await store.search(everything)
        await store.close()

        left = bytes_of(database)
        words = [f"{word}{number:02}." for word in ("CONVERSATION", "EVENT", "SECRET") for number in range(20)]
        assert len(found) > 0
        assert gone == ()
        assert {word for word in words if word.encode() in left} == {word for word in words if int(word[-3:-1]) >= 5}
        assert await findings_in(database) == ()

    @pytest.mark.slow
    async def test_a_process_that_dies_in_the_middle_is_finished_by_the_next(self, database: Path) -> None:
        """Some of the steps were overwritten. The conversation is gone, its id is free, the doctor finds no fault, and
        behind the next opening no byte of it is left."""
        program = (
            "import asyncio, os, signal, sys\n"
            "from turnwise.persistence.sqlite.store import SqliteStore\n"
            "from turnwise.persistence.sqlite import erasure\n"
            "async def main():\n"
            "    store = await SqliteStore.open(sys.argv[1])\n"
            "    begun = erasure.Erasure.erase_piece\n"
            "    calls = []\n"
            "    def dies(self, connection):\n"
            "        calls.append(1)\n"
            "        if len(calls) == 20: os.kill(os.getpid(), signal.SIGKILL)\n"
            "        return begun(self, connection)\n"
            "    erasure.Erasure.erase_piece = dies\n"
            "    await store.delete('goes')\n"
            "asyncio.run(main())\n"
        )
        store = await SqliteStore.open(database)
        await fill(store, "goes", 1000, "SECRET")
        await fill(store, "stays", 100, "kept")
        await store.close()
        died = subprocess.run([sys.executable, "-c", program, str(database)], check=False)
        between = await findings_in(database)
        with closing(sqlite3.connect(database)) as look:
            (orphans,) = look.execute(
                "SELECT count(*) FROM events WHERE conversation NOT IN (SELECT key FROM conversations)"
            ).fetchone()

        store = await SqliteStore.open(database)
        left, ids = bytes_of(database), await store.ids()
        await Walk("goes").turn("new").into(store)
        await store.close()

        assert died.returncode == -signal.SIGKILL
        assert orphans > 0
        assert between == ()
        assert (b"SECRET" in left, ids) == (False, ("stays",))

    async def test_a_conversation_that_begins_meanwhile_gets_none_of_its_steps(
        self, store: SqliteStore, database: Path
    ) -> None:
        """The key of the conversation that goes is not given away while steps have it."""
        await fill(store, "stays", 300, "kept")
        await fill(store, "goes", 500, "SECRET")

        deleting = asyncio.ensure_future(store.delete("goes"))
        for _ in range(1000):
            await asyncio.sleep(0)
            if "goes" not in await store.ids():
                break
        begun_before_the_end = not deleting.done()
        await Walk("goes").turn("new").into(store)
        await deleting

        assert begun_before_the_end
        assert (await replay_conversation(store, "goes")).divergence is None
        assert len(await store.entries("goes")) == 5


class TestAnEngine:
    """`engine.delete`."""

    async def test_says_that_it_is_gone_although_traces_are_left(self, database: Path) -> None:
        """Another program reads the file just now, so it cannot be rewritten; when the engine closes, it is."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create(system="SECRET")
            with closing(sqlite3.connect(database, isolation_level=None)) as reader:
                await query(engine.store, "PRAGMA busy_timeout = 1")
                reader.execute("BEGIN")
                reader.execute("SELECT * FROM events").fetchall()
                with pytest.raises(TracesLeft, match="traces of it stay"):
                    await engine.delete(conversation.id)
            with pytest.raises(UnknownConversation):
                await engine.get(conversation.id)

        assert b"SECRET" not in bytes_of(database)


# --- A conversation that is deleted leaves nothing in the bytes of the index.


ANNA = MemoryScope("", "anna", 0)
SECRETS = ("zqzebra", "jqhistory", "vqnotes", "xqreply", "鱻")
"""Words that stand in the deleted conversation only. Each begins with another letter, since FTS5 stores what two words
have in common once."""


def secret() -> Walk:
    """A conversation with the secrets, in all that can be found of one."""
    walk = Walk("secret", owner="anna", messages=(HistoryMessage(role="assistant", content="jqhistory"),))
    walk.turn("zqzebra 鱻").question()
    notes = {WHEN.question: {"notes": "vqnotes"}}
    walk.request(UserQuestionResponse, answers={WHEN.question: "6:30 PM"}, annotations=notes)
    return walk.answer(LlmResponse, content="xqreply")


def index_of(path: Path) -> bytes:
    """All that the index holds, without the texts."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as other:
        return b"".join(block for (block,) in other.execute(f"SELECT block FROM {NAME}_data"))


def files_of(path: Path) -> bytes:
    """The bytes of the database and of the files beside it."""
    return b"".join(each.read_bytes() for each in path.parent.iterdir())


async def test_nothing_is_left_of_a_deleted_conversation(tmp_path: Path) -> None:
    """Not in the file, not in the write-ahead log, while the database is open and afterwards; whatever was said before
    and after it is still found."""
    path = tmp_path / "dinner.db"
    store = await SqliteStore.open(path)

    async def found(keyword: str) -> int:
        return len(await store.search(MemoryQuery(ANNA, (keyword,), None, None, 1000)))

    for number in range(3):
        await Walk(f"before {number}", owner="anna").turn(f"sushi {number}").into(store)
        assert await found("sushi") == 2 * (number + 1)  # each search adds a segment to the index
    await secret().into(store)
    for word in SECRETS:
        assert await found(word) > 0
        assert word.encode() in index_of(path)
    vectors = {number: [0.8, 0.6] for number, _ in await store.without_vectors(ANNA, "qqspace", 100)}
    await store.keep_vectors("qqspace", vectors)
    await Walk("after", owner="anna").turn("sushi").into(store)
    assert await found("sushi") == 8

    await store.delete("secret")

    for word in SECRETS:
        assert await found(word) == 0
        assert word.encode() not in index_of(path)
        assert word.encode() not in files_of(path)
    assert await found("sushi") == 8
    assert (await examine(store)).findings == ()
    await store.close()
    assert not any(word.encode() in files_of(path) for word in SECRETS)


async def test_a_conversation_that_was_never_searched_is_deleted_as_before(tmp_path: Path) -> None:
    """Half of its steps may be indexed, or none."""
    path = tmp_path / "dinner.db"
    store = await SqliteStore.open(path)
    await Walk("secret", owner="anna").turn("qqzebra").into(store)
    await store.recent(ANNA, Walk().steps[0][0].at)
    log = (await store.load("secret")).log
    await log.append(*Walk("secret", owner="anna").turn("qqzebra").say("qqlater").steps[-1])
    await Walk("another", owner="anna").turn("qqanother").into(store)

    await store.delete("secret")
    await store.delete("another")
    await store.close()

    assert b"qq" not in files_of(path)
