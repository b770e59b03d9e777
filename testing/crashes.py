"""Processes that are killed at every moment at which it could matter, and what must hold afterwards.

A scenario opens an engine over the database that it is given, drives conversations until they rest, and closes the
engine. It runs in a process of its own, which is killed (SIGKILL) at one boundary: before or after a commit, a call to
the outside world or its answer. Then it runs again over the same database, to its end, and the database is checked.

    def test_no_crash_loses_anything():
        crash_at_every_boundary(books_a_table)

`crash_at_every_boundary` says how a scenario must be written.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from ..states.effects import DeliverToUser, Effect
from ..states.events import Answer, EffectFailed, Event, LlmStopped, Opened, Request, ToolAborted
from ..states.states import State
from ..states.step import LogEntry, Step
from .history import open_work, runs_beyond_contract

if TYPE_CHECKING:
    from ..effects.channels.port import Channel, Delivery
    from ..effects.context import EffectContext
    from ..effects.dispatcher import Performer, Sender
    from ..persistence.ports import Files, LoadedConversation, Log, Store

__all__ = [
    "Boundary",
    "CrashFound",
    "CrashReport",
    "Journal",
    "Process",
    "ScenarioFailed",
    "check_after_crashes",
    "crash_at_every_boundary",
]


def crash_at_every_boundary(scenario: Scenario, *, every: int = 1, deaths: int = 1, seed: int = 0) -> CrashReport:
    """Kill the scenario at each boundary that it reaches, run it again to its end, and check what is stored.

    `scenario` is a coroutine function of the path of a database. It opens an engine there, drives conversations until
    they rest, and closes the engine. It is run again after a crash, over the same database: so it must look for its
    conversation with `engine.list()` before it creates one, send each message under a `message_id`, answer what is
    asked, and resolve what is in doubt. Everything in it must follow from the database, and nothing may wait for ever.

    With `every=n` only every n-th boundary is tried; `seed` decides which. With `deaths` greater than 1 the process
    that continues is killed, too, at boundaries that `seed` decides.

    Raises `CrashFound` if an invariant does not hold, and `ScenarioFailed` if a run that is not killed fails.
    """
    chance = Random(seed)
    with TemporaryDirectory(prefix="turnwise-crashes-") as folder:
        boundaries = _run_scenario(scenario, Path(folder, "whole"), ())
        tried: Counter[str] = Counter()
        kills = 0
        for boundary in _chosen(boundaries, every, chance):
            further = [chance.randint(1, len(boundaries)) for _ in range(deaths - 1)]
            kills += 1 + len(further)
            tried[boundary.name] += 1
            try:
                _run_scenario(scenario, Path(folder, str(boundary.number)), (boundary.number, *further))
            except AssertionError as broken:
                raise type(broken)(f"Killed at {boundary}{_then(further)}: {broken}") from None
        return CrashReport(kills, tried)


DATABASE, JOURNAL = "conversations.db", "journal.jsonl"


def _run_scenario(scenario: Scenario, folder: Path, deaths: tuple[int, ...]) -> list[str]:
    """Run the scenario in a folder of its own: until it is killed at each of these boundaries, and then to its end.
    Returns the names of the boundaries that were reached."""
    folder.mkdir()
    database, journal = folder / DATABASE, folder / JOURNAL
    for dies_at in deaths:
        Process(scenario, database, journal, dies_at).wait()
        if database.exists() and (faults := _faults(database, journal, at_rest=False)):
            raise CrashFound(faults)
    if not Process(scenario, database, journal).wait():
        raise ScenarioFailed("The process was killed, and not by this test.")
    if faults := _faults(database, journal, at_rest=True):
        raise CrashFound(faults)
    return Seen.read(journal).boundaries


def _faults(database: Path, journal: Path, *, at_rest: bool) -> str:
    try:
        return "; ".join(check_after_crashes(database, journal, at_rest=at_rest))
    except Exception as error:  # a database that cannot even be read
        return f"{type(error).__name__}: {error}"


def _chosen(boundaries: list[str], every: int, chance: Random) -> Iterator[Boundary]:
    for number in range(1 + chance.randrange(every), len(boundaries) + 1, every):
        yield Boundary(number, boundaries[number - 1])


def _then(further: list[int]) -> str:
    return f", and then at {', '.join(map(str, further))}" if further else ""


class CrashFound(AssertionError):
    """An invariant does not hold after a crash. The message says which, and at which boundary."""


@dataclass(frozen=True)
class CrashReport:
    """How many processes were killed, and at which kinds of boundary."""

    kills: int
    boundaries: Counter[str]

    def __str__(self) -> str:
        return f"{self.kills} kills at {len(self.boundaries)} kinds of boundary"


Scenario: TypeAlias = Callable[[Path], Awaitable[None]]
"""What is run over the database at this path; see `crash_at_every_boundary`."""

SECONDS = 60.0
"""How long a process may take: far longer than a scenario that does not hang."""

POLL = 0.002
"""Seconds between two checks whether a process has ended."""


class Process:
    """A copy of this process that runs a scenario. It starts at once; you must `wait` for it.

    It is made by `fork`, so the scenario may be any function, and it starts within milliseconds, since everything is
    imported already. Raises NotImplementedError where the operating system has no `fork`.
    """

    def __init__(self, scenario: Scenario, database: Path, journal: Path, dies_at: int | None = None) -> None:
        if not hasattr(os, "fork"):
            raise NotImplementedError("Processes are copied with fork, which this operating system does not have.")
        self._failure = journal.with_suffix(".failure")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads do not matter to the copy
            self._pid = os.fork()
        if self._pid == 0:
            _live(scenario, database, journal, dies_at, self._failure)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        os.kill(self._pid, signal.SIGKILL)

    def wait(self, seconds: float = SECONDS) -> bool:
        """Wait for the process to end. Returns True if it ended by itself, False if it was killed.

        Raises `ScenarioFailed` if the scenario raised an error, or took too long.
        """
        end = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end:
                self.kill()
                os.waitpid(self._pid, 0)
                raise ScenarioFailed(f"The scenario did not come to its end within {seconds:g} s.")
            time.sleep(POLL)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            return False
        if self._failure.exists():
            raise ScenarioFailed(self._failure.read_text(encoding="utf-8"))
        if status:
            raise ScenarioFailed(f"The process of the scenario ended with the status {status}.")
        return True


def _live(scenario: Scenario, database: Path, journal: Path, dies_at: int | None, failure: Path) -> NoReturn:
    """Run the scenario in the copy. At its end nothing that belongs to the original process is cleaned up."""
    try:
        with observed(Journal(journal), dies_at):
            asyncio.run(_run(scenario, database))
    except BaseException:
        failure.write_text(traceback.format_exc(), encoding="utf-8")
        os._exit(1)
    os._exit(0)


async def _run(scenario: Scenario, database: Path) -> None:
    await scenario(database)


class ScenarioFailed(AssertionError):
    """A scenario raised an error, or did not end in time."""


class Journal:
    """A file to which lines are added. Once `add` returns the whole line is there, even if the process is killed.

    It outlives the process. The log of a conversation holds what the engine knows; the journal holds what can be
    compared with it: which effects were begun, which requests were acknowledged, which deliveries arrived.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, kind: str, *fields: Any) -> None:
        """Add a line."""
        os.write(self._file, json.dumps([kind, *fields]).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass
class Seen:
    """The content of a journal: how often each effect was begun, the requests that were taken, and what arrived."""

    boundaries: list[str] = field(default_factory=list)
    """The names of the boundaries that were reached, in order."""

    begun: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How often each effect, by conversation and id, was begun."""

    taken: set[tuple[str, str]] = field(default_factory=set)
    """The requests that were acknowledged, by conversation and id."""

    arrived: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """The effects whose deliveries arrived, by conversation and channel, in order."""

    @classmethod
    def read(cls, path: Path) -> Seen:
        """Read a journal. A missing one counts as empty."""
        seen = cls()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            kind, *fields = json.loads(line)
            if kind == "boundary":
                seen.boundaries.append(fields[0])
            elif kind == "begun":
                seen.begun[fields[0], fields[1]] += 1
            elif kind == "taken":
                seen.taken.add((fields[0], fields[1]))
            elif kind == "arrived":
                seen.arrived.setdefault((fields[0], fields[1]), []).append(fields[2])
        return seen


@dataclass(frozen=True)
class Boundary:
    """The `number`-th boundary that a process reaches, counted from 1, and what it is.

    It is a point at which a process can die: around each commit, each call to the outside world, and each delivery.
    Between two of these nothing happens that another process could see, so to die there is to die at one of them. The
    points are found by wrapping the ports of every engine that the process opens.
    """

    number: int
    name: str

    def __str__(self) -> str:
        return f"boundary {self.number}, {self.name}"


class Boundaries:
    """Counts the boundaries of this process and writes them into the journal. At number `dies_at` it dies."""

    def __init__(self, journal: Journal, dies_at: int | None) -> None:
        self.journal = journal
        self._dies_at = dies_at
        self._reached = 0

    def reach(self, name: str) -> None:
        """Reach a boundary, and perhaps die there."""
        self._reached += 1
        self.journal.add("boundary", name)
        if self._reached == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def observed(journal: Journal, dies_at: int | None = None) -> Iterator[None]:
    """While this holds, every engine that is opened reaches boundaries, and what it does outside is written down."""
    from ..effects.dispatcher import Sender, with_abort_of
    from ..engine.composition import PortWrappers, wrapped_ports

    boundaries = Boundaries(journal, dies_at)

    def observed_performer(one: Performer) -> Performer:
        if isinstance(one, Sender):
            return _ObservedSender(one, boundaries)
        return with_abort_of(one, _ObservedPerformer(one, boundaries))

    def performers(given: Mapping[type[Effect], Performer]) -> Mapping[type[Effect], Performer]:
        return {kind: observed_performer(one) for kind, one in given.items()}

    def channels(given: tuple[Channel, ...]) -> Iterable[Channel]:
        return [_ObservedChannel(channel, boundaries) for channel in given]

    def store(given: Store) -> Store:
        return cast("Store", _ObservedStore(given, boundaries))

    with wrapped_ports(PortWrappers(store=store, performers=performers, channels=channels)):
        yield


class _ObservedPerformer:
    """A performer that reaches a boundary before it begins and after it has ended."""

    def __init__(self, performer: Performer, boundaries: Boundaries) -> None:
        self._performer = performer
        self._boundaries = boundaries

    async def __call__(self, effect: Any, context: EffectContext) -> Any:
        self._boundaries.reach(f"before {effect.type} is begun")
        self._boundaries.journal.add("begun", context.conversation_id, effect.effect_id)
        answer = await self._performer(effect, context)
        self._boundaries.reach(f"after {effect.type} is done")
        return answer


class _ObservedSender(_ObservedPerformer):
    """The same for an effect that stands in the outbox."""

    def __init__(self, sender: Sender, boundaries: Boundaries) -> None:
        super().__init__(sender, boundaries)
        self._sender = sender

    def targets_of(self, effect: Any) -> Sequence[str]:
        return self._sender.targets_of(effect)


class _ObservedChannel:
    """A channel that reaches a boundary before and after each attempt to deliver."""

    def __init__(self, channel: Channel, boundaries: Boundaries) -> None:
        self.name = channel.name
        self._channel = channel
        self._boundaries = boundaries

    async def deliver(self, delivery: Delivery) -> None:
        self._boundaries.reach("before a delivery")
        try:
            delivering: Any = self._channel.deliver(delivery)
            if inspect.isawaitable(delivering):
                await delivering
            from ..effects.context import effect_of_key

            _, effect_id = effect_of_key(delivery.key)
            self._boundaries.journal.add("arrived", delivery.conversation_id, self.name, effect_id)
        finally:
            self._boundaries.reach("after a delivery")


class _ObservedStore:
    """A store whose logs reach boundaries."""

    def __init__(self, store: Store, boundaries: Boundaries) -> None:
        self._store = store
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, conversation_id: str, event: Opened, step: Step) -> Log:
        log = await self._store.create(conversation_id, event, step)
        return self._observed(log, conversation_id)

    async def load(self, conversation_id: str) -> LoadedConversation:
        from ..persistence.ports import LoadedConversation

        loaded = await self._store.load(conversation_id)
        return LoadedConversation(self._observed(loaded.log, conversation_id), loaded.state, loaded.context)

    @property
    def files(self) -> Files:
        return cast("Files", _ObservedFiles(self._store.files, self._boundaries))

    def _observed(self, log: Log, conversation_id: str) -> Log:
        return cast("Log", _ObservedLog(log, conversation_id, self._boundaries))


class _ObservedFiles:
    """Files that reach a boundary before and after each is stored: no step refers to it yet."""

    def __init__(self, files: Files, boundaries: Boundaries) -> None:
        self._files = files
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    async def keep(self, conversation_id: str | None, sha256: str, data: bytes) -> str | None:
        self._boundaries.reach("before a file is stored")
        mark = await self._files.keep(conversation_id, sha256, data)
        self._boundaries.reach("after a file is stored")
        return mark


class _ObservedLog:
    """A log that reaches a boundary before and after each commit."""

    def __init__(self, log: Log, conversation_id: str, boundaries: Boundaries) -> None:
        self._log = log
        self._conversation_id = conversation_id
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, event: Event, step: Step, targets: Iterable[tuple[int, str]] = ()) -> None:
        self._boundaries.reach(f"before {event.type} is stored")
        await self._log.append(event, step, targets)
        if isinstance(event, Request):
            self._boundaries.journal.add("taken", self._conversation_id, event.event_id)
        self._boundaries.reach(f"after {event.type} is stored")


def check_after_crashes(database: str | Path, journal: Path, *, at_rest: bool = True) -> list[str]:
    """Return a sentence for each invariant that does not hold. With `at_rest` nothing may be left to be done.

    The database must not be open in an engine. Nothing is changed.

    The doctor checks that the database is consistent in itself: that each log is complete and unchanged, replays, and
    keeps the rules of every log. The functions of this module compare the database with the journal, which holds what
    was seen from outside; each yields a sentence for each breach.
    """
    return asyncio.run(_check(database, Seen.read(journal), AT_REST if at_rest else ALWAYS))


@dataclass(frozen=True)
class Found:
    """One conversation as it is stored, and what was seen from outside. `left` are the deliveries that are still to be
    made."""

    id: str
    entries: Sequence[LogEntry]
    state: State
    left: frozenset[int]
    seen: Seen


Check: TypeAlias = Callable[[Found], Iterator[str]]


def what_was_taken_is_there(found: Found) -> Iterator[str]:
    """Each request that was acknowledged is stored."""
    stored = {entry.event.event_id for entry in found.entries if isinstance(entry.event, Request)}
    for conversation_id, event_id in sorted(found.seen.taken):
        if conversation_id == found.id and event_id not in stored:
            yield f"the request {event_id} was taken, and is lost"


def what_was_answered_was_begun(found: Found) -> Iterator[str]:
    """Each effect that was answered has been begun, unless the answer says that nothing came of it."""
    answers = [entry.event for entry in found.entries if isinstance(entry.event, Answer)]
    for answer in answers:
        came_to_nothing = isinstance(answer, EffectFailed | ToolAborted) or (
            isinstance(answer, LlmStopped) and not answer.content and not answer.thinking
        )
        if not came_to_nothing and not found.seen.begun[found.id, answer.effect_id]:
            yield f"the effect {answer.effect_id} was answered, and never begun"


def nothing_runs_twice_that_must_not(found: Found) -> Iterator[str]:
    """A tool that must run at most once is begun once, and once more each time that a person says so."""
    yield from runs_beyond_contract(found.entries, lambda effect_id: found.seen.begun[found.id, effect_id])


def what_was_said_arrives_in_order(found: Found) -> Iterator[str]:
    """Each delivery has arrived or is still to be made, and the first arrivals through each channel are in order."""
    wanted = [one.effect_id for entry in found.entries for one in entry.effects if isinstance(one, DeliverToUser)]
    for (conversation_id, channel), arrived in found.seen.arrived.items():
        if conversation_id == found.id:
            first = list(dict.fromkeys(arrived))
            if first != [effect_id for effect_id in wanted if effect_id in first]:
                yield f"deliveries arrived through {channel} in the order {first}"
            for effect_id in wanted:
                if effect_id not in first and effect_id not in found.left:
                    yield f"the delivery {effect_id} never arrived through {channel}, and is no longer to be made"


ALWAYS: tuple[Check, ...] = (
    what_was_taken_is_there,
    what_was_answered_was_begun,
    nothing_runs_twice_that_must_not,
    what_was_said_arrives_in_order,
)
"""What must hold at any moment."""


def it_is_at_rest(found: Found) -> Iterator[str]:
    """Nothing is open."""
    yield from open_work(found.state)
    if found.left:
        yield f"{sorted(found.left)} are still to be delivered"


AT_REST: tuple[Check, ...] = (*ALWAYS, it_is_at_rest)
"""What must hold once nothing is left to be done."""


async def _check(database: str | Path, seen: Seen, checks: Sequence[Check]) -> list[str]:
    from ..persistence.errors import Damaged
    from ..persistence.maintenance.doctor import examine
    from ..persistence.opening import open_store

    store = await open_store(database, read_only=True)
    try:
        findings = (await examine(store)).findings
        faults = [f"{one.conversation_id or 'the database'}: {one.sentence}" for one in findings]
        outbox, summaries = await store.outbox(await store.ids()), await store.list()
        if not summaries:
            faults.append("there are no conversations")
        for summary in summaries:
            try:
                loaded, entries = await store.load(summary.id), await store.entries(summary.id)
            except Damaged:
                continue  # as the doctor said
            left = frozenset(one.effect_id for one in outbox if one.conversation_id == summary.id)
            found = Found(summary.id, entries, loaded.state, left, seen)
            faults += [f"{summary.id}: {fault}" for check in checks for fault in check(found)]
    finally:
        await store.close()
    return faults
