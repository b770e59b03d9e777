"""Lists of the conversations that a store in memory holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from ....states.errors import UnknownConversation
from .disk import Disk, Row

if TYPE_CHECKING:
    from ....persistence.summaries import Details, Summary


def summaries(
    disk: Disk, *, metadata: Mapping[str, Any] | None, limit: int | None, before: str | None, **selected: Any
) -> tuple[Summary, ...]:
    """What `Store.list` returns. Raises `UnknownConversation`."""
    newest = sorted(disk.rows, key=disk.moved.__getitem__, reverse=True)
    if before is not None:
        newest = newest[_beginning(disk, newest, before) :]
    wanted = (
        summary
        for summary, details in (_summary(id_, disk.rows[id_]) for id_ in newest)
        if details.has(metadata or {})
        and all(value is None or getattr(summary, name) == value for name, value in selected.items())
    )
    return tuple(islice(wanted, limit))


def _beginning(disk: Disk, newest: Sequence[str], before: str) -> int:
    """Where a page begins among these. Raises `UnknownConversation`."""
    from ....persistence.codec import to_microseconds
    from ....persistence.summaries import place_of

    place = place_of(before)
    if place is None:
        if before not in disk.rows:
            raise UnknownConversation(before)
        return newest.index(before) + 1
    moments = [to_microseconds(disk.rows[id_][-1].event.at) for id_ in newest]
    of_moment = [id_ for id_, at in zip(newest, moments, strict=True) if at == place.updated_at]
    newer = sum(at > place.updated_at for at in moments)
    return newer + (of_moment.index(place.conversation_id) + 1 if place.conversation_id in of_moment else 0)


def wake_ups(disk: Disk, limit: int) -> tuple[tuple[str, datetime], ...]:
    """What `Store.scheduled` returns. `Pure.`"""
    scheduled = ((id_, rows[-1].state.book.wake) for id_, rows in disk.rows.items())
    return tuple(sorted(((id_, due) for id_, due in scheduled if due is not None), key=lambda each: each[1])[:limit])


def _summary(conversation_id: str, rows: Sequence[Row]) -> tuple[Summary, Details]:
    from ....persistence.summaries import Details, summary_in_state

    details = Details()
    for row in rows:
        details = details.after(row.event)
    return summary_in_state(conversation_id, rows[-1].state, rows[-1].event.at, details), details
