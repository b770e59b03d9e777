"""A conversation in a list, without its steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from .metadata import Metadata
from .origin import Origin


@dataclass(frozen=True)
class Summary:
    """A conversation in a list: the literal of its state, whether it waits for work, when it changed last, where it was
    copied from, whom it belongs to, its title, and what its application noted about it.

    `title` is the one that was given, else the first message of a user, cut to a line; it is empty before there is one.
    """

    id: str
    state: str
    busy: bool
    updated_at: datetime
    origin: Origin | None = None
    owner: str | None = None
    title: str = ""
    metadata: Metadata = field(default_factory=dict, hash=False)
