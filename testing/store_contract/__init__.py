"""What every store must do, as tests for anybody's own store.

Subclass `StoreContract`, say how your store is opened, and let pytest run it; no plugin is needed.

    from contextlib import asynccontextmanager
    from turnwise.testing.store_contract import StoreContract

    class TestMyStore(StoreContract):
        @asynccontextmanager
        async def opened(self, place):
            store = await MyStore.open(place / "conversations")
            try:
                yield store
            finally:
                await store.close()

A store that several processes share is held to `SharedStoreContract` besides, in the same way, and a store of the bytes
of files to `FileStoreContract`.

The tests are the docstrings of `turnwise.persistence.Store`, `Log` and `SearchableStore`, one by one. Two things cannot
be tested from outside: that a stored step survives a power cut, and that damage of the storage is found.
"""

from .files import FilesContract, FileStoreContract
from .lists import AgentContract, DetailsContract, ListContract
from .log import (
    AppendingContract,
    ConflictContract,
    ConversationContract,
    FailureContract,
    OutboxContract,
    RecordContract,
)
from .shared import SharedStoreContract
from .story import NOON, SOON, Story, deliveries_of, plain
from .texts import TextContract, VectorContract


class StoreContract(
    ConversationContract,
    AppendingContract,
    ConflictContract,
    ListContract,
    DetailsContract,
    AgentContract,
    OutboxContract,
    RecordContract,
    FailureContract,
    TextContract,
    VectorContract,
    FilesContract,
):
    """All tests of a store. A subclass says how its store is opened; pytest runs it if its name begins with `Test`."""


__all__ = [
    "NOON",
    "SOON",
    "FileStoreContract",
    "SharedStoreContract",
    "StoreContract",
    "Story",
    "deliveries_of",
    "plain",
]
