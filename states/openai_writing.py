"""The messages of a conversation in OpenAI's chat format, computed from its log, in a form that every provider accepts.

Arguments are JSON objects, names of tools are legal, every call has its result directly behind the message that made
it, and no message is empty, whatever the transcript holds. Arguments that are no JSON object are quoted in the result,
which says what is wrong with them, and so are those by which a person has replaced what the model wrote.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import dropwhile
from typing import Any, cast

from pydantic_core import from_json

from .events import DetailsChanged, Event, Opened
from .step import LogEntry, Step
from .transcript import transcript
from .values.files import NOUNS, STORED_FILE, FileReference
from .values.messages import LONGEST_ID, Message, ToolCall, text_for_model
from .values.value import shortened


def openai_messages(log: Iterable[LogEntry | tuple[Event, Step]]) -> list[WireMessage]:
    """Return everything that was said in a log, which is given as entries or as (event, step) pairs, as messages that a
    conversation can begin with: first the system prompt and the given history, exactly as it was given, then what was
    said since. A system prompt that has changed stands there as it is now.

    Results stand in call order, directly behind the message that made the calls; a call that has no result yet has one
    that says so. Files of results stand in a user's message behind them. A file that is stored beside the log is
    written as a reference. `Pure.`
    """
    entries = tuple(entry if isinstance(entry, LogEntry) else LogEntry.of(*entry) for entry in log)
    given = [message for entry in entries[:1] for message in _given(entry.event, _changed_system(entries))]
    said = [_as_read(message) for message in transcript(entries) if message.seq > 1]
    written = [message for entry in pair_results(said) for message in write(entry, lambda call: call.call_id)]
    return cast(list[WireMessage], json.loads(json.dumps([*given, *written])))


def _changed_system(entries: Sequence[LogEntry]) -> str | None:
    """The system prompt that the conversation was given last; None if it has the one with which it began."""
    changes = (entry.event.system for entry in reversed(entries) if isinstance(entry.event, DetailsChanged))
    return next((system for system in changes if system is not None), None)


def _given(event: Event, changed_system: str | None) -> list[WireMessage]:
    """The messages that the conversation began with. The system prompt is one of them; it stands in the history where
    it was given in another way than as one text, unless it has changed since."""
    if not isinstance(event, Opened):
        return []
    messages, system = [*event.messages], event.system
    if changed_system is not None:
        messages, system = [*dropwhile(lambda one: one.is_system, messages)], changed_system
    has_prompt = bool(messages) and messages[0].is_system
    prompt = [{"role": "system", "content": system}] if system.strip() and not has_prompt else []
    return [*prompt, *(message.given for message in messages)]


def _as_read(message: Message) -> Message:
    """The message in the words that a model reads: that of another agent stands between tags."""
    return message if message.audience is None else message.replace(text=text_for_model(message))


def repairs_of(log: Iterable[LogEntry]) -> tuple[str, ...]:
    """Return what was repaired in the history that the conversation began with. `Pure.`"""
    return next((entry.event.repairs for entry in log if isinstance(entry.event, Opened)), ())


WireMessage = dict[str, Any]
"""A message in OpenAI's chat format."""

NO_RESULT = "Error: there is no result."
"""What is written as the result of a call that has none."""

RESULT_FILES = "Returned by the tool "
"""The beginning of the text in front of the files of a tool's result."""

MAX_UNSENT = 2_000
"""The most characters of arguments that are no JSON object which a model is shown again. Chosen so that it sees its
mistake, and so that a megabyte of it costs little."""

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_EMPTY_RESULT = "(nothing)"  # some providers refuse a result without text


@dataclass(slots=True)
class MessageWithResults:
    """A message with the result of each of its calls."""

    message: Message
    results: list[Message | None]


def pair_results(messages: Sequence[Message]) -> list[MessageWithResults]:
    """Pair each result with the latest call of its id that has none yet. A result without a call is left out.
    `Pure.`"""
    entries: list[MessageWithResults] = []
    open_calls: dict[str, deque[tuple[MessageWithResults, int]]] = {}
    for message in messages:
        if message.role == "tool":
            if waiting := open_calls.get(message.tool_call_id or ""):
                entry, index = waiting.popleft()
                entry.results[index] = message
            continue
        calls = message.tool_calls
        entry = MessageWithResults(message, [None] * len(calls))
        entries.append(entry)
        for call in calls:
            open_calls[call.call_id] = deque()
        for index, call in enumerate(calls):
            open_calls[call.call_id].append((entry, index))
    return entries


