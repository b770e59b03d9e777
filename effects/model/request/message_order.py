"""Brings the messages of a request into an order that every provider accepts.

Some providers require user and assistant to alternate, and refuse two messages of one role in a row. litellm merges
such messages for a few providers only (Anthropic, Bedrock, Gemini, Cohere), so it is done here for all. Models of
Mistral also require a message of the assistant between the result of a tool and the user's next message; after a
cancelled turn there is none. Several providers, and the templates of many open models, require that a user speaks
first; a history from elsewhere may begin with the assistant's greeting.
"""

from __future__ import annotations

from ....states.openai_writing import WireMessage, text_parts
from ..families import needs_separator, needs_user_first

Content = str | list[WireMessage] | None
"""The content of a message: a text, or texts and images as parts."""

BETWEEN = "Noted."
"""The text of the assistant's message that is inserted between a result and a user's message where a model requires
it."""

BEGINNING = "Begin the conversation."
"""The text of the user's message that is inserted in front of the assistant's greeting where a model requires one."""


class MessageOrder:
    """The order of messages that the model of this name requires."""

    def __init__(self, model: str) -> None:
        self._needs_separator = needs_separator(model)
        self._needs_user_first = needs_user_first(model)

    def append(self, message: WireMessage, sent: list[WireMessage], first: int) -> None:
        """Append the message to those that are sent, of which the first one of the dialogue has the place `first`.

        A message of the same role as the last one is merged with it. If the model requires it, a message of the
        assistant is put between a result and a user's message, and a user's message in front of the assistant's first.
        """
        if len(sent) == first:
            if message["role"] == "assistant" and self._needs_user_first:
                sent.append({"role": "user", "content": BEGINNING})
        elif sent[-1]["role"] == message["role"] and may_be_merged(sent[-1]) and may_be_merged(message):
            sent[-1] = merged(sent[-1], message)
            return
        elif self._needs_separator:
            sent += separator(sent[-1]["role"], message["role"])
        sent.append(message)


def arrange_behind(previous_role: str, message: WireMessage, model: str) -> tuple[WireMessage, ...]:
    """The message as it follows one of another role at the end of a request: behind a message of the assistant if the
    model of this name requires one there. `Pure.`"""
    between = separator(previous_role, message["role"]) if needs_separator(model) else ()
    return (*between, message)


def may_be_merged(message: WireMessage) -> bool:
    """Whether a message of the same role behind this one becomes one with it. Not if one of them holds sealed thinking:
    merging would move it, and litellm merges these messages itself. `Pure.`"""
    return message["role"] != "tool" and "thinking_blocks" not in message


def parts_of(content: Content) -> list[WireMessage]:
    """The content as a list of parts; empty for a blank text. `Pure.`"""
    if isinstance(content, list):
        return content
    return [] if content is None else text_parts(content)


def separator(previous_role: str, role: str) -> tuple[WireMessage, ...]:
    """What stands between messages of these roles where a result and a user's message may not follow each other.
    `Pure.`"""
    return ({"role": "assistant", "content": BETWEEN},) if (previous_role, role) == ("tool", "user") else ()


def merged(first: WireMessage, second: WireMessage) -> WireMessage:
    """Two messages of one role as one. What their provider wrote besides is joined where it is a text or a list.
    `Pure.`"""
    both = {**first, **second, "content": _join(first.get("content"), second.get("content"))}
    for name in first.keys() & second.keys() - {"role", "content"}:
        match first[name], second[name]:
            case str(one), str(other):
                both[name] = f"{one}\n\n{other}"
            case list(one), list(other):
                both[name] = [*one, *other]
            case _:
                pass
    return both


def _join(first: Content, second: Content) -> Content:
    if isinstance(first, list) or isinstance(second, list):
        return [*parts_of(first), *parts_of(second)]
    return "\n\n".join(text for text in (first, second) if text) or None
