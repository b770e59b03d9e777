"""Asks the application's document source, which may fail, hang or return anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from ...states.values.value import encodable
from ..long_texts import in_thread_if_long
from ..redact import Redact, unchanged
from .documents import DocumentQuery, DocumentSource
from .parts import PartFailed, call_application
from .records import MAX_BYTES, MAX_CHUNKS

MAX_CHARACTERS = 2 * MAX_BYTES
"""Characters of each part that are redacted. Half of a secret is not recognised, so it is cut to its length behind
that."""


class DocumentReader:
    """Reads from a document source, for at most `seconds`."""

    def __init__(self, source: DocumentSource, seconds: float) -> None:
        self._source = source
        self._seconds = seconds

    async def read(self, query: DocumentQuery, redact: Redact = unchanged) -> tuple[str, ...]:
        """Return the parts of documents that belong to the query, after `redact`. Raises `PartFailed`."""
        chunks = _chunks(await call_application(self._seconds, "document source", self._source, query))
        characters = 0 if redact is unchanged else sum(map(len, chunks))
        return await in_thread_if_long(characters, lambda: tuple(redact(chunk)[:MAX_BYTES] for chunk in chunks))


def _chunks(value: object) -> tuple[str, ...]:
    """The parts that a source has returned: one text, several, or None. Raises `PartFailed` for anything else."""
    given = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        raise PartFailed("it returned no list of texts")
    try:
        chunks = tuple(islice(given, MAX_CHUNKS))  # a generator of the application runs here
    except Exception as error:
        raise PartFailed(type(error).__name__) from error
    if not all(isinstance(chunk, str) for chunk in chunks):
        raise PartFailed("it returned something that is no text")
    return tuple(encodable(chunk[:MAX_CHARACTERS]) for chunk in chunks if chunk.strip())
