"""Shows a conversation as it happens: streamed text, a line for each tool, a spinner while the user waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ....engine.updates import (
    DeliveryFailedUpdate,
    DeliveryUpdate,
    MessageUpdate,
    SnapshotUpdate,
    StateChangeUpdate,
    StateView,
    ThoughtUpdate,
    TokenUpdate,
    ToolProgressUpdate,
    ToolUpdate,
    TurnEndedUpdate,
    Update,
)
from ....states.values.messages import Message
from ..output.printable import counted, one_line
from ..output.writer import TerminalWriter
from .message_lines import CANCELLED, LineKind, call_line, outcome_line, recalled, text_of
from .reply_header import ReplyHeader
from .shown_text import ShownText

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

_BEGIN_AGAIN = ("retry_waiting", "llm_requesting", "compacting")
"""The states that follow an answer which broke off, and which will begin again."""


class Screen:
    """Shows the updates of one conversation, in order.

    With `thoughts` it shows the model's thinking, dimmed. With `echo` it shows the user's messages too, for a user who
    does not type them here. `by_tool` says that the user receives only what the model says by tool: then the model's
    text counts as thinking, and tool calls are shown with the thoughts only. A text that is only for a turn in which
    nothing is said by tool counts as thinking, too, until it is delivered. With `whole` an answer is shown when
    it is complete. `header` is written above each reply.
    """

    def __init__(
        self,
        writer: TerminalWriter,
        *,
        thoughts: bool = False,
        echo: bool = False,
        by_tool: bool = False,
        whole: bool = False,
        header: ReplyHeader | None = None,
    ) -> None:
        self.writer = writer
        self._header = header
        self._thoughts = thoughts
        self._echo = echo
        self._by_tool = by_tool
        self._draft = ShownText(writer, thoughts=thoughts, by_tool=by_tool, whole=whole, header=header)
        self._state: StateView | None = None
        self._last_shown = ""
        self._expected_delivery: str | None = None
        self._calls: dict[str, str] = {}
        self._asking_call: str | None = None
        self._handlers: Mapping[type[Update], Callable[[Any], None]] = {
            SnapshotUpdate: self._show_snapshot,
            StateChangeUpdate: self._change_state,
            MessageUpdate: self._show_message,
            ThoughtUpdate: self._show_thought,
            ToolUpdate: self._show_tool,
            ToolProgressUpdate: self._show_progress,
            DeliveryUpdate: self._show_delivery,
            DeliveryFailedUpdate: self._note_failed_delivery,
            TurnEndedUpdate: self._end_turn,
            TokenUpdate: self._draft.add,
        }

    def show(self, update: Update) -> None:
        """Show an update. There is nothing to show of a delivery that has arrived: its text is on the screen."""
        if (handler := self._handlers.get(type(update))) is not None:
            handler(update)

    # --- the state

    def _show_snapshot(self, update: SnapshotUpdate) -> None:
        if self.writer.interactive:
            self._recall(update.transcript)
        self._show_state(update.state)

    def _recall(self, transcript: Iterable[Message]) -> None:
        """Show the end of a conversation that is resumed, as it looked when it was held."""
        earlier, lines = recalled(transcript, by_tool=self._by_tool, thoughts=self._thoughts)
        if earlier:
            self.writer.note(f"… {counted(earlier, 'earlier message')}")
        for kind, text in lines:
            if kind in ("user", "question"):
                self.writer.line()
            self._write(kind, text)

    def _change_state(self, update: StateChangeUpdate) -> None:
        state = update.state
        before, self._state = self._state, replace(state, inbox=())
        if self._state == before:
            return  # only the inbox has changed
        broke_off = state.type in _BEGIN_AGAIN and self._draft.take_back()
        self._draft.end()
        if state.type == "tool_executing":
            return  # the update of the tool itself has been shown
        self.writer.finish()
        if self._thoughts:
            for sentence in state.left_out:
                self.writer.note(f"  {sentence}")
        self._show_state(state, broke_off)
        if state.type in _WAITING_FOR:
            self.writer.spin(_WAITING_FOR[state.type])

    def _show_state(self, state: StateView, broke_off: bool = False) -> None:
        match state.type:
            case "retry_waiting":
                what = "The answer broke off" if broke_off else "No answer"
                self.writer.note(f"  {what}; attempt {state.attempt} follows in {_seconds_until(state.due)} s.")
            case "compacting" if state.attempt == 1:
                self.writer.note("  Condensing what was said so far.")
            case "awaiting_user_response":
                self._asking_call = state.call_id
            case "failed":
                self.writer.line(state.sentence or "", "red")
            case _:
                pass

    def _end_turn(self, turn: TurnEndedUpdate) -> None:
        content, shown, self._last_shown = turn.final_content, self._last_shown, ""
        said_by_tool = self._by_tool or turn.user_response is not None
        if content and content != shown and not said_by_tool:
            self._show_reply(content)
        if turn.truncated:
            self.writer.note("The answer was cut off: it reached the model's limit.")
        if turn.status == "cancelled":
            self.writer.note(CANCELLED)
        if self._header is not None:
            self._header.end_turn()

    def _show_reply(self, text: str) -> None:
        if self._header is not None:
            self._header.write()
        self._write("assistant", text)

    # --- text

    def _show_delivery(self, delivery: DeliveryUpdate) -> None:
        expected, self._expected_delivery = self._expected_delivery, None
        if delivery.text != expected:
            self._show_reply(delivery.text)
            self._last_shown = delivery.text

    def _note_failed_delivery(self, failed: DeliveryFailedUpdate) -> None:
        self.writer.defer_note(failed.sentence)

    def _show_thought(self, thought: ThoughtUpdate) -> None:
        self._draft.end_thought(thought.text, "thinking")

    def _show_message(self, message: MessageUpdate) -> None:
        text = text_of(message.text, message.images)
        if message.origin:
            self._begin_relay(message.origin, text)
        elif message.role == "user":
            if self._echo:
                self._write("user", text)
        elif self._by_tool or message.fallback:
            self._draft.end_thought(text, "text")
        else:
            self._last_shown = self._expected_delivery = text
            self._draft.end_answer(text)

    def _begin_relay(self, origin: str, text: str) -> None:
        """Another agent wrote this to the model. What the model makes of it is set apart from what was shown before;
        the message itself is shown with the thoughts only."""
        self.writer.blank_line()
        if self._thoughts:
            self.writer.note(f"  {one_line(origin)}: {text}")

    def _write(self, kind: LineKind, text: str) -> None:
        match kind:
            case "user":
                self.writer.line(f"> {text}", "bold cyan")
            case "assistant":
                self.writer.answer(text)
            case "question":
                self.writer.line(text, "bold")
            case "note":
                self.writer.note(text)

    # --- tools

    def _show_tool(self, tool: ToolUpdate) -> None:
        if tool.status == "running":
            self._calls[tool.call_id] = call_line(tool.name, tool.arguments)
            self.writer.spin(self._calls[tool.call_id])
        elif tool.call_id != self._asking_call:
            call = self._calls.pop(tool.call_id, tool.name)
            if (self._by_tool and not self._thoughts) or (tool.status == "completed" and tool.speaks):
                return  # what a tool says is shown when it is delivered
            self.writer.note(outcome_line(call, tool.status, tool.error))

    def _show_progress(self, progress: ToolProgressUpdate) -> None:
        self.writer.spin(f"{self._calls.get(progress.call_id, '')}: {progress.text}")


def _seconds_until(due: str | None) -> int:
    if due is None:
        return 0
    wait = datetime.fromisoformat(due) - datetime.now(UTC)
    return max(0, round(wait.total_seconds()))
