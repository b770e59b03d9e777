"""Undoes the compression of a body, in pieces that stay small.

An answer is asked for without compression, as each of its words is to be shown at once. Some servers and gateways
compress it all the same. A few kilobytes of theirs may stand for gigabytes, so what they stand for is taken out in
pieces of a fixed size, between which the event loop goes on, and a body that is compressed twice is not read.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator

from .failures import MalformedChunk

LARGEST_PIECE = 2**16
"""Bytes that are taken out of a compressed body at once."""

_GZIP, _DEFLATE = frozenset({"gzip", "x-gzip"}), frozenset({"deflate"})
_WITHOUT_HEADER = -zlib.MAX_WBITS


async def unpacked(parts: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """The parts of a body without this encoding, which is the value of its header `Content-Encoding`. Encodings that
    have not been asked for and are no compression of gzip's kind are left as they are.

    Raises `MalformedChunk` for what has another encoding than it says, and for a body that is compressed twice.
    """
    named = [name for one in encoding.lower().split(",") if (name := one.strip()) in _GZIP | _DEFLATE]
    if len(named) > 1:
        raise MalformedChunk
    unpacking = _Unpacking(is_gzip=named[0] in _GZIP) if named else None
    async for part in parts:
        if unpacking is None:
            yield part
            continue
        for piece in unpacking.pieces_of(part):
            yield piece
            await asyncio.sleep(0)


class _Unpacking:
    """Takes a compressed body apart as its parts arrive."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._inflating = zlib.decompressobj(zlib.MAX_WBITS | 16 if is_gzip else zlib.MAX_WBITS)
        self._may_lack_header = not is_gzip
        """Whether nothing has come yet of a body of which some servers leave out the header."""

    def pieces_of(self, part: bytes) -> Iterator[bytes]:
        """What stands in the next part of the body."""
        while not self._inflating.eof:
            piece = self._inflated(part)
            yield piece
            part = self._inflating.unconsumed_tail
            if not part and len(piece) < LARGEST_PIECE:
                return

    def _inflated(self, part: bytes) -> bytes:
        may_lack_header, self._may_lack_header = self._may_lack_header, False
        try:
            return self._inflating.decompress(part, LARGEST_PIECE)
        except zlib.error:
            if not may_lack_header:
                raise MalformedChunk from None
        self._inflating = zlib.decompressobj(_WITHOUT_HEADER)
        return self._inflated(part)
