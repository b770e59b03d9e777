"""One engine at a time: the lock beside a database file.

Two engines on one file would both act on the same conversations. The operating system holds the lock, so it ends with
the process that took it, however that process dies. The lock file itself stays: it is empty, and removing it could
let two engines in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from ..states.errors import StoreError
from .address import Address


@contextmanager
def sole_use(address: Address) -> Iterator[None]:
    """Hold the database for this engine alone. A database in memory needs no lock.

    Raises `StoreError` at once if another engine holds it (case P42), in this process or in another one.
    """
    if address.path is None:
        yield
        return
    lock = FileLock(f"{address.path}.lock", mode=0o600, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise StoreError(f"{address.name} is already open in another engine; close that one first.") from None
    except OSError as error:
        raise StoreError(f"{address.name} cannot be locked: its folder does not allow it.") from error
    try:
        yield
    finally:
        lock.release()
