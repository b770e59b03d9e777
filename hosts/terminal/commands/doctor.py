"""`turnwise doctor`: examines a database, and repairs what can be repaired."""

from __future__ import annotations

from ....persistence.maintenance.doctor import Examination, Finding, examine, repair
from ....persistence.opening import missing_marks, set_marks
from ..configuration.command_lines import command_line, options_for
from ..configuration.databases import open_for_reading, open_for_writing
from ..configuration.settings import Settings
from ..output.notices import print_notice
from ..output.printable import counted, one_line

WRONG = 1
"""The exit code when something is wrong, or could not be repaired."""


async def doctor(settings: Settings, fix: bool) -> int:
    """Print what is wrong with the database; with `fix` repair what follows from its logs."""
    lacking = missing_marks(settings.db)
    for sentence in lacking:
        print(f"{sentence}{'  Repaired.' if fix else ''}")
    if fix:
        if lacking:
            set_marks(settings.db)
        return await _repair(settings)
    if lacking:
        command = command_line("doctor", "--fix", *options_for(settings, "db"))
        print_notice(
            f"This sets what is missing, and then examines the file: {command}",
            copyable=True,
        )
        return WRONG
    async with open_for_reading(settings) as store:
        examination = await examine(store)
    _report(examination)
    repairable = sum(finding.repair is not None for finding in examination.findings)
    if repairable:
        command = command_line("doctor", "--fix", *options_for(settings, "db"))
        print_notice(f"{repairable} of these can be repaired without guessing: {command}", copyable=True)
    return WRONG if examination.findings else 0


async def _repair(settings: Settings) -> int:
    async with open_for_writing(settings) as store:
        before = await examine(store)
        repaired = await repair(store, before.findings)
        after = await examine(store)
    for finding in repaired:
        print(f"{_line(finding)}  Repaired.")
    _report(after, repaired=bool(repaired))
    return WRONG if after.findings else 0


def _report(examination: Examination, repaired: bool = False) -> None:
    for finding in examination.findings:
        print(f"{_line(finding)}{'  Not repaired.' if repaired else ''}")
    if not examination.findings:
        conversations, steps = counted(examination.conversations, "conversation"), counted(examination.steps, "step")
        print(f"All is well: {conversations}, {steps}.")


def _line(finding: Finding) -> str:
    where = [] if finding.conversation_id is None else [finding.conversation_id]
    where += [] if finding.seq is None else [f"step {finding.seq}"]
    return one_line("  ".join([*where, finding.sentence]))
