"""Examines a database, and says of each thing that is wrong with it what it is and whether it can be mended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..configuration.command_lines import command, options_of
from ..configuration.databases import store_for, store_to_change
from ..output.notices import remark
from ..output.printable import counted, one_line

if TYPE_CHECKING:
    from ....persistence.maintenance.doctor import Examination, Finding
    from ..configuration.settings import Settings

WRONG = 1
"""The exit code when something is wrong, or could not be mended."""


async def doctor(settings: Settings, fix: bool) -> int:
    """Print what is wrong with the database; with `fix` mend what can be mended without guessing."""
    from ....persistence.maintenance.doctor import examine

    if fix:
        return await _mend(settings)
    async with store_for(settings) as store:
        result = await examine(store)
    _tell(result)
    mendable = sum(finding.mend is not None for finding in result.findings)
    if mendable:
        how = command("doctor", "--fix", *options_of(settings, "db"))
        remark(f"{mendable} of these can be mended without guessing: {how}", copied=True)
    return WRONG if result.findings else 0


async def _mend(settings: Settings) -> int:
    from ....persistence.maintenance.doctor import examine, mend

    async with store_to_change(settings) as store:
        before = await examine(store)
        mended = await mend(store, before.findings)
        after = await examine(store)
    for finding in mended:
        print(f"{_line(finding)}  Mended.")
    _tell(after, mended=bool(mended))
    return WRONG if after.findings else 0


def _tell(result: Examination, mended: bool = False) -> None:
    for finding in result.findings:
        print(f"{_line(finding)}{'  Not mended.' if mended else ''}")
    if not result.findings:
        print(f"All is well: {counted(result.conversations, 'conversation')}, {counted(result.steps, 'step')}.")


def _line(finding: Finding) -> str:
    where = [] if finding.conversation_id is None else [finding.conversation_id]
    where += [] if finding.seq is None else [f"step {finding.seq}"]
    return one_line("  ".join([*where, finding.sentence]))
