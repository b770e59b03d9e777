"""How a message from another agent is written for a model, and read back.

A model must be able to tell its user's messages from those of other agents. The text stands between tags and is
escaped, so that nothing in it can end the tag or imitate one. A tag that a user types or a tool returns is ordinary
text: in a request its first character is escaped, so that only messages of agents stand between tags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape, unescape

from .messages import Message

_FOR_USER = re.compile(r'<message_for_user origin="([^"<>]+)">([^<>]*)</message_for_user>')
_TAG = re.compile(r"<(?=[\s/]*(?:message_for_user|system_message)\b)", re.IGNORECASE)


@dataclass(frozen=True)
class MessageForUser:
    """A message of the agent `origin` for the user."""

    origin: str
    text: str


def write_message_for_user(text: str, origin: str) -> str:
    """The message as a model reads it. Raises ValueError if the text or the origin is blank. `Pure.`"""
    if not text.strip() or not origin.strip():
        raise ValueError("a message for the user needs a text and an origin")
    return f'<message_for_user origin="{_escaped(origin)}">{_escaped(text)}</message_for_user>'


def read_message_for_user(written: str) -> MessageForUser | None:
    """The message that `write_message_for_user` wrote, or None if it did not write this text. `Pure.`"""
    found = _FOR_USER.fullmatch(written)
    if found is None:
        return None
    message = MessageForUser(origin=unescape(found[1]), text=unescape(found[2]))
    is_whole = message.text.strip() and message.origin.strip()
    return message if is_whole and write_message_for_user(message.text, message.origin) == written else None


def write_system_message(text: str, origin: str) -> str:
    """A message for the agent alone, as a model reads it: no request of a user, and not to be shown to one. `Pure.`"""
    return f'<system_message origin="{_escaped(origin)}">{_escaped(text)}</system_message>'


def imitates_mail(message: Message) -> bool:
    """Whether a user or a tool has written a tag of an agent's message. `Pure.`"""
    return message.audience is None and message.role in ("user", "tool") and _TAG.search(message.text) is not None


def text_for_model(message: Message) -> str:
    """The text of a message as a model reads it. That of another agent stands between tags; in that of a user or a
    tool such tags are escaped. `Pure.`"""
    if message.audience is None:
        return _TAG.sub("&lt;", message.text) if imitates_mail(message) else message.text
    write = write_message_for_user if message.audience == "user" else write_system_message
    return write(message.text, message.origin)


def _escaped(text: str) -> str:
    return escape(text, quote=True)
