"""Brings the messages of a request into an order that every provider accepts.

Some providers require user and assistant to alternate, and refuse two messages of one role in a row. litellm merges
such messages for a few providers only (Anthropic, Bedrock, Gemini, Cohere), so it is done here for all. Models of
Mistral also require a message of the assistant between the result of a tool and the user's next message; after a
cancelled turn there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

WireMessage = dict[str, Any]
"""A message as it is sent, in the shape of OpenAI's chat completions."""

Content = str | list[WireMessage] | None
"""The content of a message: a text, or texts and images as parts."""

BETWEEN = "Noted."
"""The text of the assistant's message that is inserted between a result and a user's message where a model requires
it."""

_MISTRAL = re.compile(r"(?:mi|mini|dev|magi|code)stral|(?:mi|pi|vo)xtral", re.IGNORECASE)
"""The names of Mistral's models, which have this requirement at every provider."""


def arrange(messages: Iterable[WireMessage], model: str) -> Iterator[WireMessage]:
    """The messages with consecutive messages of one role merged, and with a message of the assistant between a result
    and a user's message if the model of this name requires it. `Pure.`"""
    needs_separator = _MISTRAL.search(model) is not None
    previous_role = ""
    for message in _merge(messages):
        if needs_separator and (previous_role, message["role"]) == ("tool", "user"):
            yield {"role": "assistant", "content": BETWEEN}
        yield message
        previous_role = message["role"]


def parts_of(content: Content) -> list[WireMessage]:
    """The content as a list of parts; empty for a blank text. `Pure.`"""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content is not None and content.strip() else []


def _merge(messages: Iterable[WireMessage]) -> Iterator[WireMessage]:
    last: WireMessage | None = None
    for message in messages:
        if last is None:
            last = message
        elif _can_merge(last, message):
            last = {**last, **message, "content": _join(last["content"], message["content"])}
        else:
            yield last
            last = message
    if last is not None:
        yield last


def _can_merge(first: WireMessage, second: WireMessage) -> bool:
    """Whether two messages become one. False if one of them holds sealed thinking: merging would move it, and litellm
    merges these messages itself."""
    is_sealed = "thinking_blocks" in first or "thinking_blocks" in second
    return first["role"] == second["role"] != "tool" and not is_sealed


def _join(first: Content, second: Content) -> Content:
    if isinstance(first, list) or isinstance(second, list):
        return [*parts_of(first), *parts_of(second)]
    return "\n\n".join(text for text in (first, second) if text is not None) or None
