"""Writes what a server prints on its standard error to the log, at the level DEBUG.

A server may print without an end, so lines are cut, and of many lines in a short time only the first are written.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TextIO

from ...states.values.value import shortened
from ..logs import performer_logger

MAX_LINE = 500
"""The most characters of a line that are written."""

MAX_LINES = 100
"""The most lines of each `PERIOD` that are written."""

PERIOD = 10.0
"""Seconds after which lines are counted anew."""

_LOGGER = performer_logger("turnwise.mcp")


@asynccontextmanager
async def stderr_of(name: str) -> AsyncIterator[TextIO]:
    """A file to which the server called `name` may print, for as long as the context lasts. Nothing is read or kept if
    the log takes no DEBUG."""
    if not _LOGGER.isEnabledFor(logging.DEBUG):
        with Path(os.devnull).open("w") as nowhere:
            yield nowhere
        return
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "w") as target:
        transport, _ = await loop.connect_read_pipe(lambda: _Lines(name, loop), source)
        try:
            yield target
        finally:
            transport.close()


class _Lines(asyncio.Protocol):
    """Splits what arrives into lines, and writes them to the log."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._name = name
        self._loop = loop
        self._rest = b""
        self._since = loop.time()
        self._written = 0

    def data_received(self, data: bytes) -> None:
        """Write the lines that are complete. The beginning of a line that does not end is cut off and written."""
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > MAX_LINE:
            lines.append(rest)
            rest = b""
        self._rest = rest
        for line in lines:
            self._write(line)

    def _write(self, line: bytes) -> None:
        if (now := self._loop.time()) - self._since >= PERIOD:
            self._since, self._written = now, 0
        self._written += 1
        if self._written <= MAX_LINES:
            _LOGGER.debug("%s: %s", self._name, shortened(line.decode(errors="replace").rstrip(), MAX_LINE))
        elif self._written == MAX_LINES + 1:
            _LOGGER.debug("%s prints too much; the next lines are left out", self._name)
