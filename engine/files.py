"""The files of one conversation: prepared under its rules, stored beside its log, and read back.

A file is stored and kept for the conversation before the request, or the result of a tool, that refers to it is put to
the machine. So a step never refers to bytes that are not there: if the process dies in between, the conversation keeps
a file too many, until it is deleted or `doctor` finds it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence, Set
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..effects.files import GivenFile, PreparedFile, prepare
from ..persistence.files import is_fresh
from ..persistence.ports import Files
from ..states.errors import ConfigurationError, InvalidInput, Refused
from ..states.events import files_of
from ..states.policy import Policy, named_models
from ..states.values.files import NOUNS, FileKind, FileReference
from .projection import ConversationProjection
from .redactor import EventRedactor

Takes = Callable[[str, FileKind], bool | None]
"""Whether the model of this name can be shown files of this kind; None if that is not known."""

MOST_WAITING = 5
"""Files that wait for a message are together as large as those of so many messages at most."""

_NONE_REFERRED: tuple[int, Set[str]] = (0, frozenset())

UNKNOWN_FILE = "This conversation has no such file: send the file itself."


class ConversationFiles:
    """Implements the port `KeptFiles`. `files` returns those of the store, and `projection` has the rules that hold
    now."""

    __slots__ = ("_conversation_id", "_files", "_projection", "_redactor", "_referred")

    def __init__(
        self,
        conversation_id: str,
        files: Callable[[], Files],
        projection: ConversationProjection,
        redactor: EventRedactor,
    ) -> None:
        self._conversation_id = conversation_id
        self._files = files
        self._projection = projection
        self._redactor = redactor
        self._referred = _NONE_REFERRED
        """A step, and the digests of the files to which the steps up to it refer."""

    async def prepare(self, given: Iterable[GivenFile]) -> tuple[PreparedFile, ...]:
        """Return these files as they are to be stored. Raises `InvalidInput` for what cannot be used, and for a
        reference to a file that this conversation does not have."""
        policy = self._projection.context.policy
        redact = self._redactor.redact_of(policy) if policy.redact else None
        prepared = await prepare(given, policy.files, redact)
        await self.check(one.reference for one in prepared if one.data is None)
        return prepared

    async def check(self, references: Iterable[FileReference]) -> None:
        """Raise `InvalidInput` if one of these is a stored file that this conversation does not have."""
        for file in references:
            if file.sha256 and await self._files().read(self._conversation_id, file.sha256, 0, 0) is None:
                raise InvalidInput(UNKNOWN_FILE, "files")

    @asynccontextmanager
    async def stored(self, prepared: Iterable[PreparedFile]) -> AsyncIterator[None]:
        """Have these files stored for the request that is made in this block, and keep them no longer if it is refused.
        One that the store did not take may be in the log all the same, so its files stay. Raises `StorageFailed`."""
        kept = await self._store(prepared)
        try:
            yield
        except (Refused, InvalidInput, ConfigurationError) as error:
            if not (isinstance(error, Refused) and error.code == "storage"):
                for sha256, mark in kept:
                    await self._files().take_back(self._conversation_id, sha256, mark)
            raise

    async def _store(self, prepared: Iterable[PreparedFile]) -> list[tuple[str, str]]:
        """Store files, and return those that were not kept for the conversation before, with their marks."""
        kept: list[tuple[str, str]] = []
        for file in prepared:
            if file.data is not None:
                sha256 = file.reference.sha256
                mark = await self._files().keep(self._conversation_id, sha256, file.data)
                kept += [] if mark is None else [(sha256, mark)]
        return kept

    async def keep(self, given: Sequence[GivenFile]) -> tuple[FileReference, ...]:
        """Store these files, and return the references to them."""
        prepared = await self.prepare(given)
        await self._store(prepared)
        return tuple(one.reference for one in prepared)

    async def read(self, file: FileReference) -> bytes | None:
        """Return the bytes of a file of this conversation."""
        return await self.part(file.sha256)

    async def part(self, sha256: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the bytes of the file with this digest from `start` up to `end`, or to its end."""
        return await self._files().read(self._conversation_id, sha256, start, end)

    async def forget_unused(self) -> None:
        """Keep files no longer that waited a day for a message. Raises `InvalidInput` if what was kept since then is
        too much.

        What was kept a short time ago may be of a request on its way, so it stays in any case."""
        marked = [file for file in await self._files().of(self._conversation_id) if file.mark]
        if not marked:
            return
        referred = await self._referred_to()  # behind the files: a step may be stored meanwhile
        waiting = 0
        for file in marked:
            if file.sha256 in referred:
                continue
            if is_fresh(file.mark):
                waiting += file.size
            else:
                await self._files().take_back(self._conversation_id, file.sha256, file.mark)
        if waiting > MOST_WAITING * self._projection.context.policy.files.together:
            raise InvalidInput("Too many files wait for a message: send some of them first.", "waiting")

    async def _referred_to(self) -> Set[str]:
        """Return the digests of the files to which the log refers. Only what is new since the last call is read."""
        seq, digests = self._referred
        if entries := await self._projection.read_entries(seq):
            new = {file.sha256 for entry in entries for file in files_of(entry.event)}
            self._referred = entries[-1].seq, digests | new
        return self._referred[1]


def check_models(policy: Policy, files: Iterable[FileReference], takes: Takes) -> None:
    """Raise `InvalidInput` for a file that none of the models takes which the policy names, as far as that is known."""
    for file in files:
        models = named_models(policy)
        if all(takes(model.name, file.kind) is False for model in models):
            named = f" ({file.name})" if file.name else ""
            whose = f"The model {models[0].name}" if len(models) == 1 else "The models of this conversation"
            take = "takes" if len(models) == 1 else "take"
            raise InvalidInput(f"{whose} {take} no {NOUNS[file.kind]}s{named}.", "files")


if TYPE_CHECKING:
    from ..effects.files import KeptFiles

    _FILES: type[KeptFiles] = ConversationFiles
