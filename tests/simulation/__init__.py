"""Simulations: whole conversations that follow from a seed, with real engines in virtual time among hostile users.

A simulation opens real engines by their public doors, and everything around them is simulated: the time, the order of
what happens at the same moment, the store, the model, the tools, the channels and the users. All of it follows from the
seed, so a failure is found once and seen again as often as needed, in milliseconds.

    from tests.simulation import simulate

    for seed in range(1_000): simulate(seed)

    python -m tests.simulation --seeds 5000
    python -m tests.simulation --seed 17

`simulate(seed, engines=2)`, on the command line `--engines 2`, drives the conversation by two engines over one store at
once, each of which stores steps that the other has not seen. `simulate(seed, file=True)`, on the command line `--file`,
puts turnwise's own store in the place of the one in memory: a SQLite file whose statements fail and whose processes die
between any two of them, other conversations that are written beside this one, and channels that are down, hang and come
back.

`simulate(seed, processes=3)`, on the command line `--processes 3`, has so many processes share a store: workers, and
some that only take requests. They take the custody of the conversation in turn, die, stand still for longer than a
lease and go on, and are drained.

`simulate_agents(seed)`, on the command line `--agents`, simulates a tree of agents: one with a user, two that work for
it in the background, and the sub-agents that their models start. It takes the same options.

A new effect, answer or request needs nothing here: it is generated from what its type declares. A new wait for a person
is cancelled, unless `RESPONSES` in `users` says what users do about it.
"""

from .agents_simulation import AgentsSimulation, simulate_agents
from .runs import Report, SimulationFailed
from .simulation import Simulation, simulate

__all__ = ["AgentsSimulation", "Report", "Simulation", "SimulationFailed", "simulate", "simulate_agents"]
