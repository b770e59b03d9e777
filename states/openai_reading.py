"""Checks the history that a conversation is to begin with, and repairs what is wrong with it.

A history comes from another program: it may end in the middle of a round of tool calls, hold results of calls that were
cut off, repeat ids, or use what only one provider knows. Whatever list of messages is given, a conversation can go on
from the repaired one: every call has exactly one result directly behind its message, ids are unique, arguments are JSON
objects, and no message is empty. Files that a model is not sent are left out. A list that is in
order is not changed at all.

Besides messages, the list may hold the items of OpenAI's Responses API, in which calls and results stand beside the
messages: sessions of openai-agents, and programs that send the output of one response with the next request, keep such
items. Every repair is told in a sentence for the application's developer.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from pydantic import BaseModel

from .errors import InvalidInput
from .openai_files import FILE_PARTS, AttachedFile, attached_file
from .openai_writing import NO_RESULT, file_part, is_json_object, legal_name
from .values.files import MAX_FILES, NOUNS, STORED_FILE, FileKind, FileReference, file_at, file_of_part
from .values.messages import HISTORY_ROLES, HistoryMessage, effect_number
from .values.value import encodable, shortened

MAX_MESSAGES = 100_000
"""The most messages of a history. Chosen so that a conversation of years fits, and that it is read within seconds."""

_ONLY_FOR = {"tool_calls": "assistant", "function_call": "assistant", "refusal": "assistant", "tool_call_id": "tool"}
"""Members that only messages of one role have."""


@dataclass(frozen=True)
class RepairedHistory:
    """A history that a conversation can begin with: what to put into `Opened` as its `system`, `messages` and
    `repairs`."""

    system: str
    messages: tuple[HistoryMessage, ...]
    repairs: tuple[str, ...]


TakeFile = Callable[[str, str], FileReference]
"""Takes the bytes out of a data: URL, and returns the reference under which they are stored. It is given the name of
the file, which may be empty. Raises `InvalidInput` for what cannot be used."""


class GivenFiles(NamedTuple):
    """What becomes of the files of a history: `take` takes bytes, and the files that are `lost` are not stored."""

    take: TakeFile | None = None
    lost: Collection[str] = ()


def repair_history(
    messages: Iterable[Mapping[str, Any] | BaseModel],
    system: str = "",
    take_file: TakeFile | None = None,
    lost: Collection[str] = (),
) -> RepairedHistory:
    """Return the history of these messages, which are in OpenAI's chat format, with everything repaired that a provider
    would refuse.

    The system messages at the beginning become the system prompt, unless it is given as `system`; those behind them
    stay where they are. Members that the format does not know are kept, but not sent to a model. In place of the bytes
    of a file stands the reference that `take_file` returns; without it they are left out. So are references to the
    files that are `lost`, by their digests. Raises `InvalidInput` for what is no list of mappings, and for more than
    `MAX_MESSAGES`. `Pure.`
    """
    repairs = Repairs()
    entries = list(arranged(_read_all(_checked(messages), repairs, GivenFiles(take_file, lost)), repairs))
    leading = list(takewhile(_is_system, entries))
    if system.strip():
        for entry in leading:
            repairs.add(entry.place, "The system message was replaced by the one that was given as `system`.")
        return RepairedHistory(system, _values(entries[len(leading) :]), repairs.sentences)
    prompt = "\n\n".join(map(_text_of, leading))
    is_plain = [entry.fields for entry in leading] == [{"role": "system", "content": prompt}]
    return RepairedHistory(prompt, _values(entries[1:] if is_plain else entries), repairs.sentences)


def _checked(messages: object) -> list[Mapping[str, Any] | BaseModel]:
    if isinstance(messages, str | bytes | Mapping | BaseModel) or not isinstance(messages, Iterable):
        raise InvalidInput("A history is a list of messages, each of which is a mapping.")
    checked: list[Mapping[str, Any] | BaseModel] = []
    for message in messages:
        if not isinstance(message, Mapping | BaseModel):
            kind = type(message).__name__
            raise InvalidInput(
                f"messages[{len(checked)}]: A message is a mapping in OpenAI's chat format, not a {kind}."
            )
        if len(checked) == MAX_MESSAGES:
            raise InvalidInput(f"A history has at most {MAX_MESSAGES:,} messages.")
        checked.append(message)
    return checked


def _values(entries: Iterable[Entry]) -> tuple[HistoryMessage, ...]:
    return tuple(HistoryMessage.model_validate(entry.fields) for entry in entries)


def _is_system(entry: Entry) -> bool:
    return entry.fields["role"] in ("system", "developer")


def _text_of(entry: Entry) -> str:
    content = entry.fields["content"]
    return content if isinstance(content, str) else "\n\n".join(part["text"] for part in content)


# --- each message by itself


def _read_all(
    messages: Iterable[Mapping[str, Any] | BaseModel], repairs: Repairs, files: GivenFiles
) -> Iterator[Entry]:
    copies = ((place, _copied(message, partial(repairs.add, place))) for place, message in enumerate(messages))
    for place, fields in _as_messages(copies, repairs):
        repaired = _repaired(fields, partial(repairs.add, place), files)
        if repaired is not None:
            yield Entry(place, repaired)


def _copied(message: Mapping[str, Any] | BaseModel, report: _ReportRepair) -> dict[str, Any]:
    copier = _JsonCopier()
    fields = copier.copy_object(message)
    if copier.lost:
        report("What JSON cannot hold (NaN, or objects of Python) was left out.")
    if copier.mended:
        report("Half a character (a lone surrogate) was replaced.")
    return fields


def _repaired(fields: dict[str, Any], report: _ReportRepair, files: GivenFiles) -> dict[str, Any] | None:
    """Return the repaired message, whose calls and results still have the ids that they had; None if it is left out."""
    role = _role(fields, report)
    if role is None:
        return None
    _repair_members(role, fields, report)
    if "content" in fields or role != "assistant":
        fields["content"] = _repair_content(role, fields.get("content"), report, files)
    if role == "assistant":
        _repair_calls(fields, report)
    elif role == "tool" and fields["content"] is None:
        report("A result without content got an empty text.")
        fields["content"] = ""
    if _is_empty(role, fields):
        report("An empty message was left out.")
        return None
    return fields


def _role(fields: dict[str, Any], report: _ReportRepair) -> str | None:
    """Return the role of the message, or None if no message has such a role."""
    role = fields.get("role")
    if role == "function":
        report("The role 'function' was replaced by 'tool'.")
        role = fields["role"] = "tool"
    if isinstance(role, str) and role in HISTORY_ROLES:
        return role
    what = "without a role" if role is None else f"of the unknown role {quoted(role)}"
    report(f"A message {what} was left out.")
    return None


def _is_empty(role: str, fields: dict[str, Any]) -> bool:
    has_more = role == "tool" or fields.get("tool_calls") or (fields.get("refusal") or "").strip()
    return not has_more and is_blank(fields.get("content"))


def _repair_members(role: str, fields: dict[str, Any], report: _ReportRepair) -> None:
    """Remove the members that a message of this role does not have, and texts that are none."""
    for name, owner in _ONLY_FOR.items():
        if role != owner and fields.get(name):
            report(f"A message of the role '{role}' has no {name}; it was left out.")
            del fields[name]
    for name in ("name", "refusal"):
        if not isinstance(fields.get(name), str | None):
            report(f"The {name} is no text and was left out.")
            del fields[name]


def _repair_calls(fields: dict[str, Any], report: _ReportRepair) -> None:
    """Repair the shape of an assistant's calls. A call of the older format, `function_call`, becomes one of them."""
    given = fields.get("tool_calls")
    legacy = fields.get("function_call")
    if legacy is not None:
        del fields["function_call"]
        report("The function_call was rewritten as a tool call." if not given else "The function_call was left out.")
        given = given or [{"type": "function", "function": legacy}]
    if not given:
        return
    if not isinstance(given, list):
        report("The tool_calls are no list and were left out.")
    calls = [_repair_call(call, report) for call in given] if isinstance(given, list) else []
    fields["tool_calls"] = [call for call in calls if call is not None]
    if not fields["tool_calls"]:
        del fields["tool_calls"]


