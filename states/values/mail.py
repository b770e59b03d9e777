"""How a message from another agent is written for a model, and read back.

A model must be able to tell its user's messages from those of other agents. The text stands between tags and is
escaped, so that nothing in it can end the tag or imitate one. A tag that a user types or a tool returns is ordinary
text: in a request its first character is escaped, so that only messages of agents stand between tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape, unescape

from .acts import Audience
from .messages import Message

_ENVELOPE = re.compile(r'<(message_for_user|system_message) origin="([^"<>]*)">([^<>]*)</\1>')
UNKNOWN_ORIGIN = "unknown"
"""The origin that a model reads of a message whose own one is blank."""

_TAG = re.compile(r"<(?=[\s/]*(?:message_for_user|system_message)\b)", re.IGNORECASE)


@dataclass(frozen=True)
class AgentText:
    """What the agent `origin` wrote: to be passed on to the user, or for the agent that reads it alone."""

    audience: Audience
    origin: str
    text: str


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
    read = read_agent_text(written)
    return MessageForUser(read.origin, read.text) if read is not None and read.audience == "user" else None


def write_system_message(text: str, origin: str) -> str:
    """A message for the agent alone, as a model reads it: no request of a user, and not to be shown to one. `Pure.`"""
    return f'<system_message origin="{_escaped(origin)}">{_escaped(text)}</system_message>'


def read_agent_text(written: str) -> AgentText | None:
    """The message of another agent that `text_for_model` wrote, or None if it did not write this. `Pure.`"""
    found = _ENVELOPE.fullmatch(written)
    if found is None:
        return None
    audience: Audience = "user" if found[1] == "message_for_user" else "agent"
    read = AgentText(audience, unescape(found[2]), unescape(found[3]))
    is_whole = audience == "agent" or (read.text.strip() and read.origin.strip())
    return read if is_whole and _WRITERS[audience](read.text, read.origin) == written else None


def imitates_mail(message: Message) -> bool:
    """Whether a user or a tool has written a tag of an agent's message. `Pure.`"""
    return message.role in ("user", "tool") and message.audience is None and _TAG.search(message.text) is not None


def text_for_model(message: Message) -> str:
    """The text of a message as a model reads it. That of another agent stands between tags; in that of a user or a
    tool such tags are escaped. `Pure.`"""
    if message.audience is None:
        return _TAG.sub("&lt;", message.text) if imitates_mail(message) else message.text
    origin = message.origin if message.origin.strip() else UNKNOWN_ORIGIN
    return _WRITERS[message.audience](message.text, origin)


def _escaped(text: str) -> str:
    return escape(text, quote=True)


_WRITERS: Mapping[Audience, Callable[[str, str], str]] = {
    "user": write_message_for_user,
    "agent": write_system_message,
}
