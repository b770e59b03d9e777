"""What must hold when a simulation is over: one function for each invariant, which yields a sentence for each breach.

The functions compare what is stored with what everybody saw: what callers are told, what is said to people, what
watchers are shown, and which effects the log asked for. How a simulation comes to its end does not belong here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from turnwise.states.context import Context
from turnwise.states.effects import AwaitedEffect, ControlEffect, DeliverToUser, PersistMessage
from turnwise.states.errors import CompactionFailed, Refused
from turnwise.states.events import Event, Request, UserMessage
from turnwise.states.states import AwaitingApproval, AwaitingUserResponse, InDoubt, State
from turnwise.states.step import Step
from turnwise.states.transcript import Transcript
from turnwise.states.values.messages import Heard
from turnwise.states.values.turn import EndedStatus
from turnwise.testing import laws
from turnwise.testing.history import History, open_work, runs_beyond_contract

from .disk import Delivered, LogKey, Process, Row, identity
from .users import Call, CallRecorder, WatchRecord
from .world import PerformedEffects, SimulatedChannel

if TYPE_CHECKING:
    from turnwise.engine.turns import Turn
    from turnwise.engine.updates import Update

__all__ = ["CHECKS", "Check", "Ending"]


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


def _ignored(call: Call) -> bool:
    return call.step is not None and call.step.ignored


STORED_AND_REFUSED = ("withdrawn", "failed", "closed")
"""Why a caller who waits for the turn of a message is refused although the message was taken."""


def _not_taken(call: Call) -> bool:
    return isinstance(call.result, Refused) and call.result.code not in STORED_AND_REFUSED


def _is_stored(event: Event, step: Step, rows: Sequence[Row]) -> bool:
    return any((row.event, row.state) == (event, step.state) for row in rows if row.seq == step.state.book.seq)


ENDED = get_args(EndedStatus)


def who_called_is_told_the_truth(ending: Ending) -> Iterator[str]:
    """Every call has ended; who sent or edited a message is told of a turn that took it, in whatever branch, or of one
    that tried it again, and how that turn ended."""
    transcript = ending.transcript()
    taken = ending.turns_of_messages()
    ended = {row.ended.turn: row.ended.status for row in ending.rows if row.ended is not None}
    for call in ending.recorder.calls:
        if call.outcome == "waits":
            yield f"{call.who}, {call.what}: has not ended"
        elif call.outcome == "returned" and call.what.startswith(("send ", "edit ")):
            turn: Turn = call.result
            message_id = call.request_id
            entered = taken[message_id] if turn.status != "queued" and message_id in taken else [0]
            if not any(one <= turn.number <= transcript.newest_try(one) for one in entered):
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


def deliveries_arrive_in_order(ending: Ending) -> Iterator[str]:
    """Through each channel everything arrives in the end, the first time in the order in which it was said, and in that
    order again whenever a process delivers it. What has not arrived is still in the outbox. What is left out because
    processes have died of it is not held against anybody."""
    everything = [one.effect_id for row in ending.rows for one in row.effects if isinstance(one, DeliverToUser)]
    for channel in ending.channels:
        left_out = {one[2] for one in ending.left_out if one[:2] == (ending.conversation_id, channel.name)}
        said = [one for one in everything if one not in left_out]
        arrived = [delivered[2] for _, delivered in channel.arrived if delivered[2] not in left_out]
        left = [one[2] for one in ending.outbox if one[:2] == (ending.conversation_id, channel.name)]
        left = [one for one in left if one not in left_out]
        first = list(dict.fromkeys(arrived))
        if first != said[: len(first)]:
            yield f"{first} arrived through {channel.name}, and {said} was said"
        for process in dict.fromkeys(process for process, _ in channel.arrived):
            brought = [delivered[2] for by, delivered in channel.arrived if by == process]
            if brought != sorted(brought, key=everything.index):
                yield f"{process} delivered {brought} through {channel.name}"
        if lost := [one for one in said if one not in first and one not in left]:
            yield f"{lost} never arrived through {channel.name}, and is no longer in the outbox"
        if left and not ending.is_cut_short:
            yield f"{left} is still to be delivered through {channel.name}"


@dataclass(frozen=True)
class Ending:
    """How a simulation has ended.

    `last` are the newest processes of each host; `is_cut_short` says that they were closed before the conversation came
    to rest. `outbox` is what was still to be delivered then, through one of the `channels`, and `left_out` what of that
    is tried no more.
    """

    key: LogKey
    rows: Sequence[Row]
    recorder: CallRecorder
    performed: PerformedEffects
    watches: Sequence[WatchRecord]
    last: Sequence[Process]
    is_cut_short: bool
    channels: Sequence[SimulatedChannel]
    outbox: Sequence[Delivered]
    left_out: Sequence[Delivered]
    is_shared: bool = False
    losers: Collection[str] = ()
    """The names of processes from which a conversation was taken."""

    @property
    def conversation_id(self) -> str:
        """The id of the conversation."""
        return self.key[0]

    @property
    def state(self) -> State:
        """The state that the conversation rests in, as stored."""
        return self.rows[-1].state

    def turns_of_messages(self) -> dict[str, list[int]]:
        """The turns that have taken each message, by its id; several ones where it was answered again."""
        sent: dict[int, str] = {}
        taken: dict[str, list[int]] = {}
        for row in self.rows:
            if isinstance(row.event, UserMessage):
                sent[row.seq] = row.event.event_id
            for effect in row.effects:
                if isinstance(effect, PersistMessage) and isinstance(effect.said, Heard) and effect.said.seq in sent:
                    taken.setdefault(sent[effect.said.seq], []).append(row.state.book.turn)
        return taken

    def transcript(self, seq: int | None = None) -> Transcript:
        """What was said up to the step `seq`, or to the end, as stored."""
        transcript = Transcript()
        for row in self.rows[:seq]:
            transcript.add(row.entry)
        return transcript


Check: TypeAlias = Callable[[Ending], Iterator[str]]
"""Yields a sentence for each place where an invariant does not hold."""


def the_log_is_whole(ending: Ending) -> Iterator[str]:
    """It has no gap, no request twice, and no effect with two answers."""
    if [row.seq for row in ending.rows] != list(range(1, len(ending.rows) + 1)):
        yield f"the log has the steps {[row.seq for row in ending.rows]}"
    for name, times in Counter(identity(row.event) for row in ending.rows).items():
        if times > 1 and name is not None:
            yield f"{name} is in the log {times} times"


SINGLE_STEP_LAWS = (laws.is_taken_or_refused, laws.is_deterministic, laws.can_be_stopped, laws.can_be_left)
"""Laws about a single step, which cost several times what all others do. Property tests hold generated states to them;
here the store and the replay hold each step to the first two, and users who want it to end to the others."""

LAWS = tuple(law for law in laws.LAWS if law not in SINGLE_STEP_LAWS)


def the_log_replays(ending: Ending) -> Iterator[str]:
    """Its events alone lead to each effect, each end of a turn and each state once more; and the laws hold."""
    history = History()
    for row in ending.rows:
        step = history.take(row.event).step
        if step is None or (step.effects, step.ended, step.state) != (row.effects, row.ended, row.state):
            yield f"step {row.seq}, {row.event.type}, replays differently: {history.newest!r:.300}"
            return
        try:
            laws.check_newest(history, *LAWS)
        except laws.LawBroken as broken:
            yield str(broken)
            return


def effects_are_carried_out(ending: Ending) -> Iterator[str]:
    """The last process of each host has begun the effects that it stored, unless they were taken back; and everything
    that was begun has ended. Where processes share the store, whoever has the custody begins them, and that everything
    comes to rest says that somebody has."""
    if ending.performed.busy:
        yield f"{sorted(id_ for _, _, id_ in ending.performed.busy)} are still being carried out"
    if ending.is_cut_short or ending.is_shared:
        return
    effects = [(row, effect) for row in ending.rows for effect in row.effects]
    taken_back = {effect.effect_id for _, effect in effects if isinstance(effect, ControlEffect)}
    last = {process.name for process in ending.last}
    for row, effect in effects:
        if row.writer not in last or not isinstance(effect, AwaitedEffect) or effect.effect_id in taken_back:
            continue
        if (row.writer, ending.key, effect.effect_id) not in ending.performed.begun:
            yield f"the effect {effect.effect_id}, which {row.writer} stored at step {row.seq}, was never begun"


def models_are_shown_the_branch_under_way(ending: Ending) -> Iterator[str]:
    """Whatever a process that asks a model has in memory is what the log says, as of the step that asks: of the branch
    under way, and of no other."""
    for key, seq, shown in ending.performed.shown:
        if key == ending.key and shown != tuple(ending.transcript(seq).messages):
            yield f"a model was shown another dialogue at step {seq} than the one that is stored: {shown}"


def at_most_once_holds(ending: Ending) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so."""
    begun = ending.performed.times_begun
    yield from runs_beyond_contract([row.entry for row in ending.rows], lambda id_: begun[ending.key, id_])


