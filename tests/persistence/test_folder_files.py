"""The bytes of files in a folder, beside a database in which everything else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from turnwise import Engine, Settings, UnknownConversation
from turnwise.persistence.errors import StorageFailed
from turnwise.persistence.folder_files import FolderFiles
from turnwise.persistence.ports import FileStore, Store
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.testing import ScriptedLlm, reply
from turnwise.testing.store_contract.files import FilesContract, FileStoreContract, attached, digest_of


class TestFolder(FileStoreContract):
    """`FolderFiles`."""

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[FileStore]:
        """The folder is made when something is written."""
        yield FolderFiles(place / "files")


class TestADatabaseWithAFolder(FilesContract):
    """A SQLite database whose files are in a folder."""

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[Store]:
        """Beside the database."""
        store = await SqliteStore.open(place / "conversations.db", file_store=FolderFiles(place / "files"))
        try:
            yield store
        finally:
            await store.close()


async def test_the_bytes_are_in_the_folder_and_nowhere_else(tmp_path: Path) -> None:
    """Readable by their owner only, and gone with the conversation."""
    data = b"something that stands in no other file of this machine"
    folder = FolderFiles(tmp_path / "files")
    store = await SqliteStore.open(tmp_path / "a.db", file_store=folder)
    await attached(store, "one", data)
    (name,) = await folder.names()
    path = tmp_path / "files" / name[:2] / name
    mode, content = path.stat().st_mode & 0o777, path.read_bytes()
    await store.delete("one")
    left = await folder.names()
    await store.close()

    assert (mode, content, left) == (0o600, data, ())
    assert data not in (tmp_path / "a.db").read_bytes()


async def test_a_database_that_is_opened_without_its_folder_says_so(tmp_path: Path) -> None:
    """Everything else can be read."""
    store = await SqliteStore.open(tmp_path / "a.db", file_store=FolderFiles(tmp_path / "files"))
    await attached(store, "one", b"data")
    await store.close()
    store = await SqliteStore.open(tmp_path / "a.db")

    with pytest.raises(StorageFailed, match="in a file store"):
        await store.files.read("one", digest_of(b"data"))
    assert len(await store.entries("one")) == 3
    await store.close()


async def test_what_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    """The folder is a file here."""
    (tmp_path / "files").write_text("no folder")
    store = await SqliteStore.open(tmp_path / "a.db", file_store=FolderFiles(tmp_path / "files"))

    with pytest.raises(StorageFailed, match=r"cannot be used: .*directory"):
        await attached(store, "one", b"data")
    assert await store.files.of("one") == ()
    await store.close()


async def test_the_doctor_reads_a_folder_that_others_use(tmp_path: Path) -> None:
    """What lies there under any name is a file that nobody refers to."""
    store = await SqliteStore.open(tmp_path / "a.db", file_store=FolderFiles(tmp_path / "files"))
    (tmp_path / "files" / "ab").mkdir(parents=True)
    (tmp_path / "files" / "ab" / "backup.tar.gz").write_text("somebody's")

    assert [fault.sentence for fault in await store.examine_storage()] == [
        "There are files in the file store that nobody refers to: 1."
    ]
    await store.close()


async def test_what_no_conversation_can_have_leaves_no_bytes(tmp_path: Path) -> None:
    """They were written before the database was asked."""
    folder = FolderFiles(tmp_path / "files")
    store = await SqliteStore.open(tmp_path / "a.db", file_store=folder)

    with pytest.raises(UnknownConversation):
        await store.files.keep("gone", digest_of(b"data"), b"data")
    assert await folder.names() == ()
    await store.close()


async def test_half_a_file_is_none(tmp_path: Path) -> None:
    """A process may have died while it wrote one."""
    folder = FolderFiles(tmp_path)
    await folder.write("aa.1", b"data")
    (tmp_path / "aa" / "aa.1").rename(tmp_path / "aa" / "aa.1.part")

    assert await folder.names() == ()


async def test_a_setting_names_the_folder(tmp_path: Path) -> None:
    """For every engine that is given no file store."""
    settings = Settings(files_folder=str(tmp_path / "files"))
    async with Engine.open(tmp_path / "a.db", model=ScriptedLlm([reply("I see.")]), settings=settings) as engine:
        await (await engine.create()).send(files=[b"Some text"])

    assert len(await FolderFiles(tmp_path / "files").names()) == 1


async def test_the_doctor_compares_the_folder_with_the_database(tmp_path: Path) -> None:
    """What was written just now may be named soon."""
    folder = FolderFiles(tmp_path / "files")
    store = await SqliteStore.open(tmp_path / "a.db", file_store=folder)
    await attached(store, "one", b"data")
    (name,) = await folder.names()
    await folder.write(name.replace(".", ".f", 1), b"new")
    assert await store.examine_storage() == ()

    await folder.write("aa.0000000001.1", b"old")
    await folder.delete(name)

    assert [fault.sentence for fault in await store.examine_storage()] == [
        "There are files in the file store that nobody refers to: 1.",
        "There are files whose bytes are not in the file store: 1.",
    ]
    await store.close()
