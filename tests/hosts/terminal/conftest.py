"""Fixtures of the tests of the command `turnwise`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from turnwise import Conversation, Engine
from turnwise.hosts.terminal.commands.app import app
from turnwise.hosts.terminal.output.lines import exit_code
from turnwise.testing import FunctionLlm, call

from ...support.engine_scenarios import QUESTION, Gate, answers_after
from ...support.terminal import NOT_INHERITED, SLOW_TOOLS, InProcessRun


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcessRun:
    """Run the command within this process: a new process for each of many commands would take too long."""
    for name in [name for name in os.environ if NOT_INHERITED.match(name)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, lines: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{x}\n" for x in lines).encode())))
        code = exit_code(lambda: app(list(arguments), prog_name="turnwise", standalone_mode=False))
        output = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, output.out, output.err)

    return run


@pytest.fixture
async def busy(database: Path) -> AsyncIterator[Conversation]:
    """Yield a conversation that waits for its model, in an open engine."""
    gate = Gate()
    async with Engine.open(database, model=FunctionLlm(answers_after(gate, "At last."))) as engine:
        conversation = await engine.create()
        await conversation.send("Hello", wait=False)
        await gate.arrived.wait()
        yield conversation


@pytest.fixture
def slow_tools(tmp_path: Path) -> str:
    """Return tools that never end by themselves, as `--tools` names them."""
    (tmp_path / "slow.py").write_text(SLOW_TOOLS, encoding="utf-8")
    return "slow:wait_long,slow:refuse_to_stop"


@pytest.fixture
async def asking(database: Path) -> AsyncIterator[Conversation]:
    """Yield a conversation that waits for an answer, in an open engine."""
    llm = FunctionLlm(lambda request: call("ask_user_question", questions=[QUESTION]))
    async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
        conversation = await engine.create(system="You book tables.")
        await conversation.send("A table\x1b[2J")
        yield conversation