def write(entry: MessageWithResults, id_of: Callable[[ToolCall], str]) -> Iterator[WireMessage]:
    """Yield the messages as which an entry is written, with ids of calls from `id_of`; none if it is empty.

    What only the provider of a message reads is left out: `add_provider_fields` adds it.

    Files of results stand in a user's message behind the results, because some providers refuse them in results; a text
    names the tool that returned them. A file that is stored beside the log is written as a reference. A system message
    within the dialogue, which many providers refuse, is written as a user's message between tags. `Pure.`
    """
    message, calls = entry.message, entry.message.tool_calls
    if message.role in ("user", "system"):
        if message.text.strip() or message.files:
            yield {"role": "user", "content": _content(message)}
        return
    text = message.text if message.text.strip() else None
    ids = [id_of(call) for call in calls]
    if text is None and not ids:
        return
    written: WireMessage = {"role": "assistant", "content": text}
    if ids:
        written["tool_calls"] = [_call(*pair) for pair in zip(calls, ids, strict=True)]
    yield written
    yield from (_result(*each) for each in zip(calls, entry.results, ids, strict=True))
    if files := [part for index, call_id in enumerate(ids) for part in _files_of(entry, index, call_id)]:
        yield {"role": "user", "content": files}


def text_parts(text: str) -> list[WireMessage]:
    """The text as a list of parts; empty for a blank text. `Pure.`"""
    return [{"type": "text", "text": text}] if text.strip() else []


def legal_name(name: str) -> str:
    """The name under which providers accept a tool: letters, digits, `_` and `-`, at most 64 characters.

    A legal name is unchanged. Any other name gets a fingerprint at its end, so that different names stay different.
    `Pure.`
    """
    if _LEGAL_NAME.fullmatch(name):
        return name
    fingerprint = blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{re.sub(r'[^a-zA-Z0-9_-]', '_', name)[:55]}_{fingerprint}"


def is_json_object(text: str) -> bool:
    """Whether every JSON parser reads the text as an object, also those that accept no NaN and no lone surrogates.
    `Pure.`"""
    try:
        return isinstance(from_json(text, allow_inf_nan=False), dict)
    except ValueError:
        return False


def _content(message: Message) -> str | list[WireMessage]:
    """The content of a user's message: a text, or parts if there are files."""
    if message.role == "system":
        return f"<system_message>\n{message.text}\n</system_message>"
    if not message.files:
        return message.text
    if not message.parts:
        return [*text_parts(message.text), *map(file_part, message.files)]
    return [written for part in message.parts for written in _part(part, message.files)]


def _part(part: str | int, files: Sequence[FileReference]) -> list[WireMessage]:
    return text_parts(part) if isinstance(part, str) else [file_part(files[part])]


def _files_of(entry: MessageWithResults, index: int, call_id: str) -> Iterator[WireMessage]:
    """The files of one result, behind a text that names the tool; empty if there are none."""
    result = entry.results[index]
    if result is not None and result.files:
        name = legal_name(entry.message.tool_calls[index].name)
        shown = shortened(call_id, LONGEST_ID)
        yield from text_parts(f"{RESULT_FILES}{name} (call {shown}), not sent by the user:")
        yield from map(file_part, result.files)


def file_part(file: FileReference) -> WireMessage:
    """The part of a message that shows a file: the reference to one that is stored, whose bytes are put in where the
    message is used, or the address of one on the web. `Pure.`"""
    if not file.url:
        return {"type": STORED_FILE, STORED_FILE: file.model_dump(mode="json", exclude_defaults=True)}
    if file.kind == "image":
        return {"type": "image_url", "image_url": {"url": file.url}}
    return {"type": "file", "file": {"file_id": file.url, "format": file.media_type}}


def _call(call: ToolCall, call_id: str) -> WireMessage:
    arguments = call.raw_arguments if is_json_object(call.raw_arguments) else "{}"
    return {"id": call_id, "type": "function", "function": {"name": legal_name(call.name), "arguments": arguments}}


def _result(call: ToolCall, result: Message | None, call_id: str) -> WireMessage:
    text = NO_RESULT if result is None else _result_text(call, result)
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _result_text(call: ToolCall, result: Message) -> str:
    """The text of a result, which is never empty. That of an error says that it is one."""
    needs_mark = result.error and not _says_failure(result.text)
    text = f"Error: {result.text}" if needs_mark else result.text
    count = len(result.files)
    files = f"({count} {_noun(result.files)}{'s' if count > 1 else ''}: see below.)" if count else ""
    notes = (_unsent_arguments(call) if result.error else "", edit_note(result), files)
    return "\n\n".join(part for part in (text, *notes) if part.strip()) or _EMPTY_RESULT


def _noun(files: Sequence[FileReference]) -> str:
    kinds = {file.kind for file in files}
    return NOUNS[kinds.pop()] if len(kinds) == 1 else "file"


def edit_note(result: Message) -> str:
    """What tells a model that a person has changed the arguments of its call; empty for any other result. The call
    itself is written as the model made it. `Pure.`"""
    edited = result.edited_arguments
    return f"(A person changed the arguments of this call. It was made with these instead: {edited})" if edited else ""


def _unsent_arguments(call: ToolCall) -> str:
    """What the model wrote as arguments that providers refuse, since the call is written without them."""
    written = call.raw_arguments
    return "" if is_json_object(written) else f"You wrote: {shortened(written, MAX_UNSENT)}"


def _says_failure(text: str) -> bool:
    """Whether the text itself says that something failed: JSON whose `success` is false, as of a refused act."""
    return is_json_object(text) and from_json(text).get("success") is False
