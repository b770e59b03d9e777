"""litellm is imported in a thread when an engine opens: what can go wrong with that, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run(program: str, folder: Path) -> str:
    """Run a program in a new process that ends well, and return what it has printed."""
    ran = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=200)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_it_begins_when_the_engine_opens(tmp_path: Path) -> None:
    """In a thread, so that the event loop goes on; the engine says what for its models wait."""
    printed = run(
        """
import asyncio, threading
from turnwise import Engine, LiteLlm

async def main():
    model = LiteLlm("openai/test")
    async with Engine.open("sqlite://", model=model, models=["anthropic/test", "rehearsal"]) as engine:
        await asyncio.sleep(0)
        print(engine.loading, "turnwise-litellm" in [thread.name for thread in threading.enumerate()])
        turn = await (await engine.create(model="rehearsal")).send("Hello")
        print(turn.status)
        await model.ready()
        print(engine.loading)

asyncio.run(main())
""",
        tmp_path,
    )

    assert printed == "('litellm',) True\ncompleted\n()\n"


def test_nothing_is_loaded_for_other_models(tmp_path: Path) -> None:
    """An engine whose models need nothing waits for nothing."""
    printed = run(
        """
import asyncio, sys
from turnwise import Engine, OpenAICompatible

async def main():
    async with Engine.open("sqlite://", model=OpenAICompatible("http://localhost/v1", None, "m")) as engine:
        await asyncio.sleep(0)
        print(engine.loading, "litellm" in sys.modules)

asyncio.run(main())
""",
        tmp_path,
    )

    assert printed == "() False\n"


@pytest.mark.parametrize("ending", ["", "raise SystemExit", "import os; os._exit(0)"])
def test_a_process_may_end_meanwhile(ending: str, tmp_path: Path) -> None:
    """Its engine closes at once, and nobody waits for the import."""
    printed = run(
        f"""
import asyncio, sys
from turnwise import Engine

async def main():
    async with Engine.open("sqlite://", model="openai/test") as engine:
        while "litellm" not in sys.modules:
            await asyncio.sleep(0.001)
        assert engine.loading
    print("closed", flush=True)

asyncio.run(main())
{ending}
""",
        tmp_path,
    )

    assert printed == "closed\n"


def test_an_import_that_fails_is_a_failure_of_the_request(tmp_path: Path) -> None:
    """In one sentence, which names the cause; a check tells it, too, and the engine closes."""
    printed = run(
        """
import asyncio, sys
sys.modules["litellm"] = None
from turnwise import ConfigurationError, Engine

async def main():
    async with Engine.open("sqlite://", model="openai/test") as engine:
        turn = await (await engine.create()).send("Hello")
        print(turn.status, turn.failure)
        try:
            await engine.check()
        except ConfigurationError as error:
            print(error.sentence == turn.failure)

asyncio.run(main())
""",
        tmp_path,
    )

    sentence = "The model openai/test cannot be asked, because litellm cannot be imported (ModuleNotFoundError: "
    assert printed.startswith(f"failed {sentence}")
    assert printed.endswith("\nTrue\n")