def the_conversation_is_at_rest(ending: Ending) -> Iterator[str]:
    """Nothing is open."""
    if not ending.is_cut_short:
        yield from open_work(ending.state)


def snapshots_show_what_is_stored(ending: Ending) -> Iterator[str]:
    """Each snapshot shows the conversation as it is stored, up to the step at which it was taken."""
    from turnwise.engine.updates import snapshot

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
    from turnwise.engine.updates import updates_of_log

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
    """Each watch can show the text of an answer while it is written, and what a tool is to say: from its start, each
    piece once. The simulated models number the pieces of an answer from 0, in each of its kinds. A process that has
    lost the conversation may show what its own model writes until it hears of that."""
    for watch in ending.watches:
        if watch.process.name not in ending.losers:
            for kind in ("text", "speech"):
                yield from _gaps(watch, kind)


def _gaps(watch: WatchRecord, kind: str) -> Iterator[str]:
    shown, written_by = "", (0, 0)
    for update in watch.updates:
        if update.type == "snapshot":
            streaming = update.streaming
            shown = getattr(streaming, kind) if streaming else ""
            written_by = (streaming.request, streaming.attempt) if streaming else (0, 0)
        elif update.type == "token" and update.kind == kind:
            continues = written_by == (update.request, update.attempt) and not update.from_start
            shown, written_by = (shown if continues else "") + update.text, (update.request, update.attempt)
        if shown != "".join(f"{number} " for number in range(len(shown.split()))):
            yield f"{watch.who} was shown {shown!r} of an answer while it was written, as {kind}"
            break


def streams_show_one_turn(ending: Ending) -> Iterator[str]:
    """A stream shows every stored update of the turn that took its message, from the message to where the turn stopped
    first."""
    from turnwise.engine.updates import updates_of_log

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


WAITS = tuple(kind.model_fields["type"].default for kind in (AwaitingUserResponse, AwaitingApproval, InDoubt))


def _waits_for_person(shown: dict[str, Any]) -> bool:
    """Whether this state, as it is shown, waits for a person, also one who is to answer a sub-agent."""
    return shown["type"] in WAITS or bool(shown["data"].get("questions"))


CHECKS: tuple[Check, ...] = (
    the_log_is_whole,
    the_log_replays,
    effects_are_carried_out,
    models_are_shown_the_branch_under_way,
    at_most_once_holds,
    the_conversation_is_at_rest,
    who_dispatched_is_told_the_truth,
    who_called_is_told_the_truth,
    who_asks_again_is_told_the_same,
    snapshots_show_what_is_stored,
    watchers_see_everything,
    streamed_text_has_no_gap,
    streams_show_one_turn,
    deliveries_arrive_in_order,
)
"""All of them."""
