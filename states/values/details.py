"""What the application notes about a conversation: its title and its metadata.

Both are bounded, because they are read whenever a conversation is loaded or listed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .value import Block, check_encodable

MARK = "turnwise."
"""With this begin the names in metadata by which a host finds the conversations that it made for itself. They are set
when such a conversation is created, by `marks`, and by nothing else: nobody else can make a conversation look like
one of a host."""

MAX_OWNER = 1_000
"""The longest owner, in characters: more than any id of a user, and short enough for an index."""

MAX_TITLE = 1_000
"""The longest title, in characters."""

MAX_ENTRIES = 100
"""The most entries of metadata at its top level."""

MAX_METADATA = 20_000
"""The longest metadata, in characters of JSON."""


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
    if len(metadata) > MAX_ENTRIES:
        raise PydanticCustomError("metadata_too_long", "metadata may have at most 100 entries")
    if len(json.dumps(metadata, ensure_ascii=False)) > MAX_METADATA:
        raise PydanticCustomError("metadata_too_long", "metadata may be at most 20,000 characters of JSON long")
    return metadata


Owner = Annotated[str, Field(max_length=MAX_OWNER), AfterValidator(check_encodable)]
"""Whom a conversation belongs to, as the application names its users."""

Title = Annotated[str, Field(max_length=MAX_TITLE), AfterValidator(check_encodable)]
"""What a conversation is called in lists."""

Metadata = Annotated[Block, AfterValidator(_bounded)]
"""A JSON object of the application's own."""


def marks_of(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the entries of metadata by which a host has marked its conversation. `Pure.`"""
    return {name: value for name, value in metadata.items() if isinstance(name, str) and name.startswith(MARK)}