_UNNAMED = "unknown_tool"
"""The name in a call that names no tool."""


def _repair_call(call: Any, report: _ReportRepair) -> dict[str, Any] | None:
    """Return a call of OpenAI's shape with the id that it had, or None if it is no call at all."""
    if not isinstance(call, dict) or not (function := _function_in(call)):
        report("An entry of the calls that is no call was left out.")
        return None
    if call.get("type") != "function" or "function" not in call:
        report("A call had another shape than in OpenAI's chat format, and was rewritten.")
        call = {"id": call.get("id", call.get("call_id"))} if "function" not in call else call
    name, arguments = _name(function.get("name"), report), _arguments(function.get("arguments"), report)
    return {**call, "type": "function", "function": {**function, "name": name, "arguments": arguments}}


def _function_in(call: dict[str, Any]) -> dict[str, Any]:
    """Return what a call says of its tool, in the shape of any of the formats in use; empty if it says nothing."""
    match call:
        case {"function": dict(function)}:
            return function
        case {"custom": {"name": name, **custom}}:
            return {"name": name, "arguments": custom}
        case {"name": name, "args": arguments} | {"name": name, "arguments": arguments}:
            return {"name": name, "arguments": arguments}
        case _:
            return {}


def _name(name: object, report: _ReportRepair) -> str:
    if not isinstance(name, str) or not name.strip():
        report("A call names no tool.")
        return _UNNAMED
    legal = legal_name(name)
    if legal != name:
        report(f"The tool {quoted(name)} has a name that providers refuse; it was replaced by {legal}.")
    return legal


