"""What must hold of what watchers are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ....states.context import Context
from ....states.states import AwaitingApproval, AwaitingUserResponse, InDoubt
from .ending import Ending

if TYPE_CHECKING:
    from ....engine.updates import Update


WAITS = tuple(kind.model_fields["type"].default for kind in (AwaitingUserResponse, AwaitingApproval, InDoubt))


def snapshots_show_what_is_stored(ending: Ending) -> Iterator[str]:
    """Each snapshot shows the conversation as it is stored, up to the step at which it was taken."""
    from ....engine.updates import snapshot

    for watch in ending.watches:
        for update in watch.updates:
            if update.type == "snapshot":
                seq = update.position[0] - 1
                policy = _context(ending, seq).policy
                expected = snapshot(ending.rows[seq - 1].state, ending.transcript(seq), policy)
                if (update.state, update.transcript) != (expected.state, expected.transcript):
                    yield f"{watch.who} was shown at step {seq}: {update.data}, and not {expected.data}"


def _context(ending: Ending, seq: int) -> Context:
    context = Context()
    for row in ending.rows[:seq]:
        context = context.after(row.event)
    return context


def watchers_see_everything(ending: Ending) -> Iterator[str]:
    """Each watch shows every stored update from its beginning on, once, in order, and nothing else; up to the end, if
    its engine was not closed on the way."""
    from ....engine.updates import updates_of_log

    if not ending.watches:
        return
    log = (row.entry for row in ending.rows)
    stored = [(update.position, update.type, update.data) for update in updates_of_log(log)]
    for watch in ending.watches:
        begin = watch.begin
        expected = [update for update in stored if begin is not None and update[0] is not None and update[0] > begin]
        shown = [(update.position, update.type, update.data) for update in watch.updates if update.id is not None]
        shown = [update for update in shown if update[1] != "snapshot"]
        is_whole = watch.process in ending.last and not ending.is_cut_short
        if shown != (expected if is_whole else expected[: len(shown)]):
            saw, missed = next(pair for pair in zip_longest(shown, expected) if pair[0] != pair[1])
            yield f"{watch.who}, watching from {begin} on, saw {saw} in the place of {missed}"


def streamed_text_has_no_gap(ending: Ending) -> Iterator[str]:
    """Each watch can show the text of an answer while it is written: from its start, each piece once. The simulated
    models number the pieces of an answer from 0."""
    for watch in ending.watches:
        shown, written_by = "", (0, 0)
        for update in watch.updates:
            if update.type == "snapshot":
                streaming = update.streaming
                shown = streaming.text if streaming else ""
                written_by = (streaming.request, streaming.attempt) if streaming else (0, 0)
            elif update.type == "token" and update.kind == "text":
                continues = written_by == (update.request, update.attempt) and not update.from_start
                shown, written_by = (shown if continues else "") + update.text, (update.request, update.attempt)
            if shown != "".join(f"{number} " for number in range(len(shown.split()))):
                yield f"{watch.who} was shown {shown!r} of an answer while it was written"
                break


def streams_show_one_turn(ending: Ending) -> Iterator[str]:
    """A stream shows every stored update of the turn that took its message, from the message to where the turn stopped
    first."""
    from ....engine.updates import updates_of_log

    streams = [call for call in ending.recorder.calls if call.what.startswith("stream ") and call.outcome == "returned"]
    if not streams:
        return
    stored = list(updates_of_log(row.entry for row in ending.rows))
    for call in streams:
        shown = [(update.position, update.data) for update in call.result if update.position is not None]
        expected = [(update.position, update.data) for update in _of_turn(stored, call.request_id)]
        if shown != expected:
            yield f"{call.who}, {call.what}: saw {shown}, and not {expected}"


def _of_turn(stored: Iterable[Update], message_id: str) -> Iterator[Update]:
    """The updates of the turn that took this message, until it stopped."""
    turn = 0
    for update in stored:
        data: dict[str, Any] = update.data["data"] if update.type == "state_change" else update.data
        if update.type == "message" and data.get("message_id") == message_id:
            turn = data["turn"]
        if not turn or data["turn"] != turn:
            continue
        yield update
        if update.type == "turn_ended" or (update.type == "state_change" and _waits_for_person(update.data)):
            return


def _waits_for_person(shown: dict[str, Any]) -> bool:
    """Whether this state, as it is shown, waits for a person, also one who is to answer a sub-agent."""
    return shown["type"] in WAITS or bool(shown["data"].get("questions"))
