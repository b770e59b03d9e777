"""What must hold when a simulation is over: one function for each promise, which tells where it is broken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias, get_args

from ...states.effects import AwaitedEffect, ControlEffect, DeliverToUser
from ...states.events import Event, Request, UserMessage
from ...states.projections.transcript import Transcript
from ...states.states import State
from ...states.step import Step
from ...states.values.turn import TurnStatus
from .. import laws
from ..conversation_checks import open_work, runs_beyond_contract
from ..history import History
from .call_recorder import Asked, CallRecorder
from .channels import Line, Sent
from .disk import Row, named
from .watch_record import WatchRecord
from .world import World

if TYPE_CHECKING:
    from ...engine.projections.projection import ConversationProjection
    from ...engine.projections.turn import Turn


@dataclass(frozen=True)
class Ending:
    """How a simulation ended: what is stored, what the engine holds in memory, and what everybody saw.

    `engines` counts the engines that were closed on the way, and `opened_at` is the step at which the last one took up
    the conversation. `cut_short` tells that it was closed before the conversation came to rest. `outbox` is what was
    still to be delivered then, to one of the `lines`.
    """

    rows: Sequence[Row]
    memory: ConversationProjection
    notebook: CallRecorder
    world: World
    sights: Sequence[WatchRecord]
    engines: int
    opened_at: int
    cut_short: bool
    lines: Sequence[Line]
    outbox: Sequence[Sent]
    conversation_id: str

    @property
    def state(self) -> State:
        """Where the conversation rests, as stored."""
        return self.rows[-1].state

    def transcript(self) -> Transcript:
        """What was said, as stored."""
        said = Transcript()
        for row in self.rows:
            said.add(row.entry)
        return said


Check: TypeAlias = Callable[[Ending], Iterator[str]]

ELSEWHERE = (laws.is_taken_or_refused, laws.is_deterministic, laws.can_be_stopped, laws.can_be_left)
"""Laws about a single step, which cost several times what all others do. They are tried on made-up states; and here the
store and the replay hold each step to the first two, and people to the others, who want it to end."""

LAWS = tuple(law for law in laws.LAWS if law not in ELSEWHERE)


def the_log_is_whole(ending: Ending) -> Iterator[str]:
    """It has no gap, no request twice, and no effect with two answers."""
    if [row.seq for row in ending.rows] != list(range(1, len(ending.rows) + 1)):
        yield f"the log has the steps {[row.seq for row in ending.rows]}"
    for name, times in Counter(named(row.event) for row in ending.rows).items():
        if times > 1 and name is not None:
            yield f"{name} is in the log {times} times"


def it_replays(ending: Ending) -> Iterator[str]:
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
    """What the last engine had to carry out was begun, unless it was taken back; and whatever was begun has ended."""
    if ending.world.busy:
        yield f"{sorted(id_ for _, id_ in ending.world.busy)} are still being carried out"
    if not ending.cut_short:
        wanted = {
            effect.effect_id: row.seq
            for row in ending.rows[ending.opened_at :]
            for effect in row.effects
            if isinstance(effect, AwaitedEffect)
        }
        back = {one.effect_id for row in ending.rows for one in row.effects if isinstance(one, ControlEffect)}
        for id_ in sorted(wanted.keys() - back - {id_ for _, id_ in ending.world.begun}):
            yield f"the effect {id_}, wanted at step {wanted[id_]}, was never begun"


def nothing_runs_twice_that_must_not(ending: Ending) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so."""
    begun = ending.world.times_begun
    yield from runs_beyond_contract([row.entry for row in ending.rows], lambda id_: begun[ending.conversation_id, id_])


def it_is_at_rest(ending: Ending) -> Iterator[str]:
    """Nothing is open."""
    if not ending.cut_short:
        yield from open_work(ending.state)


def memory_follows_the_store(ending: Ending) -> Iterator[str]:
    """What the engine holds in memory is what is stored."""
    memory = ending.memory
    if memory.state != ending.state:
        yield f"in memory it is in {memory.state.type}, step {memory.state.book.seq}"
    elif memory.is_read and memory.transcript != ending.transcript():
        yield "in memory other words were said than in the log"


