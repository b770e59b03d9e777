"""What the application notes about a conversation: its title and its metadata.

Both are bounded, because they are read whenever a conversation is loaded or listed.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .value import Block, check_encodable

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
