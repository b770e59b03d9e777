"""What the log says of one conversation, held in memory: it follows the store, never the other way round.

The head is all that the next step needs: the state and the context. It is known as soon as the conversation is loaded,
and that costs the same however long the log is. The contents, which are the transcript and the turns that have ended,
are read from the store when somebody asks for them (a model request, a watcher, a caller that waits for a turn), and
grow with every step from then on. The updates of a step are made only for those who watch at that moment; whoever comes
later has them made again from the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol
from weakref import ref

from ..effects.context import History
from ..persistence.errors import Damaged
from ..persistence.records import StoredEntry
from ..states.context import Context
from ..states.errors import Refused, StoreError
from ..states.events import AgentMessage, Event, LlmResponse, ToolApproval, WakeUp
from ..states.states import AnyState, Cancelling, Closed, Failed, InTurn, State
from ..states.step import LogEntry
from ..states.transcript import Transcript
from ..states.values.messages import Heard, Joined, Made, Outcomes, Said, ToolCall
from ..states.values.round import RoundCall
from .turns import EndedTurn, ended_turn
from .updates import StepUpdates, Update


class ReadEntries(Protocol):
    """Returns the entries of one log that follow the step `after`, in order, up to and including the step `up_to`.
    Raises `StoreError`, in particular `Damaged`, and `UnknownConversation`."""

    async def __call__(self, after: int = 0, up_to: int | None = None) -> Sequence[StoredEntry]:
        """Read the entries."""
        ...


class ConversationProjection:
    """The state and the context of a conversation, and on request what was said in it."""

    __slots__ = ("_contents", "_last_profile", "_reading", "context", "read_entries", "state")

    def __init__(
        self,
        state: AnyState,
        context: Context,
        read_entries: ReadEntries,
        entries: Sequence[LogEntry] = (),
        last_profile: str = "",
    ) -> None:
        """`entries` is the whole log, for one that need not be read from the store. `last_profile` is the profile of
        the turn that ended last."""
        self.state = state
        self.context: Context = context
        self.read_entries: ReadEntries = read_entries
        self._last_profile = last_profile
        self._reading: asyncio.Task[None] | None = None
        self._contents = _Contents.of(entries) if entries else None
        if self._contents is not None:
            self._contents.context = context

    @property
    def seq(self) -> int:
        """The newest step."""
        return self.state.book.seq

    @property
    def profile(self) -> str:
        """The profile of the newest turn; "" before the first one, and in a turn without profiles."""
        return self.state.turn.profile if isinstance(self.state, InTurn) else self._last_profile

    @property
    def is_read(self) -> bool:
        """Whether the contents are in memory; they are up to date then."""
        return self._contents is not None

    async def read_contents(self) -> None:
        """Read the contents unless they are in memory. Raises `StoreError` if the log cannot be read, and does so again
        at each call: nobody is given one half of it."""
        while self._contents is None:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._read())
                self._reading.add_done_callback(self._has_read)
            await asyncio.shield(self._reading)

    async def _read(self) -> None:
        contents = _Contents.of(())
        while contents.seq < self.seq:  # steps are stored meanwhile
            entries = await self.read_entries(contents.seq, self.seq)
            if not entries:
                raise StoreError("The log ends before the step in which the conversation rests.")
            for entry in entries:
                contents.add(entry)
        contents.context = self.context  # equal to the one that was read, and shared with other conversations
        self._contents = contents

    def _has_read(self, reading: asyncio.Task[None]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # retrieved here, in case that nobody waits any longer

    @property
    def transcript(self) -> Transcript:
        """What was said. To be asked for once the contents are read."""
        assert self._contents is not None, "the contents are read first"
        return self._contents.transcript

    @property
    def turns(self) -> dict[int, EndedTurn]:
        """The turns that have ended, by their number. To be asked for once the contents are read."""
        assert self._contents is not None, "the contents are read first"
        return self._contents.turns

    async def transcript_at(self, seq: int) -> Transcript:
        """Return the transcript as of the step `seq`; nothing changes it while the caller holds it. Raises
        `StoreError`."""
        if self._contents is None:
            await self.read_contents()
        if self._contents is not None and self._contents.seq == seq:
            return self._contents.share()
        return _Contents.of(await self.read_entries(0, seq)).transcript

    def advance(self, entry: LogEntry, state: AnyState, *, is_watched: bool = True) -> tuple[Update, ...] | None:
        """Follow a step that was stored, to the state that it led to. Returns the updates that it shows; None if nobody
        watches, or if the contents are not in memory, so that the updates are not known."""
        before, context = self.state, self.context
        self.context = context.after(entry.event)
        self.state = state
        if entry.ended is not None:
            self._last_profile = entry.ended.profile
        contents = self._contents
        if contents is None:
            return None
        contents.unshare()
        if not is_watched:
            contents.updates = None
            contents.transcript.add(entry)
            contents.note(entry, self.context)
            return None
        if contents.updates is None:
            contents.updates = StepUpdates()
        updates = contents.updates.add(entry, before, state, contents.transcript, context)
        contents.note(entry, self.context, contents.updates.ended if self.context is context else None)
        return updates

    def release(self) -> None:
        """Forget the contents, which a closed conversation needs no more. They can be read again."""
        self._contents = None

    def turn_of(self, message_id: str) -> int | None:
        """The turn that took this message, or tried again what took it, whichever came last; None while it waits. The
        contents must have been read.

        Raises `Refused` once no turn will take it by itself: `withdrawn`, `closed`, or `failed` if the turn before it
        failed in a conversation that was imported, in which case it still waits.
        """
        transcript = self.transcript
        if (taken_by := transcript.taken.get(message_id)) is not None:
            return transcript.newest_try(taken_by)
        if isinstance(self.state, Closed):
            raise Refused("closed")
        if not is_queued(message_id, self.state):
            raise Refused("withdrawn")
        if isinstance(self.state, Failed):
            raise Refused("failed")
        return None


class _Contents:
    """The transcript and the ended turns up to the step `seq`."""

    __slots__ = ("_shared", "context", "seq", "transcript", "turns", "updates")

    def __init__(self) -> None:
        self.seq = 0
        self.transcript = Transcript()
        self.turns: dict[int, EndedTurn] = {}
        self.context = Context()
        self._shared: ref[Transcript] | None = None
        self.updates: StepUpdates | None = None
        """Makes the updates of steps, while somebody watches."""

    @classmethod
    def of(cls, entries: Sequence[LogEntry]) -> _Contents:
        """The contents of these entries, the first of a log."""
        contents = cls()
        for entry in entries:
            contents.add(entry)
        return contents

    def add(self, entry: LogEntry) -> None:
        """Follow an entry as it is read from the store. Raises `Damaged` unless it is the next one."""
        if entry.seq != self.seq + 1:
            raise Damaged(self.seq + 1, f"Step {self.seq + 1} is missing in what the store returned.")
        self.transcript.add(entry)
        self.note(entry, self.context.after(entry.event))

    def note(self, entry: LogEntry, context: Context, ended: EndedTurn | None = None) -> None:
        """Follow an entry that the transcript has; `context` is the one behind it, and `ended` the turn that ended with
        it, if that was made already."""
        self.seq = entry.seq
        self.context = context
        if entry.ended is not None:
            self.turns[entry.ended.turn] = ended or ended_turn(entry.ended, self.transcript, context.policy)

    def share(self) -> Transcript:
        """Return the transcript for others to read. It has the same lists and dictionaries until `unshare`."""
        shared = None if self._shared is None else self._shared()
        if shared is None:
            shared = self.transcript.view()
            self._shared = ref(shared)
        return shared

    def unshare(self) -> None:
        """Copy the transcript before it changes, if somebody still reads what was shared."""
        if self._shared is not None and self._shared() is not None:
            self.transcript = self.transcript.copy()
        self._shared = None


def is_queued(message_id: str, state: State) -> bool:
    """Whether this message waits for a turn, in this branch or in another one. `Pure.`"""
    elsewhere = state.goes_to.messages if isinstance(state, Cancelling) and state.goes_to is not None else ()
    return any(waiting.event_id == message_id for waiting in (*getattr(state, "inbox", ()), *elsewhere))


_SHORT = 50
"""The most steps of a round that are read from the log for each of its calls; of a longer one the transcript is kept in
memory."""


class ConversationHistory:
    """Fills the port `effects.context.History` for one conversation.

    Performers ask for what was said: always as of the step that asked for their effect. Words and calls are found
    without the transcript where it is not in memory: the log says at which step they stand.
    """

    __slots__ = ("__weakref__", "_projection", "_read_entries")

    def __init__(self, projection: ConversationProjection, read_entries: ReadEntries) -> None:
        self._projection = projection
        self._read_entries = read_entries

    async def transcript(self, up_to: int) -> Transcript:
        """Return the transcript as of the step `up_to`."""
        return await self._projection.transcript_at(up_to)

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call with its arguments as of the step `up_to`, as a person may have edited them."""
        if not self._projection.is_read and up_to - call.seq > _SHORT:
            await self._projection.read_contents()
        if self._projection.is_read:
            transcript = self._projection.transcript
            if self._projection.seq == up_to:
                return transcript.call(call.call_id)
            if (unedited := transcript.unedited(call)) is not None:
                return unedited
        return await read_call(self._read_entries, call, up_to)

    async def words(self, said: Said) -> str:
        """Return the text that `said` stands for."""
        if self._projection.is_read:
            return self._projection.transcript.words(said)
        match said:
            case Made(text=text):
                return text
            case Heard(seq=seq, index=index):
                return (await self._event(seq)).texts[index]
            case Joined() | Outcomes():
                return said.text_of([await self.words(part) for part in said.parts])

    async def origin(self, said: Said) -> str:
        """Return the agent that wrote this; empty for everybody else."""
        if self._projection.is_read:
            return self._projection.transcript.origin(said)
        event = await self._event(said.seq) if isinstance(said, Heard) else None
        return event.origin if isinstance(event, AgentMessage | WakeUp) else ""

    async def _event(self, seq: int) -> Event:
        (entry,) = await self._read_entries(seq - 1, seq)
        return entry.event


