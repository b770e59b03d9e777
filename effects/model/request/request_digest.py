"""The fingerprint of a request: equal requests, and only they, have equal ones.

It stands in the log beside the answer, and tells whether a later request is the one that was answered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from hashlib import blake2b

from ..port import ModelRequest
from .message_order import Body

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""Writes JSON so that what is equal reads the same. `Pure.`"""


def request_digest(request: ModelRequest) -> str:
    """The fingerprint of the request, 32 hex digits. `Pure.`"""
    return Digest(request.model).add(request.messages).end(request)


class Digest:
    """A fingerprint that is taken while the messages are written: of canonical JSON, piece by piece."""

    def __init__(self, model: str) -> None:
        self._hash = blake2b(f"[{canonical(model)},[".encode(), digest_size=16)
        self._between = ""

    def add(self, bodies: Sequence[Body]) -> Digest:
        """The fingerprint with these messages behind those before. `Pure.`"""
        longer = copy(self)
        longer._hash = self._hash.copy()
        if bodies:
            longer._hash.update(f"{self._between}{canonical(bodies)[1:-1]}".encode())
            longer._between = ","
        return longer

    def end(self, request: ModelRequest, tools: str = "") -> str:
        """The fingerprint of the request, all messages of which were added. `tools` are those that it lists as
        canonical JSON, if somebody has written that already. `Pure.`"""
        ended = self._hash.copy()
        ended.update(f"],{tools or canonical(request.tools)},{canonical(request.tool_choice)}]".encode())
        return ended.hexdigest()
