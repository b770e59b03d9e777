"""Reads a message of another agent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import Message, Part
from a2a.utils.errors import ContentTypeNotSupportedError
from google.protobuf.json_format import MessageToDict

from .....states.errors import InvalidInput
from ..turns.requested_turn import Said

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The media types of images that models are sent."""

_MEDIA_TYPES: Mapping[str, tuple[str, ...]] = {
    "text": ("", "text/plain", "text/markdown"),
    "data": ("", "application/json"),
    "raw": IMAGES,
    "url": IMAGES,
}
"""The media types that each kind of part may have; that of a text or of data may be left out."""


@dataclass(frozen=True)
class ReadMessage:
    """`said` is the text with its images, and `payload` the reply as data, None if there is none."""

    said: Said
    payload: Any


def read_message(message: Message) -> ReadMessage:
    """Return a message, read. Raises `ContentTypeNotSupportedError` for parts that are neither text, images nor data,
    and `InvalidInput` for more than one part of data, and for a part that has nothing."""
    texts: list[str] = []
    images: list[str] = []
    payloads: list[Any] = []
    for part in message.parts:
        kind = part.WhichOneof("content")
        if kind is None:
            raise InvalidInput("A part has a text, data, bytes or an address.")
        if part.media_type.partition(";")[0].strip().lower() not in _MEDIA_TYPES[kind]:
            raise ContentTypeNotSupportedError(
                "A message can have texts, images, and data that replies to what a task waits for."
            )
        match kind:
            case "text":
                texts.append(part.text)
            case "data":
                payloads.append(MessageToDict(part.data))
            case _:
                images.append(_url(part))
    if len(payloads) > 1:
        raise InvalidInput("A message replies with one part of data at most.")
    return ReadMessage(Said("\n\n".join(texts), tuple(images)), payloads[0] if payloads else None)


def _url(part: Part) -> str:
    if part.WhichOneof("content") == "url":
        return str(part.url)
    return f"data:{part.media_type};base64,{b64encode(part.raw).decode()}"
