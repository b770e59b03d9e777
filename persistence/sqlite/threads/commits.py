"""Commits steps over the connection that writes.

A commit waits for the disk, and waits as long for one step as for a hundred. So a batch is one transaction, with one
statement for each table. Batches change the speed only: one that cannot be stored is rolled back, and its steps are
stored one by one, so that only a step that is in conflict, or too large for the disk, fails.

A disk that reports a failed commit may have stored it. Such a step is in doubt, until the next attempt to store it
finds out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from ...errors import FileGone, StoreConflict
from ..file import transaction
from ..file.failures import is_locked
from ..tables import recorder
from .inline_commits import InlineCommits
from .log_position import Append
from .receipts import PendingReceipts


class MovedOn(Exception):
    """A conversation is not at the step that a new step follows."""


class Commits:
    """Commits steps, together with the `receipts` that wait. Only the holder of the writer's lock uses it. `inline` is
    told how long each batch took, and `check_files` raises `FileGone`."""

    __slots__ = ("_check_files", "_driver", "_inline", "_monotonic", "_receipts")

    def __init__(
        self,
        driver: sqlite3.Connection,
        receipts: PendingReceipts,
        inline: InlineCommits,
        monotonic: Callable[[], float],
        check_files: Callable[[], None],
    ) -> None:
        self._driver = driver
        self._receipts = receipts
        self._inline = inline
        self._monotonic = monotonic
        self._check_files = check_files

    def commit(self, steps: Sequence[Append], *, in_thread: bool = False) -> None:
        """Commit linked steps of different conversations, all or none, and note that they are stored. Raises `MovedOn`
        if one of them does not follow the newest step of its conversation, and what the driver raises."""
        if not steps:
            return
        self._check_files()
        begun = self._monotonic()
        try:
            with transaction.writing(self._driver):
                if not recorder.advance(self._driver, steps):
                    raise MovedOn
                if self._receipts:
                    self._receipts.write(self._driver)
            for step in steps:
                step.note_stored()
        except BaseException as error:  # a KeyboardInterrupt may come behind the commit, too
            for step in steps:
                if not step.is_stored:
                    _note_doubt(error, step)
            raise
        self._receipts.clear()
        self._inline.measured(self._monotonic() - begun, len(steps), at_most=in_thread)

    def commit_each(self, steps: Sequence[Append]) -> list[Exception | None]:
        """Commit linked steps of different conversations in the writing thread, all together if possible. Returns for
        each of them why it could not be stored, or None."""
        try:
            self.commit(steps, in_thread=True)
            return [None] * len(steps)
        except Exception as error:
            errors: list[Exception | None] = []
            locked = error if is_locked(error) else None
            for step in steps:
                failed = locked or self._commit_alone(step)
                locked = failed if failed is not None and is_locked(failed) else None
                errors.append(failed)
            return errors

    def _commit_alone(self, step: Append) -> Exception | None:
        """Store one step. If an earlier attempt is in doubt, find out whether it did store the step."""
        try:
            self._check_files()
            with transaction.writing(self._driver):
                stored = recorder.advance(self._driver, [step])
                if not stored and step.position.in_doubt == step.after.chain:
                    stored = recorder.write_again(self._driver, step.after)
        except sqlite3.IntegrityError as error:
            conflict = StoreConflict("The request, or the answer to the effect, is already in the log.")
            conflict.__cause__ = error
            return conflict
        except Exception as error:
            _note_doubt(error, step)
            return error
        if not stored:
            return StoreConflict("The conversation has moved on, or was deleted, since it was loaded.")
        step.note_stored()
        return None


def _note_doubt(error: BaseException, step: Append) -> None:
    """Note that the step is in doubt, if the disk may have stored a transaction that failed with this error."""
    if not (isinstance(error, MovedOn | FileGone | sqlite3.IntegrityError) or is_locked(error)):
        step.position.in_doubt = step.after.chain
