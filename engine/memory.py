"""What the store holds of one conversation, held in memory: it follows the store, never the other way round."""

from __future__ import annotations

from collections.abc import Iterable

from ..states.context import Context
from ..states.errors import Refused
from ..states.events import Event, Request
from ..states.log import LogEntry
from ..states.states import Closed, Failed, State
from ..states.step import Step
from ..states.transcript import Transcript
from .turn import Turn
from .updates import Update, updates_of


class Memory:
    """State, context, transcript, turns and the requests that were taken."""

    def __init__(self, state: State, entries: Iterable[LogEntry]) -> None:
        self.state = state
        self.context = Context()
        self.transcript = Transcript()
        self.turns: dict[int, Turn] = {}
        self._requests: dict[str, Request] = {}
        for entry in entries:
            self.transcript.add(entry)
            self._take_in(entry)

    def advance(self, event: Event, step: Step) -> tuple[Update, ...]:
        """Take in a step that was stored. Returns what it shows."""
        entry = LogEntry.of(event, step)
        updates = updates_of(entry, self.state, step.state, self.transcript, self.context)
        self.state = step.state
        self._take_in(entry)
        return updates

    def release(self) -> None:
        """Let go of what a closed conversation needs no more."""
        self.transcript = Transcript()
        self._requests.clear()

    def knows(self, request: Request) -> bool:
        """Whether this request was taken before. Raises `Refused` if another one was taken under its id."""
        earlier = self._requests.get(request.event_id)
        if earlier is None:
            return False
        if request.model_copy(update={"at": earlier.at}) != earlier:
            raise Refused("event_id_reused")
        return True

    def turn_of(self, message_id: str) -> int | None:
        """The turn that took this message, or None while it waits.

        Raises `Refused` once no turn will take it by itself: `withdrawn`, `closed`, or `failed` if the turn before it
        failed, in which case it still waits.
        """
        if message_id in self.transcript.taken:
            return self.transcript.taken[message_id]
        if isinstance(self.state, Closed):
            raise Refused("closed")
        if all(waiting.event_id != message_id for waiting in getattr(self.state, "inbox", ())):
            raise Refused("withdrawn")
        if isinstance(self.state, Failed):
            raise Refused("failed")
        return None

    def _take_in(self, entry: LogEntry) -> None:
        self.context = self.context.after(entry.event)
        if isinstance(entry.event, Request):
            self._requests[entry.event.event_id] = entry.event
        if entry.ended is not None:
            self.turns[entry.ended.turn] = Turn.that_ended(entry.ended, self.transcript, self.context.policy)
