"""What every test here has in common: how long the property tests look for a counterexample."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from turnwise.persistence.sqlite.store import Store

# Slow machines are no news, so no profile measures time; the limit for one test stands in pyproject.toml. A failure is
# told as a program; Hypothesis' own explanation would watch each line of a run and take minutes. Build servers search
# like everybody else: what Hypothesis loads there by itself tries the same examples each time, whatever the seed.
unhurried = settings(
    settings.get_profile("default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)

# The same examples each time: when one fails, it is the change under test that broke it.
settings.register_profile("quick", unhurried, derandomize=True, max_examples=100)

# New examples each time, and the failing ones kept for the next: this one goes looking.
settings.register_profile("deep", unhurried, max_examples=5_000, stateful_step_count=100)

# For `make mutants`, where the machine is broken on purpose, thousands of times: few examples, and the first that fails
# is enough.
mutants = settings(unhurried, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
settings.register_profile("mutants", mutants, max_examples=10, phases=[Phase.explicit, Phase.generate])

PROFILE = os.environ.get("TURNWISE_PROFILE", "quick")
settings.load_profile(PROFILE)


TOLD = pytest.StashKey[list[str]]()
"""What tests have to tell at the end of a run, whether they pass or not."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of a search before it begins, so that it can be told and repeated; one that was given holds."""
    config.stash[TOLD] = []
    if config.option.hypothesis_seed is not None:
        settings.register_profile("seeded", settings(), derandomize=False)
        settings.load_profile("seeded")
    elif PROFILE == "deep":
        config.option.hypothesis_seed = random.randrange(2**32)


def how_to_repeat(config: pytest.Config) -> str:
    """How the property tests search, and how to repeat it."""
    seed = config.option.hypothesis_seed
    repeat = "the same examples each time" if seed is None else f"repeat it with --hypothesis-seed={seed}"
    return f"property tests: {PROFILE}, {repeat}"


def pytest_report_header(config: pytest.Config) -> str:
    """Say at the beginning how the property tests search, and how to repeat it."""
    return how_to_repeat(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell what tests have to tell; and below failures say once more how to repeat them, where people look, and where
    `-q` leaves out the beginning."""
    for line in config.stash[TOLD]:
        terminalreporter.write_line(line)
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(how_to_repeat(config))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database file of the test's own."""
    return tmp_path / "conversations.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[Store]:
    """A new database in a file, open. It waits for a lock only briefly."""
    from turnwise.persistence.sqlite.store import Store

    store = await Store.open(database, busy_timeout=0.05)
    yield store
    await store.close()
