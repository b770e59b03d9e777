"""How a message from another agent is written for a model, and read back.

A model must be able to tell its user's messages from those of other agents. The text stands between tags and is
escaped, so that nothing in it can end the tag or imitate one. A tag anywhere else is ordinary text, whoever wrote it: a
user, a tool, a document, the model itself. `escape_tags` escapes its first character. Whatever enters a request and is
neither a word of the machine nor the application's system prompt passes through it, so only messages of agents stand
between tags.

A model reads more as a tag than a parser does. So what follows a `<`, or a character that looks like one, is compared
as a reader sees it: in any case and width, without marks, invisible characters and separators.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape, unescape

from .acts import Audience
from .messages import Message, ToolCall

_ENVELOPE = re.compile(r'<(message_for_user|system_message) origin="([^"<>]*)">([^<>]*)</\1>')
UNKNOWN_ORIGIN = "unknown"
"""The origin that a model reads of a message whose own one is blank."""

_NAMES = ("messageforuser", "systemmessage")
"""The names of the tags, by their letters."""

_BRACKETS = "<\uff1c\ufe64\u2039\u2329\u3008\u27e8\u02c2\u276e\u2770\u1438\u226a\u00ab"
"""A `<`, and what looks like one."""

_OPENING = re.compile(f"(?:[{_BRACKETS}]|\\\\u003[cC])(?=[^A-Za-z0-9{_BRACKETS}]*(?:[mMsS]|[^\x00-\x7f]|\\Z))")
"""A bracket, or how JSON may write it, where the letters behind it may be those of a tag. Nothing is looked at behind
the next bracket, so that a text of many brackets costs no more than another one."""

_UNSEEN = f"(?:(?![>{_BRACKETS}])[\\W_\u115f\u1160\u3164\uffa0])*"
"""Whatever a reader does not see, such as the fillers of Hangul, or takes for a separator, up to the next bracket."""

_LETTER = re.compile(f"{_UNSEEN}([^\\W_\u115f\u1160\u3164\uffa0{_BRACKETS}])")
"""The next letter or digit before a bracket."""

_REST = re.compile(f"{_UNSEEN}\\Z")
"""The end of a text, without a bracket in front of it."""

_CONTINUED = re.compile("[^\\W\u115f\u1160\u3164\uffa0]")
"""What makes a longer word of the name in front of it."""

_LOOKALIKES = str.maketrans(
    "аеорсуѕіјһԁԛԝмгеցսοε\u0261\u0131\u0585\u1d0d\u1d07\ua731\u1d00\u0262\ua730\u1d0f\u0280\u1d1c\u028f\u1d1b",
    "aeopcysijhdqwmregu" + "oe" + "gi" + "o" + "mesagforuyt",
)
"""Letters of other scripts, and small capitals, that look like those of the names."""


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


def escape_tags(text: str) -> str:
    """The text with each tag of an agent's message escaped, and everything else as it is. What was escaped before stays
    as it is, too. `Pure.`"""
    return _OPENING.sub(_escape_opening, text)


def imitates_mail(message: Message) -> bool:
    """Whether a message that is not another agent's holds a tag of such a message. `Pure.`"""
    return message.audience is None and escaped_message(message) is not message


def escaped_message(message: Message) -> Message:
    """The message with all tags in its text, its parts and the arguments of calls escaped; itself if there are none.
    `Pure.`"""
    parts = tuple(escape_tags(part) if isinstance(part, str) else part for part in message.parts)
    calls = tuple(map(_escaped_call, message.tool_calls))
    edited = escape_tags(message.edited_arguments)
    escaped = {"text": escape_tags(message.text), "parts": parts, "tool_calls": calls, "edited_arguments": edited}
    changes = {name: value for name, value in escaped.items() if value != getattr(message, name)}
    return message.replace(**changes) if changes else message


def _escaped_call(call: ToolCall) -> ToolCall:
    arguments = escape_tags(call.raw_arguments)
    return call if arguments == call.raw_arguments else call.replace(raw_arguments=arguments)


def text_for_model(message: Message) -> str:
    """The text of a message as a model reads it. That of another agent stands between tags; in any other such tags are
    escaped. `Pure.`"""
    if message.audience is None:
        return escape_tags(message.text)
    origin = message.origin if message.origin.strip() else UNKNOWN_ORIGIN
    return _WRITERS[message.audience](message.text, origin)


def _escape_opening(opening: re.Match[str]) -> str:
    """The entity of the character that opens a tag, or that character if no tag follows."""
    found = opening[0]
    if not _names_a_tag(opening.string, opening.end()):
        return found
    return "&lt;" if found == "<" else f"&#{ord(found[0])};{found[1:]}"


def _names_a_tag(text: str, start: int) -> bool:
    """Whether a reader sees the name of a tag from here on, or its beginning at the end of the text. Stops at the first
    letter that belongs to none."""
    letters, place = "", start
    while letters not in _NAMES:
        letter = _LETTER.match(text, place)
        if letter is None:  # in a request, another text may stand behind this one
            return _REST.match(text, place) is not None
        letters, place = letters + _as_seen(letter[1]), letter.end()
        if not any(name.startswith(letters) for name in _NAMES):
            return False
    return _CONTINUED.match(text, place) is None


def _as_seen(character: str) -> str:
    """The letters and digits that a reader sees in a character, in one case and without marks."""
    if character.isascii():
        return character.lower()
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", character).casefold())
    return "".join(filter(str.isalnum, plain.translate(_LOOKALIKES)))


def _escaped(text: str) -> str:
    return escape_tags(escape(text, quote=True))


_WRITERS: Mapping[Audience, Callable[[str, str], str]] = {
    "user": write_message_for_user,
    "agent": write_system_message,
}
