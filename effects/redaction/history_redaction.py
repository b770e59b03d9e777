"""A message of a history in OpenAI's chat format, without secrets.

It is any JSON, stored as it was given. Ids and names in it are left alone, since other messages refer to them.
"""

from __future__ import annotations

from typing import Any

from .redaction import Redaction

_NAMES = frozenset({"role", "type", "id", "call_id", "tool_call_id", "name", "model"})
"""Members that are names, as far as a text is their value."""

_SEALED = frozenset({"thinking_blocks", "reasoning_details", "encrypted_content", "signature"})
"""Members that a provider has signed or encrypted, which cannot be changed."""

_NO_ADDRESS = "[REDACTED]"
"""Stands for the address of an image that holds a secret. It leads nowhere, so the image is passed over."""


def redacted_message(message: dict[str, Any], redaction: Redaction) -> dict[str, Any]:
    """Return the message without secrets."""
    redacted: dict[str, Any] = _redacted(message, redaction)
    return redacted


def _redacted(value: Any, redaction: Redaction) -> Any:
    if isinstance(value, list):
        return [_redacted(one, redaction) for one in value]
    if not isinstance(value, dict):
        return redaction.redact_json(value)
    members = ((name, _redacted_member(name, member, redaction)) for name, member in value.items())
    return {redaction.redact(name): member for name, member in members if member is not _SEALED}


def _redacted_member(name: str, member: Any, redaction: Redaction) -> Any:
    """Return the value of a member, or `_SEALED` if the member is to be left out."""
    if isinstance(member, str):
        if name in _NAMES:
            return member
        if name == "url":
            return member if redaction.redact(member) == member else _NO_ADDRESS
    if name in _SEALED:
        return member if redaction.redact_json(member) == member else _SEALED
    if isinstance(member, dict | list):
        return _redacted(member, redaction)
    (redacted,) = redaction.redact_json({name: member}).values()
    return redacted
