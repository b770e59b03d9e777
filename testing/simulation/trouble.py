"""What goes wrong around the engines of a simulation: clocks are set, processes die, disks fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from .engine_host import EngineHost
from .virtual_run import VirtualRun


async def make_trouble(
    run: VirtualRun, hosts: Sequence[EngineHost], open_engine: Callable[[EngineHost], Awaitable[None]], times: int
) -> None:
    """So many times, set the clock, close an engine or let its process die and open the next, or let the disk fail."""
    chance = run.chance
    for _ in range(times):
        await asyncio.sleep(2 * chance.seconds())
        match chance.below(5):
            case 0:
                run.clock.set_by(chance.pick((3_600.0, -3_600.0, 0.5)))
            case 1 | 2:
                await _restart(run, chance.pick(hosts), open_engine)
            case _:
                run.disk.failing = chance.pick((0.0, 0.1, 0.5))


async def _restart(run: VirtualRun, host: EngineHost, open_engine: Callable[[EngineHost], Awaitable[None]]) -> None:
    """Close an engine, or let its process die, whatever it is doing; then open the next."""
    await host.close(by_crash=run.chance.probably(0.5))
    await asyncio.sleep(run.chance.seconds())
    await open_engine(host)
