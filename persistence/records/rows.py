"""A step, and the place where a conversation rests, as they stand in their tables."""

from __future__ import annotations

from typing import NamedTuple


class EventRow(NamedTuple):
    """A row of `events`, without the conversation that it belongs to; the columns are described there."""

    seq: int
    event_id: str | None
    effect_id: int | None
    type: str
    version: int
    at: int
    turn: int
    payload: str
    effects: str | None
    ended: str | None
    state: bytes
    chain: bytes


class RestRow(NamedTuple):
    """The columns of `conversations` that every step writes anew."""

    seq: int
    chain: bytes
    state_type: str
    waits: bool
    next_timer: int | None
    updated_at: int
    state: str


class StoredRows(NamedTuple):
    """A conversation as it stands in the tables, not yet read: where it rests, and its steps, or those asked for."""

    key: int
    rest: RestRow
    steps: tuple[EventRow, ...]


class Head(NamedTuple):
    """The newest step of a conversation, by its place and its link; `key` is the conversation's own row."""

    key: int
    seq: int
    chain: bytes
