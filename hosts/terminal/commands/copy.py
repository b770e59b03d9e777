"""The command `turnwise copy`: the conversations of one database in another one, from a file to a server or back.

On a terminal a bar shows how far it is. What is left out is named on stderr, and the line on stdout counts what was
copied.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....persistence.maintenance.copy import Copied, Outcome, copy_conversations
from ....persistence.opening import address_of
from ....persistence.ports import find_all
from ....states.errors import ConfigurationError
from ..configuration import Settings, open_for_reading, open_for_writing
from ..output.lines import counted, one_line, print_notice

INCOMPLETE = 1
"""The exit code of a copy from which conversations are missing."""

_NAMED = 5
"""The most ids that are named of conversations that only the target has."""


async def copy(settings: Settings, source: str, target: str, *, ahead: bool) -> int:
    """Copy what is in the database `source` into `target`; with `ahead` only what rests. Returns the exit code.

    Raises `ConfigurationError` if a program uses the source, unless it is copied `ahead`, and `StoreError`.
    """
    origin = address_of(source)
    if not ahead and await origin.is_in_use():
        raise ConfigurationError(
            f"{origin.name} is in use: end the programs that use it first, or copy what rests there with --ahead, and "
            "the rest later."
        )
    tally = _Tally()
    async with (
        open_for_reading(settings.model_copy(update={"db": source})) as original,
        open_for_writing(settings.model_copy(update={"db": target}), create=True) as copies,
    ):
        ids, faults = await find_all(original)
        for fault in faults:
            tally.leave_out("", fault.sentence)
        only_there = set(await copies.ids()).difference(ids)
        try:
            with _progress(len(ids)) as advance:
                async for copied in copy_conversations(original, copies, ids, only_at_rest=ahead):
                    tally.count(copied)
                    advance()
        except asyncio.CancelledError:
            print_notice(f"Interrupted after {tally.total} of {len(ids)}; the same command goes on from there.")
            raise
    print(tally.line())
    _warn_of_deleted(sorted(only_there))
    if ahead:
        print_notice(f"Copy the rest without --ahead, once no program uses {origin.name} any more.")
    elif await origin.is_in_use():
        print_notice(f"A program has begun to use {origin.name} meanwhile, so the copy may lack what was done there.")
        return INCOMPLETE
    return INCOMPLETE if tally.left_out else 0


class _Tally:
    """Counts what became of the conversations, and names those that are left out."""

    def __init__(self) -> None:
        self._outcomes: Counter[Outcome] = Counter()
        self._steps = 0
        self.left_out = 0

    @property
    def total(self) -> int:
        """How many were dealt with."""
        return self._outcomes.total()

    def count(self, copied: Copied) -> None:
        """Count a conversation."""
        self._outcomes[copied.outcome] += 1
        if copied.outcome in ("copied", "renewed"):
            self._steps += copied.steps
        elif copied.outcome == "left_out":
            self.leave_out(copied.conversation_id, copied.sentence)

    def leave_out(self, conversation_id: str, sentence: str) -> None:
        """Name a conversation that is left out; one that a damaged file hides has no id."""
        self.left_out += 1
        print_notice(one_line(f"{conversation_id} is left out: {sentence}" if conversation_id else sentence))

    def line(self) -> str:
        """What was done, in a sentence."""
        copied = self._outcomes["copied"] + self._outcomes["renewed"]
        parts = [f"{copied} copied and compared ({counted(self._steps, 'step')})"] if copied else []
        parts += (words.format(self._outcomes[outcome]) for outcome, words in _WORDS.items() if self._outcomes[outcome])
        return f"{counted(self.total, 'conversation')}{': ' if parts else ''}{', '.join(parts)}."


_WORDS: dict[Outcome, str] = {
    "renewed": "{} of them in place of an earlier copy",
    "there": "{} there already",
    "ahead": "{} there that went on since",
    "under_way": "{} still under way",
    "gone": "{} deleted meanwhile",
    "left_out": "{} left out",
}


def _warn_of_deleted(only_there: Sequence[str]) -> None:
    """Name what only the target has: a copy deletes nothing that is not in the source any more."""
    if only_there:
        more = f" and {len(only_there) - _NAMED} more" if len(only_there) > _NAMED else ""
        print_notice(
            f"Only the target has {', '.join(map(one_line, only_there[:_NAMED]))}{more}: if they were copied once and "
            "deleted from the source since, delete them there, too."
        )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr if that is a terminal, and yield what moves it on by one."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("copying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("copying", total=total)
        yield lambda: progress.advance(bar)
