"""One simulation: a conversation, its engines, its world and its users, from the first step to rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from turnwise.states.states import Closed, Failed, Idle, pending

from .checks import CHECKS, Ending
from .environment import HostClock, place_of
from .processes import (
    HOSTS,
    QUIET,
    Roles,
    faults_at_rest,
    faults_of_custody,
    make_trouble_for_processes,
    performed_by,
)
from .runs import PATIENCE, EngineHost, Report, VirtualRun, make_trouble
from .shared_store import SharedStorage
from .users import CallRecorder, SimulatedUser, end_wait, use, waits_for_person
from .world import OpenEngine, SimulatedChannel, World, simulated_models, simulated_policy

if TYPE_CHECKING:
    from .disk import Delivered, Process
    from .file_storage import OtherConversation


class Simulation:
    """A conversation that follows from a seed alone. Run it once.

    With two `engines` the conversation is driven by both at once, each of which stores steps that the other has not
    seen. With several `processes` each has the store open, and they look after the conversation in turn. With `file`
    the store is turnwise's own over a SQLite file in a temporary folder; other conversations are written beside this
    one, and what is said goes out through channels. Without it the store is in memory, which is quicker. `open_engine`
    opens the engines: `Engine.open`, or a function that changes what is given to it.

    Raises ValueError for two engines over a file: it has one writer at a time.
    """

    def __init__(
        self,
        seed: int,
        *,
        engines: int = 1,
        processes: int = 0,
        file: bool = False,
        open_engine: OpenEngine | None = None,
    ) -> None:
        from turnwise.engine.engine import Engine

        if file and (engines > 1 or processes):
            raise ValueError("A file has one engine at a time.")
        self.seed = seed
        options = f"{' --file' if file else ''}{f' --engines {engines}' if engines > 1 else ''}"
        options += f" --processes {processes}" if processes else ""
        self._run = run = VirtualRun(seed, options, file=file, shared=bool(processes))
        self._chance, self._disk, self.trace = run.chance, run.disk, run.trace
        self._failing = self._chance.pick((0.0, 0.0, 0.1))
        count = processes or engines
        names = HOSTS[:count]
        self._roles = Roles(run, names) if processes else None
        self._world = World(run.source("world"), run.clock, performed_by(run, self._roles))
        self._recorder = CallRecorder(self.trace)
        self._channels = self._simulated_channels() if file or processes else ()
        self._hosts = [self._host(number, name, open_engine or Engine.open) for number, name in enumerate(names)]
        self._conversation_id = ""
        users = ("Ada", "Bo", "Cyd")[: self._chance.number(min(count, 3), 3)]
        self._users = [self._user(name, self._hosts[place % count]) for place, name in enumerate(users)]
        self._others = self._other_conversations() if file else []
        self._is_cut_short = False

    # --- who takes part

    def _host(self, number: int, name: str, open_engine: OpenEngine) -> EngineHost:
        return EngineHost(
            name,
            self._run.source(f"host {name}"),
            open_engine,
            self._run.storage,
            self._world,
            HostClock(self._run.clock, number),
            self.trace,
            self._channels,
            {} if self._roles is None else {"worker": self._roles.is_worker(name)},
        )

    def _user(self, name: str, host: EngineHost) -> SimulatedUser:
        chance = self._run.source(name)
        return SimulatedUser(name, chance, host, self._disk, self._run.clock, self._recorder, self._conversation_id)

    def _simulated_channels(self) -> tuple[SimulatedChannel, ...]:
        storage = self._run.storage
        names = ("screen", "phone")[: self._chance.number(1, 2)]
        channels = [
            SimulatedChannel(name, self._run.source(name), self.trace, lambda: storage.settled, self._may_be_late)
            for name in names
        ]
        return tuple(channels)

    def _may_be_late(self, process: Process, delivered: Delivered) -> bool:
        """Whether this process may deliver what was delivered: it is dead, or another one has said so meanwhile."""
        storage = self._run.storage
        is_of_others = isinstance(storage, SharedStorage) and storage.settled_by.get(delivered) != process.name
        return process.is_dead or is_of_others

    def _other_conversations(self) -> list[OtherConversation]:
        from .file_storage import FileStorage, OtherConversation

        assert isinstance(self._run.storage, FileStorage)
        ids = ("left", "right", "above", "above")[: self._chance.below(5)]
        self._run.storage.shared.update(id_ for id_ in ids if ids.count(id_) > 1)
        return [
            OtherConversation(f"{id_}-{place}", id_, self._run.source(f"{id_} {place}"), self._run.clock, self._disk)
            for place, id_ in enumerate(ids)
        ]

    # --- what happens

    def run(self) -> Report:
        """Let it happen, and check all invariants. Raises `SimulationFailed`.

        While it runs, `uuid.uuid4` of this process follows from the seed, too; let no other thread need it. Raises
        RuntimeError where an event loop is running: it brings its own.
        """
        return self._run.run(self._live)

    async def _live(self) -> None:
        await self._begin()
        self._disk.failing = self._failing
        actions = self._chance.number(6, 20)
        await asyncio.gather(
            self._make_trouble(),
            *(use(user, actions) for user in self._users),
            *(other.write(self._hosts[0], actions) for other in self._others),
        )
        self._is_cut_short = self._chance.probably(0.1)
        if not self._is_cut_short:
            await self._come_to_rest()
        last = [host.process for host in self._hosts]
        for host in self._hosts:
            await host.close()
        await asyncio.sleep(PATIENCE)
        self._check(last)

    async def _make_trouble(self) -> None:
        if self._roles is None:
            await make_trouble(self._run, self._hosts, self._open, self._chance.below(5))
        else:
            times = self._chance.below(9)
            await make_trouble_for_processes(self._run, self._hosts, self._open, self._roles.lease, times)

    async def _begin(self) -> None:
        first, *others = self._hosts
        await self._open(first)
        self._conversation_id = await first.create(policy=simulated_policy(self._chance))
        for user in self._users:
            user.conversation_id = self._conversation_id
        for host in others:
            await self._open(host)
        self._disk.followers.extend(host.follow for host in self._hosts if others and self._roles is None)
        for other in {other.conversation_id: other for other in self._others}.values():
            await other.create(first.process)

    async def _open(self, host: EngineHost) -> None:
        kept_updates = self._chance.pick((3, 1_000, 1_000, 1_000))
        own = {} if self._roles is None else self._roles.settings
        await host.open(simulated_models(self._chance), kept_updates=kept_updates, **own)

    async def _come_to_rest(self) -> None:
        """End every wait for a person, until nothing is left to be done; then look at the conversation once more."""
        last = [self._user(f"last {host.name}", host) for host in self._hosts]
        self._users.extend(last)
        self._disk.failing = 0.0
        self._world.calm = True
        for channel in self._channels:
            channel.calm = True
        end = self._run.loop.time() + PATIENCE
        while not self._is_at_rest():
            if self._run.loop.time() > end:
                self.trace.report_fault(f"it does not come to rest: {self._hanging()}")
                return
            if waits_for_person(last[0].stored):
                user = self._chance.pick(last)
                user.begin(end_wait(user))
            await asyncio.sleep(5)
        quiet = PATIENCE if self._roles is None else QUIET
        await asyncio.sleep(quiet)  # for slow watchers, and whatever may still come
        for user in last:
            user.watch(await user.handle(), None)
        await asyncio.sleep(quiet)
        for fault in faults_at_rest(self._run.storage):
            self.trace.report_fault(fault)

    def _is_at_rest(self) -> bool:
        state = self._users[0].stored
        resting = isinstance(state, Idle | Failed | Closed) and not pending(state)
        if self._roles is not None and any(self._run.storage.outbox()):
            return False  # nobody holds the conversation until the next attempt is due
        return resting and not self._world.performed.busy and all(user.is_done for user in self._users)

    def _hanging(self) -> str:
        state = self._users[0].stored
        waiting = [f"{call.who}, {call.what}" for call in self._recorder.calls if call.outcome == "waits"]
        calls = [call for call in waiting if "watch" not in call]
        places = map(place_of, self._run.loop.unfinished())
        return f"{state.type} awaits {sorted(pending(state))}, calls: {calls}, tasks: {'; '.join(places)}"

    # --- how it ends

    def _check(self, last: list[Any]) -> None:
        ending = Ending(
            key=self._disk.key_of(self._conversation_id),
            rows=self._disk.rows[self._conversation_id],
            recorder=self._recorder,
            performed=self._world.performed,
            watches=[watch for user in self._users for watch in user.watches],
            last=last,
            is_cut_short=self._is_cut_short,
            channels=self._channels,
            outbox=tuple(self._run.storage.outbox()),
            left_out=tuple(self._run.storage.left_out()),
            is_shared=self._roles is not None,
            losers=self._run.storage.cluster.losers if isinstance(self._run.storage, SharedStorage) else (),
        )
        for fault in faults_of_custody(self._run.storage, self._world.performed.given, self._recorder.forged):
            self.trace.report_fault(fault)
        for check in CHECKS:
            for fault in check(ending):
                self.trace.report_fault(fault)
        self._run.report_unfinished_tasks()


def simulate(
    seed: int,
    *,
    engines: int = 1,
    processes: int = 0,
    file: bool = False,
    open_engine: OpenEngine | None = None,
) -> Report:
    """Run the simulation of this seed. Raises `SimulationFailed`; see `Simulation`."""
    return Simulation(seed, engines=engines, processes=processes, file=file, open_engine=open_engine).run()
