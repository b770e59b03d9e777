"""The store in memory is an example of a store that somebody else has written: with public names, and complete."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from turnwise import persistence
from turnwise.persistence import Store
from turnwise.testing.store_contract import StoreContract

from ..support.examples import EXAMPLES, example

MemoryStore = example("memory_store").MemoryStore


class TestTheStore(StoreContract):
    """It does what every store must do."""

    lasting = False

    @asynccontextmanager
    async def opened(self, place: Path) -> AsyncIterator[Store]:
        """It needs no place."""
        store = MemoryStore()
        try:
            yield store
        finally:
            await store.close()


def test_it_uses_public_names_only() -> None:
    """What it imports is exported by `turnwise.persistence` and `turnwise.states`."""
    tree = ast.parse((EXAMPLES / "memory_store.py").read_text(encoding="utf-8"))
    imported = {
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("turnwise")
        for name in node.names
    }

    assert {module for module, _ in imported} <= {"turnwise", "turnwise.persistence", "turnwise.states"}
    assert {name for module, name in imported if module == "turnwise.persistence"} <= set(persistence.__all__)
