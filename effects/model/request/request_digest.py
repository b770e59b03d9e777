"""The digest of a request: equal requests, and only these, have equal digests.

It is stored in the log beside the answer, and tells whether a later request is the one that was answered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

from ....states.openai_writing import WireMessage
from ....states.policy import DEFAULT_SETTINGS
from ..port import ModelRequest

canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode
"""Writes JSON so that equal values have equal texts. What is written comes from JSON, so nothing in it contains itself.
`Pure.`"""


def request_digest(request: ModelRequest) -> str:
    """The digest of the request, 32 hex digits. `Pure.`"""
    digest = RequestDigest(request.model)
    digest.add(request.messages)
    return digest.finish(request)


class RequestDigest:
    """A digest that is computed while the messages are written, from their canonical JSON."""

    __slots__ = ("_hash", "_separator")

    def __init__(self, model: str) -> None:
        self._hash = blake2b(f"[{canonical_json(model)},[".encode(), digest_size=16)
        self._separator = ""

    def copy(self) -> RequestDigest:
        """The digest of the same messages, to which others can be added. `Pure.`"""
        copied = object.__new__(RequestDigest)
        copied._hash, copied._separator = self._hash.copy(), self._separator
        return copied

    def add(self, messages: Sequence[WireMessage]) -> None:
        """Add these messages behind the earlier ones."""
        if messages:
            self._hash.update(f"{self._separator}{canonical_json(messages)[1:-1]}".encode())
            self._separator = ","

    def finish(self, request: ModelRequest, tools: str = "") -> str:
        """The digest of the request, whose messages were all added. `tools` is the canonical JSON of its tools, if that
        is already written. `Pure.`"""
        complete = self._hash.copy()
        complete.update(f'],{tools or canonical_json(request.tools)},"{request.tool_choice}"]'.encode())
        if request.settings != DEFAULT_SETTINGS:  # a request without settings has the digest that it always had
            complete.update(canonical_json(request.settings.model_dump(exclude_none=True)).encode())
        return complete.hexdigest()
