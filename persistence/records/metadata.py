"""The metadata of conversations, as stores keep it and find conversations by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from pydantic import JsonValue

from .digests import digest

Metadata: TypeAlias = Mapping[str, JsonValue]
"""What an application notes about a conversation: JSON values by their names."""


def metadata_columns(metadata: Metadata) -> tuple[str | None, tuple[bytes, ...]]:
    """Return the columns `metadata` and `entries` of a `DetailsRow`. `Pure.`"""
    if not metadata:
        return None, ()
    text = json.dumps(dict(metadata), ensure_ascii=False, separators=(",", ":"))
    return text, tuple(sorted(metadata_entry(name, value) for name, value in metadata.items()))


def read_metadata(text: str | None) -> Metadata:
    """Return the metadata in the column `metadata` of a `DetailsRow`. `Pure.` Raises ValueError for anything but a JSON
    object."""
    metadata = {} if text is None else json.loads(text)
    if not isinstance(metadata, dict):
        raise ValueError("metadata must be a JSON object")
    return metadata


def metadata_entry(name: str, value: JsonValue) -> bytes:
    """Return a digest by which a store can find the conversations that have this value under this name. `Pure.`"""
    return digest(json_identity([name, value]))


def json_identity(value: JsonValue) -> str:
    """Return a text that is the same for the same JSON value only. `Pure.`

    1, "1" and true are three values. 1 and 1.0 are the same number, since programs write either for the other. The
    order of the members of an object does not count.
    """
    return json.dumps(_with_exact_numbers(value), sort_keys=True, separators=(",", ":"))


def _with_exact_numbers(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _with_exact_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_exact_numbers(each) for each in value]
    return value
