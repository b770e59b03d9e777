"""How a message from another agent is written for a model, and read back.

A model must be able to tell what its user said from what another agent had to say to that user or to the model itself.
The text stands between tags, escaped, so nothing in it can end the tag or pretend to be one; a tag that a user types or
a tool returns is data like any other, since only messages of agents are wrapped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape, unescape

from .messages import Message

_FOR_USER = re.compile(r'<message_for_user origin="([^"<>]+)">([^<>]*)</message_for_user>')


@dataclass(frozen=True)
class MessageForUser:
    """What another agent, `origin`, has to say to the user."""

    origin: str
    text: str


def write_message_for_user(text: str, origin: str) -> str:
    """The message as a model reads it. Raises ValueError if the text or the origin is blank. `Pure.`"""
    if not text.strip() or not origin.strip():
        raise ValueError("a message for the user needs a text and an origin")
    return f'<message_for_user origin="{_escaped(origin)}">{_escaped(text)}</message_for_user>'


def read_message_for_user(written: str) -> MessageForUser | None:
    """What `write_message_for_user` wrote, or None if it did not write this. `Pure.`"""
    found = _FOR_USER.fullmatch(written)
    if found is None:
        return None
    message = MessageForUser(origin=unescape(found[1]), text=unescape(found[2]))
    is_whole = message.text.strip() and message.origin.strip()
    return message if is_whole and write_message_for_user(message.text, message.origin) == written else None


def write_system_message(text: str, origin: str) -> str:
    """An internal update as a model reads it: no request of a user, and nothing to show to one. `Pure.`"""
    return f'<system_message origin="{_escaped(origin)}">{_escaped(text)}</system_message>'


def text_for_model(message: Message) -> str:
    """What a model reads of a message: another agent's stands between tags. `Pure.`"""
    if message.audience is None:
        return message.text
    write = write_message_for_user if message.audience == "user" else write_system_message
    return write(message.text, message.origin)


def _escaped(text: str) -> str:
    return escape(text, quote=True)