async def read_call(read_entries: ReadEntries, call: RoundCall, up_to: int | None = None) -> ToolCall:
    """Return a call of the newest round from the log, with its arguments as of the step `up_to`, or of the newest."""
    response, *later = await read_entries(call.seq - 1, up_to)
    assert isinstance(response.event, LlmResponse), "a call refers to the response that asked for it"
    found = next(one for one in response.event.tool_calls if one.call_id == call.call_id)
    for entry in later:
        match entry.event:
            case ToolApproval(allowed=True, call_id=call_id, raw_arguments=str(edited)) if call_id == call.call_id:
                found = found.replace(raw_arguments=edited)
            case _:
                pass
    return found


_FEW_STEPS = 4
"""How many of the newest steps are read first. A turn has mostly ended in the very last one."""


async def profile_of_last_turn(state: State, context: Context, read: ReadEntries) -> str:
    """Return the profile of the turn that ended last; "" without profiles, and before the first turn has ended.

    Reads as few of the newest steps as it can. Raises `StoreError`.
    """
    last, count = state.book.seq, _FEW_STEPS
    while context.policy.profiles and state.book.turn > 0 and last > 0:
        first = max(0, last - count)
        for entry in reversed(await read(first, last)):
            if entry.ended is not None:
                return entry.ended.profile
        last, count = first, count * 4
    return ""


_FILLS: type[History] = ConversationHistory
