"""The text of Server-Sent Events: what one update looks like in a stream.

    id: 12.3
    event: message
    data: {"type":"message","id":"12.3","data":{…}}

Only stored updates have an id, so a client that resumes after the last id it received misses nothing that is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from math import isfinite
from typing import Any, Literal

from ....engine.updates import TreeUpdate, Update
from ....states.values.value import encodable

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


def data_line(data: Any) -> bytes:
    """Return JSON as the line `data` of an event, for the streams of all protocols, whatever it holds. A number that is
    not finite, which JSON does not have, becomes null. `Pure.`"""
    try:
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"))
    return text_line(text)


def text_line(text: str) -> bytes:
    """Return what is JSON already as the line `data` of an event. `Pure.`

    JSON escapes line breaks; it need not escape the three characters that many programs split lines at as well. Half a
    character (a lone surrogate) is replaced.
    """
    return f"data: {encodable(text)}\n".translate(_LINE_BREAKS).encode()


_LINE_BREAKS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def _finite(data: Any) -> Any:
    """JSON with null in place of numbers that are not finite."""
    match data:
        case float():
            return data if isfinite(data) else None
        case dict():
            return {name: _finite(value) for name, value in data.items()}
        case list() | tuple():
            return [_finite(value) for value in data]
        case _:
            return data


def _event(kind: str, data: dict[str, Any], event_id: str | None = None) -> bytes:
    """Return the text of an event."""
    identity = "" if event_id is None else f"id: {event_id}\n"
    return f"{identity}event: {kind}\n".encode() + data_line(data) + b"\n"