def who_asked_was_told_the_truth(ending: Ending) -> Iterator[str]:
    """A step that was told is the one that is stored; a message said to be known is; what was refused is not stored,
    unless the same was sent again."""
    stored = {row.event.event_id: row.event for row in ending.rows if isinstance(row.event, Request)}
    heard = {_id(asked) for asked in ending.notebook.asked if asked.told != "refused" and not asked.ignored}
    for asked in ending.notebook.asked:
        event, there = asked.event, stored.get(_id(asked))
        same = there is not None and event.model_copy(update={"at": there.at}) == there
        if asked.told == "waits":
            yield f"{event.type} {_id(asked)} was never told"
        elif asked.ignored and isinstance(event, UserMessage) and not same:
            yield f"{event.type} {_id(asked)} was told that it was taken before, and is not stored"
        elif asked.told == "refused" and same and _id(asked) not in heard:
            yield f"{event.type} {_id(asked)} was refused, and is stored"
        elif asked.step is not None and not asked.ignored and not _is_stored(event, asked.step, ending.rows):
            yield f"{event.type} {_id(asked)} was told of step {asked.step.state.book.seq}, which is another one"


def _id(asked: Asked) -> str:
    return asked.event.event_id if isinstance(asked.event, Request) else ""


def _is_stored(event: Event, step: Step, rows: Sequence[Row]) -> bool:
    return any((row.event, row.state) == (event, step.state) for row in rows if row.seq == step.state.book.seq)


def who_called_was_told_the_truth(ending: Ending) -> Iterator[str]:
    """Nobody waits any more; who sent a message was told of the turn that took it, or of one that tried it again, and
    how that turn ended."""
    transcript = ending.transcript()
    taken = transcript.taken
    ended = {row.ended.turn: row.ended.status for row in ending.rows if row.ended is not None}
    for call in ending.notebook.calls:
        if call.told == "waits":
            yield f"{call.who}, {call.what}: was never told"
        elif call.told == "told" and call.what.startswith("send "):
            turn: Turn = call.result
            message_id = call.what.split()[1]
            entered = taken.get(message_id, 0) if turn.status != "queued" else 0
            if not entered <= turn.number <= transcript.newest_try(entered):
                yield f"{message_id} was told of turn {turn.number}, and entered turn {entered}"
            if turn.status in ("queued", "running") and not call.what.endswith("go on"):
                yield f"{message_id} was told that turn {turn.number} is {turn.status}, and wanted to wait"
            if turn.status in ENDINGS and ended.get(turn.number) != turn.status:
                yield f"{message_id} was told that turn {turn.number} is {turn.status}: {ended.get(turn.number)}"


def watchers_saw_everything(ending: Ending) -> Iterator[str]:
    """Each watch shows every stored update from its beginning on, once, in order, and nothing else; up to the end, if
    the engine was not closed on the way."""
    from ...engine.projections.updates import updates_of_log

    if not ending.sights:
        return
    shown = [(update.position, update.type, update.data) for update in updates_of_log(row.entry for row in ending.rows)]
    for sight in ending.sights:
        seen = [(update.position, update.type, update.data) for update in sight.updates if update.id is not None]
        begin = sight.begin
        expected = [update for update in shown if begin is not None and update[0] is not None and update[0] > begin]
        seen = [update for update in seen if update[1] != "snapshot"]
        whole = sight.engine == ending.engines and not ending.cut_short
        if seen != (expected if whole else expected[: len(seen)]):
            saw, missed = next(pair for pair in zip_longest(seen, expected) if pair[0] != pair[1])
            yield f"{sight.who}, watching from {begin} on, saw {saw} in the place of {missed}"


def what_was_said_arrives(ending: Ending) -> Iterator[str]:
    """At each line: all of it in the end, first of all in the order in which it was said; and in that order again each
    time that an engine brings it. What has not arrived is still in the outbox."""
    said = [one.effect_id for row in ending.rows for one in row.effects if isinstance(one, DeliverToUser)]
    for line in ending.lines:
        arrived = [sent[2] for _, sent in line.arrived]
        left = [sent[2] for sent in ending.outbox if sent[:2] == (ending.conversation_id, line.name)]
        first = list(dict.fromkeys(arrived))
        if first != said[: len(first)]:
            yield f"{line.name} heard {first}, and {said} was said"
        for engine in dict.fromkeys(engine for engine, _ in line.arrived):
            brought = [sent[2] for by, sent in line.arrived if by == engine]
            if brought != sorted(brought, key=said.index):
                yield f"the engine {engine} brought {brought} to {line.name}"
        if lost := [one for one in said if one not in first and one not in left]:
            yield f"{lost} never arrived at {line.name}, and is no longer in the outbox"
        if left and not ending.cut_short:
            yield f"{left} is still to be delivered to {line.name}"


ENDINGS = get_args(TurnStatus)

CHECKS: tuple[Check, ...] = (
    the_log_is_whole,
    it_replays,
    effects_are_carried_out,
    nothing_runs_twice_that_must_not,
    it_is_at_rest,
    memory_follows_the_store,
    who_asked_was_told_the_truth,
    who_called_was_told_the_truth,
    watchers_saw_everything,
    what_was_said_arrives,
)
"""All of them."""
