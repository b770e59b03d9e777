"""Calls that were made before: the same tool with the same arguments, whatever the order of their keys.

A model that calls the same tool again and again with the same arguments learns nothing new. Fingerprints of the calls
of the last requests are kept with the turn, so a repeated call is known without looking back through the history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

from .messages import ToolCall


def fingerprint(call: ToolCall) -> str:
    """Equal for calls of the same tool with the same arguments; arguments that are no JSON count as text. `Pure.`"""
    try:
        arguments = json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments
    return blake2b(f"{call.name}\0{arguments}".encode(), digest_size=16).hexdigest()


def is_repeated(call: ToolCall, seen: Sequence[str]) -> bool:
    """Whether this call was seen before. Calls that act are never held to be repeated: what is said twice is meant
    twice. `Pure.`"""
    return not call.acts and fingerprint(call) in seen


def remember(earlier: tuple[tuple[str, ...], ...], made: Sequence[str], window: int) -> tuple[tuple[str, ...], ...]:
    """The calls of the last requests, `window` of them, the newest last; a request that made none counts. `Pure.`"""
    return (*earlier, tuple(made))[-window:]
