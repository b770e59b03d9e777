"""One simulation: a conversation, its world and its people, from the first step to rest, as a seed has it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from ...states.policy.policy import Policy
from ...states.states import Closed, Failed, Idle, pending
from .call_recorder import CallRecorder
from .channels import Line
from .checks import CHECKS, Ending
from .clock import VirtualClock
from .disk import Disk
from .engine_host import EngineHost
from .event_loop import Hangs, VirtualLoop, place_of
from .log_capture import overheard
from .random_source import RandomSource
from .rules import models, rules
from .simulated_user import SimulatedUser
from .storage import Storage
from .store import MemoryStorage
from .story import Story
from .user_actions import ATTENDING, give_up, waits_for_person
from .world import World

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...persistence.sqlite.writer import Writer
    from .stored.other_conversations import OtherConversation

PATIENCE = 10_000.0
"""Virtual seconds within which everything comes to rest once everybody wants it to. Ours: more than the longest wait of
a tool or a timer, and the hour by which a clock is set back during it."""

LINES = 12
"""How much of a story stands in a failure's message. Ours."""

TRIES = 10
"""How often a task is told to stop. Ours."""

BOUND = 100 * PATIENCE
"""Virtual seconds that a simulation may take in all. Ours."""


class SimulationFailed(AssertionError):
    """Something happened in a simulation that must not. The message says what, and how to see it again; `story` is all
    that happened, a line each."""

    def __init__(self, seed: int, fault: str, story: tuple[str, ...], file: bool = False) -> None:
        found = next(place for place, line in enumerate(story) if line.endswith(fault)) + 1
        before = "\n".join(story[max(0, found - LINES) : found])
        again = f"python -m turnwise.testing.simulation --seed {seed}{' --file' if file else ''}"
        super().__init__(f"Seed {seed}: {fault}\n{before}\nThe whole story: {again}")
        self.seed = seed
        self.story = story


@dataclass(frozen=True)
class Report:
    """What came of a simulation: how many steps were stored, all of them as text, and what happened, a line each."""

    seed: int
    steps: int
    log: str
    story: tuple[str, ...]


