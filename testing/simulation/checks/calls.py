"""What must hold of what callers are told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from ....states.errors import CompactionFailed, Refused
from ....states.events import Event, Request, UserMessage
from ....states.step import Step
from ....states.values.turn import EndedStatus
from ..storage.disk import Row
from ..users.call_recorder import Call
from .ending import Ending

if TYPE_CHECKING:
    from ....engine.turns import Turn

ENDED = get_args(EndedStatus)
STORED_AND_REFUSED = ("withdrawn", "failed", "closed")
"""Why a caller who waits for the turn of a message is refused although the message was taken."""


def who_dispatched_is_told_the_truth(ending: Ending) -> Iterator[str]:
    """A step that was returned is stored; a message that was taken before is stored; a refused request is not stored,
    unless it was also handed over by a call that was not refused."""
    stored = {row.event.event_id: row.event for row in ending.rows if isinstance(row.event, Request)}
    perhaps_taken = {call.request_id for call in ending.recorder.calls if not (_not_taken(call) or _ignored(call))}
    for call in ending.recorder.calls:
        id_, event = call.request_id, call.event
        known = stored.get(id_)
        same = known is not None and (event is None or event.model_copy(update={"at": known.at}) == known)
        if id_ in ending.recorder.ids and _not_taken(call) and same and id_ not in perhaps_taken:
            yield f"{call.who}, {call.what}: {id_} was refused, and is stored"
        elif event is None or call.outcome != "returned":
            continue
        elif _ignored(call):
            if isinstance(event, UserMessage) and not same:
                yield f"{call.who}, {call.what}: {id_} counts as taken before, and is not stored"
        elif call.step is not None and not _is_stored(event, call.step, ending.rows):
            yield f"{call.who}, {call.what}: {id_} led to step {call.step.state.book.seq}, which is another one"


def _not_taken(call: Call) -> bool:
    return isinstance(call.result, Refused) and call.result.code not in STORED_AND_REFUSED


def _ignored(call: Call) -> bool:
    return call.step is not None and call.step.ignored


def _is_stored(event: Event, step: Step, rows: Sequence[Row]) -> bool:
    return any((row.event, row.state) == (event, step.state) for row in rows if row.seq == step.state.book.seq)


def who_called_is_told_the_truth(ending: Ending) -> Iterator[str]:
    """Every call has ended; who sent a message is told of the turn that took it, or of one that tried it again, and how
    that turn ended."""
    transcript = ending.transcript()
    taken = transcript.taken
    ended = {row.ended.turn: row.ended.status for row in ending.rows if row.ended is not None}
    for call in ending.recorder.calls:
        if call.outcome == "waits":
            yield f"{call.who}, {call.what}: has not ended"
        elif call.outcome == "returned" and call.what.startswith("send "):
            turn: Turn = call.result
            message_id = call.request_id
            entered = taken.get(message_id, 0) if turn.status != "queued" else 0
            if not entered <= turn.number <= transcript.newest_try(entered):
                yield f"{message_id} was told of turn {turn.number}, and entered turn {entered}"
            if turn.status in ("queued", "running") and not call.what.endswith("go on"):
                yield f"{message_id} was told that turn {turn.number} is {turn.status}, and wanted to wait"
            if turn.status in ENDED and ended.get(turn.number) != turn.status:
                yield f"{message_id} was told that turn {turn.number} is {turn.status}: {ended.get(turn.number)}"


def who_asks_again_is_told_the_same(ending: Ending) -> Iterator[str]:
    """A request that was handled has one result, however often it is made under its id; a message is answered with its
    turn as it is. A cancel that had nothing to stop is known in its process only, so another process may take it."""
    told: dict[tuple[str, str], object] = {}
    writers = {row.event.event_id: row.writer for row in ending.rows if isinstance(row.event, Request)}
    for call in ending.recorder.calls:
        result = call.result
        if isinstance(result, CompactionFailed):
            result = (result.kind, result.sentence)
        elif call.outcome != "returned":
            continue
        if not call.request_id or call.event is not None or call.what.startswith(("send ", "stream ")):
            continue
        process = call.process.name if hasattr(result, "no_op") else ""
        if process and writers.get(call.request_id, process) != process:
            continue
        first = told.setdefault((call.request_id, process), result)
        if result != first:
            yield f"{call.who}, {call.what}: was told {result}, and before {first}"
