"""A step as it was read from the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...states.effects import Effect
from ...states.events import Event
from ...states.log import LogEntry
from ...states.values.turn import TurnEnded
from .rows import EventRow

Parts = Callable[[EventRow], tuple[Event, tuple[Effect, ...], TurnEnded | None]]
"""Reads the event, the effects and the end of a turn from a row."""


class _ReadLate:
    """A part of a step that is read from its row when it is first looked at, and kept from then on."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, entry: StoredEntry | None, owner: type) -> Any:
        if entry is None:
            return self
        entry.read()
        return entry.__dict__[self._name]


@dataclass(frozen=True, kw_only=True)
class StoredEntry(LogEntry):
    """A step of the log with the three digests, 16 bytes each, by which replay judges it.

    `digest` is that of the state which the step rested in. `chain` is the link stored with the row. `content` is the
    fingerprint of the row as it was read: undamaged, it and the link before give `chain`.
    """

    digest: bytes
    chain: bytes
    content: bytes

    if not TYPE_CHECKING:  # to a type checker they are the fields that they are
        event = _ReadLate()
        effects = _ReadLate()
        ended = _ReadLate()

    @classmethod
    def unread(cls, row: EventRow, kind: type[Event], content: bytes, parts: Parts) -> StoredEntry:
        """The step in `row`, whose event is a `kind`; `parts` reads the rest when it is wanted."""
        entry = object.__new__(cls)
        entry.__dict__.update(
            seq=row.seq,
            turn=row.turn,
            digest=row.state,
            chain=row.chain,
            content=content,
            kind=kind,
            event_id=row.event_id,
            _unread=(row, parts),
        )
        return entry

    def read(self) -> None:
        """Read what was not read yet. Raises `Damaged`."""
        fields = self.__dict__
        unread = fields.get("_unread")
        if unread is not None:
            row, parts = unread
            fields["event"], fields["effects"], fields["ended"] = parts(row)
            fields["_unread"] = None
