"""States the time and the place in a request.

A model knows neither. A voice assistant is asked about both, and a note from an earlier turn would be wrong by now. So
each request has exactly one such note, written when it is built and never stored: the transcript has none, and the
digest of the request is that of the request without it.

The note stands at the end, where it leaves the beginning of the request as it was, since providers cache that. It is
text of the user's role, which every provider accepts there. If the request ends with a message of the user, the note
stands in front of that message's own text, because many providers refuse two messages of one role in a row; otherwise,
behind the results of tools, it is a message of its own.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from ....states.openai_writing import WireMessage
from ....states.values.messages import escape_tags
from ...calendar_names import DAYS, MONTHS
from ..port import NO_VOLUME, ModelRequest, counted, volume_in, volume_of
from .message_order import arrange_behind, parts_of

CONTEXT_TITLE = "Current context:"
"""The first line of the note."""


def write_fresh_context(at: datetime, location: str) -> str:
    """The note with this time and this location, one line of text. `Pure.`"""
    moment = at.astimezone(UTC)
    day = f"{DAYS[moment.weekday()]}, {MONTHS[moment.month - 1]} {moment.day}, {moment.year}"
    return f"{CONTEXT_TITLE}\n• Time: {day} at {moment:%H:%M} UTC\n• Location: {escape_tags(location)}"


def with_fresh_context(request: ModelRequest, note: str) -> ModelRequest:
    """The request with the note at its end. The messages of `request` are not changed. `Pure.`"""
    *before, last = request.messages or ({"role": "system", "content": ""},)
    if last["role"] == "user":
        together = _in_front(note, last)
        volume = volume_in(request).changed(volume_of((last,)), volume_of((together,)))
        return counted(replace(request, messages=(*before, together)), volume)
    own = arrange_behind(last["role"], {"role": "user", "content": note}, request.model)
    volume = volume_in(request).changed(NO_VOLUME, volume_of(own))
    return counted(replace(request, messages=(*request.messages, *own)), volume)


def _in_front(note: str, message: WireMessage) -> WireMessage:
    """The message with the note in front of its own content."""
    content = message["content"]
    together = [*parts_of(note), *content] if isinstance(content, list) else f"{note}\n\n{content}"
    return {**message, "content": together}
