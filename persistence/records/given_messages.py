"""Keeps the messages of a given history at the end of the first row, so that the rest is read without decoding them.

A conversation may begin with thousands of messages. Its context, which each load needs, follows from the short rest.
"""

from __future__ import annotations

import json

from pydantic import TypeAdapter

from ...states.values.messages import HistoryMessage
from .rows import EventRow

_MESSAGES: TypeAdapter[tuple[HistoryMessage, ...]] = TypeAdapter(tuple[HistoryMessage, ...])
_NAME = "messages"
_MEMBER = f'"{_NAME}"'
_JSON = json.JSONDecoder()


def with_given_messages(payload: str, messages: tuple[HistoryMessage, ...]) -> str:
    """Return the payload of an `Opened` with these messages as its last member. `Pure.`"""
    separator = "" if payload == "{}" else ","
    return f"{payload[:-1]}{separator}{_MEMBER}:{_MESSAGES.dump_json(messages).decode()}}}"


def without_given_messages(row: EventRow) -> EventRow:
    """Return the row of an `Opened` without its messages, which are not decoded. `Pure.`

    A row without messages, and one that was not written like this, is returned as it is.
    """
    try:
        end = _start_of_messages(row.payload)
    except (ValueError, TypeError, IndexError, RecursionError):
        return row
    return row if end is None else row._replace(payload=row.payload[:end].rstrip(",") + "}")


def _start_of_messages(payload: str) -> int | None:
    """Return where the member of the messages begins, which is the last one; None if there is none."""
    if _MEMBER not in payload:
        return None
    position = 1
    while payload[position] != "}":
        position += payload[position] == ","
        name, end = _JSON.raw_decode(payload, position)
        if name == _NAME:
            return position
        _, position = _JSON.raw_decode(payload, end + 1)
    return None