def _arguments(arguments: object, report: _ReportRepair) -> str:
    """Return the arguments as the text of a JSON object."""
    if isinstance(arguments, str) and is_json_object(arguments):
        return arguments
    if isinstance(arguments, str) and (mended := _mended(arguments)) is not None:
        report("The arguments of a call hold what JSON cannot hold (NaN, half a character); they were mended.")
        return mended
    if isinstance(arguments, dict):
        report("The arguments of a call were written as a JSON text.")
        return json.dumps(arguments, ensure_ascii=False)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        report("A call has no arguments; an empty object stands for them.")
    else:
        report(f"The arguments {quoted(arguments)} are no JSON object and were replaced by an empty one.")
    return "{}"


def _mended(arguments: str) -> str | None:
    """Return arguments that only Python reads as an object in a form that every JSON parser reads."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return json.dumps(_JsonCopier().copy_object(read), ensure_ascii=False) if isinstance(read, dict) else None


_TEXTS = {"text", "input_text", "output_text"}


def _repair_content(role: str, content: Any, report: _ReportRepair, files: GivenFiles) -> Any:
    """Return the content as a text, a list of parts that is not empty, or None. `content` is a JSON value."""
    if content is None or isinstance(content, str):
        return content
    if role == "tool" and not _are_parts(content):
        report("The content is neither a text nor a list of parts, so it was written as JSON.")
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, dict):
        report("The content is a part and not a list of parts; it was put into a list.")
        content = [content]
    if not isinstance(content, list):
        report("The content is neither a text nor a list of parts, and was left out.")
        return None
    if not content:
        report("The content is an empty list, and was left out.")
    return list(_PartReader(role, report, files).read_all(content)) or None


def is_blank(content: Any) -> bool:
    """Return whether a repaired content shows nothing. `Pure.`"""
    if isinstance(content, list):
        return not any(_is_file(part) or str(part[part["type"]]).strip() for part in content)
    return content is None or not content.strip()


def _is_file(part: dict[str, Any]) -> bool:
    return part["type"] in ("image_url", "file") or STORED_FILE in part


def _are_parts(content: Any) -> bool:
    """Whether the content of a result is meant as parts; otherwise it is a value that the tool returned."""
    parts = content if isinstance(content, list) else [content]
    return not parts or any(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)


class _PartReader:
    """Reads the parts of one message."""

    def __init__(self, role: str, report: _ReportRepair, files: GivenFiles) -> None:
        self._role = role
        self._report = report
        self._given = files
        self._files = 0

    def read_all(self, parts: list[Any]) -> Iterator[dict[str, Any]]:
        """Yield the parts that are kept."""
        for part in parts:
            kept = self._read(part)
            if kept is not None:
                yield kept

    def _read(self, part: Any) -> dict[str, Any] | None:
        match part:
            case str():
                self._report("A text in the list of parts was made a part.")
                return {"type": "text", "text": part}
            case {"type": "text", "text": str()} | {"type": "refusal", "refusal": str()} if self._may_say(part["type"]):
                return dict(part)
            case {"type": str(kind), "text": str(text)} if kind in _TEXTS:
                self._report(f"A part of the type {quoted(kind)} was made a text.")
                return {"type": "text", "text": text}
            case {"stored_file": _} | {"type": "file", "file": {"file_id": _, "format": _}} if self._may_have_files:
                return self._referred(part)
            case {"type": str(kind)}:
                if kind in FILE_PARTS and self._may_have_files:
                    return self._attached(part, FILE_PARTS[kind])
                self._report(f"A part of the type {quoted(kind)} was left out.")
            case _:
                self._report("A part without a type was left out.")
        return None

    def _may_say(self, kind: str) -> bool:
        return kind == "text" or self._role == "assistant"

    @property
    def _may_have_files(self) -> bool:
        return self._role in ("user", "tool")

    def _attached(self, part: dict[str, Any], kind: FileKind | None) -> dict[str, Any] | None:
        """A part whose bytes are taken out of it, or that names a file on the web."""
        noun = "file" if kind is None else NOUNS[kind]
        what = f"{'An' if kind == 'image' else 'A'} {noun}"
        attached = attached_file(part)
        if attached is None:
            self._report(f"{what} was left out: it has neither bytes nor an address.")
            return None
        if attached.url.startswith("data:"):
            stored = self._taken(attached, what, kind)
            return self._with_reference(part, stored) if stored is not None and self._has_room() else None
        file = file_at(attached.url, attached.media_type)
        if file is None:
            self._report(f"{what} was left out: it is at no https:// URL, and in no data: URL.")
            return None
        if not self._has_room():
            return None
        if part["type"] == "image_url" and isinstance(part["image_url"], dict):
            return part
        self._report(f"{what} was written as OpenAI's chat format has it.")
        return file_part(file)

    def _with_reference(self, part: dict[str, Any], stored: FileReference) -> dict[str, Any]:
        """The part with a reference in place of the bytes. What else an image says, such as how closely a model is to
        look at it, stays."""
        if FILE_PARTS[part["type"]] != "image" or "image_url" not in part:
            return file_part(stored)
        given = part["image_url"]
        said = {name: value for name, value in given.items() if name != "url"} if isinstance(given, dict) else {}
        return {**part, "type": "image_url", "image_url": said, STORED_FILE: file_part(stored)[STORED_FILE]}

    def _taken(self, attached: AttachedFile, what: str, kind: FileKind | None) -> FileReference | None:
        """The reference to what a data: URL holds, or None if it is nothing that can be used."""
        if self._given.take is None:
            self._report(f"{what} was left out: there is no place for its bytes.")
            return None
        try:
            file = self._given.take(attached.url, attached.name)
        except InvalidInput as invalid:
            self._report(f"{what} was left out: {invalid.sentence}")
            return None
        if kind == "image" and file.kind != kind:
            self._report(f"{what} was left out: it is none.")
            return None
        if not attached.url.startswith(("data:;", f"data:{file.media_type}")):
            self._report(f"The media type of {what[0].lower()}{what[1:]} was corrected.")
        return file

    def _referred(self, part: dict[str, Any]) -> dict[str, Any] | None:
        """A part that refers to a file, as the messages of a conversation write it."""
        file = file_of_part(part)
        if file is None or file.sha256 in self._given.lost:
            why = "its reference cannot be read" if file is None else "it is not stored here"
            self._report(f"A file was left out: {why}.")
            return None
        return part if self._has_room() else None

    def _has_room(self) -> bool:
        if self._files == MAX_FILES:
            self._report(f"A file was left out: at most {MAX_FILES} files go together.")
            return False
        self._files += 1
        return True


_MAX_DEPTH = 50
"""How deep lists and objects may be nested. Chosen so that every JSON parser reads them."""

_MAX_VALUES = 100_000
"""The most values within one message. Chosen so that values that contain each other, which have no end, are cut off."""

_MAX_BITS = 1_000
"""The size of the largest whole number. Chosen so that every JSON parser reads it."""


class _JsonCopier:
    """Copies values of Python as JSON values, and notes what it had to change.

    `lost` says that something that JSON cannot hold was left out, `mended` that half a character (a lone surrogate) was
    replaced.
    """

    def __init__(self) -> None:
        self.lost = False
        self.mended = False
        self._count = 0

    def copy_object(self, given: Mapping[Any, Any] | BaseModel, depth: int = 0) -> dict[str, Any]:
        """Return the copy of an object. Models of pydantic, as the libraries of providers return them, are objects
        without their members that are None."""
        members = given.model_dump(exclude_none=True) if isinstance(given, BaseModel) else given
        copied = ((key, self._copy(value, depth)) for key, value in members.items() if self._is_key(key))
        return {self._copy_text(key): value for key, value in copied if value is not _LOST}

    def _copy(self, value: object, depth: int) -> Any:
        self._count += 1
        match value:
            case _ if self._count > _MAX_VALUES:
                self.lost = True
                return _LOST
            case str():
                return self._copy_text(value)
            case None | bool() | int() | float() if _is_exact(value):
                return value
            case Mapping() | BaseModel() if depth < _MAX_DEPTH:
                return self.copy_object(value, depth + 1)
            case list() | tuple() if depth < _MAX_DEPTH:
                return list(self._copy_list(value, depth + 1))
            case _:
                self.lost = True
                return _LOST

    def _copy_list(self, values: list[Any] | tuple[Any, ...], depth: int) -> Iterator[Any]:
        copied = (self._copy(value, depth) for value in values)
        yield from (value for value in copied if value is not _LOST)

    def _copy_text(self, text: str) -> str:
        if type(text) is str and text.isascii():
            return text
        mended = encodable(text)
        self.mended = self.mended or mended != text
        return mended

    def _is_key(self, key: object) -> bool:
        is_text = isinstance(key, str)
        self.lost = self.lost or not is_text
        return is_text


_LOST = object()


def _is_exact(value: bool | float | None) -> bool:
    """Whether every JSON parser reads this value as it is; members of an enumeration, for example, are none."""
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) is bool or (type(value) is int and value.bit_length() <= _MAX_BITS)


@dataclass
class Entry:
    """A message, its place in the list that was given, the results of its calls, and those that have none so far."""

    place: int
    fields: dict[str, Any]
    results: list[Entry] = field(default_factory=list)
    unanswered: _OpenCalls = field(default_factory=lambda: _OpenCalls())


@dataclass(frozen=True)
class _OpenCall:
    """A call that has no result so far: the id that it had, the one that it has now, and the name of its tool."""

    given_id: str
    call_id: str
    name: str


_Key = tuple[str, object]
_ANY_CALL: _Key = ("any", "")


class _OpenCalls:
    """The calls of a message that have no result so far. Each is found and removed at a cost that does not grow with
    their number, in whatever order the results come."""

    def __init__(self) -> None:
        self._calls: dict[str, _OpenCall] = {}
        """By the ids that they have now, in the order of the message."""
        self._candidates: defaultdict[_Key, deque[_OpenCall]] = defaultdict(deque)
        """By what a result may say of its call, also those that another result has taken since."""

    def __iter__(self) -> Iterator[_OpenCall]:
        return iter(self._calls.values())

    def add(self, call: _OpenCall) -> None:
        """Add a call behind the others."""
        self._calls[call.call_id] = call
        for key in (("id", call.given_id), ("name", call.name), _ANY_CALL):
            self._candidates[key].append(call)

    def take(self, given_id: str, name: object) -> _OpenCall | None:
        """Remove and return the call to which a result belongs: the first that had this id, or, if the result has none,
        the first of the tool with this name, or else the first of all. None if there is none."""
        keys: tuple[_Key, ...] = (("id", given_id),) if given_id else (("name", name), _ANY_CALL)
        for candidates in (self._candidates[key] for key in keys):
            while candidates:
                call = candidates.popleft()
                if self._calls.pop(call.call_id, None) is not None:
                    return call
        return None


def arranged(entries: Iterable[Entry], repairs: Repairs) -> Iterator[Entry]:
    """Yield the messages, each result directly behind the message that called for it, and ids replaced that are used
    twice. `entries` are messages that were repaired one by one."""
    entries = list(entries)
    rounds = _Rounds(entries, repairs)
    kept: list[Entry] = []
    for entry in entries:
        if entry.fields["role"] == "tool":
            rounds.take_result(entry, is_in_place=bool(kept) and kept[-1] is rounds.newest)
        else:
            rounds.take_calls(entry)
            kept.append(entry)
    for entry in kept:
        rounds.add_missing_results(entry)
        yield entry
        yield from entry.results


class _Rounds:
    """Gives calls their ids, and pairs them with their results."""

    def __init__(self, entries: Iterable[Entry], repairs: Repairs) -> None:
        calls = (call for entry in entries for call in entry.fields.get("tool_calls") or ())
        self._ids = _UniqueIds(str(call.get("id")) for call in calls)
        self._repairs = repairs
        self._latest: dict[str, Entry] = {}
        """The message that made the latest call with each of the given ids."""
        self.newest: Entry | None = None
        """The newest message with calls."""

    def take_calls(self, entry: Entry) -> None:
        """Give the calls of this message their ids."""
        report = partial(self._repairs.add, entry.place)
        for call in entry.fields.get("tool_calls") or ():
            given_id, name = _id_in(call, "id", report), call["function"]["name"]
            call["id"] = self._ids.assign(given_id, entry.place, report)
            entry.unanswered.add(_OpenCall(given_id, call["id"], name))
            self._latest[given_id] = entry
            self.newest = entry

    def take_result(self, entry: Entry, *, is_in_place: bool) -> None:
        """Put a result behind the message with its call, or leave it out if there is no such call."""
        report = partial(self._repairs.add, entry.place)
        given_id = _id_in(entry.fields, "tool_call_id", report)
        caller = self._latest.get(given_id) if given_id else self.newest
        call = None if caller is None else caller.unanswered.take(given_id, entry.fields.get("name"))
        if caller is None or call is None:
            what = f"the call {quoted(given_id)}" if given_id else "no call"
            report(f"A result of {what}, which waits for none, was left out.")
            return
        if not given_id:
            report(f"A result without tool_call_id was taken as that of the call {quoted(call.call_id)}.")
        if not is_in_place or caller is not self.newest:
            report(f"The result of the call {quoted(call.call_id)} was moved behind the message with the call.")
        entry.fields["tool_call_id"] = call.call_id
        caller.results.append(entry)

    def add_missing_results(self, entry: Entry) -> None:
        """Add a result that says so for each call that has none."""
        for call in entry.unanswered:
            sentence = (
                f"The call {quoted(call.call_id)} of {quoted(call.name)} has no result; one that says so was added."
            )
            self._repairs.add(entry.place, sentence)
            fields = {"role": "tool", "tool_call_id": call.call_id, "content": NO_RESULT}
            entry.results.append(Entry(entry.place, fields))


MAX_REPAIRS = 1_000
"""The most sentences that are kept of one history. Chosen so that they can be read; one more counts the others."""

_MAX_QUOTED_NAME = 60
"""The most characters of an id, a name or a type that a sentence quotes."""

_ReportRepair = Callable[[str], None]
"""Takes the sentence about a repair of one message."""


class Repairs:
    """The repairs so far. Each names the message by its place in the list that was given."""

    def __init__(self) -> None:
        self._sentences: list[tuple[int, str]] = []
        self._count = 0

    def add(self, place: int, sentence: str) -> None:
        """Note a repair of the message at this place."""
        self._count += 1
        if self._count <= MAX_REPAIRS:
            self._sentences.append((place, f"messages[{place}]: {sentence}"))

    @property
    def sentences(self) -> tuple[str, ...]:
        """All repairs, in the order of the messages."""
        ordered = sorted(self._sentences, key=itemgetter(0))
        more = self._count - len(self._sentences)
        rest = [f"{more} more repairs were made."] if more else []
        return (*(sentence for _, sentence in ordered), *rest)


def quoted(name: object) -> str:
    """An id, a name or a type as a sentence quotes it. `Pure.`"""
    return repr(shortened(str(name), _MAX_QUOTED_NAME))


_PlacedItem = tuple[int, dict[str, Any]]
"""A message or an item, and its place in the list that was given."""


def _as_messages(items: Iterable[_PlacedItem], repairs: Repairs) -> Iterator[_PlacedItem]:
    """Yield the items as messages; what is a message already is unchanged. Calls that stand side by side belong to one
    response, so they become one message."""
    calls: list[_PlacedItem] = []
    for place, item in items:
        kind = None if "role" in item else item.get("type")
        if kind == "function_call":
            repairs.add(place, "A call of the Responses API was rewritten as a tool call.")
            calls.append((place, item))
            continue
        yield from _one_message(calls)
        calls = []
        if kind == "function_call_output":
            repairs.add(place, "An output of the Responses API was rewritten as the result of a tool.")
            item = {"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")}
        yield place, item
    yield from _one_message(calls)


def _one_message(calls: list[_PlacedItem]) -> Iterator[_PlacedItem]:
    if calls:
        yield calls[0][0], {"role": "assistant", "tool_calls": [_call(item) for _, item in calls]}


def _call(item: dict[str, Any]) -> dict[str, Any]:
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


_MAX_CALL_ID = 200
"""The most characters of the id of a call. Providers make ids of up to 64 characters, gateways longer ones."""

_MAX_EFFECT = 1_000_000_000
"""The largest number of an effect in a given id. Chosen so that the numbers behind it fit every database."""


class _UniqueIds:
    """Gives each call an id that no other call of the history has. An id that can be kept is kept."""

    def __init__(self, given: Iterable[str]) -> None:
        """`given` are all ids in the history: none of them is given to another call."""
        self._given = frozenset(given)
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def assign(self, wanted: str, place: int, report: _ReportRepair) -> str:
        """Return the id for a call of the message at `place`; `wanted` is the one that it has, or empty."""
        if wanted and wanted not in self._used and len(wanted) <= _MAX_CALL_ID and effect_number(wanted) <= _MAX_EFFECT:
            assigned = wanted
        else:
            assigned = next(self._free(wanted, place))
            report(f"{_fault(wanted, wanted in self._used)}; it became {quoted(assigned)}.")
        self._used.add(assigned)
        return assigned

    def _free(self, wanted: str, place: int) -> Iterator[str]:
        """Yield ids that no call of the history has, made from the one that it wanted, or from its place. None of them
        reads like an id that this library makes."""
        can_be_extended = wanted and len(wanted) <= _MAX_CALL_ID - 12 and effect_number(wanted) <= _MAX_EFFECT
        stem = f"{wanted}_r" if can_be_extended else f"history_{place}_"
        while True:
            number = self._numbers[stem] = self._numbers.get(stem, 1) + 1
            made = f"{stem}{number}"
            if made not in self._given and made not in self._used:
                yield made


def _fault(wanted: str, is_repeated: bool) -> str:
    if not wanted:
        return "A call has no id"
    return f"The id {quoted(wanted)} {'is repeated' if is_repeated else 'is too long'}"


def _id_in(holder: Mapping[str, Any], name: str, report: _ReportRepair) -> str:
    """Return the id that a call or a result holds under this name, as a text; empty if it holds none."""
    found = holder.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        report(f"The {name} {found} is a number; it became a text.")
        return str(found)
    return found if isinstance(found, str) else ""
