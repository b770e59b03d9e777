"""Reads the messages of a request: what came before, and the message to answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..turns.requested_turn import Said
from .refusals import OpenAiRefusal
from .request_body import ChatMessage

_PARTS = {
    "user": ("text", "image_url"),
    "tool": ("text", "image_url"),
    "assistant": ("text", "refusal"),
}
"""The types of part that a message of each role may have; of all other roles, text alone."""


@dataclass(frozen=True)
class ReadMessages:
    """`history` is what came before, as `Engine.create` takes it; `said` the message to answer; `shown` the text of
    the assistant's last message before that, None if there is none."""

    history: list[dict[str, Any]]
    said: Said
    shown: str | None


def read_messages(messages: Sequence[ChatMessage]) -> ReadMessages:
    """Return the messages of a request, read. Raises `OpenAiRefusal` if the last one is not a user's, and for a part
    that cannot be sent to a model, such as audio. `Pure.`"""
    for place, message in enumerate(messages):
        _check_parts(place, message)
    *before, last = messages
    if last.role != "user":
        sentence = "The last message must be one of the user: the server runs tools itself and continues no text."
        raise OpenAiRefusal("unsupported_messages", sentence, f"messages.{len(before)}.role")
    answers = [_text(message) for message in before if message.role == "assistant"]
    return ReadMessages(
        history=[message.model_dump(exclude_unset=True) for message in before],
        said=Said(_text(last), tuple(_images(last, len(before)))),
        shown=answers[-1] if answers else None,
    )


def _check_parts(place: int, message: ChatMessage) -> None:
    if not isinstance(message.content, list):
        return
    allowed = _PARTS.get(message.role, ("text",))
    for number, part in enumerate(message.content):
        kind = part.get("type")
        if kind not in allowed:
            sentence = f"A message of the role {message.role} can have parts of the type {' or '.join(allowed)} only."
            raise OpenAiRefusal("unsupported_content", sentence, f"messages.{place}.content.{number}.type")


def _text(message: ChatMessage) -> str:
    if not isinstance(message.content, list):
        return message.content or ""
    texts = (part.get(part["type"]) for part in message.content if part["type"] != "image_url")
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _images(message: ChatMessage, place: int) -> Iterator[str]:
    for number, part in enumerate(message.content if isinstance(message.content, list) else ()):
        if part["type"] != "image_url":
            continue
        address = part.get("image_url")
        url = address.get("url") if isinstance(address, dict) else None
        if not isinstance(url, str):
            where = f"messages.{place}.content.{number}.image_url.url"
            raise OpenAiRefusal("invalid_input", "An image needs a URL.", where)
        yield url
