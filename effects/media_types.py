"""Finds out what a file is from its bytes.

A name and a declared media type are what somebody says. A provider that is sent a JPEG as a PNG refuses the request,
and every later one of the conversation. So the bytes decide: `puremagic` knows how files of hundreds of types begin,
and what reads as text is text. What is declared only chooses between types that look alike, such as the kinds of text.
"""

from __future__ import annotations

import io
import mimetypes
import re
import zipfile
from collections.abc import Iterator, Mapping

from ..states.values.files import DOCUMENTS, kind_of

UNKNOWN = "application/octet-stream"
"""The media type of bytes that are nothing known."""

_ALIASES: Mapping[str, str] = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "application/x-pdf": "application/pdf",
    "audio/mp3": "audio/mpeg",
    "audio/x-mp3": "audio/mpeg",
    "audio/x-mpeg": "audio/mpeg",
    "audio/mpeg3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
    "audio/x-aac": "audio/aac",
    "audio/x-aiff": "audio/aiff",
    "application/ogg": "audio/ogg",
    "video/x-m4v": "video/mp4",
    "application/x-matroska": "video/x-matroska",
    "video/x-msvideo": "video/avi",
    "text/x-markdown": "text/markdown",
    "text/xml": "application/xml",
    "application/x-yaml": "application/yaml",
    "text/yaml": "application/yaml",
    "text/javascript": "application/javascript",
}
"""Other names of media types."""

_CONTAINERS = (
    frozenset({"audio/mp4", "video/mp4", "video/quicktime", "video/3gpp", "audio/3gpp"}),
    frozenset({"audio/webm", "video/webm", "video/x-matroska", "audio/x-matroska"}),
    frozenset({"audio/ogg", "video/ogg", "audio/opus"}),
)
"""Media types whose files begin alike: what is inside decides, and its sender knows it."""

_ZIPPED: Mapping[str, str] = {
    "word": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xl": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "ppt": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
"""The folder in a zip file that tells which document of an office program it is."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How the older files of office programs begin, whichever they are."""

_OLDER = ("application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint")

_HEAD = 4096
"""So many bytes at the beginning of a file tell what it is."""

_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""What stands in no text."""

_BOMS: Mapping[bytes, str] = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

ENDINGS: Mapping[str, str] = {
    ".md": "text/markdown",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".xml": "application/xml",
    ".svg": "image/svg+xml",
}
"""The media types of texts by the endings of their names, where the lists of systems differ."""


class Contradiction(ValueError):
    """The declared media type is not that of the bytes, which is `found`."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


def canonical(media_type: str) -> str:
    """The usual name of a media type, without its parameters. `Pure.`"""
    plain = media_type.partition(";")[0].strip().lower()
    return _ALIASES.get(plain, plain)


def text_in(data: bytes) -> str | None:
    """The text that these bytes are, in UTF-8, UTF-16 or, if they are none of these, the Western encoding of Windows;
    None if they are no text. `Pure.`"""
    for mark, encoding in _BOMS.items():
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    if _BINARY.search(data):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def media_type_of(data: bytes, name: str = "", declared: str = "") -> str:
    """The media type of a file with these bytes; `UNKNOWN` if it is nothing known. Its name and the declared type
    choose between types that look alike. Raises `Contradiction` if the bytes are not what is declared. `Pure.`"""
    wanted = canonical(declared) if declared else ""
    hint = wanted or _by_ending(name)
    found = _found(data, hint)
    if wanted and wanted != UNKNOWN and found != wanted:
        raise Contradiction(found)
    return found


def _by_ending(name: str) -> str:
    ending = next((kind for ending, kind in ENDINGS.items() if name.lower().endswith(ending)), None)
    return ending or canonical(mimetypes.guess_type(name, strict=False)[0] or "")


def _found(data: bytes, hint: str) -> str:
    if data[:1024].lstrip().startswith(b"%PDF-"):
        return "application/pdf"
    if data.startswith(b"PK\x03\x04"):
        return _zipped(data)
    if data.startswith(_OLE):
        return hint if hint in _OLDER else UNKNOWN
    magic = list(_by_magic(data[:_HEAD]))
    if _is_text(data, magic):
        return _kind_of_text(hint, magic)
    found = next((one for one in magic if kind_of(one) not in (None, "text")), None)
    if found is None:
        return next((one for one in magic if kind_of(one) is None), UNKNOWN)
    return hint if any({hint, found} <= alike for alike in _CONTAINERS) else found


def _is_text(data: bytes, magic: list[str]) -> bool:
    """Whether the bytes are a text. Where they begin like a recording or an image, only UTF-8 counts as one."""
    if text_in(data) is None:
        return False
    if all(kind_of(one) in (None, "text") for one in magic):
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _kind_of_text(hint: str, magic: list[str]) -> str:
    known = [one for one in magic if kind_of(one) == "text"]
    return hint if kind_of(hint) == "text" else next(iter(known), "text/plain")


def _zipped(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError):
        names = []
    folders = {name.partition("/")[0] for name in names}
    return next((kind for folder, kind in _ZIPPED.items() if folder in folders), "application/zip")


def _by_magic(head: bytes) -> Iterator[str]:
    """Yield the media types of files that begin like this, the likeliest first."""
    import puremagic  # it reads its list when it is imported, which only programs that send files need

    try:
        matches = puremagic.magic_string(head)
    except (puremagic.PureError, ValueError):
        return
    telling = (match for match in matches if match.byte_match.strip(b"\0"))  # zeros begin files of any type
    yield from (canonical(match.mime_type) for match in telling if match.mime_type)


def described(media_type: str) -> str:
    """What people call files of this media type, with an article. `Pure.`"""
    if media_type in DOCUMENTS:
        return f"a {DOCUMENTS[media_type]} file"
    return "a text" if kind_of(media_type) == "text" else f"a file of the type {media_type}"
