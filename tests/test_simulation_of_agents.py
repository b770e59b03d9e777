"""A tree of agents in virtual time: no mail is lost or doubled, no sub-agent is left over, no budget is exceeded.

One agent has a user, two work for it in the background, one of them on a schedule, and their models start sub-agents.
These seeds are the same each time; `TURNWISE_SEED` names another first one. `make test-all` runs a sample, and
`make faults` two thousand. That these simulations can fail is tested, too: they find each fault of
support/planted/agents.py.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import pytest

from .simulation import simulate_agents
from .simulation.__main__ import main
from .support.fault_profile import LONG, portions
from .support.planted.agents import FAULTS, QUICK
from .support.planted.engines import Fault
from .support.simulations import START, failure, run

pytestmark = [pytest.mark.slow, pytest.mark.faults]

PORTION, PORTIONS = 100 if LONG else 8, portions(20)
OTHERS = 10 * PORTIONS if LONG else 2
"""How many seeds are simulated with two engines, and how many over a file."""

SAME = 20 if LONG else 2
"""How many seeds are repeated."""

SEEDS = [range(first, first + PORTION) for first in range(START, START + PORTIONS * PORTION, PORTION)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", SEEDS, ids=lambda seeds: f"seeds {seeds.start} to {seeds.stop - 1}")
def test_every_invariant_holds(seeds: range) -> None:
    """Mail, sub-agents, wake-ups and budgets of a tree, through cancels, deadlines, failing disks and crashes."""
    for seed in seeds:
        simulate_agents(seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [{"engines": 2}, {"file": True}], ids=["two engines", "a file"])
def test_every_invariant_holds_elsewhere(options: dict[str, Any]) -> None:
    """The same holds where two engines drive the agents, and over turnwise's own store."""
    for seed in range(START, START + OTHERS):
        simulate_agents(seed, **options)


def test_a_stream_ends_where_a_sub_agent_asks_the_user() -> None:
    """In this seed Ada follows a turn up to such a question, which is where it stops first."""
    simulate_agents(30064, engines=2)


@pytest.mark.parametrize("seed", [1764, 5850])
def test_a_parent_that_closes_its_sub_agent_while_both_are_resumed(seed: int) -> None:
    """In these seeds the close comes before the sub-agent is resumed, so its deadline is started by this process."""
    simulate_agents(seed)


def test_a_parent_that_the_other_engine_deletes_before_its_sub_agent_is_created() -> None:
    """In this seed the engine that begins to start the sub-agent does not know yet that its parent is gone."""
    simulate_agents(810179, engines=2)


@pytest.mark.parametrize(("seed", "engines"), [(700281, 1), (701003, 1), (3000326, 2)])
def test_a_user_writes_in_the_name_of_an_agent(seed: int, engines: int) -> None:
    """In these seeds Ada dispatches a message of her own whose origin is an agent, which did not send it."""
    simulate_agents(seed, engines=engines)


@pytest.mark.parametrize("seed", [5100372, 5201137, 5300056, 5301361])
def test_the_mail_of_an_agent_that_two_engines_drive_keeps_its_order(seed: int) -> None:
    """In these seeds one engine is about to post a message while the other one posts that of a later step."""
    simulate_agents(seed, engines=2)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", FAULTS if LONG else FAULTS[:QUICK], ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some seed among the first fails on an engine with this fault."""
    assert failure(fault.plant(monkeypatch), range(100), simulation=simulate_agents) is not None


def test_a_seed_gives_the_same_log_and_the_same_trace_again() -> None:
    """In this process, whatever ran before, and in another one, in which sets have another order."""
    program = (
        "import hashlib; from tests.simulation import simulate_agents\n"
        f"reports = [simulate_agents(seed) for seed in range({START}, {START + SAME})]\n"
        "print(hashlib.sha256(repr(reports).encode()).hexdigest())"
    )
    once = [simulate_agents(seed) for seed in reversed(range(START, START + SAME))]

    there = run("-c", program, PYTHONHASHSEED="4711")

    assert there.stdout.strip() == hashlib.sha256(repr(once[::-1]).encode()).hexdigest()


def test_the_command_simulates_agents(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the option `--agents` it prints the trace of a tree of agents."""
    monkeypatch.setattr(sys, "argv", ["simulation", "--agents", "--seed", str(START)])

    status = main()

    *trace, last = capsys.readouterr().out.splitlines()
    assert status == 0
    assert tuple(trace) == simulate_agents(START).trace
    assert last.startswith(f"Seed {START} holds: ")


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has the option, too."""
    failed = failure(FAULTS[0].plant(monkeypatch), range(100), simulation=simulate_agents)

    assert failed is not None
    assert str(failed).endswith(f"--seed {failed.seed} --agents")
