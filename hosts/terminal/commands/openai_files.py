"""Files with messages in OpenAI's chat format, as other programs write and read them.

One conversation is a JSON list of messages. Several are JSON lines, each an object with `messages`, which is the format
of files for fine-tuning. All that programs usually write is read: lists, objects with `messages`, lists or lines of
them, and lines of single messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ....states.errors import InvalidInput

Messages = list[dict[str, Any]]
"""The messages of one conversation, as they stand in a file."""

_NO_HISTORY = "The file has no messages in OpenAI's chat format."


def write_one(messages: Messages) -> str:
    """Return the messages of one conversation as a JSON list, with a line for each. `Pure.`"""
    lines = ",\n".join(json.dumps(message, ensure_ascii=False) for message in messages)
    return f"[\n{lines}\n]" if lines else "[]"


def write_line(messages: Messages) -> str:
    """Return the messages of one of several conversations as one line. `Pure.`"""
    return json.dumps({"messages": messages}, ensure_ascii=False)


def read_histories(data: bytes) -> tuple[Messages, ...]:
    """Return the messages of each conversation in a file. Raises `InvalidInput`, which names the line. `Pure.`"""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("The file is not UTF-8 text.") from None
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        documents = _lines(text)
    if len(documents) == 1 and _is_list_of_histories(documents[0]):
        documents = documents[0]
    if documents and all(_is_message(document) for document in documents):
        return (documents,)
    return tuple(_messages(document) for document in documents)


def _lines(text: str) -> list[Any]:
    read: list[Any] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                read.append(json.loads(line))
            except (ValueError, RecursionError):
                raise InvalidInput(f"Line {number} is not JSON.") from None
    return read


def _is_message(document: Any) -> bool:
    return isinstance(document, dict) and "role" in document


def _is_list_of_histories(document: Any) -> bool:
    return isinstance(document, list) and bool(document) and not any(map(_is_message, document))


def _messages(document: Any) -> Messages:
    messages: Sequence[Any] | Any = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidInput(_NO_HISTORY)
    return messages
