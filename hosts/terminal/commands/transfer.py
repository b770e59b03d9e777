"""The commands that copy conversations: `export` to stdout, `import` from a file, and `fork` within a database.

An export has the conversations themselves, as JSON lines, or their messages for other programs. `turnwise import`
stores the conversations of an export, or begins new ones with messages of other programs.

Messages are written and read in OpenAI's chat format. One conversation is a JSON list of messages. Several are JSON
lines, each an object with `messages` and `tools`, as in files for fine-tuning: an example ends with an answer of the
assistant, and describes the tools that it calls. All that programs usually write is read: lists, objects with
`messages`, lists or lines of them, and lines of single messages.
"""

from __future__ import annotations

import io
import json
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

from ....effects.files import NoFiles, PreparedFile
from ....effects.given_files import TakenFiles
from ....effects.model.outputs import TOOL as TYPED_ANSWER
from ....effects.model.shown_files import with_bytes
from ....effects.tools.catalogue import BUILT_IN, bare_name
from ....effects.tools.registry import ToolRegistry
from ....engine.redactor import EventRedactor
from ....engine.requests import make
from ....persistence.errors import Damaged, StorageFailed
from ....persistence.maintenance import export as jsonl
from ....persistence.maintenance.export import import_records, new_record
from ....persistence.maintenance.files import ImportedFiles, lines_of_files
from ....persistence.maintenance.fork import fork as fork_in
from ....persistence.maintenance.reading import lines_of, read_export
from ....persistence.ports import Store, find_all
from ....persistence.records import ConversationRecord
from ....states.errors import ConfigurationError, InvalidInput
from ....states.events import Opened
from ....states.openai_reading import RepairedHistory, repair_history
from ....states.openai_writing import openai_messages
from ....states.policy import Policy
from ....states.step import LogEntry
from ....states.transcript import transcript
from ....states.values.files import FileReference
from ....states.values.value import MAX_QUOTED, shortened
from ..configuration import Settings, open_for_reading, open_for_writing, preset_of, resolve_id, tools_named
from ..output.lines import counted, one_line, print_notice

_INCOMPLETE = 1
"""The exit code of an export from which damaged conversations were left out."""


async def export(settings: Settings, given_id: str | None) -> int:
    """Write one conversation, or with None all of them, to stdout.

    An export of all of them leaves damaged conversations out, and names each on stderr.
    """
    count, complete = 0, True
    async with open_for_reading(settings) as store:
        written = set[str]()
        if given_id is not None:
            conversation_id = await resolve_id(store, given_id)
            steps = await jsonl.export_conversation(store, conversation_id)
            _write([jsonl.first_line()])
            await _write_files(store, conversation_id, written)
            _write([*steps, jsonl.last_line(1)])
            return 0
        _write([jsonl.first_line()])
        async for each, exported in jsonl.export_all(store):
            if isinstance(exported, Damaged):
                print_notice(_left_out(each, exported.sentence))
                complete = False
            else:
                await _write_files(store, each, written)
                _write(exported)
                count += 1
        _write([jsonl.last_line(count)])
    return 0 if complete else _INCOMPLETE


async def _write_files(store: Store, conversation_id: str, written: set[str]) -> None:
    async for line in lines_of_files(store, conversation_id, written):
        _write([line])


async def export_messages(settings: Settings, given_id: str | None) -> int:
    """Write the messages of one conversation, or with None of all of them, to stdout, in OpenAI's chat format.

    An export of all of them is a file for fine-tuning. It leaves out damaged conversations and those without an answer,
    and names each on stderr. It describes the tools that are called; those of the settings that were given say how.
    """
    complete = True
    given = settings.tools if "tools" in settings.model_fields_set else ()
    tools = ToolRegistry(tools_named(given))
    async with open_for_reading(settings) as store:
        if given_id is not None:
            conversation_id = await resolve_id(store, given_id)
            written = openai_messages(await store.entries(conversation_id))
            files = StoredFiles(store, conversation_id)
            _write([write_one([await with_bytes(message, files) for message in written])])
            return 0
        ids, faults = await find_all(store)
        for fault in faults:
            print_notice(_left_out("", fault.sentence))
            complete = False
        for each in ids:
            try:
                files, entries = StoredFiles(store, each), await store.entries(each)
                written = [await with_bytes(message, files) for message in openai_messages(entries)]
                example = _write_example(written, _calls_that_ran(entries), tools)
            except (Damaged, StorageFailed) as damaged:
                print_notice(_left_out(each, damaged.sentence))
                complete = False
            else:
                if example is None:
                    print_notice(one_line(f"{each} is left out: it has no answer."))
                else:
                    _write([example])
    return 0 if complete else _INCOMPLETE


