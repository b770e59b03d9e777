"""What the store holds of one conversation, held in memory: it follows the store, never the other way round."""

from __future__ import annotations

from collections.abc import Iterable

from ..states.context import Context
from ..states.errors import Refused
from ..states.events import Event, Request
from ..states.log import LogEntry
from ..states.states import Closed, State
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
        self._requests: dict[str, tuple[Request, int]] = {}
        for entry in entries:
            self.transcript.add(entry)
            self._take_in(entry)

    def advance(self, event: Event, step: Step) -> tuple[Update, ...]:
        """Take in a step that was stored. Returns what it shows."""
        entry = LogEntry.of(event, step)
        updates = updates_of(entry, self.state, step.state, self.transcript)
        self.state = step.state
        self._take_in(entry)
        if isinstance(self.state, Closed):
            self.transcript = Transcript()
            self._requests.clear()
        return updates

    def turn_of(self, request: Request) -> int | None:
        """The turn to which this request belonged when it was taken before, or None if it is new.

        Raises `Refused` if another request was taken under its id.
        """
        known = self._requests.get(request.event_id)
        if known is None:
            return None
        earlier, turn = known
        if request.model_copy(update={"at": earlier.at}) != earlier:
            raise Refused("event_id_reused")
        return turn

    def _take_in(self, entry: LogEntry) -> None:
        self.context = self.context.after(entry.event)
        if isinstance(entry.event, Request):
            self._requests[entry.event.event_id] = (entry.event, entry.turn)
        if entry.ended is not None:
            self.turns[entry.ended.turn] = Turn.that_ended(entry, entry.ended)
