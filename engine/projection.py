"""What the store holds of one conversation, held in memory: it follows the store, never the other way round.

To take its next event a conversation needs its state, its rules and the ids of the requests that it took: these are
known at once. What was said, and what each turn came to, takes many times longer to read from a long log, so it is read
when somebody asks for it: the next request to a model, a watcher, a host.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from weakref import ref

from ..states.context import CHANGES_CONTEXT, Context
from ..states.errors import Refused
from ..states.events import Event, Request
from ..states.log import LogEntry
from ..states.projections.transcript import Transcript
from ..states.states import Closed, Failed, State
from ..states.step import Step
from .turn import Turn
from .updates import Update, updates_of


class ConversationProjection:
    """State, context, transcript, turns and the requests that were taken."""

    def __init__(self, state: State, entries: Iterable[LogEntry]) -> None:
        self.state = state
        self.context = Context()
        self._requests: dict[str, LogEntry] = {}
        self._unread: list[LogEntry] = []
        """The entries that are not in the transcript yet."""
        self._read_context = Context()
        self._transcript = Transcript()
        self._shared: ref[Transcript] | None = None
        """The transcript as it was given to performers since the last step."""
        self._is_released = False
        self._turns: dict[int, Turn] = {}
        for entry in entries:
            self._note(entry)
            self._unread.append(entry)

    def read(self) -> None:
        """Bring transcript and turns up to date. Raises `Damaged` if a step cannot be read, and again at each look:
        nobody is given the half of it.
        """
        unread, self._unread = self._unread, []
        for entry in unread:
            self._transcript.add(entry)
            self._read_context = self._read_context.after(entry.event)
            self._end_turn(entry, self._read_context)

    @property
    def transcript(self) -> Transcript:
        """What was said. Read at the first look, which may raise `Damaged`."""
        self.read()
        return self._transcript

    @property
    def turns(self) -> dict[int, Turn]:
        """The turns that have ended, by their number. Read at the first look, which may raise `Damaged`."""
        self.read()
        return self._turns

    def shared_transcript(self, up_to: int) -> Transcript | None:
        """Return the transcript as of the step `up_to`, which does not change any more; None if the conversation has
        moved on. Raises `Damaged`."""
        if self._is_released or up_to != self.state.book.seq:
            return None
        shared = None if self._shared is None else self._shared()
        if shared is None:
            shared = copy(self.transcript)  # it has the same lists and dictionaries; see `advance`
            self._shared = ref(shared)
        return shared

    def advance(self, event: Event, step: Step) -> tuple[Update, ...]:
        """Take in a step that was stored. Returns what it shows."""
        self.read()
        if self._shared is not None:
            if self._shared() is not None:  # somebody still reads what would change now
                self._transcript = self._transcript.copy()
            self._shared = None
        entry = LogEntry.of(event, step)
        updates = updates_of(entry, self.state, step.state, self.transcript, self.context)
        self.state = step.state
        self._note(entry)
        self._end_turn(entry, self.context)
        return updates

    def release(self) -> None:
        """Let go of what a closed conversation needs no more."""
        self._transcript = Transcript()
        self._is_released = True
        self._requests.clear()

    def knows(self, request: Request) -> bool:
        """Whether this request was taken before. Raises `Refused` if another one was taken under its id."""
        entry = self._requests.get(request.event_id)
        if entry is None:
            return False
        if request.model_copy(update={"at": entry.event.at}) != entry.event:
            raise Refused("event_id_reused")
        return True

    def turn_of(self, message_id: str) -> int | None:
        """The turn that took this message, or tried again what took it, whichever came last; None while it waits.

        Raises `Refused` once no turn will take it by itself: `withdrawn`, `closed`, or `failed` if the turn before it
        failed, in which case it still waits.
        """
        if message_id in self.transcript.taken:
            return self.transcript.newest_try(self.transcript.taken[message_id])
        if isinstance(self.state, Closed):
            raise Refused("closed")
        if all(waiting.event_id != message_id for waiting in getattr(self.state, "inbox", ())):
            raise Refused("withdrawn")
        if isinstance(self.state, Failed):
            raise Refused("failed")
        return None

    def _note(self, entry: LogEntry) -> None:
        """Keep what the next event needs."""
        if isinstance(entry.event, CHANGES_CONTEXT):
            self.context = self.context.after(entry.event)
        if isinstance(entry.event, Request):
            self._requests[entry.event.event_id] = entry

    def _end_turn(self, entry: LogEntry, context: Context) -> None:
        if entry.ended is not None:
            self._turns[entry.ended.turn] = Turn.that_ended(entry.ended, self._transcript, context.policy)
