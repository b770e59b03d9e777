"""The locks of a database, which let one engine at a time in.

Two engines on one file would both act on the same conversations. The operating system holds the locks, so they end with
the process that took them, however that process ends. One is on an empty file beside the database, which stays. Whoever
deletes that file would let two engines in, so on Linux another one is on a byte of the database itself.

SQLite locks bytes of its own in that file, and the operating system drops all of those that a process has when it
closes any descriptor of the file. So the descriptor that holds our lock stays open as long as this process has a
connection to the file. A forked child closes the descriptors that it inherits, which gives nothing of its parent's up.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import RLock

from filelock import FileLock, Timeout

from ....states.errors import StoreError
from .address import Address

if sys.platform == "linux":
    import fcntl

LOCK_TIMEOUT = 0.2
"""Seconds to wait for the lock before an engine is refused. Chosen so that it is longer than `in_use` holds it."""

LOCK_BYTE = 0x4000_1000
"""The byte of a database that is locked. SQLite locks 512 bytes from 0x4000_0000 on; a lock needs no byte to exist."""

Inode = tuple[int, int]
"""The device and the number of a file, which stay while it is renamed or deleted."""


class DatabaseLocks:
    """The locks that this process holds on database files, and the descriptors that must stay open for them."""

    def __init__(self) -> None:
        self._guard = RLock()
        self._held: set[Inode] = set()
        self._descriptors: dict[Inode, int] = {}
        self._connections = Counter[Inode]()

    def connected(self, path: Path) -> Callable[[], None]:
        """Note a connection to this file, which must exist. Returns what is to be called when it is closed."""
        inode = _inode(path)
        with self._guard:
            self._connections[inode] += 1
        return partial(self._disconnected, inode)

    def _disconnected(self, inode: Inode) -> None:
        with self._guard:
            self._connections[inode] -= 1
            self._close_unused(inode)

    def take(self, path: Path) -> Callable[[], None] | None:
        """Lock a database, and return what gives the lock back; None if somebody holds it, in whatever process."""
        inode = _inode(path)
        with self._guard:
            if inode in self._held:
                return None  # without a descriptor that would have to be closed
            descriptor = self._descriptors.get(inode)
            if descriptor is None:
                descriptor = self._descriptors[inode] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if not _lock(descriptor, exclusive=True):
                self._close_unused(inode)
                return None
            self._held.add(inode)
        return partial(self._give_back, inode)

    def _give_back(self, inode: Inode) -> None:
        with self._guard:
            self._held.discard(inode)
            if inode in self._descriptors:  # a forked child has none
                _unlock(self._descriptors[inode])
                self._close_unused(inode)

    def _close_unused(self, inode: Inode) -> None:
        if inode not in self._held and self._connections[inode] <= 0:
            del self._connections[inode]
            if inode in self._descriptors:
                os.close(self._descriptors.pop(inode))

    def are_held(self, path: Path) -> bool:
        """Whether somebody holds the lock of this database, in whatever process. While this process reads it, only its
        own engines are known."""
        inode = _inode(path)
        with self._guard:
            if inode in self._held or inode in self._descriptors or self._connections[inode]:
                return inode in self._held
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return not _lock(descriptor, exclusive=False)
            finally:
                os.close(descriptor)

    def forget(self) -> None:
        """Close what a forked child has inherited."""
        for descriptor in self._descriptors.values():
            with suppress(OSError):
                os.close(descriptor)
        self._guard, self._held, self._descriptors, self._connections = RLock(), set(), {}, Counter()


LOCKS = DatabaseLocks()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=LOCKS.forget)


def _inode(path: Path) -> Inode:
    found = path.stat()
    return found.st_dev, found.st_ino


def _lock(descriptor: int, *, exclusive: bool) -> bool:
    """Lock the byte, and return whether that could be done. Where there are no such locks it counts as done."""
    if sys.platform == "linux":
        kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(kind))
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _unlock(descriptor: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))


def _flock(kind: int) -> bytes:
    """Return C's `struct flock` for our byte. Its last field is a process id, which must be 0."""
    return struct.pack("hhqqi", kind, os.SEEK_SET, LOCK_BYTE, 1, 0)


@contextmanager
def exclusive_use(address: Address) -> Iterator[None]:
    """Hold the locks of a database in this block. A database in memory needs none.

    Raises `StoreError` if another engine holds it, in this process or in another one.
    """
    if address.path is None:
        yield
        return
    lock = FileLock(
        f"{address.path}.lock", mode=0o600, timeout=LOCK_TIMEOUT, thread_local=False, fallback_to_soft=False
    )
    try:
        lock.acquire()
    except Timeout:
        raise _already_open(address) from None
    except OSError as error:
        raise StoreError(f"{address.name} cannot be locked: its folder does not allow it.") from error
    try:
        give_back = LOCKS.take(address.path)
        if give_back is None:
            raise _already_open(address)
        try:
            yield
        finally:
            give_back()
    finally:
        lock.release()


def _already_open(address: Address) -> StoreError:
    return StoreError(f"{address.name} is already open in another engine; close that one first.")


def in_use(address: Address) -> bool:
    """Whether an engine has the database open at this moment. No file is created.

    True also if that cannot be found out, because the folder does not allow it.
    """
    if address.path is None or not address.path.exists():
        return False
    if not Path(f"{address.path}.lock").exists():
        with suppress(OSError):
            return LOCKS.are_held(address.path)
        return False
    try:
        with exclusive_use(address):
            return False
    except StoreError:
        return True
