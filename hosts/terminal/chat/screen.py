"""Shows a conversation as it happens: streamed text, a line for each tool, a spinner while the user waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ....engine.projections.updates.update import Update, UpdateType
from ..output.printable import counted, one_line, with_images
from ..output.writer import DIM, TerminalWriter

RECALLED = 6
"""How many messages are shown of a conversation that is resumed."""

MAX_CALL = 160
"""The most characters that are shown of a tool call."""

THOUGHT = "dim italic"

_WAITING_FOR = {
    "profile_selecting": "choosing how to answer",
    "memory_recalling": "remembering",
    "llm_requesting": "thinking",
    "retry_waiting": "waiting",
    "awaiting_sub_agents": "waiting for sub-agents",
    "verifying": "checking the work",
    "summarizing": "summing up",
    "compacting": "condensing what was said",
    "cancelling": "stopping",
}
"""What the spinner says in each state, by the type of the state; a tool has a text of its own."""


class Screen:
    """Shows the updates of one conversation, in order.

    With `thoughts` it shows the model's thinking, dimmed. With `echo` it shows the user's messages too, for a user who
    does not type them here. `by_tool` says that the user receives only what the model says by tool: then the model's
    text counts as thinking, and tool calls are shown with the thoughts only.
    """

    def __init__(
        self, writer: TerminalWriter, *, thoughts: bool = False, echo: bool = False, by_tool: bool = False
    ) -> None:
        self.writer = writer
        self._thoughts = thoughts
        self._echo = echo
        self._by_tool = by_tool
        self._streamed = {"text": "", "thinking": ""}
        self._shown_state: dict[str, Any] = {}
        self._last_shown = ""
        self._expected_delivery: str | None = None
        self._calls: dict[str, str] = {}
        self._asking_call: str | None = None
        self._handlers: Mapping[UpdateType, Callable[[dict[str, Any]], None]] = {
            "snapshot": self._show_snapshot,
            "state_change": self._change_state,
            "message": self._show_message,
            "thought": self._show_thought,
            "tool": self._show_tool,
            "turn_ended": self._end_turn,
            "token": self._stream_token,
            "tool_progress": self._show_progress,
            "delivery": self._show_delivery,
            "delivered": _ignore,
            "delivery_failed": self._note_failed_delivery,
        }

    def show(self, update: Update) -> None:
        """Show an update."""
        self._handlers[update.type](update.data)

    # --- the state

    def _show_snapshot(self, data: dict[str, Any]) -> None:
        if self.writer.interactive:
            self._recall(data["transcript"])
        self._show_state(data["state"])

    def _recall(self, transcript: list[dict[str, Any]]) -> None:
        """Show the last messages of a conversation that is resumed."""
        shown = [(message["role"], text) for message in transcript if (text := self._received(message))]
        if len(shown) > RECALLED:
            self.writer.note(f"… {counted(len(shown) - RECALLED, 'earlier message')}")
        for role, text in shown[-RECALLED:]:
            if role == "user":
                self.writer.line()
            self._write(role, text)

    def _received(self, message: dict[str, Any]) -> str:
        """Return what the user wrote or received: with `by_tool` the deliveries of a message, not its text."""
        is_shown = message["role"] == "user" or (message["role"] == "assistant" and not self._by_tool)
        return _text(message) if is_shown else "\n".join(message.get("deliveries", ()))

    def _change_state(self, data: dict[str, Any]) -> None:
        shown, self._shown_state = self._shown_state, {**data["data"], "type": data["type"], "inbox": []}
        if self._shown_state == shown:
            return  # only the inbox has changed
        self._streamed = {"text": "", "thinking": ""}
        if data["type"] == "tool_executing":
            return  # the update of the tool itself has been shown
        self.writer.finish()
        self._show_state(data)
        if data["type"] in _WAITING_FOR:
            self.writer.spin(_WAITING_FOR[data["type"]])

    def _show_state(self, state: dict[str, Any]) -> None:
        details = state["data"]
        match state["type"]:
            case "retry_waiting":
                seconds = _seconds_until(details["due"])
                self.writer.note(f"  No answer; attempt {details['attempt']} follows in {seconds} s.")
            case "compacting" if details["attempt"] == 1:
                self.writer.note("  Condensing what was said so far.")
            case "awaiting_user_response":
                self._asking_call = details["call_id"]
            case "failed":
                self.writer.line(details["sentence"], "red")
            case _:
                pass

    def _end_turn(self, data: dict[str, Any]) -> None:
        content, shown, self._last_shown = data["final_content"], self._last_shown, ""
        if content and content != shown and not self._by_tool:
            self._write("assistant", content)
        if data["truncated"]:
            self.writer.note("The answer was cut off: it reached the model's limit.")
        if data["status"] == "cancelled":
            self.writer.note("Cancelled; the conversation goes on.")

    # --- text

    def _show_delivery(self, data: dict[str, Any]) -> None:
        expected, self._expected_delivery = self._expected_delivery, None
        if data["text"] != expected:
            self._write("assistant", data["text"])
            self._last_shown = data["text"]

    def _note_failed_delivery(self, data: dict[str, Any]) -> None:
        self.writer.defer_note(data["sentence"])

    def _stream_token(self, data: dict[str, Any]) -> None:
        text, kind = data["text"], data["kind"]
        is_thought = kind == "thinking" or self._by_tool
        if self._thoughts or not is_thought:
            self._streamed[kind] += text
            self.writer.stream(text, THOUGHT if is_thought else "")

    def _show_message(self, data: dict[str, Any]) -> None:
        role, text = data["role"], _text(data)
        if role == "user":
            if self._echo:
                self._write(role, text)
            return
        if self._by_tool:
            self._write_thought(text, self._streamed["text"])
            return
        streamed, self._last_shown, self._expected_delivery = self._streamed["text"], text, text
        if streamed and text.startswith(streamed):
            self.writer.stream(text[len(streamed) :])
            self.writer.finish()
        else:
            self._write(role, text)

    def _show_thought(self, data: dict[str, Any]) -> None:
        self._write_thought(data["text"], self._streamed["thinking"])

    def _write_thought(self, text: str, streamed: str) -> None:
        if self._thoughts and not streamed:
            self.writer.line(text, THOUGHT)

    def _write(self, role: str, text: str) -> None:
        if role == "user":
            self.writer.line(f"> {text}", "bold cyan")
        else:
            self.writer.line(text)

    # --- tools

    def _show_tool(self, data: dict[str, Any]) -> None:
        call_id, status = data["call_id"], data["status"]
        if status == "running":
            self._calls[call_id] = _call(data["name"], data["arguments"])
            self.writer.spin(self._calls[call_id])
        elif call_id != self._asking_call:
            call = self._calls.pop(call_id, data["name"])
            if self._by_tool and (not self._thoughts or (status == "completed" and data["speaks"])):
                return  # what the tool said has been shown
            self.writer.line(f"  ✓ {call}" if status == "completed" else f"  ✗ {call} {status}", DIM)

    def _show_progress(self, data: dict[str, Any]) -> None:
        self.writer.spin(f"{self._calls.get(data['call_id'], '')}: {data['text']}")


def _ignore(data: dict[str, Any]) -> None:
    """Show nothing: the text of the delivery is on the screen already."""


def _text(message: dict[str, Any]) -> str:
    """Return the text of a message, with a label for its images."""
    return with_images(message.get("text", ""), len(message.get("images", ())))


def _call(name: str, arguments: dict[str, Any]) -> str:
    """Return a tool call as Python would write it."""
    written = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return one_line(f"{name}({written})", MAX_CALL)


def _seconds_until(due: str) -> int:
    wait = datetime.fromisoformat(due) - datetime.now(UTC)
    return max(0, round(wait.total_seconds()))
