"""How a process ends that serves until it is told to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from turnwise.hosts.ending import STOPS, stop_signals

from ..support.terminal import ENVIRONMENT, TIMEOUT

BUSY = """
import asyncio
from turnwise.hosts.ending import stop_signals

async def main():
    with stop_signals():
        print("ready", flush=True)
        while True:  # the event loop does nothing else
            pass

asyncio.run(main())
"""
HANGING = """
import threading
from turnwise.hosts.ending import end_process_after

end_process_after(0.1, 7)
threading.Event().wait()
"""


@pytest.mark.parametrize("number", STOPS)
async def test_signals_are_events(number: signal.Signals) -> None:
    """The first asks to finish, the second to leave. Afterwards they mean what they meant before."""
    before = signal.getsignal(number)
    with stop_signals() as signals:
        os.kill(os.getpid(), number)
        await signals.first.wait()
        assert not signals.second.is_set()
        os.kill(os.getpid(), number)
        await signals.second.wait()

    assert signal.getsignal(number) == before


@pytest.mark.slow
def test_the_third_ends_a_process_that_is_stuck() -> None:
    """Whatever holds its event loop up."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue

    assert process.returncode == -signal.SIGTERM


@pytest.mark.slow
def test_a_process_that_hangs_is_ended() -> None:
    """With the exit code that it would have had."""
    done = subprocess.run([sys.executable, "-c", HANGING], env=ENVIRONMENT, timeout=TIMEOUT)

    assert done.returncode == 7
