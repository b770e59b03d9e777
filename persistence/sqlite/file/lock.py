"""The lock beside a database file, which lets one engine at a time in.

Two engines on one file would both act on the same conversations. The operating system holds the lock, so it ends with
the process that took it, however that process ends. The lock file itself stays: it is empty, and removing it could let
two engines in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ....states.errors import StoreError
from .address import Address

LOCK_TIMEOUT = 0.2
"""Seconds to wait for the lock before an engine is refused. Chosen so that it is longer than `in_use` holds it."""


@contextmanager
def exclusive_use(address: Address) -> Iterator[None]:
    """Hold the lock of a database in this block. A database in memory needs no lock.

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
        raise StoreError(f"{address.name} is already open in another engine; close that one first.") from None
    except OSError as error:
        raise StoreError(f"{address.name} cannot be locked: its folder does not allow it.") from error
    try:
        yield
    finally:
        lock.release()


def in_use(address: Address) -> bool:
    """Whether an engine has the database open at this moment. No file is created.

    True also if that cannot be found out, because the folder does not allow it.
    """
    if address.path is None or not Path(f"{address.path}.lock").exists():
        return False
    try:
        with exclusive_use(address):
            return False
    except StoreError:
        return True
