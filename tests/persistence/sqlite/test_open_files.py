"""A database whose files are deleted, renamed or replaced while an engine has them open: it stops, and acknowledges
nothing that would be lost."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from turnwise import Engine, StoreError
from turnwise.persistence.errors import FileGone
from turnwise.persistence.sqlite.file import INTERVAL
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.testing import FunctionLlm

from ...support.walks import Walk


def delete(database: Path) -> None:
    """Somebody tidies up."""
    database.unlink()


def rename(database: Path) -> None:
    """Somebody puts it elsewhere."""
    database.rename(database.with_name("elsewhere.db"))


def replace(database: Path) -> None:
    """Somebody puts a copy in its place, as tools that restore or synchronise do."""
    copy = database.with_name("copy.db")
    shutil.copy(database, copy)
    copy.replace(database)


def delete_log(database: Path) -> None:
    """Somebody takes the write-ahead log for a leftover."""
    database.with_name(f"{database.name}-wal").unlink()


def delete_index(database: Path) -> None:
    """Or its index."""
    database.with_name(f"{database.name}-shm").unlink()


def delete_folder(database: Path) -> None:
    """Or all of it."""
    shutil.rmtree(database.parent)


WAYS = [delete, rename, replace, delete_log, delete_index, delete_folder]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database in a folder of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "conversations.db"


@pytest.mark.parametrize("happens", WAYS)
async def test_an_engine_stops(database: Path, happens: Callable[[Path], None]) -> None:
    """The message after a pause is refused with a typed error of one sentence, and so is every later one, also of other
    conversations. Closing the engine raises nothing more."""
    async with Engine.open(database, model=FunctionLlm(lambda _: "Hello.")) as engine:
        conversation = await engine.create()
        other = await engine.create()
        await conversation.send("Before")
        happens(database)
        time.sleep(INTERVAL)

        with pytest.raises(FileGone) as gone:
            await conversation.send("After")
        for later in (conversation, other):
            with pytest.raises(StoreError):
                await later.send("Later")
        with pytest.raises(StoreError):
            await engine.create()

    assert str(gone.value).startswith(f"{database}, or a file beside it, was moved, deleted or replaced")


async def test_little_is_lost_while_messages_keep_coming(database: Path) -> None:
    """Without any pause: of what was acknowledged after the file went, at most that of a tenth of a second and one step
    is missing."""
    store = await SqliteStore.open(database)
    walk = Walk()
    log = await walk.into(store)
    database.unlink()
    went, last = time.monotonic(), 0.0
    with pytest.raises(FileGone):
        while True:
            walk.turn("tonight")
            for event, step in walk.steps[-4:]:
                begun = time.monotonic()
                await log.append(event, step)
                last = begun - went
    await store.close()

    assert last <= INTERVAL


@pytest.mark.parametrize("happens", WAYS)
async def test_a_store_says_so_when_it_closes(database: Path, happens: Callable[[Path], None]) -> None:
    """Nothing was stored since, so nobody was told before; what was stored before may be lost."""
    store = await SqliteStore.open(database)
    await Walk().into(store)
    happens(database)

    with pytest.raises(FileGone):
        await store.close()
    await store.close()


async def test_what_other_programs_may_do_is_no_fault(database: Path) -> None:
    """They read the file, make checkpoints and copies; and the engine itself deletes, which rewrites the file."""
    store = await SqliteStore.open(database)
    log = await Walk("first").into(store)
    reader = await SqliteStore.open(database, read_only=True)
    assert await reader.ids() == ("first",)
    await reader.close()
    shutil.copy(database, database.with_name("copy.db"))
    await Walk("second").into(store)
    await store.delete("second")
    time.sleep(INTERVAL)
    walk = Walk("first").say("Hello")

    await log.append(*walk.steps[-1])
    await store.close()

    again = await SqliteStore.open(database)
    assert len(await again.entries("first")) == 2
    await again.close()
