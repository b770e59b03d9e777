"""What a model is shown of a tool's result, and how it reads the rest.

A tool may return a book. All of it is stored, but a request shows only so much of a result as the rules say, and where
the window is nearly full, old results give way to one line each. Nothing is lost by that: the line names the call, and
by the tool `read_result` the model reads any part of what was stored.
"""

from __future__ import annotations

import json

from ..states.errors import InvalidInput
from ..states.policy import Texts
from ..states.values.messages import Message, ToolResult
from ..states.values.value import MAX_QUOTED, shortened
from .context import EffectContext


def shown_part(line: str, text: str, call_id: str, limit: int) -> str:
    """The beginning and the end of a result that is too long, about `limit` characters, with `line` between them:
    `Texts.result_cut`. The beginning says what it is, and the end often holds the total or the error. `Pure.`"""
    room = _room(line, text, call_id, limit)
    beginning, end = text[: (room + 1) // 2], text[len(text) - room // 2 :]
    missing = len(text) - len(beginning) - len(end)
    return f"{beginning}\n{_filled(line, text, call_id, missing, len(beginning))}\n{end}"


def cleared_line(line: str, text: str, call_id: str) -> str:
    """What stands in place of a result that was cleared: `line`, which is `Texts.result_cleared`. `Pure.`"""
    return _filled(line, text, call_id, len(text), 0)


def part_from(line: str, text: str, call_id: str, start: int, limit: int) -> str:
    """The result from the place `start` on, about `limit` characters of it. If more follows, `line` says from where on
    that is read. `Pure.`"""
    if len(text) - start <= limit:
        return text[start:]
    end = start + _room(line, text, call_id, limit)
    return f"{text[start:end]}\n{_filled(line, text, call_id, len(text) - end, end)}"


def _room(line: str, text: str, call_id: str, limit: int) -> int:
    """How many characters of the result are shown beside the line. There are some however long the line is."""
    longest = _filled(line, text, call_id, len(text), len(text))
    return max(limit // 4, limit - len(longest) - 2)


def _filled(line: str, text: str, call_id: str, missing: int, place: int) -> str:
    """The line with these figures. An id that another program has made may hold anything."""
    figures = {
        "{missing}": f"{missing:,}",
        "{characters}": f"{len(text):,}",
        "{place}": f"{place}",
        "{call_id}": json.dumps(call_id, ensure_ascii=False)[1:-1],
    }
    for name, figure in figures.items():
        line = line.replace(name, figure)
    return line


NO_RESULT = "There is no result of a call {call_id} in this conversation."
BEYOND_END = "The result of that call has {characters:,} characters, so nothing begins at {start:,}."
REFUSED = "The result of that call is not shown to you: the provider refused it."


class StoredResults:
    """The results of one conversation, as far as it shows them: not those of branches that it has left."""

    def __init__(self, context: EffectContext) -> None:
        self._context = context

    async def read(self, call_id: str, start: int) -> ToolResult:
        """Return the result of this call from the place `start` on, as much of it as a request shows of a result. Its
        files are shown with its beginning. Raises `InvalidInput`, and `StoreError` if the log cannot be read."""
        transcript, policy = await self._context.transcript(), self._context.policy
        found = next((one for one in reversed(transcript.messages) if one.tool_call_id == call_id), None)
        if found is None:
            raise InvalidInput(NO_RESULT.format(call_id=shortened(call_id, MAX_QUOTED)))
        return _part_of(found, start, policy.max_result, policy.texts)


def _part_of(result: Message, start: int, limit: int, texts: Texts) -> ToolResult:
    if any(one.what == "text" for one in result.withheld):
        raise InvalidInput(REFUSED)
    if start and start >= len(result.text):
        raise InvalidInput(BEYOND_END.format(characters=len(result.text), start=start))
    part = part_from(texts.result_cut, result.text, result.tool_call_id or "", start, limit)
    return ToolResult(text=part, files=() if start or result.withheld else result.files)
