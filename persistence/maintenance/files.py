"""Carries the files of conversations from one store to another: into an export, out of it, and directly.

In an export a file stands in front of the first conversation that refers to it, once, in lines of at most a megabyte:

    {"file":"9f86d0…","size":1500000,"part":0,"data":"iVBORw0KGgo…"}
    {"file":"9f86d0…","size":1500000,"part":1,"data":"…"}

So nobody holds more of a file in memory than a part. What an import has read lies in a temporary file, until it is
certain that the whole export is in order; the digest of each file is compared.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, Self

from ..codec import files_in
from ..errors import Damaged
from ..ports import Store
from ..records import ConversationRecord, KeptFile

PART = 768 * 2**10
"""The bytes of a file that one line holds: a megabyte of base64."""


async def lines_of_files(store: Store, conversation_id: str, written: set[str]) -> AsyncIterator[str]:
    """Yield the lines of the files that are kept for this conversation and its steps refer to, apart from those that
    were `written` before, which are noted there. Raises `UnknownConversation`, and `Damaged` for a file that is not
    what was stored."""
    record = await store.read_record(conversation_id)
    wanted = [digest for digest in files_in(record.steps) if digest not in written]
    if not wanted:
        return
    kept = {file.sha256: file for file in await store.files.of(conversation_id)}
    for digest in wanted:
        if digest in kept:
            written.add(digest)
            part = 0
            async for data in parts_of(store, conversation_id, kept[digest]):
                yield _line(digest, kept[digest].size, part, data)
                part += 1


async def parts_of(store: Store, conversation_id: str, file: KeptFile) -> AsyncIterator[bytes]:
    """Yield a file that is kept for this conversation, in parts: at least one. Raises `Damaged` behind the last
    one if it is not what was stored."""
    seen = sha256()
    for start in range(0, max(file.size, 1), PART):
        data = await store.files.read(conversation_id, file.sha256, start, start + PART) or b""
        seen.update(data)
        yield data
    if seen.hexdigest() != file.sha256:
        raise Damaged(0, f"The file {file.sha256} is not what was stored.")


def _line(digest: str, size: int, part: int, data: bytes) -> str:
    values = {"file": digest, "size": size, "part": part, "data": b64encode(data).decode()}
    return json.dumps(values, separators=(",", ":"))


class ImportedFiles:
    """The files of an export that is being read, in a temporary file on the disk. Use it as a context manager."""

    def __init__(self) -> None:
        self._spool: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        self._places: dict[str, tuple[int, int]] = {}
        self._open: tuple[str, int, int, int] | None = None
        """The file that is being read: its digest, its size, the next part, and where it begins."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.close()

    @property
    def is_complete(self) -> bool:
        """Whether no file has begun whose end has not been read."""
        return self._open is None

    def take(self, digest: str, size: int, part: int, data: str) -> None:
        """Take the next part of a file. Raises ValueError if it does not follow the one before, if it is no base64, and
        if the whole file is not what its digest says."""
        content = b64decode(data, validate=True)
        place = self._spool.seek(0, 2)
        if self._open is None:
            self._open = (digest, size, 0, place)
        known, wanted, following, start = self._open
        if (digest, size, part) != (known, wanted, following) or len(content) > PART:
            raise ValueError(digest)
        self._spool.write(content)
        self._open = (digest, size, part + 1, start)
        if place + len(content) - start >= size:
            self._open = None
            self._places[digest] = (start, size)
            if self._digest_of(start) != digest:
                raise ValueError(digest)

    def _digest_of(self, start: int) -> str:
        seen = sha256()
        self._spool.seek(start)
        while data := self._spool.read(PART):
            seen.update(data)
        return seen.hexdigest()

    def read(self, digest: str) -> bytes | None:
        """Return the bytes of a file, or None if the export does not have it."""
        if digest not in self._places:
            return None
        start, size = self._places[digest]
        self._spool.seek(start)
        return self._spool.read(size)


async def store_before(store: Store, records: Iterable[ConversationRecord], files: ImportedFiles | None) -> None:
    """Store the files of an export to which these conversations refer, before these are stored."""
    if files is None:
        return
    for digest in files_in(row for record in records for row in record.steps):
        if (data := files.read(digest)) is not None:
            await store.files.keep(None, digest, data)


async def keep_for(store: Store, records: Iterable[ConversationRecord], files: ImportedFiles | None) -> None:
    """See to it that the files of an export are kept for these conversations, which are stored: one may have been
    deleted meanwhile, together with another conversation."""
    if files is None:
        return
    for record in records:
        kept = {file.sha256 for file in await store.files.of(record.id)}
        for digest in files_in(record.steps):
            if digest not in kept and (data := files.read(digest)) is not None:
                await store.files.keep(record.id, digest, data)


async def copy_files(source: Store, target: Store, record: ConversationRecord, *, kept: bool) -> str | None:
    """Copy the files to which a conversation refers: before it is written, or, with `kept`, for the one in the target,
    as far as they are not kept for it. Returns why one cannot be copied, or None. Raises `StorageFailed` and
    `UnknownConversation`."""
    wanted = files_in(record.steps)
    if not wanted:
        return None
    there = {file.sha256 for file in await target.files.of(record.id)} if kept else set[str]()
    for digest in wanted:
        if digest in there or (not kept and await target.files.read(None, digest, 0, 0) is not None):
            continue
        data = await source.files.read(record.id, digest)
        if data is None:
            continue  # the original does not have it either, as `doctor` says
        if sha256(data).hexdigest() != digest:
            return f"The file {digest} is not what was stored; `turnwise doctor` says more."
        await target.files.keep(record.id if kept else None, digest, data)
    return None
