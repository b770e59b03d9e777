"""A conversation as it is stored, with all its rows.

Copies, exports, imports and the examination of a database work with this record, so that they work with every store.
"""

from __future__ import annotations

from typing import NamedTuple

from .origin import Origin
from .rows import DetailsRow, EventRow, HeadRow, OutboxRow


class ConversationRecord(NamedTuple):
    """All rows of one conversation. `created_at` is in microseconds since 1970. The rows of the outbox are sorted by
    target, those of one target by step and effect.

    `details` is what the store keeps to list the conversation, None if it keeps nothing. It follows from the steps, so
    a store that is given a record computes it again. So it is with `outbox_checksum`, the sum by which it is found that
    a delivery was lost, and with `origin_checksum`; both are None where the store keeps none.
    """

    id: str
    created_at: int
    head: HeadRow
    steps: tuple[EventRow, ...]
    owner: str | None = None
    parent: str | None = None
    origin: Origin | None = None
    outbox: tuple[OutboxRow, ...] = ()
    details: DetailsRow | None = None
    outbox_checksum: int | None = None
    origin_checksum: bytes | None = None