class Simulation:
    """A conversation that follows from a seed alone. Run it once.

    `engine` is the type of the engine in it: turnwise's own, or a subclass of it. With `file` its store is turnwise's
    own too, over a SQLite file in a temporary folder, there are other conversations beside it, and what is said goes
    out through turnwise's courier; `writer` and `courier` are their types then, turnwise's own or subclasses. Without
    it the store is one in memory, which is quicker.
    """

    def __init__(self, seed: int, *, engine: type[Engine] | None = None, file: bool = False, **parts: Any) -> None:
        from ...engine.engine import Engine as Real

        self.seed = seed
        self._in_file = file
        self._dice = RandomSource(f"{seed} simulation")
        self._loop = VirtualLoop(RandomSource(f"{seed} loop"), disorder=self._dice.pick((0.0, 0.1, 1.0, 1.0)))
        self.story = Story(self._loop)
        self._clock = VirtualClock(self._loop)
        self._disk = Disk(RandomSource(f"{seed} disk"), self.story)
        self._failing = self._dice.pick((0.0, 0.0, 0.1))
        self._world = World(RandomSource(f"{seed} world"), self._clock, self._disk, self.story)
        self._notebook = CallRecorder(self.story)
        self._storage, self._lines = self._stored(**parts)
        self._house = EngineHost(
            engine or Real,
            self._clock,
            self._disk,
            self._storage,
            self._world,
            self._notebook,
            self._lines,
            parts.get("courier"),
        )
        names = ("Ada", "Bo", "Cyd")[: self._dice.number(1, 3)]
        self._people = [SimulatedUser(name, RandomSource(f"{seed} {name}"), self._house) for name in names]
        self._neighbours = self._make_neighbours()
        self._cut_short = False

    def _stored(self, writer: type[Writer] | None = None, **_: Any) -> tuple[Storage, tuple[Line, ...]]:
        """Where it is stored, and the ways to people: with a store in memory they are the world's affair."""
        if not self._in_file:
            return MemoryStorage(self._disk), ()
        from .stored.file import FileStorage

        storage = FileStorage(self._disk, self._clock, **({} if writer is None else {"writer": writer}))
        names = ("screen", "phone")[: self._dice.number(1, 2)]
        lines = (Line(name, RandomSource(f"{self.seed} {name}"), self.story, lambda: storage.settled) for name in names)
        return storage, tuple(lines)

    def _make_neighbours(self) -> list[OtherConversation]:
        if not self._in_file:
            return []
        from .stored.file import FileStorage
        from .stored.other_conversations import OtherConversation

        assert isinstance(self._storage, FileStorage)
        homes = ("left", "right", "above", "above")[: self._dice.number(0, 4)]
        self._storage.shared.update(home for home in homes if homes.count(home) > 1)
        return [
            OtherConversation(
                f"{home}-{place}", home, RandomSource(f"{self.seed} {home} {place}"), self._house, self._storage
            )
            for place, home in enumerate(homes)
        ]

    def run(self) -> Report:
        """Let it happen, and hold it to all that must hold. Raises `SimulationFailed`.

        While it runs, `uuid.uuid4` of this process follows from the seed, too; let no other thread need it. Raises
        RuntimeError where an event loop is running: it brings its own.
        """
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("A simulation brings its own event loop; run it where there is none.")
        with patch("uuid.uuid4", RandomSource(f"{self.seed} ids").uuid), overheard(self.story, self._loop):
            cause = self._happen()
            for fault in self._storage.faults():
                self.story.blame(fault)
            self._clean_up()
            self._storage.close()
        if self.story.faults:
            raise SimulationFailed(self.seed, self.story.faults[0], tuple(self.story.lines), self._in_file) from cause
        return Report(self.seed, self._disk.steps, self._disk.text(), tuple(self.story.lines))

    def _happen(self) -> Exception | None:
        """Let it happen; returns what broke it off."""
        try:
            self._loop.run(self._live(), bound=BOUND)
        except Hangs as hangs:
            self.story.blame(str(hangs))
        except Exception as error:
            self.story.blame(f"it broke off: {error!r}")
            return error
        return None

    async def _live(self) -> None:
        await self._open(create=rules(self._dice))
        for home in {neighbour.home: neighbour for neighbour in self._neighbours}.values():
            await home.move_in()
        self._disk.failing = self._failing
        acts = self._dice.number(6, 20)
        await asyncio.gather(
            self._make_trouble(),
            *(person.live(acts) for person in self._people),
            *(neighbour.live(acts) for neighbour in self._neighbours),
        )
        self._cut_short = self._dice.chance(0.1)
        if not self._cut_short:
            await self._come_to_rest()
        engines = self._house.times_closed
        await self._house.close()
        await asyncio.sleep(PATIENCE)
        self._check(engines)

    async def _open(self, create: Policy | None = None) -> None:
        await self._house.open(models(self._dice), feed=self._dice.pick((3, 1_000, 1_000, 1_000)), create=create)

    async def _make_trouble(self) -> None:
        """What happens to computers."""
        for _ in range(self._dice.number(0, 4)):
            await asyncio.sleep(2 * self._dice.seconds())
            match self._dice.number(0, 4):
                case 0:
                    self._clock.set_by(self._dice.pick((3_600.0, -3_600.0, 0.5)))
                case 1 | 2:
                    await self._restart()
                case _:
                    self._disk.failing = self._dice.pick((0.0, 0.1, 0.5))

    async def _restart(self) -> None:
        """The engine is closed, or its process dies, whatever it is doing; then it is opened again."""
        await self._house.close(by_crash=self._dice.chance(0.5))
        await asyncio.sleep(self._dice.seconds())
        await self._open()

    async def _come_to_rest(self) -> None:
        """Somebody ends every wait for a person, until nothing is left to be done."""
        last = SimulatedUser("last", RandomSource(f"{self.seed} last"), self._house)
        self._people.append(last)
        self._disk.failing = 0.0
        self._world.calm = True
        for line in self._lines:
            line.calm = True
        end = self._loop.time() + PATIENCE
        while not self._is_at_rest():
            if self._loop.time() > end:
                self.story.blame(f"it does not come to rest: {self._hanging()}")
                return
            if waits_for_person(self._house.stored):
                act = ATTENDING.get(type(self._house.stored), give_up)
                last.begin(act if self._dice.chance(0.8) else give_up)
            await asyncio.sleep(5)
        await asyncio.sleep(PATIENCE)  # for watchers who take their time, and whatever may still come

    def _is_at_rest(self) -> bool:
        state = self._house.stored
        resting = isinstance(state, Idle | Failed | Closed) and not pending(state)
        return resting and not self._world.busy and all(person.is_done for person in self._people)

    def _hanging(self) -> str:
        state = self._house.stored
        waiting = [f"{call.who}, {call.what}" for call in self._notebook.calls if call.told == "waits"]
        not_told = [call for call in waiting if "watch" not in call]
        places = map(place_of, self._loop.unfinished())
        return f"{state.type} awaits {sorted(pending(state))}, not told: {not_told}, at work: {'; '.join(places)}"

    def _check(self, engines: int) -> None:
        ending = Ending(
            rows=self._house.rows,
            memory=self._house.loop.projection,
            notebook=self._notebook,
            world=self._world,
            sights=[sight for person in self._people for sight in person.sights],
            engines=engines,
            opened_at=self._house.opened_at,
            cut_short=self._cut_short,
            lines=self._lines,
            outbox=tuple(self._storage.outbox()),
            conversation_id=self._house.conversation_id,
        )
        for check in CHECKS:
            for fault in check(ending):
                self.story.blame(fault)
        left = [task for task in self._loop.unfinished() if task is not asyncio.current_task()]
        if left:
            self.story.blame(f"the engine is closed, and there is left: {'; '.join(map(place_of, left))}")

    def _clean_up(self) -> None:
        """After a failure tasks may be left, and some of them may not want to stop."""
        for _ in range(TRIES):
            for task in self._loop.unfinished():
                task.cancel()
            if self._loop.unfinished():
                with suppress(Hangs):
                    self._loop.run(asyncio.sleep(PATIENCE), bound=BOUND)
        self._loop.close()


def simulate(seed: int, *, engine: type[Engine] | None = None, file: bool = False, **parts: Any) -> Report:
    """Run the simulation of this seed. Raises `SimulationFailed`; see `Simulation`."""
    return Simulation(seed, engine=engine, file=file, **parts).run()
