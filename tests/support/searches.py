"""How property tests search: the profiles, the seed of a deep search, and how a search is repeated.

It stands alone, so that it can be the `conftest.py` of another project.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, Phase, settings

# No profile measures time, since a slow machine is not an error; the limit for one test stands in pyproject.toml. A
# failure is printed as a program; Hypothesis' own explanation would trace each line of a run and take minutes. Build
# servers search as every machine does: the profile that Hypothesis loads there by itself ignores the seed.
unhurried = settings(
    settings.get_profile("default"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)

# The same examples each time: when one fails, it is the change under test that broke it. They are few, because new ones
# are searched for by `make deep`.
settings.register_profile("quick", unhurried, derandomize=True, max_examples=50)

# New examples each time, and the failing ones kept for the next run.
EXAMPLES = int(os.environ.get("TURNWISE_EXAMPLES", "5000"))
settings.register_profile("deep", unhurried, max_examples=EXAMPLES, stateful_step_count=100)

# For `make mutants`, where the machine is broken on purpose, thousands of times: few examples, and the first that fails
# is enough.
mutants = settings(unhurried, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
settings.register_profile("mutants", mutants, max_examples=10, phases=[Phase.explicit, Phase.generate])

PROFILE = os.environ.get("TURNWISE_PROFILE", "quick")
settings.load_profile(PROFILE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of a deep search here, so that it can be printed and repeated. A seed that was given is kept, and
    the workers of pytest-xdist receive the one that was chosen."""
    if config.option.hypothesis_seed is not None:
        settings.register_profile("seeded", settings(), derandomize=False)
        settings.load_profile("seeded")
    elif PROFILE == "deep":
        config.option.hypothesis_seed = random.randrange(2**32)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests with the marker `deep`, unless this is a deep search."""
    deep = [] if PROFILE == "deep" else [item for item in items if item.get_closest_marker("deep")]
    if deep:
        items[:] = [item for item in items if item not in deep]
        config.hook.pytest_deselected(items=deep)


def how_to_repeat(config: pytest.Config) -> str:
    """Return one line that says how the property tests search, and how to repeat that search."""
    seed = config.option.hypothesis_seed
    repeat = "the same examples each time" if seed is None else f"repeat it with --hypothesis-seed={seed}"
    return f"property tests: {PROFILE}, {repeat}"


def pytest_report_header(config: pytest.Config) -> str:
    """Print at the beginning how the property tests search."""
    return how_to_repeat(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print below failures again how to repeat the search: `-q` omits the header."""
    if terminalreporter.stats.get("failed"):
        terminalreporter.write_line(how_to_repeat(config))
