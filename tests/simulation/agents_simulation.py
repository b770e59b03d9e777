"""One simulation of a tree of agents, from their first steps to rest.

Users do to agents what they do to any conversation, and more: they move their wake-ups, and disturb what models have
started.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from turnwise.states.errors import EngineClosed, Refused, TurnwiseError, UnknownConversation
from turnwise.states.events import BRANCHING
from turnwise.testing.generation.vocabulary import Vocabulary

from .agents import AgentsWorld, SimulatedModels, Tree, background_rules, foreground_rules, some_schedule, vocabulary
from .agents_checks import TREE_CHECKS, TreeEnding
from .checks import CHECKS, Ending
from .disk import Process
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
from .users import (
    ACTIONS,
    ANY_REQUEST,
    Action,
    CallRecorder,
    Handle,
    SimulatedUser,
    edit,
    end_wait,
    forge,
    regenerate,
    rewind,
    switch,
    use,
    waits_for_person,
)
from .world import OpenEngine, World, simulated_models

_LEFT_OUT = (forge, edit, regenerate, rewind, switch)

AGENT_ACTIONS: dict[Action, int] = {action: weight for action, weight in ACTIONS.items() if action not in _LEFT_OUT}
"""What users do at any time. Nobody forges answers: of a forged outcome of a sub-agent nothing could be said."""

AGENT_REQUESTS = tuple(kind for kind in ANY_REQUEST if kind not in BRANCHING)
"""What users dispatch themselves. The checks read agents on one branch."""

OWNER = "Ada"

FARTHEST_WAKE_UP = timedelta(hours=1)
"""No schedule of a simulation has a wake-up that is further ahead, unless the clock was set back."""


class AgentsSimulation:
    """A tree of agents that follows from a seed alone. Run it once.

    One agent has a user, two work for it in the background, one of them on a schedule, and their models start
    sub-agents. The options are those of `Simulation`.
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
        options = f" --agents{' --file' if file else ''}{f' --engines {engines}' if engines > 1 else ''}"
        options += f" --processes {processes}" if processes else ""
        self._run = run = VirtualRun(seed, options, file=file, shared=bool(processes))
        self._chance, self._disk, self._trace = run.chance, run.disk, run.trace
        self._tree = Tree(run.disk)
        names = HOSTS[: processes or engines]
        self._roles = Roles(run, names) if processes else None
        self._performed = performed_by(run, self._roles)
        self._simulated = World(run.source("world"), run.clock, self._performed, self._words(foreground=False))
        world = AgentsWorld(self._simulated, SimulatedModels(run.source("models"), self._simulated, self._tree))
        opens = open_engine or Engine.open
        self._hosts = [
            EngineHost(
                name,
                run.source(f"host {name}"),
                opens,
                run.storage,
                world,
                HostClock(run.clock, number),
                run.trace,
                options={} if self._roles is None else {"worker": self._roles.is_worker(name)},
            )
            for number, name in enumerate(names)
        ]
        self._recorders: dict[str, CallRecorder] = {}
        self._users: list[SimulatedUser] = []
        self._is_cut_short = False
        self._due: dict[str, datetime] = {}
        """The next wake-up of each scheduled agent, when it is to come to rest."""
        self._last: dict[str, SimulatedUser] = {}
        """The users who end the waits of agents."""

    # --- who takes part

    def _words(self, *, foreground: bool) -> Vocabulary:
        rules = foreground_rules if foreground else background_rules
        return vocabulary(rules, lambda: [*self._tree.agents, "nobody"])

    def _user(self, name: str, host: EngineHost, agent_id: str) -> SimulatedUser:
        """A user of one agent."""
        if agent_id not in self._recorders:
            is_deleted = partial(self._tree.was_deleted, agent_id)
            self._recorders[agent_id] = CallRecorder(self._trace, is_deleted=is_deleted)
        words = self._words(foreground=agent_id == self._tree.roots[0])
        chance, clock = self._run.source(name), self._run.clock
        recorder = self._recorders[agent_id]
        user = SimulatedUser(name, chance, host, self._disk, clock, recorder, agent_id, words, AGENT_REQUESTS)
        self._users.append(user)
        return user

    # --- what happens

    def run(self) -> Report:
        """Let it happen, and check all invariants. Raises `SimulationFailed`, and RuntimeError as `Simulation` does."""
        return self._run.run(self._live)

    async def _live(self) -> None:
        await self._begin()
        names = ("Ada", "Bo", "Cyd")
        users = [
            self._user(name, self._chance.pick(self._hosts), agent_id)
            for name, agent_id in zip(names, self._tree.roots, strict=True)
        ]
        self._disk.failing = self._chance.pick((0.0, 0.0, 0.1))
        actions = self._chance.number(4, 10)
        await asyncio.gather(
            self._make_trouble(self._chance.number(1, 6)),
            self._disturb(users[0]),
            use(users[0], actions, AGENT_ACTIONS),
            *(use(user, actions, BACKGROUND_ACTIONS) for user in users[1:]),
        )
        self._is_cut_short = self._chance.probably(0.1)
        if not self._is_cut_short:
            await self._come_to_rest()
        last = [host.process for host in self._hosts]
        for host in self._hosts:
            await host.close()
        await asyncio.sleep(PATIENCE)
        self._check(last)

    async def _make_trouble(self, times: int) -> None:
        if self._roles is None:
            await make_trouble(self._run, self._hosts, self._open, times)
        else:
            await make_trouble_for_processes(self._run, self._hosts, self._open, self._roles.lease, times)

    async def _begin(self) -> None:
        first, *others = self._hosts
        await self._open(first)
        chance = self._chance
        self._tree.stranger = await first.create(owner="Zoe")
        self._disk.names[self._tree.stranger] = "stranger"
        foreground = await first.create(owner=OWNER, policy=foreground_rules(chance))
        self._tree.roots.append(foreground)
        for schedule in ({}, some_schedule(chance)):
            policy = background_rules(chance)
            background = await first.create(role="background", works_for=foreground, policy=policy, **schedule)
            self._tree.roots.append(background)
        self._disk.names |= zip(self._tree.roots, ("front", "left", "right"), strict=True)
        for host in others:
            await self._open(host)
        self._disk.followers.extend(host.follow for host in self._hosts if others and self._roles is None)

    async def _open(self, host: EngineHost) -> None:
        kept_updates = self._chance.pick((3, 1_000, 1_000, 1_000))
        own = {} if self._roles is None else self._roles.settings
        await host.open(simulated_models(self._chance), kept_updates=kept_updates, **own)

    async def _disturb(self, user: SimulatedUser) -> None:
        for _ in range(self._chance.below(5)):
            await asyncio.sleep(2 * self._chance.seconds())
            await disturb(user, self._tree)

    async def _come_to_rest(self) -> None:
        """Let each schedule fire once more, and end every wait for a person, until nothing is left to be done."""
        self._disk.failing = 0.0
        self._simulated.calm = True
        end = self._run.loop.time() + PATIENCE
        while not self._is_at_rest():
            if self._run.loop.time() > end:
                self._trace.report_fault(f"it does not come to rest: {self._hanging()}")
                return
            for agent_id in self._tree.agents:
                await self._end_schedule(agent_id)
                self._end_wait(agent_id)
            await asyncio.sleep(2)
        # for slow watchers, and whatever may still come
        await asyncio.sleep(PATIENCE if self._roles is None else QUIET)
        for fault in faults_at_rest(self._run.storage):
            self._trace.report_fault(fault)

    async def _end_schedule(self, agent_id: str) -> None:
        """Take the schedule of an agent away once it has fired, or if that is far ahead since the clock was set."""
        wake = self._tree.state(agent_id).book.wake
        if wake is None:
            return
        if self._due.setdefault(agent_id, wake) != wake or wake - self._run.clock.now() > FARTHEST_WAKE_UP:
            await unschedule(self._chance.pick(self._hosts), agent_id)

    def _end_wait(self, agent_id: str) -> None:
        """Do what an agent waits for a person to do."""
        if waits_for_person(self._tree.state(agent_id)):
            if agent_id not in self._last:
                name = f"last {len(self._last)}"
                self._last[agent_id] = self._user(name, self._chance.pick(self._hosts), agent_id)
            user = self._last[agent_id]
            user.begin(end_wait(user))

    def _is_at_rest(self) -> bool:
        return not self._open_agents() and not self._performed.busy and all(user.is_done for user in self._users)

    def _open_agents(self) -> list[str]:
        """The agents that are not at rest, or have mail that has not arrived."""
        working = [each for each in self._tree.agents if not self._tree.is_at_rest(each)]
        return [*working, *(delivered[0] for delivered in self._run.storage.outbox())]

    def _hanging(self) -> str:
        states = [
            f"{self._disk.name(each)}{self._tree.state(each).type}" for each in dict.fromkeys(self._open_agents())
        ]
        made = [call for recorder in self._recorders.values() for call in recorder.calls]
        waiting = [f"{call.who}, {call.what}" for call in made if call.outcome == "waits"]
        calls = [call for call in waiting if "watch" not in call]
        places = map(place_of, self._run.loop.unfinished())
        return f"{', '.join(states)}; calls: {calls}, tasks: {'; '.join(places)}"

    # --- how it ends

    def _check(self, last: list[Process]) -> None:
        outbox = tuple(self._run.storage.outbox())
        ending = TreeEnding(
            self._tree, outbox, self._is_cut_short, self._run.clock.was_set_back, recorders=self._recorders
        )
        for agent_id in self._tree.agents:
            for check in CHECKS:
                for fault in check(self._ending(agent_id, last)):
                    self._trace.report_fault(f"{agent_id}: {fault}")
        for tree_check in TREE_CHECKS:
            for fault in tree_check(ending):
                self._trace.report_fault(fault)
        for fault in faults_of_custody(self._run.storage, self._performed.given):
            self._trace.report_fault(fault)
        self._run.report_unfinished_tasks()

    def _ending(self, agent_id: str, last: list[Process]) -> Ending:
        return Ending(
            key=self._disk.key_of(agent_id),
            rows=self._disk.rows[agent_id],
            recorder=self._recorders.get(agent_id) or CallRecorder(self._trace),
            performed=self._performed,
            watches=[watch for user in self._users if user.conversation_id == agent_id for watch in user.watches],
            last=last,
            is_cut_short=self._is_cut_short,
            channels=(),
            outbox=(),
            left_out=(),
            is_shared=self._roles is not None,
        )


