"""Files that conversations refer to: stored once, kept for those that may refer to them, gone with the last of them.

`FileStoreContract` is what every file store must do, where the bytes of files are if they are not in the database.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest

from ...persistence.errors import StorageFailed
from ...persistence.maintenance.copy import copy_conversations
from ...persistence.maintenance.doctor import examine, repair
from ...persistence.maintenance.export import export_all, first_line, import_records, last_line
from ...persistence.maintenance.files import ImportedFiles, lines_of_files
from ...persistence.maintenance.fork import fork
from ...persistence.maintenance.reading import lines_of, read_export
from ...persistence.ports import FileStore, RepairableStorage, Store
from ...states.errors import UnknownConversation
from ...states.events import UserMessage
from ...states.values.files import FileReference
from .story import NOON, OpenedStore, Story, on_a_store

SMALL = b"a,b\n1,2\n"
LARGE = bytes(range(256)) * 6_000
"""A file of one and a half megabytes, which stores keep in parts."""


def digest_of(data: bytes) -> str:
    """Return the digest under which these bytes are stored."""
    return sha256(data).hexdigest()


def reference_to(data: bytes) -> FileReference:
    """Return a reference to these bytes."""
    return FileReference(sha256=digest_of(data), media_type="text/csv", size=len(data))


async def attached(store: Store, conversation_id: str, *files: bytes) -> Story:
    """Store a conversation whose user has attached these files."""
    story = Story()
    log = await story.into(store, conversation_id)
    for data in files:
        await store.files.keep(conversation_id, digest_of(data), data)
    references = tuple(map(reference_to, files))
    await log.append(*story.request(UserMessage, text="See", files=references).newest)
    await log.append(*story.answer("I see.").newest)
    return story


async def kept(store: Store, conversation_id: str) -> list[str]:
    """Return the digests of the files that are kept for a conversation, in the order in which they were stored."""
    return [file.sha256 for file in await store.files.of(conversation_id)]


class FilesContract(OpenedStore):
    """`Store.files`."""

    @on_a_store
    async def test_what_is_kept_is_read_back(self, store: Store) -> None:
        """All of it, or any part of it; nothing behind its end."""
        await attached(store, "one", SMALL, LARGE, b"")

        for data in (SMALL, LARGE, b""):
            read = await store.files.read("one", digest_of(data))
            assert read == data
        for start, end in ((0, 0), (0, 1), (262_143, 262_145), (700_000, 1_400_000), (1_500_000, 9_999_999)):
            assert await store.files.read("one", digest_of(LARGE), start, end) == LARGE[start:end]
        assert await kept(store, "one") == [digest_of(data) for data in (SMALL, LARGE, b"")]
        assert [file.size for file in await store.files.of("one")] == [len(SMALL), len(LARGE), 0]

    @on_a_store
    async def test_a_file_belongs_to_those_for_whom_it_is_kept(self, store: Store) -> None:
        """Whoever knows its digest cannot read it otherwise."""
        await attached(store, "one", SMALL)
        await Story().into(store, "other")

        assert await store.files.read("other", digest_of(SMALL)) is None
        assert await store.files.read("nobody", digest_of(SMALL)) is None
        assert await store.files.read(None, digest_of(SMALL)) == SMALL
        assert await store.files.read(None, digest_of(b"x")) is None

    @on_a_store
    async def test_a_file_goes_with_the_last_conversation(self, store: Store) -> None:
        """In whatever order they are deleted."""
        await attached(store, "one", SMALL, LARGE)
        await attached(store, "two", SMALL)

        await store.delete("one")
        left = [await store.files.read(None, digest_of(data)) for data in (SMALL, LARGE)]
        await store.delete("two")

        assert left == [SMALL, None]
        assert await store.files.read(None, digest_of(SMALL)) is None

    @on_a_store
    async def test_a_file_that_is_deleted_can_be_stored_again(self, store: Store) -> None:
        """With all its bytes."""
        for _ in range(3):
            await attached(store, "one", LARGE)
            assert await store.files.read("one", digest_of(LARGE)) == LARGE
            await store.delete("one")

    @on_a_store
    async def test_what_is_deleted_while_it_is_kept_for_another_is_there(self, store: Store) -> None:
        """Nobody refers to bytes that are gone."""
        for number in range(8):
            await attached(store, f"old-{number}", LARGE)
            await Story().into(store, f"new-{number}")
            await asyncio.gather(
                store.delete(f"old-{number}"), store.files.keep(f"new-{number}", digest_of(LARGE), LARGE)
            )
            assert await store.files.read(f"new-{number}", digest_of(LARGE)) == LARGE
            await store.delete(f"new-{number}")

    @on_a_store
    async def test_two_may_store_the_same_bytes_at_once(self, store: Store) -> None:
        """They are stored once."""
        for name in ("one", "two", "three"):
            await Story().into(store, name)

        await asyncio.gather(*(store.files.keep(name, digest_of(LARGE), LARGE) for name in ("one", "two", "three")))

        assert [await kept(store, name) for name in ("one", "two", "three")] == [[digest_of(LARGE)]] * 3

    @on_a_store
    async def test_nothing_is_kept_for_a_conversation_that_is_not_stored(self, store: Store) -> None:
        """Nor for one that was deleted."""
        with pytest.raises(UnknownConversation):
            await store.files.keep("nobody", digest_of(SMALL), SMALL)
        with pytest.raises(UnknownConversation):
            await store.files.of("nobody")

        assert await store.files.read(None, digest_of(SMALL)) is None

    @on_a_store
    async def test_what_was_refused_is_taken_back(self, store: Store) -> None:
        """Unless somebody else has kept it since."""
        await Story().into(store, "one")
        first = await store.files.keep("one", digest_of(SMALL), SMALL)
        again = await store.files.keep("one", digest_of(SMALL), SMALL)
        other = await store.files.keep("one", digest_of(LARGE), LARGE)
        assert first is not None
        assert other is not None

        await store.files.take_back("one", digest_of(SMALL), first)
        await store.files.take_back("one", digest_of(LARGE), other)

        assert again is None
        assert await kept(store, "one") == [digest_of(SMALL)]
        assert await store.files.read(None, digest_of(LARGE)) is None

    @on_a_store
    async def test_a_copy_shares_the_files(self, store: Store) -> None:
        """It has them although its original is gone."""
        await attached(store, "one", SMALL, LARGE)

        await fork(store, "one", "copy", None, NOON)
        await store.delete("one")

        assert await kept(store, "copy") == [digest_of(SMALL), digest_of(LARGE)]
        assert await store.files.read("copy", digest_of(LARGE)) == LARGE

    def test_exports_and_copies_carry_files(self, tmp_path: Path) -> None:
        """Each once, in parts; a second time nothing happens."""

        async def carry() -> None:
            async with self.opened(tmp_path / "here") as here, self.opened(tmp_path / "there") as there:
                await attached(here, "one", SMALL, LARGE)
                await attached(here, "two", LARGE, b"")
                lines = await _exported(here)
                for _ in range(2):
                    with ImportedFiles() as files:
                        records = read_export(lines_of(BytesIO("\n".join(lines).encode())), files)
                        await import_records(there, records, files)
                assert [await kept(there, name) for name in ("one", "two")] == [
                    await kept(here, name) for name in ("one", "two")
                ]
                assert max(map(len, lines)) < 1_100_000
                assert await _exported(there) == lines
                for name in ("one", "two"):
                    await there.delete(name)

                for outcome in ("copied", "there"):
                    copied = [one async for one in copy_conversations(here, there, ["one", "two"])]
                    assert [one.outcome for one in copied] == [outcome, outcome]
                assert await there.files.read("two", digest_of(LARGE)) == LARGE
                assert (await examine(there)).findings == ()

        for place in ("here", "there"):
            (tmp_path / place).mkdir()
        asyncio.run(carry())

    @on_a_store
    async def test_the_doctor_finds_files_that_nobody_refers_to(self, store: Store) -> None:
        """And those that a log refers to and that are not there. What was kept just now may be referred to soon."""
        await attached(store, "one", SMALL)
        await store.files.keep("one", digest_of(LARGE), LARGE)
        await store.files.keep(None, digest_of(b"loose"), b"loose")
        story = Story()
        log = await story.into(store, "two")
        await log.append(*story.request(UserMessage, text="See", files=(reference_to(b"missing"),)).newest)

        found = (await examine(store)).findings

        told = [finding.sentence for finding in found]
        assert f"The file {digest_of(b'missing')}, to which the log refers, is not stored." in told
        if isinstance(store, RepairableStorage):
            assert "There are files of no conversation: 1." in told
            await repair(store, found)
            assert await store.files.read(None, digest_of(b"loose")) is None
        assert await kept(store, "one") == [digest_of(SMALL), digest_of(LARGE)]


async def _exported(store: Store) -> list[str]:
    """Export all conversations with their files."""
    lines, count, written = [first_line()], 0, set[str]()
    async for conversation_id, exported in export_all(store):
        assert not isinstance(exported, Exception)
        lines += [line async for line in lines_of_files(store, conversation_id, written)]
        lines += exported
        count += 1
    return [*lines, last_line(count)]


class FileStoreContract:
    """What every file store must do. A subclass says how it is opened; pytest runs it if its name begins with `Test`.

    class TestMyFiles(FileStoreContract):
        @asynccontextmanager
        async def opened(self, place):
            yield MyFiles(place)
    """

    @abstractmethod
    def opened(self, place: Path) -> AbstractAsyncContextManager[FileStore]:
        """Return the file store whose files are in this folder, or elsewhere under its name."""

    def test_what_is_written_is_read_back(self, tmp_path: Path) -> None:
        """All of it, or a part; also by whoever opens it next."""

        async def check() -> None:
            async with self.opened(tmp_path) as files:
                await files.write("aa.1", LARGE)
                await files.write("bb.2", b"")
            async with self.opened(tmp_path) as files:
                assert await files.read("aa.1", 0, len(LARGE)) == LARGE
                assert await files.read("aa.1", 700_000, 700_010) == LARGE[700_000:700_010]
                assert await files.read("bb.2", 0, 10) == b""
                assert sorted(await files.names()) == ["aa.1", "bb.2"]

        asyncio.run(check())

    def test_what_is_deleted_is_gone(self, tmp_path: Path) -> None:
        """It may be deleted again."""

        async def check() -> None:
            async with self.opened(tmp_path) as files:
                await files.write("aa.1", SMALL)
                await files.delete("aa.1")
                await files.delete("aa.1")
                assert await files.names() == ()
                with pytest.raises(StorageFailed):
                    await files.read("aa.1", 0, 1)

        asyncio.run(check())
