"""A store that cannot search what was said, as one of an application may be."""

from __future__ import annotations

from typing import Any

from turnwise.persistence import Store

SEARCHES = {"search", "recent", "without_vectors", "keep_vectors", "nearest"}


class UnsearchableStore:
    """Another store without the methods of `SearchableStore`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in SEARCHES:
            raise AttributeError(name)
        return getattr(self._store, name)