async def reschedule(user: SimulatedUser, handle: Handle) -> None:
    """Let an agent wake up at other moments, or no longer."""
    schedule = some_schedule(user.chance)
    await user.ask(handle, f"set_schedule {schedule}", lambda it, id_: it.set_schedule(**schedule, request_id=id_))


BACKGROUND_ACTIONS: dict[Action, int] = {**AGENT_ACTIONS, reschedule: 3}
"""What users do at any time to an agent in the background."""


def simulate_agents(
    seed: int,
    *,
    engines: int = 1,
    processes: int = 0,
    file: bool = False,
    open_engine: OpenEngine | None = None,
) -> Report:
    """Run the simulation of the agents of this seed. Raises `SimulationFailed`; see `AgentsSimulation`."""
    return AgentsSimulation(seed, engines=engines, processes=processes, file=file, open_engine=open_engine).run()


async def unschedule(host: EngineHost, agent_id: str) -> None:
    """Let an agent wake up no longer, unless it is closed or deleted."""
    with suppress(Refused, UnknownConversation):
        await (await host.handle(agent_id)).set_schedule()


async def disturb(user: SimulatedUser, tree: Tree) -> None:
    """Cancel, close, write to or delete an agent that a model started, or, seldom, one in the background."""
    chance = user.chance
    agents = tree.children or tree.roots[1:]
    if chance.probably(0.1):
        agents = tree.roots[1:]
    agent_id = chance.pick(agents)
    what = chance.weighted({"cancel": 4, "close": 2, "send": 2, "delete": 1})
    user.recorder.trace.record(user.name, f"{what} {agent_id}")
    try:
        conversation = await user.host.handle(agent_id)
        match what:
            case "cancel":
                await conversation.cancel(request_id=user.new_id())
            case "close":
                await conversation.close(request_id=user.new_id())
            case "send":
                await conversation.send("Hurry up.", message_id=user.new_id(), wait=False)
            case _:
                await user.host.engine.delete(agent_id)
    except (TurnwiseError, EngineClosed) as error:
        user.recorder.trace.record(user.name, f"{what} {agent_id}: {type(error).__name__}")
