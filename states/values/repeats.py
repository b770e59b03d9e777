"""Calls that were made before: the same tool with the same arguments, in any order of their keys.

A model that repeats a call learns nothing new from it. The turn keeps fingerprints of the calls of its last requests,
so a repeated call is recognised without searching the history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

from .messages import ToolCall


def fingerprint(call: ToolCall) -> str:
    """A text that is equal for calls of the same tool with the same arguments. Arguments that are not JSON are compared
    as text. `Pure.`"""
    try:
        arguments = json.dumps(json.loads(call.raw_arguments), sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.raw_arguments
    return blake2b(f"{call.name}\0{arguments}".encode(), digest_size=16).hexdigest()


def is_repeated(call: ToolCall, seen: Sequence[str]) -> bool:
    """Whether this call was made before. Calls that act are never repeated calls: what is said twice is meant twice.
    `Pure.`"""
    return not call.acts and fingerprint(call) in seen


def remember(earlier: tuple[tuple[str, ...], ...], made: Sequence[str], window: int) -> tuple[tuple[str, ...], ...]:
    """The fingerprints of the last `window` requests, the newest last, with those of a further request added.
    `Pure.`"""
    return (*earlier, tuple(made))[-window:]
