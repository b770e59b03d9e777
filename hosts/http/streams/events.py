"""The text of Server-Sent Events: what one update looks like in a stream.

    id: 12.3
    event: message
    data: {"type":"message","id":"12.3","data":{…}}

Only stored updates have an id, so a client that resumes after the last id it received misses nothing that is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from ....engine.projections.updates.tree import TreeUpdate
from ....engine.projections.updates.update import Update

EndReason = Literal["server_stopping", "closed", "deleted", "interrupted", "store_error"]
"""Why a stream ends: the server stops; the conversation is closed, or was deleted, and has no more updates; following
it was interrupted, or its log cannot be read. A client reconnects unless the conversation is closed or deleted."""

BEGINNING = b"retry: 1000\n\n"
"""The first bytes of a stream: a client that loses the connection tries again after this many milliseconds."""


def update_event(update: Update, shown: Callable[[Any], Any]) -> bytes:
    """Return an update as an event. Its data is `shown` as the caller may read it. `Pure.`"""
    return _event(update.type, {"type": update.type, "id": update.id, "data": shown(update.data)}, update.id)


def tree_event(update: TreeUpdate, shown: Callable[[Any], Any]) -> bytes:
    """Return an update of a tree as an event, `shown` as the caller may read it. It has no id: every stream of a tree
    begins with a snapshot. `Pure.`"""
    return _event("tree", shown(update.data))


def end_event(reason: EndReason) -> bytes:
    """Return the last event of a stream. `Pure.`"""
    return _event("end", {"type": "end", "id": None, "data": {"reason": reason}})


def _event(kind: str, data: dict[str, Any], event_id: str | None = None) -> bytes:
    """Return the text of an event. JSON escapes line breaks, so the data is one line."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    identity = "" if event_id is None else f"id: {event_id}\n"
    return f"{identity}event: {kind}\ndata: {text}\n\n".encode(errors="replace")
