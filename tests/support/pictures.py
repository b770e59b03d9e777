"""Small images and other files of each kind, as bytes."""

import struct
import zlib
from base64 import b64encode
from typing import Any

from turnwise import File, FileReference
from turnwise.effects.files import prepare, prepare_one
from turnwise.effects.model.port import ModelRequest
from turnwise.effects.model.shown_files import with_files


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(side: int = 1) -> bytes:
    """A black square, this many pixels wide and high."""
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\x00" * (side + 1)) * side)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def padded_png(size: int) -> bytes:
    """A picture of exactly this many bytes, most of which are a comment inside the file."""
    small = png()
    comment = _chunk(b"tEXt", b"Comment\x00" + b"x" * (size - len(small) - 20))
    return small[:33] + comment + small[33:]


PNG = png()
GIF = (
    b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xd9"
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L\r\x00\x00\x00/\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
"""One pixel each; the JPEG has a beginning and an end and nothing in between."""


def base64(data: bytes) -> str:
    """These bytes in base64."""
    return b64encode(data).decode()


def data_url(kind: str, data: bytes) -> str:
    """These bytes as a data: URL of this media type."""
    return f"data:{kind};base64,{base64(data)}"


def stored(data: bytes, name: str = "") -> FileReference:
    """The reference to a file with these bytes."""
    return prepare_one(File(data, name)).reference


def shown(file: FileReference) -> dict[str, Any]:
    """The part of a message that refers to a stored file."""
    return {"type": "stored_file", "stored_file": file.model_dump(mode="json", exclude_defaults=True)}


class SampleFiles:
    """Has some bytes for every file."""

    async def read(self, file: FileReference) -> bytes | None:
        """Return bytes of the right kind."""
        return SAMPLES[file.kind] if file.sha256 not in OWN else OWN[file.sha256]

    async def keep(self, given: Any) -> tuple[FileReference, ...]:
        """Return the references, and keep nothing."""
        return tuple(one.reference for one in await prepare(given))


PDF = b"%PDF-1.4\n%%EOF\n"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00"
MP4 = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom"
SAMPLES = {"image": PNG, "document": PDF, "audio": WAV, "video": MP4, "text": b"a,b\n1,2\n"}
OWN = {stored(data).sha256: data for data in (PNG, GIF, JPEG, WEBP)}


def sent(request: ModelRequest) -> ModelRequest:
    """The request with bytes in place of references, as a model gets it."""
    try:
        with_files(request, SampleFiles()).send(None)
    except StopIteration as done:
        whole: ModelRequest = done.value
        return whole
    raise AssertionError("nothing here waits")
