"""What was said, written down as one plain text of limited length, for a model that only reads the dialogue.

Who speaks stands at the left margin, and what they say is indented, so nothing in a text can pass for another message.
Where it gets too long the longest texts are shortened first, since those are what tools returned and not what people
decided; if there are too many messages even for that, the oldest are left out, and the text says so.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ....states.policy.texts import Texts
from ....states.values.mail import text_for_model
from ....states.values.messages import Message
from .request_builder import legal_name

_MARGIN = "  "
_SHORTEST = 300
"""Bytes that a text keeps at least if its message is kept. Ours: a few sentences."""

_MARK = 60
"""Bytes that are set aside for saying that something was left out."""


def write_history(said: Sequence[Message], kept: Sequence[Message], earlier: str, limit: int, texts: Texts) -> str:
    """The messages `said`, oldest first, behind the summary of what came `earlier`, in `limit` bytes of UTF-8 at most.

    Those that are also in `kept` stand beside this text wherever it is used, and are marked. The summary takes a third
    of the limit at most. A limit below some thousand bytes leaves little worth reading. `Pure.`
    """
    before = [cut(entitled("What was said before, already condensed", earlier), limit // 3)] if earlier.strip() else []
    room = limit - sum(_size(passage) + 1 for passage in before)
    passages = list(_passages(said, kept, texts))
    newest = _that_fit([_size(passage) for passage in passages], room - _MARK)
    if newest < len(passages):
        before.append(f"[{len(passages) - newest} older messages are left out here]")
        room -= _MARK
    passages = passages[len(passages) - newest :]
    most = _most([_size(passage) + 1 for passage in passages], room)
    return "\n".join([*before, *(cut(passage, most - 1) for passage in passages)])


# --- passages


def _passages(said: Sequence[Message], kept: Sequence[Message], texts: Texts) -> Iterator[str]:
    called = {call.call_id: legal_name(call.name) for message in said for call in message.tool_calls}
    for message in said:
        text = _text(message, texts)
        if text.strip():
            mark = " (this message is kept beside your text)" if message in kept else ""
            yield entitled(f"{_speaker(message, called)}{mark}", text)


def _speaker(message: Message, called: dict[str, str]) -> str:
    if message.role == "tool":
        name = called.get(message.tool_call_id or "", "a tool")
        return f"Error of {name}" if message.error else f"Result of {name}"
    if message.role == "assistant":
        return "Assistant"
    return "User" if message.audience is None else "Another agent"


def _text(message: Message, texts: Texts) -> str:
    """What a message says, shows and calls, and whether it got to where it was meant to."""
    shows = [f"[shows {len(message.images)} {'images' if len(message.images) > 1 else 'image'}]"] * bool(message.images)
    calls = [f"[calls {legal_name(call.name)} with {call.arguments}]" for call in message.tool_calls]
    lost = [texts.undelivered] if message.undelivered else []
    return "\n".join(part for part in (text_for_model(message), *shows, *calls, *lost) if part.strip())


def entitled(title: str, text: str) -> str:
    """The text below its title, indented, so that nothing in it can pass for a title. `Pure.`"""
    return f"{title}:\n{textwrap.indent(text.strip(), _MARGIN, lambda line: True)}"


# --- sizes


def _size(text: str) -> int:
    return len(text.encode())


def _that_fit(sizes: Sequence[int], room: int) -> int:
    """How many of the newest there is room for, each with its shortest length."""
    count = 0
    for size in reversed(sizes):
        room -= min(size, _SHORTEST) + 1
        if room < 0:
            break
        count += 1
    return count


def _most(sizes: Sequence[int], room: int) -> int:
    """The most bytes that each may have so that all together have no more than there is room for."""
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def cut(text: str, limit: int) -> str:
    """The text in `limit` bytes at most: its beginning and its end, if it is longer. `Pure.`"""
    written = text.encode()
    if len(written) <= limit:
        return text
    left = max(0, limit - _MARK)
    tail = left // 3
    beginning = written[: left - tail].decode(errors="ignore")
    end = written[len(written) - tail :].decode(errors="ignore") if tail else ""
    return f"{beginning} [… {len(text) - len(beginning) - len(end)} characters left out …] {end}"
