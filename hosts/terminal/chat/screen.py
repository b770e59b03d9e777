"""Shows a conversation as it happens: streamed text, a line for each tool, a spinner while the user waits.

A conversation that is resumed begins with its last messages, shown as they would have been shown while it was held.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from ....engine.updates import (
    DeliveryFailedUpdate,
    DeliveryUpdate,
    HeardUpdate,
    MessageUpdate,
    RewoundUpdate,
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
from ....states.values.files import FileReference
from ....states.values.messages import Message, ToolCall
from ....states.values.value import json_object
from ..output.lines import counted, one_line, with_files
from ..output.writer import TerminalWriter

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
            RewoundUpdate: self._show_rewound,
            HeardUpdate: self._show_heard,
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

    def _show_rewound(self, update: RewoundUpdate) -> None:
        """What is hidden stays above on the screen, so say where the conversation goes on."""
        self._draft.end()
        self.writer.finish()
        place = f"behind turn {update.turn}" if update.turn else "from the beginning"
        self.writer.note(f"Back: the conversation goes on {place}.")

    def _show_heard(self, update: HeardUpdate) -> None:
        """What was not heard stays above on the screen, so say where it was interrupted."""
        for message in update.transcript:
            if message.heard is not None:
                self.writer.note(_where_interrupted(message.heard))

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
        if state.type == "retry_waiting" and before is not None:
            self._draft.give_up_speech(before.request, None)
        elif state.type == "llm_requesting":
            self._draft.give_up_speech(state.request, state.attempt)
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
        self._draft.end_turn()
        said_by_tool = self._by_tool or turn.user_response is not None
        if content and content != shown and not said_by_tool:
            self._show_reply(content)
        if turn.truncated:
            self.writer.note("The answer was cut off: it reached the model's limit.")
        if turn.status == "cancelled":
            self.writer.note(_CANCELLED)
        if self._header is not None:
            self._header.end_turn()

    def _show_reply(self, text: str) -> None:
        if self._header is not None:
            self._header.write()
        self._write("assistant", text)

    # --- text

    def _show_delivery(self, delivery: DeliveryUpdate) -> None:
        expected, self._expected_delivery = self._expected_delivery, None
        if delivery.text == expected:
            return
        if delivery.relayed or not self._draft.end_speech(delivery.text):
            self._show_reply(delivery.text)
        self._last_shown = delivery.text

    def _note_failed_delivery(self, failed: DeliveryFailedUpdate) -> None:
        self.writer.defer_note(failed.sentence)

    def _show_thought(self, thought: ThoughtUpdate) -> None:
        self._draft.end_thought(thought.text, "thinking")

    def _show_message(self, message: MessageUpdate) -> None:
        text = text_of(message.text, message.files)
        if message.origin:
            self._begin_relay(message.origin, text)
        elif message.role == "user":
            if self._echo:
                self._write("user", text)
        elif message.fallback or (self._by_tool and not message.stopped):
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

    def _write(self, kind: _LineKind, text: str) -> None:
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
            self.writer.note(_outcome_line(call, tool.status, tool.error))

    def _show_progress(self, progress: ToolProgressUpdate) -> None:
        self.writer.spin(f"{self._calls.get(progress.call_id, '')}: {progress.text}")


def _seconds_until(due: str | None) -> int:
    if due is None:
        return 0
    wait = datetime.fromisoformat(due) - datetime.now(UTC)
    return max(0, round(wait.total_seconds()))


class ReplyHeader:
    """Writes one line above the first text of a turn, which says who answers. `profile` returns the name of the profile
    that does."""

    def __init__(self, writer: TerminalWriter, profile: Callable[[], str]) -> None:
        self._writer = writer
        self._profile = profile
        self._is_written = False

    def write(self) -> None:
        """Write it, unless it is written for this turn already."""
        if not self._is_written:
            self._is_written = True
            profile = one_line(self._profile())
            self._writer.line(f"Assistant · {profile}" if profile else "Assistant", "bold")

    def end_turn(self) -> None:
        """The next text belongs to another turn."""
        self._is_written = False


_THOUGHT = "dim italic"

_Kind = Literal["text", "thinking", "speech"]


class ShownText:
    """Shows the text and the thinking of one answer after the other, and what tools are to say, as they are streamed.

    A model that fails in the middle of its answer is asked again, and writes from the beginning. So the text that is
    shown belongs to one request and one attempt; a piece of another one takes it back.

    `thoughts`, `by_tool`, `whole` and `header` are those of the screen.
    """

    def __init__(
        self,
        writer: TerminalWriter,
        *,
        thoughts: bool,
        by_tool: bool,
        whole: bool = False,
        header: ReplyHeader | None = None,
    ) -> None:
        self._writer = writer
        self._whole = whole
        self._header = header
        self._thoughts = thoughts
        self._by_tool = by_tool
        self._hides_text = by_tool
        self._request = (0, 0)
        self._shown: dict[_Kind, str] = {"text": "", "thinking": ""}
        self._speech: dict[tuple[int, int], str] = {}
        """What tools are to say, as far as it is shown and was not delivered yet, by request and attempt."""

    def add(self, token: TokenUpdate) -> None:
        """Show a piece of an answer. A piece of another attempt takes back what was shown before."""
        request = (token.request, token.attempt)
        if request != self._request:
            self.take_back()
            self._shown = {"text": "", "thinking": ""}
        self._request = request
        if token.kind == "speech":
            self._add_speech(token)
            return
        self._hides_text = self._by_tool or token.fallback
        is_thought = token.kind == "thinking" or self._hides_text
        if (is_thought and not self._thoughts) or (self._whole and not is_thought):
            return
        text = self._new_text(token, is_thought)
        self._shown[token.kind] += text
        if is_thought:
            self._writer.stream(text, _THOUGHT)
        else:
            self._begin_answer()
            self._writer.stream_answer(text)

    def _add_speech(self, token: TokenUpdate) -> None:
        """Show a piece of what tools are to say, below the text of the answer. A pipe, where nothing can be taken back,
        is shown what was said."""
        if self._whole or not self._writer.interactive:
            return
        self.give_up_speech(token.request, token.attempt)
        shown, text = self._speech.get(self._request, ""), token.text
        if token.from_start:
            if not text.startswith(shown):
                self._writer.discard_answer()
                shown = ""
            text = text[len(shown) :]
        if not shown:
            self._writer.finish()
            self._begin_answer()
        self._speech[self._request] = shown + text
        self._writer.stream_answer(text)

    def give_up_speech(self, request: int | None, attempt: int | None) -> None:
        """Another attempt of a request begins, so what tools were to say by those before it is not said."""
        given_up = [key for key in self._speech if key[0] == request and key[1] != attempt]
        for key in given_up:
            del self._speech[key]
        if given_up and not self._writer.discard_answer():
            self._writer.note("  This was not said.")

    def end_speech(self, text: str) -> bool:
        """Return whether what a tool has said stands on the screen already."""
        for key, shown in self._speech.items():
            if shown.startswith(text):
                self._speech[key] = shown[len(text) :].lstrip()
                return True
        return False

    def end_turn(self) -> None:
        """Forget what tools were to say and have not said by now."""
        self._speech.clear()

    def take_back(self) -> bool:
        """Take back the text of an answer that broke off, and return whether there was any. What has left the screen
        stays, and a note says so."""
        shown, self._shown["text"] = self._shown["text"], ""
        if self._hides_text or not shown:
            return False
        if not self._writer.discard_answer():
            self._writer.note("  This answer broke off.")
        return True

    def end_answer(self, text: str) -> None:
        """Show the rest of the answer, whose whole text is given. Where it was stopped, the rest may be what a tool was
        to say, which is shown."""
        shown, self._shown["text"] = self._shown["text"], ""
        is_begun = bool(shown) and text.startswith(shown)
        rest = text[len(shown) :] if is_begun else text
        if rest.strip() and self._speech.get(self._request, "").strip() == rest.strip():
            del self._speech[self._request]
            self._writer.finish()
        elif is_begun:
            self._writer.stream_answer(rest)
            self._writer.finish()
        else:
            if shown:
                self._writer.discard_answer()
            self._begin_answer()
            self._writer.answer(text)

    def end_thought(self, text: str, kind: _Kind) -> None:
        """Show a thought, unless it was streamed as this kind of text."""
        if self._thoughts and not self._shown[kind]:
            self._writer.line(text, _THOUGHT)

    def end(self) -> None:
        """Keep what is shown, and forget it: what follows belongs to another answer."""
        self._shown = {"text": "", "thinking": ""}

    def _begin_answer(self) -> None:
        if self._header is not None:
            self._header.write()

    def _new_text(self, token: TokenUpdate, is_thought: bool) -> str:
        """Return what is new in a token. One that has everything from the start replaces what is shown."""
        shown = self._shown[token.kind]
        if not token.from_start or not shown:
            return token.text
        if token.text.startswith(shown):
            return token.text[len(shown) :]
        if not is_thought:
            self._writer.discard_answer()
        self._shown[token.kind] = ""
        return token.text


RECALLED = 6
"""How many messages are shown of a conversation that is resumed."""

_MAX_CALL = 160
"""The most characters that are shown of a tool call."""

_MAX_ERROR = 200
"""The most characters that are shown of why a tool call failed."""

_CANCELLED = "Cancelled; the conversation goes on."


def _where_interrupted(heard: str | None) -> str:
    """Say of an answer that it was stopped, or up to where it was heard if that is known. `Pure.`"""
    return "  Stopped." if heard is None else f"  Heard up to here: “{one_line(heard)[-_MAX_HEARD:]}”"


_MAX_HEARD = 80
"""The most characters that are shown of what a user has heard: the last ones."""

_ASKS = "ask_user_question"
"""The tool whose calls are shown as questions."""

_LineKind = Literal["user", "assistant", "question", "note"]
"""How a line is shown: as words of the user or of the assistant, as a question, or as a note of the program."""


class _RecalledLine(NamedTuple):
    """What a resumed conversation shows of one message, tool call or question."""

    kind: _LineKind
    text: str


def recalled(messages: Iterable[Message], *, by_tool: bool, thoughts: bool) -> tuple[int, list[_RecalledLine]]:
    """Return what is shown of the last messages, and how many come before them. `Pure.`

    `by_tool` and `thoughts` are those of the screen.
    """
    lines = list(_lines(tuple(messages), by_tool, tools=thoughts or not by_tool))
    said = [index for index, line in enumerate(lines) if line.kind in ("user", "assistant")]
    earlier = max(0, len(said) - RECALLED)
    return earlier, lines[said[earlier] :] if earlier else lines


def _lines(messages: Collection[Message], by_tool: bool, tools: bool) -> Iterator[_RecalledLine]:
    calls: dict[str | None, ToolCall] = {}
    spoken = {message.turn for message in messages if message.role == "tool" and message.deliveries}
    for message in messages:
        calls |= {call.call_id: call for call in message.tool_calls}
        call = calls.get(message.tool_call_id) if message.role == "tool" else None
        is_said = bool(message.deliveries) and not by_tool  # what a tool says is shown when it is delivered
        if call is not None and (call.name == _ASKS or (tools and not is_said)):
            yield from _outcome(call, message)
        if text := _received(message, by_tool or message.turn in spoken):
            yield _RecalledLine("user" if message.role == "user" else "assistant", text)
            if message.role == "assistant" and (message.stopped is not None or message.heard is not None):
                yield _RecalledLine("note", _where_interrupted(message.heard))


def is_of_user(message: Message) -> bool:
    """Whether the user wrote a message. Those of other agents have the same role. `Pure.`"""
    return message.role == "user" and message.audience is None


def _received(message: Message, by_tool: bool) -> str:
    """Return what the user wrote or received: with `by_tool`, as in a turn in which something was said by tool, the
    deliveries of a message, not its text."""
    is_shown = is_of_user(message) or (message.role == "assistant" and (not by_tool or message.spoken))
    return text_of(message.text, message.files) if is_shown else "\n".join(message.deliveries)


def _outcome(call: ToolCall, result: Message) -> Iterator[_RecalledLine]:
    status = result.stopped or ("failed" if result.error else "completed")
    questions = _questions(call) if call.name == _ASKS and status != "failed" else []
    if not questions:
        yield _RecalledLine("note", _outcome_line(call_line(call.name, call.arguments), status, result.text))
        return
    answers = (json_object(result.text) or {}).get("answers")
    for question in questions:
        yield _RecalledLine("question", question)
        answer = answers.get(question) if isinstance(answers, dict) else None
        if isinstance(answer, str | list):
            yield _RecalledLine("note", f"  {answer if isinstance(answer, str) else ', '.join(map(str, answer))}")
    if status != "completed":
        yield _RecalledLine("note", _CANCELLED)


def _questions(call: ToolCall) -> list[str]:
    asked = call.arguments.get("questions", ())
    return [str(question.get("question", "")) for question in asked if isinstance(question, dict)]


def text_of(text: str, files: Collection[FileReference]) -> str:
    """Return the text of a message, with a label for each of its files. `Pure.`"""
    return with_files(text, files)


def call_line(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as Python would write it. `Pure.`"""
    written = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
    return one_line(f"{name}({written})", _MAX_CALL)


def _outcome_line(call: str, status: str, result: str | None) -> str:
    """Return the line for a call that has ended. One that failed shows its result, which says why. `Pure.`"""
    if status == "completed":
        return f"  ✓ {call}"
    reason = one_line(result or "", _MAX_ERROR) if status == "failed" else ""
    return f"  ✗ {call} {status}{': ' if reason else ''}{reason}"
