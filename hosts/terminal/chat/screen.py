"""Shows a conversation as it happens: text while it is said, one line for each tool, a word while one has to wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ....engine.updates import Update, UpdateType
from ..output.printable import one_line, with_images
from ..output.writer import DIM, TerminalWriter

RECALLED = 6
"""How many messages are shown of a conversation that is taken up again."""

LONGEST_CALL = 160
"""The most characters of a tool call that are shown."""

THOUGHT = "dim italic"

_GOING_ON = {
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
"""What one waits for in a state, where it is not a tool."""


class Screen:
    """Shows the updates of one conversation, in order.

    `thoughts` shows what the model thinks, dimmed. `echo` shows what the user says, for where nobody types it. With
    `by_tool` the user receives what the model says by tool: its text is shown as a thought, and its tools with the
    thoughts only (case B12).
    """

    def __init__(
        self, pen: TerminalWriter, *, thoughts: bool = False, echo: bool = False, by_tool: bool = False
    ) -> None:
        self.pen = pen
        self._thoughts = thoughts
        self._echo = echo
        self._by_tool = by_tool
        self._heard = {"text": "", "thinking": ""}
        self._said = ""
        self._undelivered: str | None = None
        self._calls: dict[str, str] = {}
        self._asking: str | None = None
        self._drawings: Mapping[UpdateType, Callable[[dict[str, Any]], None]] = {
            "snapshot": self._take_up,
            "state_change": self._move,
            "message": self._message,
            "thought": self._thought,
            "tool": self._tool,
            "turn_ended": self._end_turn,
            "token": self._token,
            "tool_progress": self._progress,
            "delivery": self._delivery,
            "delivered": _not_drawn,
            "delivery_failed": self._delivery_failed,
        }

    def show(self, update: Update) -> None:
        """Draw what an update tells."""
        self._drawings[update.type](update.data)

    def user(self, text: str) -> None:
        """Write what the user said."""
        self.pen.line(f"> {text}", "bold cyan")

    # --- where it rests

    def _take_up(self, data: dict[str, Any]) -> None:
        if self.pen.lively:
            self._recall(data["transcript"])
        self._tell(data["state"])

    def _recall(self, transcript: list[dict[str, Any]]) -> None:
        """Remind a person of what was said last; a script knows."""
        said = [(message["role"], text) for message in transcript if (text := self._words(message))]
        if len(said) > RECALLED:
            self.pen.note(f"… {len(said) - RECALLED} earlier messages")
        for role, text in said[-RECALLED:]:
            if role == "user":
                self.pen.line()
            self._write(role, text)

    def _words(self, message: dict[str, Any]) -> str:
        """What the user knows of a message: what they said, what they were shown while it was written, and what was
        said to them."""
        is_shown = message["role"] == "user" or (message["role"] == "assistant" and not self._by_tool)
        return _text(message) if is_shown else "\n".join(message.get("deliveries", ()))

    def _move(self, data: dict[str, Any]) -> None:
        self._heard = {"text": "", "thinking": ""}
        if data["type"] == "tool_executing":
            return  # which tool it is has just been told
        self.pen.finish()
        self._tell(data)
        if data["type"] in _GOING_ON:
            self.pen.wait_for(_GOING_ON[data["type"]])

    def _tell(self, state: dict[str, Any]) -> None:
        details = state["data"]
        match state["type"]:
            case "retry_waiting":
                self.pen.note(f"  No answer; attempt {details['attempt']} follows in {_seconds_until(details['due'])}.")
            case "compacting" if details["attempt"] == 1:
                self.pen.note("  Condensing what was said so far.")
            case "awaiting_user_response":
                self._asking = details["call_id"]
            case "failed":
                self.pen.line(details["sentence"], "red")
            case _:
                pass

    def _end_turn(self, data: dict[str, Any]) -> None:
        content, said, self._said = data["final_content"], self._said, ""
        if content and content != said and not self._by_tool:
            self._write("assistant", content)
        if data["truncated"]:
            self.pen.note("The answer was cut off: the model writes no longer ones.")
        if data["status"] == "cancelled":
            self.pen.note("Cancelled; the conversation goes on.")

    # --- what is said

    def _delivery(self, data: dict[str, Any]) -> None:
        shown, self._undelivered = self._undelivered, None
        if data["text"] != shown:
            self._write("assistant", data["text"])
            self._said = data["text"]

    def _delivery_failed(self, data: dict[str, Any]) -> None:
        self.pen.aside(data["sentence"])

    def _token(self, data: dict[str, Any]) -> None:
        text, kind = data["text"], data["kind"]
        is_thought = kind == "thinking" or self._by_tool
        if self._thoughts or not is_thought:
            self._heard[kind] += text
            self.pen.flow(text, THOUGHT if is_thought else "")

    def _message(self, data: dict[str, Any]) -> None:
        role, text = data["role"], _text(data)
        if role == "user":
            if self._echo:
                self.user(text)
            return
        if self._by_tool:
            self._think(text, self._heard["text"])
            return
        heard, self._said, self._undelivered = self._heard["text"], text, text
        if heard and text.startswith(heard):
            self.pen.flow(text[len(heard) :])
            self.pen.finish()
        else:
            self._write(role, text)

    def _thought(self, data: dict[str, Any]) -> None:
        self._think(data["text"], self._heard["thinking"])

    def _think(self, text: str, heard: str) -> None:
        if self._thoughts and not heard:
            self.pen.line(text, THOUGHT)

    def _write(self, role: str, text: str) -> None:
        if role == "user":
            self.user(text)
        else:
            self.pen.line(text)

    # --- tools

    def _tool(self, data: dict[str, Any]) -> None:
        call_id, status = data["call_id"], data["status"]
        if status == "running":
            self._calls[call_id] = _call(data["name"], data.get("arguments", "{}"))
            self.pen.wait_for(self._calls[call_id])
        elif call_id != self._asking:
            call = self._calls.pop(call_id, data["name"])
            if self._by_tool and (not self._thoughts or (status == "completed" and data["speaks"])):
                return  # what was said stands there
            self.pen.line(f"  ✓ {call}" if status == "completed" else f"  ✗ {call} {status}", DIM)

    def _progress(self, data: dict[str, Any]) -> None:
        self.pen.wait_for(f"{self._calls.get(data['call_id'], '')}: {data['text']}")


def _not_drawn(data: dict[str, Any]) -> None:
    """Who reads the words here needs no receipt for them."""


def _text(message: dict[str, Any]) -> str:
    """What a message says, with a sign for the images that it shows."""
    return with_images(message.get("text", ""), len(message.get("images", ())))


def _call(name: str, arguments: str) -> str:
    """A call as a programmer would write it."""
    given = _arguments(arguments)
    written = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in given.items())
    return one_line(f"{name}({written})", LONGEST_CALL)


def _arguments(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _seconds_until(due: str) -> str:
    wait = datetime.fromisoformat(due) - datetime.now(UTC)
    return f"{max(0, round(wait.total_seconds()))} s"
