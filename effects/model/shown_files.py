"""Puts the bytes of files into a request just before it is sent.

What was written of a conversation is kept between its requests, with references in place of files. So what is kept
stays small however much was attached, the digest of a request needs no bytes, and a file lies in memory only while a
request that shows it is under way.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...states.openai_files import AUDIO_FORMATS
from ...states.openai_writing import WireMessage, file_part
from ...states.values.files import STORED_FILE, FileReference, reference_in
from ...states.values.messages import escape_tags
from ..files import KeptFiles
from ..media_types import text_in
from .port import ModelRequest

_NAMES: Mapping[str, str] = {"application/pdf": "document.pdf"}
"""The name of a document that has none: providers want one, and some read the kind from its ending."""


async def with_files(request: ModelRequest, files: KeptFiles) -> ModelRequest:
    """Return the request with the bytes of its files; itself if it has none. Raises `StorageFailed`."""
    messages = tuple([await with_bytes(message, files) for message in request.messages])
    return request if messages == request.messages else replace(request, messages=messages)


def _references_in(message: WireMessage) -> list[dict[str, Any]]:
    content = message.get("content")
    return [part for part in content if STORED_FILE in part] if isinstance(content, list) else []


async def with_bytes(message: WireMessage, files: KeptFiles) -> WireMessage:
    """Return the message with its files in place of references; itself if it has none. Raises `StorageFailed`."""
    if not _references_in(message):
        return message
    parts: list[WireMessage] = []
    for part in message["content"]:
        file = reference_in(part) if STORED_FILE in part else None
        if file is None or file.url:
            parts.append(part if file is None else file_part(file))
        else:
            data = await files.read(file)
            parts.append(_missing(file) if data is None else _like(part, _shown(file, data)))
    return {**message, "content": parts}


def _like(part: WireMessage, shown: WireMessage) -> WireMessage:
    """The part as it was given, with the bytes in it: whoever gave it may have said more, such as how closely a model
    is to look."""
    kind = shown["type"]
    if part.get("type") != kind or not isinstance(part.get(kind), dict):
        return shown
    given = {name: member for name, member in part.items() if name != STORED_FILE}
    return {**given, kind: {**part[kind], **shown[kind]}}


def _shown(file: FileReference, data: bytes) -> WireMessage:
    """The part of a message that shows this file, in the shape that litellm translates for each provider. `Pure.`"""
    match file.kind:
        case "text":
            return {"type": "text", "text": f"{_title(file)}\n{escape_tags(text_in(data) or '')}"}
        case "image":
            return {"type": "image_url", "image_url": {"url": _data_url(file, data)}}
        case "audio":
            return {"type": "input_audio", "input_audio": {"data": b64encode(data).decode(), "format": _format(file)}}
        case "document" | "video":
            name = file.name or _NAMES.get(file.media_type, file.kind)
            return {"type": "file", "file": {"filename": name, "file_data": _data_url(file, data)}}


def _data_url(file: FileReference, data: bytes) -> str:
    return f"data:{file.media_type};base64,{b64encode(data).decode()}"


def _format(file: FileReference) -> str:
    return AUDIO_FORMATS.get(file.media_type, file.media_type.partition("/")[2])


def _title(file: FileReference) -> str:
    named = f" {file.name}" if file.name else ""
    return escape_tags(f"[File{named}, {file.media_type}]")


def _missing(file: FileReference) -> WireMessage:
    named = f" {file.name}" if file.name else f", {file.media_type},"
    return {"type": "text", "text": escape_tags(f"[The file{named} is not stored any more.]")}
