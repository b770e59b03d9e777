"""Writes messages down as one plain text of limited length, for a model that only reads the dialogue.

The speaker stands at the left margin, and the words are indented, so no text can pass for another message. If the
record would become too long, the longest texts are shortened first: they are results of tools rather than decisions of
people. If there are too many messages even for that, the oldest are left out, and the record says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....states.openai_writing import edit_note, legal_name
from ....states.policy import Texts
from ....states.values.messages import Message, escape_tags, text_for_model
from ...passages import NOTE_SIZE, cut_middle, titled
from ..request.wording import text_in_record

_SHORTEST = 300
"""Bytes that each text in the record keeps at least: a few sentences."""


def write_dialogue(messages: Sequence[Message], kept: Sequence[Message], summary: str, limit: int, texts: Texts) -> str:
    """The record of the messages, oldest first, behind the `summary` of what came before them, in at most `limit` bytes
    of UTF-8.

    Messages that are also in `kept` remain in the request beside the new summary, and are marked. The earlier summary
    takes at most a third of the limit. A limit below a few thousand bytes leaves little to read. `Pure.`
    """
    summary = escape_tags(summary)
    preface = (
        [cut_middle(titled("What was said before, already condensed", summary), limit // 3)] if summary.strip() else []
    )
    room = limit - sum(_size(passage) + 1 for passage in preface)
    passages = list(_passages(messages, kept, texts))
    count = _count_that_fit([_size(passage) for passage in passages], room - NOTE_SIZE)
    if count < len(passages):
        preface.append(f"[{len(passages) - count} older messages are left out here]")
        room -= NOTE_SIZE
    passages = passages[len(passages) - count :]
    longest = _longest_allowed([_size(passage) + 1 for passage in passages], room)
    return "\n".join([*preface, *(cut_middle(passage, longest - 1) for passage in passages)])


# --- passages


def _passages(messages: Sequence[Message], kept: Sequence[Message], texts: Texts) -> Iterator[str]:
    tools = {call.call_id: legal_name(call.name) for message in messages for call in message.tool_calls}
    for message in messages:
        text = _text(message, texts)
        if text.strip():
            mark = " (this message is kept beside your text)" if message in kept else ""
            yield titled(f"{_speaker(message, tools)}{mark}", text)


def _speaker(message: Message, tools: dict[str, str]) -> str:
    if message.role == "tool":
        name = tools.get(message.tool_call_id or "", "a tool")
        return f"Error of {name}" if message.error else f"Result of {name}"
    if message.role in ("assistant", "system"):
        return message.role.capitalize()
    return "User" if message.audience is None else "Another agent"


def _text(message: Message, texts: Texts) -> str:
    """The text of a message, its images and calls, and a note if it did not reach the user. What a provider has refused
    is left out."""
    if any(one.what == "text" for one in message.withheld):
        message = message.replace(text=text_in_record(message), tool_calls=(), edited_arguments="")
    images = [f"[shows {len(message.images)} {'images' if len(message.images) > 1 else 'image'}]"] * bool(
        message.images
    )
    calls = [f"[calls {legal_name(call.name)} with {escape_tags(call.raw_arguments)}]" for call in message.tool_calls]
    notes = [escape_tags(edit_note(message)), texts.undelivered * message.undelivered]
    return "\n".join(part for part in (text_for_model(message), *images, *calls, *notes) if part.strip())


# --- sizes


def _size(text: str) -> int:
    return len(text.encode())


def _count_that_fit(sizes: Sequence[int], room: int) -> int:
    """How many of the newest passages fit, each shortened as far as possible."""
    count = 0
    for size in reversed(sizes):
        room -= min(size, _SHORTEST) + 1
        if room < 0:
            break
        count += 1
    return count


def _longest_allowed(sizes: Sequence[int], room: int) -> int:
    """The size to which passages must be shortened so that all of them fit together."""
    low, high = 0, max(sizes, default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(size, middle) for size in sizes) <= room:
            low = middle
        else:
            high = middle - 1
    return low
