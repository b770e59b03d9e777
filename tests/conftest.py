"""What every test here has in common: how long the property tests look for a counterexample."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Slow machines are no news, so no profile measures time; the limit for one test stands in pyproject.toml.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# The same examples each time: when one fails, it is the change under test that broke it.
settings.register_profile("quick", unhurried, derandomize=True, max_examples=100)

# New examples each time, and the failing ones kept for the next: this one goes looking.
settings.register_profile("deep", unhurried, max_examples=5_000, stateful_step_count=100, print_blob=True)

settings.load_profile(os.environ.get("TURNWISE_PROFILE", "quick"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database file of the test's own."""
    return tmp_path / "conversations.db"
