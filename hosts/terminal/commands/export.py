"""`turnwise export`: writes conversations to stdout as JSON lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ....persistence.errors import Damaged
from ....persistence.maintenance import export as lines
from ..configuration.databases import store_for
from ..configuration.settings import Settings
from ..output.notices import remark
from ..output.printable import one_line

INCOMPLETE = 1
"""The exit code of an export from which damaged conversations were left out."""


async def export(settings: Settings, conversation_id: str | None) -> int:
    """Write one conversation, or with None all of them, to stdout.

    An export of all of them leaves damaged conversations out, and names each on stderr.
    """
    count, complete = 0, True
    async with store_for(settings) as store:
        if conversation_id is not None:
            steps = await lines.export_conversation(store, conversation_id)
            _write([lines.first_line(), *steps, lines.last_line(1)])
            return 0
        _write([lines.first_line()])
        async for each, exported in lines.export_all(store):
            if isinstance(exported, Damaged):
                remark(one_line(f"{each} is left out: {exported.sentence}"))
                complete = False
            else:
                _write(exported)
                count += 1
        _write([lines.last_line(count)])
    return 0 if complete else INCOMPLETE


def _write(lines: Iterable[str]) -> None:
    """Write bytes, so that neither the encoding nor the line ends of a terminal change the export."""
    if sys.stdout is None:
        return
    for line in lines:
        sys.stdout.buffer.write(f"{line}\n".encode())
