"""Finds the files in the parts of messages that other programs write.

Everybody writes a file in a shape of their own: OpenAI's chat format, its Responses API, Anthropic's content blocks,
and the servers that speak OpenAI's protocol with parts of their own for what it does not have. In all of them a file is
either at an address, or its bytes stand in the part, in base64. Here one shape is made of all: an https:// address or a
data: URL, with the name and the media type that the part tells. What the bytes are, somebody else finds out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from .values.files import ANY_IMAGE, FileKind, kind_of, media_type_at
from .values.value import encodable

AUDIO_FORMATS: Mapping[str, str] = {"audio/mpeg": "mp3", "audio/mp4": "m4a", "audio/x-ms-wma": "wma"}
"""What OpenAI's format calls a recording whose media type does not end in that name."""

_MEDIA_TYPES = {name: media_type for media_type, name in AUDIO_FORMATS.items()}

FILE_PARTS: Mapping[str, FileKind | None] = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "video_url": "video",
    "document": "document",
    "document_url": "document",
    "file": None,
    "input_file": None,
}
"""The types of parts that hold a file, and what kind of file that is; None for any kind."""

_USUAL: Mapping[FileKind | None, str] = {"audio": "audio/mpeg", "video": "video/mp4", "image": ANY_IMAGE}
_USUAL_DOCUMENT = "application/pdf"
"""The media types of files on the web of which nothing else is known."""


class AttachedFile(NamedTuple):
    """A file in a part of a message: its `url`, a data: URL or an address as it was written, which is checked where it
    is used; and its name, empty if it has none."""

    url: str
    name: str = ""
    media_type: str = ""
    """That of a file on the web: what the part says, or its address, or what is usual. A data: URL tells its own."""


def attached_file(part: Mapping[str, Any]) -> AttachedFile | None:
    """Return the file in a part of one of the types `FILE_PARTS`, or None if it has neither bytes nor an address: one
    that a provider keeps under an id is nothing that others can be sent. `Pure.`"""
    match part:
        case {"type": "input_audio", "input_audio": given}:
            return _recording(given)
        case {"type": "file", "file": dict(given)} | {"type": "input_file", **given}:
            return _file(given)
        case {"type": "image" | "document" as shape, "source": dict(source)}:
            return _of_source(source, FILE_PARTS[shape], _text(part.get("title")))
        case {"type": "input_image", "image_url": str(url)}:
            return attached_at(url, kind="image")
        case {"type": str(shape)} if shape.endswith("_url") and shape in FILE_PARTS:
            given = part.get(shape)
            url = _text(given.get("url") if isinstance(given, dict) else given)
            return attached_at(url, kind=FILE_PARTS[shape], name=_text(part.get("document_name"))) if url else None
        case _:
            return None


def attached_at(url: str, *, kind: FileKind | None = None, media_type: str = "", name: str = "") -> AttachedFile:
    """Return the file at this https:// address or in this data: URL; an address of which nothing is known is that of
    what is usual for its kind. `Pure.`"""
    if url.startswith("data:"):
        return AttachedFile(url, name)
    if not media_type:
        found = media_type_at(url)
        is_known = found != ANY_IMAGE and kind in (None, kind_of(found))
        media_type = found if is_known else _USUAL.get(kind, _USUAL_DOCUMENT)
    return AttachedFile(url, name, media_type)


def part_of(attached: AttachedFile) -> dict[str, Any]:
    """Return a file as a part of a message in OpenAI's format. `Pure.`"""
    url, name, media_type = attached
    if kind_of(media_type) == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if media_type:
        return {"type": "file", "file": {"file_id": url, "format": media_type}}
    return {"type": "file", "file": {"file_data": url, "filename": name}}


def _recording(given: Any) -> AttachedFile | None:
    match given:
        case {"data": str(data), "format": str(written)} if data:
            media_type = _MEDIA_TYPES.get(written, f"audio/{written}")
            return AttachedFile(_data_url(data, media_type))
        case {"data": str(data)} if data:
            return AttachedFile(_data_url(data))
        case _:
            return None


def _file(given: Mapping[str, Any]) -> AttachedFile | None:
    """A file as OpenAI writes it: its bytes, or, as some programs add, an address and a media type."""
    name, media_type = _text(given.get("filename")), _text(given.get("format"))
    data = _text(given.get("file_data"))
    if data and not _is_url(data):
        return AttachedFile(_data_url(data, media_type), name)
    urls = (data, _text(given.get("file_url")), _text(given.get("file_id")))
    url = next(filter(_is_url, urls), None)
    return None if url is None else attached_at(url, media_type=media_type, name=name)


def _of_source(source: dict[str, Any], kind: FileKind | None, name: str) -> AttachedFile | None:
    """A file as Anthropic's content blocks have it. `name` is the title of a document."""
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)} if data:
            return AttachedFile(_data_url(data, media_type), name)
        case {"type": "url", "url": str(url)} if url:
            return attached_at(url, kind=kind, name=name)
        case {"type": "text", "data": str(text)} if text:
            return AttachedFile(f"data:text/plain,{quote(encodable(text))}", name)
        case _:
            return None


def _is_url(text: str) -> bool:
    return text.startswith(("data:", "https://", "http://"))


def _data_url(data: str, media_type: str = "") -> str:
    """The data: URL of bytes in base64, which may be one already. `Pure.`"""
    return data if data.startswith("data:") else f"data:{media_type};base64,{data}"


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""
