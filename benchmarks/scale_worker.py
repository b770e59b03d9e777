"""A process of benchmarks/scale.py that performs: a worker over a PostgreSQL database.

    python scale_worker.py URL LEDGER '{"lease": 15, "slots": 100, "seconds": 0}'

It prints a line when it is ready, and ends by SIGTERM. Each time that its model is asked, it adds a line to the ledger:
the moment, its process id, and what was said last.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from standard_turn import Model, find_table

from turnwise import Engine, ModelAnswer
from turnwise.engine.settings import Settings
from turnwise.testing import reply

WAITS = "Wait."
"""How a message begins that the model answers after some seconds."""


class NotingModel(Model):
    """The model of the standard turn, which takes so many seconds and notes when it is asked."""

    def __init__(self, ledger: Path, seconds: float) -> None:
        self._seconds = seconds
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def complete(self, request: Any, show: Callable[[Any], None]) -> ModelAnswer:
        """The next step of the standard turn."""
        last = request.messages[-1]
        line = json.dumps({"at": time.time(), "process": os.getpid(), "role": last["role"], "text": last["content"]})
        os.write(self._ledger, line.encode() + b"\n")
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return (
            reply(last["content"]) if str(last["content"]).startswith(WAITS) else await super().complete(request, show)
        )


def opened(url: str, ledger: Path, *, worker: bool, seconds: float, **settings: Any) -> Engine:
    """An engine of the cluster, not open yet."""
    return Engine.open(
        url, worker=worker, model=NotingModel(ledger, seconds), tools=[find_table], settings=Settings(**settings)
    )


async def work(url: str, ledger: Path, given: dict[str, Any]) -> None:
    """Perform until SIGTERM."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with opened(url, ledger, worker=True, **given):
        print("ready", flush=True)
        await over.wait()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])))
