"""The databases of the corpus, as the tests read them."""

from __future__ import annotations

import lzma
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store

from .files import FILES, Expected, described


@pytest.fixture(params=FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def file(request: pytest.FixtureRequest) -> Path:
    """A compressed database of the corpus."""
    path: Path = request.param
    return path


@pytest.fixture
def original(file: Path) -> bytes:
    """The database, to the byte."""
    return lzma.decompress(file.read_bytes())


@pytest.fixture
def expected(file: Path) -> Expected:
    """What is known of the conversations of this database."""
    conversations: Expected = described(file.parent)[file.stem]["conversations"]
    return conversations


@pytest.fixture
def copy(file: Path, original: bytes, tmp_path: Path) -> Path:
    """The database in a folder of the test."""
    path = tmp_path / file.stem
    path.write_bytes(original)
    return path


@pytest.fixture
async def store(copy: Path) -> AsyncIterator[Store]:
    """The copy, open for reading."""
    store = await open_store(copy, read_only=True)
    yield store
    await store.close()
