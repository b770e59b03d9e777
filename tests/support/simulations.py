"""What tests of simulations share: the first seed, the first failure of some seeds, and a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..simulation import Report, SimulationFailed, simulate

ROOT = Path(__file__).parents[2]

START = int(os.environ.get("TURNWISE_SEED", "0"))
"""The first seed."""


def failure(
    open_engine: Any, seeds: Iterable[int], simulation: Callable[..., Report] = simulate, **options: Any
) -> SimulationFailed | None:
    """The first failure of a simulation whose engines are opened by this function, if there is one."""
    for seed in seeds:
        try:
            simulation(seed, open_engine=open_engine, **options)
        except SimulationFailed as failed:
            return failed
    return None


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What comes of a Python process of its own."""
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, env=env, timeout=60)
