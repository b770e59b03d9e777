"""The errors of a store, sorted by what can be done about them.

StoreError           the database cannot be used as it was opened, or by this program
├── StorageFailed    the disk failed, or is full, or another program holds it: try again later
├── StoreConflict    somebody else has stored something first: catch up, then decide again
│   └── CustodyLost  another process looks after the conversation now: begin nothing more for it
├── NotAnExport      a file to import is not an export of turnwise, or not all of it
├── FileGone         the file was moved, deleted or replaced while it was open: put it back, and open it again
├── TracesLeft       what was deleted is gone, but not yet every trace of it
└── Damaged          what is stored is not what was stored once
"""

from __future__ import annotations

from ..states.errors import StoreError as StoreError  # whoever writes a store needs both
from ..states.errors import UnknownConversation as UnknownConversation


class StorageFailed(StoreError):
    """The database could not be read or written just now.

    Nothing was stored, nothing has changed in memory, and the same call works once the cause is gone. The driver's own
    error is the cause.
    """


class StoreConflict(StoreError):
    """A step was not stored, because its conversation is not where the caller believed it to be.

    Another writer was first, or the conversation was deleted, or a request or an answer with this id is already in the
    log. Nothing was stored. `Log.catch_up` returns what was missed; then decide again.
    """


class CustodyLost(StoreConflict):
    """A step was not stored, because another process has taken the conversation into its custody since this one did.
    Nothing more may be carried out for it here; answers to what was begun here are dropped."""


class NotAnExport(StoreError):
    """What was to be imported is not an export, is incomplete, or was changed since. `line` counts from 1. Nothing of
    it was stored."""

    def __init__(self, line: int, fault: str) -> None:
        super().__init__(f"Line {line} {fault}")
        self.line = line


class FileGone(StoreError):
    """The file of a database was moved, deleted or replaced while it was open, or one of the files beside it. Nothing
    is stored any more, so nothing is acknowledged that would be lost. What was stored in the tenth of a second before
    this was noticed may be lost, too."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name}, or a file beside it, was moved, deleted or replaced while it was open. Nothing more is stored: "
            "put the files back and open the database again."
        )


class TracesLeft(StoreError):
    """A conversation was deleted, but its file could not be rewritten now, so parts of it can still be found in the
    bytes of the file. The next deletion, the close of the engine or the next engine that opens the file removes
    them."""


class Damaged(StoreError):
    """What is stored is not what was stored once, or a newer turnwise wrote it. `seq` is the step, or 0 where it is no
    step."""

    def __init__(self, seq: int, sentence: str) -> None:
        super().__init__(sentence)
        self.seq = seq
