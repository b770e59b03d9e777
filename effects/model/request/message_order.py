"""Puts the messages of a request into an order that every provider takes.

Some providers want user and assistant strictly in turn, and refuse two messages of one role in a row. litellm puts such
neighbours together for a few of them only (Anthropic, Bedrock, Gemini, Cohere), so here it is done for all. Models of
Mistral besides want a word of their own between a tool's result and a person's next message, which a cancelled turn
does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Body = dict[str, Any]
"""A message as it goes out, in the shape of OpenAI's chat completions."""

Content = str | list[Body] | None
"""What a message holds: a text, or texts and images as parts."""

BETWEEN = "Noted."
"""What a model is made to have said between a tool's result and a person's message, where it needs that."""

_MISTRAL = re.compile(r"(?:mi|mini|dev|magi|code)stral|(?:mi|pi|vo)xtral", re.IGNORECASE)
"""The names of Mistral's models: wherever they are hosted, their order of messages comes with them."""


def ordered(messages: Iterable[Body], model: str) -> Iterator[Body]:
    """The messages, neighbours of one role as one, with the model's word between a result and a person where the model
    of this name needs it. `Pure.`"""
    needs_word = _MISTRAL.search(model) is not None
    before = ""
    for message in _merged(messages):
        if needs_word and (before, message["role"]) == ("tool", "user"):
            yield {"role": "assistant", "content": BETWEEN}
        yield message
        before = message["role"]


def parts_of(content: Content) -> list[Body]:
    """Content as a list of parts; a blank text is none. `Pure.`"""
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content is not None and content.strip() else []


def _merged(messages: Iterable[Body]) -> Iterator[Body]:
    last: Body | None = None
    for message in messages:
        if last is None:
            last = message
        elif _go_together(last, message):
            last = {**last, **message, "content": _joined(last["content"], message["content"])}
        else:
            yield last
            last = message
    if last is not None:
        yield last


def _go_together(first: Body, second: Body) -> bool:
    """Whether two messages become one. Sealed thinking would be moved by that, so it is left to litellm, which knows
    the order of those providers that seal."""
    sealed = "thinking_blocks" in first or "thinking_blocks" in second
    return first["role"] == second["role"] != "tool" and not sealed


def _joined(first: Content, second: Content) -> Content:
    if isinstance(first, list) or isinstance(second, list):
        return [*parts_of(first), *parts_of(second)]
    return "\n\n".join(text for text in (first, second) if text is not None) or None
