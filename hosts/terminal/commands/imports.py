"""`turnwise import`: stores the conversations of an export, or begins new ones with messages of other programs."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from ....engine.redactor import EventRedactor
from ....engine.requests import make
from ....persistence.maintenance.export import import_records, new_record
from ....persistence.maintenance.reading import lines_of, read_export
from ....persistence.records import ConversationRecord
from ....states.errors import ConfigurationError
from ....states.events import Opened
from ....states.openai_reading import RepairedHistory, repair_history
from ....states.policy import Policy
from ..configuration.databases import open_for_writing
from ..configuration.presets import preset_of
from ..configuration.settings import Settings
from ..output.printable import counted, one_line
from .openai_files import read_histories

STDIN = Path("-")

_MESSAGES = (b"[", b'{"messages"')
"""How a file with messages in OpenAI's chat format begins."""


def read(file: Path) -> tuple[ConversationRecord, ...]:
    """Read the conversations of an export, and check all of it. Raises `ConfigurationError` and `NotAnExport`.

    Call it before an event loop runs: under one, Ctrl-C would not interrupt a read from a terminal.
    """
    with _opened(file) as stream:
        lines = lines_of(stream)
        first = next(lines, b"")
        if first.lstrip().startswith(_MESSAGES):
            raise ConfigurationError(
                "This is no export of turnwise. Import messages in OpenAI's chat format with --format openai."
            )
        return read_export(chain([first] if first else [], lines))


def read_messages(file: Path) -> tuple[RepairedHistory, ...]:
    """Read the histories of a file with messages in OpenAI's chat format, checked and repaired. Call it where `read`
    may be called. Raises `ConfigurationError` and `InvalidInput`."""
    with _opened(file) as stream:
        data = stream.read()
    return tuple(repair_history(messages) for messages in read_histories(data))


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if file == STDIN:
        yield io.BytesIO() if sys.stdin is None else sys.stdin.buffer
        return
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error


async def import_(settings: Settings, records: Iterable[ConversationRecord]) -> int:
    """Store all of the conversations, or none if one cannot be stored, and print what was done with each."""
    async with open_for_writing(settings, create=True) as store:
        imported = await import_records(store, records)
    for one in imported:
        outcome = "already there" if one.already_stored else f"{counted(one.steps, 'step')} imported"
        if one.closed and not one.already_stored:
            outcome += ", what was under way in it is closed"
        print(f"{one.conversation_id}  {outcome}")
    if not imported:
        print("There are no conversations in this export.")
    return 0


async def import_messages(settings: Settings, histories: Sequence[RepairedHistory]) -> int:
    """Begin a conversation with each history, or none if one cannot be stored, and print its id and what was repaired.

    The conversations have the preset that the settings name, and follow the models of the program that opens them. A
    preset that removes secrets removes them here, too.
    """
    policy, now = preset_of(settings), datetime.now(UTC)
    redactor = EventRedactor(None)
    openings = [await redactor.opened(_opening(history, policy, now), wrote_system=False) for history in histories]
    records = [new_record(str(uuid4()), opening) for opening in openings]
    async with open_for_writing(settings, create=True) as store:
        await import_records(store, records)
    for record, history in zip(records, histories, strict=True):
        print(f"{record.id}  {counted(len(history.messages), 'message')} imported")
        for repair in history.repairs:
            print(f"  {one_line(repair)}")
    if not histories:
        print("There are no messages in this file.")
    return 0


def _opening(history: RepairedHistory, policy: Policy, now: datetime) -> Opened:
    found = {"system": history.system, "messages": history.messages, "repairs": history.repairs}
    return make(Opened, event_id=f"opened-{uuid4()}", at=now, policy=policy, **found)
