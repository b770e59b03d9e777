"""A conversation in a list, without its steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .origin import Origin


@dataclass(frozen=True)
class Summary:
    """A conversation in a list: the literal of its state, whether it waits for work, when it moved last, where it was
    copied from, and whom it belongs to."""

    id: str
    state: str
    busy: bool
    updated_at: datetime
    origin: Origin | None = None
    owner: str | None = None
