"""Files with messages in OpenAI's chat format, as other programs write and read them.

One conversation is a JSON list of messages. Several are JSON lines, each an object with `messages` and `tools`, as in
files for fine-tuning: an example ends with an answer of the assistant, and describes the tools that it calls. All that
programs usually write is read: lists, objects with `messages`, lists or lines of them, and lines of single messages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ....effects.tools.catalogue import BUILT_IN
from ....effects.tools.registry import ToolRegistry
from ....states.errors import InvalidInput

Messages = list[dict[str, Any]]
"""The messages of one conversation, as they stand in a file."""

_NO_HISTORY = "The file has no messages in OpenAI's chat format."


def write_one(messages: Messages) -> str:
    """Return the messages of one conversation as a JSON list, with a line for each. `Pure.`"""
    lines = ",\n".join(json.dumps(message, ensure_ascii=False) for message in messages)
    return f"[\n{lines}\n]" if lines else "[]"


def write_example(messages: Messages, tools: ToolRegistry) -> str | None:
    """Return the messages of one of several conversations as one line: an example for fine-tuning. None if there is no
    answer in it.

    It ends with the last answer, so a turn that was cancelled, or has not ended, is left out where nothing follows it.
    All of these `tools` are described, and those that are called; one that is not known may take anything.
    """
    answers = [place for place, message in enumerate(messages) if _is_answer(message)]
    if not answers:
        return None
    example = messages[: answers[-1] + 1]
    called = (call["function"]["name"] for message in example for call in message.get("tool_calls") or ())
    offered = tools.definitions()
    names = {definition["function"]["name"] for definition in offered}
    definitions = [*offered, *(_definition(name) for name in dict.fromkeys(called) if name not in names)]
    line = {"messages": example, **({"tools": definitions} if definitions else {})}
    return json.dumps(line, ensure_ascii=False)


def _is_answer(message: dict[str, Any]) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")


def _definition(name: str) -> dict[str, Any]:
    tool = BUILT_IN.get(name)
    anything = {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    return anything if tool is None else tool.definition()


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
