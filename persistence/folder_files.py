"""The bytes of files in a folder: an implementation of the port `FileStore`, and an example of one.

A file is written under another name first and then renamed, so nobody reads half of one, and a crash leaves at most a
file that no row names.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .errors import StorageFailed

T = TypeVar("T")

_UNFINISHED = ".part"
"""The ending of a file that is being written."""


class FolderFiles:
    """Puts the bytes of files into `folder`, which is made if there is none, in as many folders as a file system likes.

        Engine.open("postgresql://…", files=FolderFiles("/srv/turnwise/files"))

    All processes that share the database need the same folder. The files are readable by their owner only.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)

    @classmethod
    def named(cls, folder: str | None) -> FolderFiles | None:
        """Return the files in this folder, or None where a setting names none."""
        return None if folder is None else cls(folder)

    async def write(self, name: str, data: bytes) -> None:
        """Store a file under a new name. Raises `StorageFailed`."""
        await self._done(partial(self._write, self._path(name), data))

    async def read(self, name: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` up to `end`. Raises `StorageFailed`."""
        return await self._done(partial(self._read, self._path(name), start, end))

    async def delete(self, name: str) -> None:
        """Delete a file, if there is one of this name. Raises `StorageFailed`."""
        await self._done(partial(self._path(name).unlink, missing_ok=True))

    async def names(self) -> tuple[str, ...]:
        """Return the names of all files. Raises `StorageFailed`."""
        return await self._done(self._names)

    def _path(self, name: str) -> Path:
        return self._folder / name[:2] / name

    @staticmethod
    def _write(path: Path, data: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            unfinished.replace(path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        _sync_folder(path.parent)

    @staticmethod
    def _read(path: Path, start: int, end: int) -> bytes:
        with path.open("rb") as stream:
            stream.seek(start)
            return stream.read(max(end - start, 0))

    def _names(self) -> tuple[str, ...]:
        found = self._folder.glob("??/*")
        return tuple(sorted(path.name for path in found if not path.name.endswith(_UNFINISHED)))

    async def _done(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise StorageFailed(f"The folder {self._folder} of files cannot be used: {error.strerror}.") from error


def _sync_folder(folder: Path) -> None:
    """Have the disk keep that a file was renamed, where the system can be asked for that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


if TYPE_CHECKING:
    from .ports import FileStore

    _STORE: type[FileStore] = FolderFiles
