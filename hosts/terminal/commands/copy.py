"""The command `turnwise copy`: the conversations of one database in another one, from a file to a server or back.

On a terminal a bar shows how far it is. What is left out is named on stderr, and the line on stdout counts what was
copied.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import islice

from ....persistence.maintenance.copy import Copied, Outcome, copy_conversations
from ....persistence.opening import address_of
from ....persistence.ports import SharedStore, Store, find_all
from ....states.errors import ConfigurationError
from ..configuration import Settings, open_for_reading, open_for_writing
from ..output.lines import counted, one_line, print_notice

INCOMPLETE = 1
"""The exit code of a copy from which conversations are missing."""

_LOOKED_AT = 1000
"""How many conversations are asked about at once: whether they have moved."""

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
        was_used = not ahead and await _has_moved(original, set(ids), tally.newest)
    print(tally.line())
    _warn_of_deleted(sorted(only_there))
    if ahead:
        print_notice(f"Copy the rest without --ahead, once no program uses {origin.name} any more.")
    elif was_used or await origin.is_in_use():
        print_notice(f"A program has used {origin.name} meanwhile: end it, and run the same command again.")
        return INCOMPLETE
    return INCOMPLETE if tally.left_out else 0


async def _has_moved(source: Store, ids: Set[str], newest: Mapping[str, int]) -> bool:
    """Whether the source has other conversations than these by now, lacks some of them, or has steps behind the
    `newest` that were copied. Of a file its lock says that."""
    if not isinstance(source, SharedStore):
        return False
    if not ids >= set(await source.ids()):
        return True
    rest = iter(newest.items())
    while some := dict(islice(rest, _LOOKED_AT)):
        if await source.find_moved(some):
            return True
    return False


class _Tally:
    """Counts what became of the conversations, and names those that are left out. `newest` is the step up to which each
    of the others has been read."""

    def __init__(self) -> None:
        self._outcomes: Counter[Outcome] = Counter()
        self._steps = 0
        self.left_out = 0
        self.newest: dict[str, int] = {}

    @property
    def total(self) -> int:
        """How many were dealt with."""
        return self._outcomes.total()

    def count(self, copied: Copied) -> None:
        """Count a conversation."""
        self._outcomes[copied.outcome] += 1
        if copied.outcome not in ("left_out", "gone"):
            self.newest[copied.conversation_id] = copied.steps
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
