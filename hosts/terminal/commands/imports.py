"""`turnwise import`: stores the conversations of an export under the ids that they had."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from ....persistence.maintenance.export_reader import lines_of, read_export
from ....persistence.maintenance.imports import import_records
from ....persistence.records.conversation_record import ConversationRecord
from ....states.errors import ConfigurationError
from ..configuration.databases import open_for_writing
from ..configuration.settings import Settings
from ..output.printable import counted

STDIN = Path("-")


def read(file: Path) -> tuple[ConversationRecord, ...]:
    """Read the conversations of an export, and check all of it. Raises `ConfigurationError` and `NotAnExport`.

    Call it before an event loop runs: under one, Ctrl-C would not interrupt a read from a terminal.
    """
    if file == STDIN:
        return _read_lines(io.BytesIO() if sys.stdin is None else sys.stdin.buffer)
    try:
        with file.open("rb") as stream:
            return _read_lines(stream)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error


def _read_lines(stream: BinaryIO) -> tuple[ConversationRecord, ...]:
    return read_export(lines_of(stream))


async def import_(settings: Settings, records: Iterable[ConversationRecord]) -> int:
    """Store all of the conversations, or none if one cannot be stored, and print what was done with each."""
    async with open_for_writing(settings, create=True) as store:
        imported = await import_records(store, records)
    for one in imported:
        outcome = "already there" if one.already_stored else f"{counted(one.steps, 'step')} imported"
        print(f"{one.conversation_id}  {outcome}")
    if not imported:
        print("There are no conversations in this export.")
    return 0