class StoredFiles(NoFiles):
    """The files of a conversation, to be read from its store."""

    def __init__(self, store: Store, conversation_id: str) -> None:
        self._store = store
        self._conversation_id = conversation_id

    async def read(self, file: FileReference) -> bytes | None:
        """Return the bytes of a file."""
        return await self._store.files.read(self._conversation_id, file.sha256)


def _left_out(conversation_id: str, sentence: str) -> str:
    return one_line(f"{conversation_id} is left out: {sentence}" if conversation_id else sentence)


def _write(lines: Iterable[str]) -> None:
    """Write bytes, so that neither the encoding nor the line ends of a terminal change the export."""
    if sys.stdout is None:
        return
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())


_STDIN = Path("-")

_MESSAGES = (b"[", b'{"messages"')
"""How a file with messages in OpenAI's chat format begins."""


def read(file: Path, files: ImportedFiles) -> tuple[ConversationRecord, ...]:
    """Read the conversations of an export with their files, and check all of it. Raises `ConfigurationError` and
    `NotAnExport`.

    Call it before an event loop runs: under one, Ctrl-C would not interrupt a read from a terminal.
    """
    with _opened(file) as stream:
        lines = lines_of(stream)
        first = next(lines, b"")
        if first.lstrip().startswith(_MESSAGES):
            raise ConfigurationError(
                "This is no export of turnwise. Import messages in OpenAI's chat format with --format openai."
            )
        return read_export(chain([first] if first else [], lines), files)


def read_messages(file: Path, files: TakenFiles) -> tuple[RepairedHistory, ...]:
    """Read the histories of a file with messages in OpenAI's chat format, checked and repaired; the bytes of files go
    to `files`. Call it where `read` may be called. Raises `ConfigurationError` and `InvalidInput`."""
    with _opened(file) as stream:
        data = stream.read()
    return tuple(repair_history(messages, take_file=files.take) for messages in read_histories(data))


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if file == _STDIN:
        yield io.BytesIO() if sys.stdin is None else sys.stdin.buffer
        return
    try:
        with file.open("rb") as stream:
            yield stream
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error


async def import_(settings: Settings, records: Iterable[ConversationRecord], files: ImportedFiles) -> int:
    """Store all of the conversations, or none if one cannot be stored, and print what was done with each."""
    async with open_for_writing(settings, create=True) as store:
        imported = await import_records(store, records, files)
    for one in imported:
        outcome = "already there" if one.already_stored else f"{counted(one.steps, 'step')} imported"
        if one.closed and not one.already_stored:
            outcome += ", what was under way in it is closed"
        print(f"{one.conversation_id}  {outcome}")
    if not imported:
        print("There are no conversations in this export.")
    return 0


async def import_messages(
    settings: Settings, histories: Sequence[RepairedHistory], files: Iterable[PreparedFile]
) -> int:
    """Begin a conversation with each history, or none if one cannot be stored, and print its id and what was repaired.

    The conversations have the preset that the settings name, and follow the models of the program that opens them. A
    preset that removes secrets removes them here, too.
    """
    policy, now = preset_of(settings), datetime.now(UTC)
    redactor = EventRedactor(None)
    openings = [
        await redactor.redacted_opening(_opening(history, policy, now), wrote_system=False) for history in histories
    ]
    records = [new_record(str(uuid4()), opening) for opening in openings]
    async with open_for_writing(settings, create=True) as store:
        for file in files:
            if file.data is not None:
                await store.files.keep(None, file.reference.sha256, file.data)
        await import_records(store, records)
    for record, history in zip(records, histories, strict=True):
        print(f"{record.id}  {counted(len(history.messages), 'message')} imported")
        for repair in history.repairs:
            print(f"  {one_line(repair)}")
    if not histories:
        print("There are no messages in this file.")
    return 0


def _opening(history: RepairedHistory, policy: Policy, now: datetime) -> Opened:
    found = {"system": history.system, "messages": history.messages, "repairs": history.repairs}
    return make(Opened, event_id=f"opened-{uuid4()}", at=now, policy=policy, **found)


