"""Copies conversations: within a database, out of it, and into it."""

from __future__ import annotations

import io
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ....persistence.errors import Damaged
from ....states.errors import ConfigurationError, InvalidInput
from ....states.values.value import MAX_QUOTED, shortened
from ..output.notices import remark
from ..output.printable import one_line
from .stores import store_for, store_to_change

if TYPE_CHECKING:
    from ....persistence.sqlite.conversation_record import ConversationRecord
    from ..settings import Settings

LEFT_OUT = 1
"""The exit code of an export that could not hold everything, because something is damaged."""

STDIN = Path("-")


async def fork(settings: Settings, conversation_id: str, at: str | None) -> int:
    """Copy a conversation up to its last rest at or before the step `at`, and print the id of the copy."""
    from ....persistence.maintenance.fork import fork

    step = None if at is None else _number(at)
    new_id = str(uuid.uuid4())
    async with store_to_change(settings) as store:
        landing = await fork(store, conversation_id, new_id, step, datetime.now(UTC))
    print(f"{new_id}  forked from {conversation_id} at step {landing.seq}, {landing.state.type}")
    return 0


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"A step has a number, and {shortened(text, MAX_QUOTED)} is none.") from None


async def export(settings: Settings, conversation_id: str | None) -> int:
    """Write one conversation, or with None all of them, to stdout as JSON lines.

    Of all of them, those that are damaged are left out and named on stderr.
    """
    from ....persistence.maintenance import export as lines

    count, left_out = 0, False
    async with store_for(settings) as store:
        if conversation_id is not None:
            steps = await lines.export_conversation(store, conversation_id)
            _write([lines.first_line(), *steps, lines.last_line(1)])
            return 0
        _write([lines.first_line()])
        async for each, told in lines.export_all(store):
            if isinstance(told, Damaged):
                remark(one_line(f"{each} is left out: {told.sentence}"))
                left_out = True
            else:
                _write(told)
                count += 1
        _write([lines.last_line(count)])
    return LEFT_OUT if left_out else 0


def _write(lines: Iterable[str]) -> None:
    """Write lines as they are: no terminal's encoding or line ends may change an export."""
    if sys.stdout is None:
        return
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())


def read(file: Path) -> tuple[ConversationRecord, ...]:
    """Read the conversations of an export, and check all of it. Raises `ConfigurationError` and `NotAnExport`.

    To be called before there is an event loop: under one, Ctrl-C would not end the wait for what somebody types.
    """
    if file == STDIN:
        return _read_lines(io.BytesIO() if sys.stdin is None else sys.stdin.buffer)
    try:
        with file.open("rb") as stream:
            return _read_lines(stream)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error


def _read_lines(stream: BinaryIO) -> tuple[ConversationRecord, ...]:
    from ....persistence.maintenance.export_reader import lines_of, read_export

    return read_export(lines_of(stream))


async def import_(settings: Settings, wholes: Iterable[ConversationRecord]) -> int:
    """Take conversations in, all or none, and print what became of each."""
    from ....persistence.maintenance.imports import keep

    async with store_to_change(settings, make=True) as store:
        imported = await keep(store, wholes)
    for one in imported:
        print(f"{one.conversation_id}  {'already there' if one.there else f'{one.steps} steps imported'}")
    if not imported:
        print("There are no conversations in this export.")
    return 0
