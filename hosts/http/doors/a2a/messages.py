"""Reads a message of another agent."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from a2a.types.a2a_pb2 import Message, Part
from google.protobuf.json_format import MessageToDict

from .....states.errors import InvalidInput
from ..turns.requested_turn import Said


@dataclass(frozen=True)
class ReadMessage:
    """`said` is the text with its images, and `payload` the reply as data, None if there is none."""

    said: Said
    payload: Any


def read_message(message: Message) -> ReadMessage:
    """Return a message, read. Raises `InvalidInput` for parts that are neither text, images nor one reply as data."""
    texts: list[str] = []
    images: list[str] = []
    payloads: list[Any] = []
    for part in message.parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "data":
                payloads.append(MessageToDict(part.data))
            case "raw" | "url" if part.media_type.startswith("image/"):
                images.append(_url(part))
            case _:
                raise InvalidInput("A message can have texts, images, and data that replies to what a task waits for.")
    if len(payloads) > 1:
        raise InvalidInput("A message replies with one part of data at most.")
    return ReadMessage(Said("\n\n".join(texts), tuple(images)), payloads[0] if payloads else None)


def _url(part: Part) -> str:
    if part.WhichOneof("content") == "url":
        return str(part.url)
    return f"data:{part.media_type};base64,{b64encode(part.raw).decode()}"
