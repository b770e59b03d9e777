"""What a conversation has cost, computed from its log."""

from __future__ import annotations

from collections.abc import Iterable

from ..log import LogEntry
from ..values.messages import Usage


def usage(log: Iterable[LogEntry]) -> Usage:
    """The sum of what every answer in the log has cost, whether or not its turn has ended. `Pure.`"""
    total = Usage()
    for entry in log:
        cost = getattr(entry.event, "usage", None)
        if isinstance(cost, Usage):
            total += cost
    return total
