"""Whole conversations that a seed decides: the real engine in virtual time, among hostile people.

A simulation runs the real engine (its loop, mailbox, runner, memory and feed) where everything around it is made up:
the time, the order of what happens at the same moment, the disk, the model, the tools and the people. All of it
follows from the seed, so a failure is found once and seen again as often as needed, in milliseconds.

    from turnwise.testing import simulate

    for seed in range(1_000): simulate(seed)

    python -m turnwise.testing.simulation --seeds 5000
    python -m turnwise.testing.simulation --seed 17

`simulate(seed, file=True)`, and `--file` on the command line, put the real store in the place of the one in memory: a
SQLite file whose statements fail and whose processes die between any two of them, other conversations that are written
beside this one, and channels to people that are down, hang and come back.

What comes new to a conversation enters here by one line each: an effect in `world.WORLD`, an answer in
`answers.ANSWERS`, a wait for a person in `acts.ATTENDING`, something to do in `acts.MENU`, a rule in `rules`. Without
that line it is made up from its type: an effect gets any of the answers that the state waits for, people send any
request there is, and end a wait that they do not know by a cancel.
"""

from .simulation import Report, Simulation, SimulationFailed, simulate

__all__ = ["Report", "Simulation", "SimulationFailed", "simulate"]
