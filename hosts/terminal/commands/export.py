"""`turnwise export`: writes conversations to stdout, as JSON lines or as messages for other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ....effects.tools.registry import ToolRegistry
from ....persistence.errors import Damaged, StorageFailed
from ....persistence.maintenance import export as jsonl
from ....persistence.ports import find_all
from ....states.openai_writing import openai_messages
from ..configuration.conversation_ids import resolve_id
from ..configuration.databases import open_for_reading
from ..configuration.settings import Settings
from ..configuration.tools import tools_named
from ..output.notices import print_notice
from ..output.printable import one_line
from .openai_files import write_example, write_one

INCOMPLETE = 1
"""The exit code of an export from which damaged conversations were left out."""


async def export(settings: Settings, given_id: str | None) -> int:
    """Write one conversation, or with None all of them, to stdout.

    An export of all of them leaves damaged conversations out, and names each on stderr.
    """
    count, complete = 0, True
    async with open_for_reading(settings) as store:
        if given_id is not None:
            steps = await jsonl.export_conversation(store, await resolve_id(store, given_id))
            _write([jsonl.first_line(), *steps, jsonl.last_line(1)])
            return 0
        _write([jsonl.first_line()])
        async for each, exported in jsonl.export_all(store):
            if isinstance(exported, Damaged):
                print_notice(_left_out(each, exported.sentence))
                complete = False
            else:
                _write(exported)
                count += 1
        _write([jsonl.last_line(count)])
    return 0 if complete else INCOMPLETE


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
            entries = await store.entries(await resolve_id(store, given_id))
            _write([write_one(openai_messages(entries))])
            return 0
        ids, faults = await find_all(store)
        for fault in faults:
            print_notice(_left_out("", fault.sentence))
            complete = False
        for each in ids:
            try:
                example = write_example(openai_messages(await store.entries(each)), tools)
            except (Damaged, StorageFailed) as damaged:
                print_notice(_left_out(each, damaged.sentence))
                complete = False
            else:
                if example is None:
                    print_notice(one_line(f"{each} is left out: it has no answer."))
                else:
                    _write([example])
    return 0 if complete else INCOMPLETE


def _left_out(conversation_id: str, sentence: str) -> str:
    return one_line(f"{conversation_id} is left out: {sentence}" if conversation_id else sentence)


def _write(lines: Iterable[str]) -> None:
    """Write bytes, so that neither the encoding nor the line ends of a terminal change the export."""
    if sys.stdout is None:
        return
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())