async def fork(settings: Settings, given_id: str, at: str | None) -> int:
    """Copy a conversation up to the step `at`, or up to its newest rest, and print the id of the copy."""
    step = None if at is None else _step_number(at)
    new_id = str(uuid.uuid4())
    async with open_for_writing(settings) as store:
        conversation_id = await resolve_id(store, given_id)
        landing = await fork_in(store, conversation_id, new_id, step, datetime.now(UTC))
    left_out = len(landing.withdrawn)
    without = f", without {counted(left_out, 'message')} that waited there" if left_out else ""
    print(f"{new_id}  forked from {conversation_id} at step {landing.seq}, {landing.state.type}{without}")
    return 0


def _step_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"--at takes the number of a step, not {shortened(text, MAX_QUOTED)}.") from None


_Messages = list[dict[str, Any]]
"""The messages of one conversation, as they stand in a file."""

_NO_HISTORY = "The file has no messages in OpenAI's chat format."


def write_one(messages: _Messages) -> str:
    """Return the messages of one conversation as a JSON list, with a line for each. `Pure.`"""
    lines = ",\n".join(json.dumps(message, ensure_ascii=False) for message in messages)
    return f"[\n{lines}\n]" if lines else "[]"


def _calls_that_ran(entries: Iterable[LogEntry]) -> Set[str]:
    """Return the ids of the calls whose result is no error. `Pure.`"""
    said = transcript(entries)
    return {one.tool_call_id for one in said if one.tool_call_id is not None and not one.error}


def _write_example(messages: _Messages, ran: Set[str], tools: ToolRegistry) -> str | None:
    """Return the messages of one of several conversations as one line: an example for fine-tuning. None if there is no
    answer in it.

    It ends with the last answer, so a turn that was cancelled, or has not ended, is left out where nothing follows it.
    All of these `tools` are described, and those that are called; one that is not known may take anything.
    """
    answers = [place for place, message in enumerate(messages) if _is_answer(message, ran, tools)]
    if not answers:
        return None
    example = messages[: answers[-1] + 1]
    called = (call["function"]["name"] for message in example for call in message.get("tool_calls") or ())
    offered = tools.definitions()
    names = {definition["function"]["name"] for definition in offered}
    definitions = [*offered, *(_definition(name) for name in dict.fromkeys(called) if name not in names)]
    line = {"messages": example, **({"tools": definitions} if definitions else {})}
    return json.dumps(line, ensure_ascii=False)


def _is_answer(message: dict[str, Any], ran: Set[str], tools: ToolRegistry) -> bool:
    """Whether the assistant answers: by a text alone, or by a call that ran and that answers. `Pure.`"""
    calls = message.get("tool_calls") or ()
    answering = (call for call in calls if call["id"] in ran and _answers(call["function"]["name"], tools))
    return message["role"] == "assistant" and (not calls or any(answering))


def _answers(name: str, tools: ToolRegistry) -> bool:
    """Whether a call of this tool is an answer: it gives a typed answer, speaks to the user, or ends the work."""
    tool = tools.find(name) or BUILT_IN.get(bare_name(name))
    return name == TYPED_ANSWER or (tool is not None and not {"speech", "work_complete"}.isdisjoint(tool.acts))


def _definition(name: str) -> dict[str, Any]:
    tool = BUILT_IN.get(name)
    anything = {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    return anything if tool is None else tool.definition()


def read_histories(data: bytes) -> tuple[_Messages, ...]:
    """Return the messages of each conversation in a file. Raises `InvalidInput`, which names the line. `Pure.`"""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("The file is not UTF-8 text.") from None
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        documents = _lines(text)
    if len(documents) == 1 and _is_list_of_histories(documents[0]):
        documents = documents[0]
    if documents and all(_is_message(document) for document in documents):
        return (documents,)
    return tuple(_messages(document) for document in documents)


def _lines(text: str) -> list[Any]:
    read: list[Any] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                read.append(json.loads(line))
            except (ValueError, RecursionError):
                raise InvalidInput(f"Line {number} is not JSON.") from None
    return read


def _is_message(document: Any) -> bool:
    return isinstance(document, dict) and "role" in document


def _is_list_of_histories(document: Any) -> bool:
    return isinstance(document, list) and bool(document) and not any(map(_is_message, document))


def _messages(document: Any) -> _Messages:
    messages: Sequence[Any] | Any = document.get("messages") if isinstance(document, dict) else document
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidInput(_NO_HISTORY)
    return messages
