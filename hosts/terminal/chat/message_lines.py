"""What is shown of messages and tool calls, while a conversation is held and when it is resumed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ....states.values.messages import Image, Message, ToolCall
from ....states.values.value import json_object
from ..output.printable import one_line, with_images

RECALLED = 6
"""How many messages are shown of a conversation that is resumed."""

MAX_CALL = 160
"""The most characters that are shown of a tool call."""

MAX_ERROR = 200
"""The most characters that are shown of why a tool call failed."""

CANCELLED = "Cancelled; the conversation goes on."

ASKS = "ask_user_question"
"""The tool whose calls are shown as questions."""


LineKind = Literal["user", "assistant", "question", "note"]
"""How a line is shown: as words of the user or of the assistant, as a question, or as a note of the program."""


class RecalledLine(NamedTuple):
    """What a resumed conversation shows of one message, tool call or question."""

    kind: LineKind
    text: str


def recalled(messages: Iterable[Message], *, by_tool: bool, thoughts: bool) -> tuple[int, list[RecalledLine]]:
    """Return what is shown of the last messages, and how many come before them. `Pure.`

    `by_tool` and `thoughts` are those of the screen.
    """
    lines = list(_lines(tuple(messages), by_tool, tools=thoughts or not by_tool))
    said = [index for index, line in enumerate(lines) if line.kind in ("user", "assistant")]
    earlier = max(0, len(said) - RECALLED)
    return earlier, lines[said[earlier] :] if earlier else lines


def _lines(messages: Collection[Message], by_tool: bool, tools: bool) -> Iterator[RecalledLine]:
    calls: dict[str | None, ToolCall] = {}
    spoken = {message.turn for message in messages if message.role == "tool" and message.deliveries}
    for message in messages:
        calls |= {call.call_id: call for call in message.tool_calls}
        call = calls.get(message.tool_call_id) if message.role == "tool" else None
        is_said = bool(message.deliveries) and not by_tool  # what a tool says is shown when it is delivered
        if call is not None and (call.name == ASKS or (tools and not is_said)):
            yield from _outcome(call, message)
        if text := _received(message, by_tool or message.turn in spoken):
            yield RecalledLine("user" if message.role == "user" else "assistant", text)


def is_of_user(message: Message) -> bool:
    """Whether the user wrote a message. Those of other agents have the same role. `Pure.`"""
    return message.role == "user" and message.audience is None


def _received(message: Message, by_tool: bool) -> str:
    """Return what the user wrote or received: with `by_tool`, as in a turn in which something was said by tool, the
    deliveries of a message, not its text."""
    is_shown = is_of_user(message) or (message.role == "assistant" and not by_tool)
    return text_of(message.text, message.images) if is_shown else "\n".join(message.deliveries)


def _outcome(call: ToolCall, result: Message) -> Iterator[RecalledLine]:
    status = result.stopped or ("failed" if result.error else "completed")
    questions = _questions(call) if call.name == ASKS and status != "failed" else []
    if not questions:
        yield RecalledLine("note", outcome_line(call_line(call.name, call.arguments), status, result.text))
        return
    answers = (json_object(result.text) or {}).get("answers")
    for question in questions:
        yield RecalledLine("question", question)
        answer = answers.get(question) if isinstance(answers, dict) else None
        if isinstance(answer, str | list):
            yield RecalledLine("note", f"  {answer if isinstance(answer, str) else ', '.join(map(str, answer))}")
    if status != "completed":
        yield RecalledLine("note", CANCELLED)


def _questions(call: ToolCall) -> list[str]:
    asked = call.arguments.get("questions", ())
    return [str(question.get("question", "")) for question in asked if isinstance(question, dict)]


def text_of(text: str, images: Collection[Image]) -> str:
    """Return the text of a message, with a label for its images. `Pure.`"""
    return with_images(text, len(images))


def call_line(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as Python would write it. `Pure.`"""
    written = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return one_line(f"{name}({written})", MAX_CALL)


def outcome_line(call: str, status: str, result: str | None) -> str:
    """Return the line for a call that has ended. One that failed shows its result, which says why. `Pure.`"""
    if status == "completed":
        return f"  ✓ {call}"
    reason = one_line(result or "", MAX_ERROR) if status == "failed" else ""
    return f"  ✗ {call} {status}{': ' if reason else ''}{reason}"
