"""Whether the files of an open database are still where they were opened.

An operating system lets a file be deleted, renamed or replaced while a program has it open. SQLite goes on writing to
the old one, and what it is told to keep is gone when it is closed, or lies where nobody looks for it. The same holds
for the write-ahead log and its index, which SQLite finds by their names when it opens the database again. So before
steps are stored, the files are compared with those that were opened, by their device and number.

To ask takes microseconds on a local disk, and longer over a network. So it is done before the first step that follows a
pause, and not again for `INTERVAL`. What was stored in that time may be lost with the file; nothing later is
acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ...errors import FileGone

INTERVAL = 0.1
"""Seconds after which the files are looked at again. Chosen so that it costs nothing that can be measured, and that
little is lost."""

_Identity = tuple[int, int]


class OpenFiles:
    """The file of the database called `name` at `path`, which was opened just now, and the two beside it. Only the
    holder of the writer's lock uses it."""

    def __init__(self, name: str, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._monotonic = monotonic
        beside = (path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm"))
        self._opened: dict[Path, _Identity | None] = {each: _identity(each) for each in (path, *beside)}
        self._checked = monotonic()
        self._gone: FileGone | None = None

    def check(self) -> None:
        """Raise `FileGone` if one of the files is not the one that was opened, as far as that was looked at lately.
        Once it was raised it always is."""
        if self._gone is not None or self._monotonic() - self._checked >= INTERVAL:
            self.check_now()

    def check_now(self) -> None:
        """Raise `FileGone` like `check`, but look in any case."""
        if self._gone is None:
            self._checked = self._monotonic()
            if not all(map(self._is_there, self._opened)):
                self._gone = FileGone(self._name)
        if self._gone is not None:
            raise self._gone

    @property
    def are_gone(self) -> bool:
        """Whether that was found out before."""
        return self._gone is not None

    def _is_there(self, path: Path) -> bool:
        opened, found = self._opened[path], _identity(path)
        if opened is None:  # SQLite makes the files beside the database when it needs them first
            self._opened[path] = found
            return True
        return found == opened


def _identity(path: Path) -> _Identity | None:
    """Return what tells this file from all others; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError:  # its folder is gone, or does not answer
        return (0, 0)
    return found.st_dev, found.st_ino
