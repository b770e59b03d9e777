"""Runs the command `turnwise` for tests: in a process, on a terminal, with databases and tools to work with."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pexpect

from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import Abort

from .forks.starting import python
from .walks import Walk

MODULE = "turnwise"
COMMAND = [sys.executable, "-m", MODULE]

DEMO_TOOLS = "turnwise.hosts.terminal.demo:find_table,ask_user_question"
REQUEST = "A table for two tonight, somewhere Japanese"

NOT_INHERITED = re.compile(r"TURNWISE_|.*_API_KEY$|(NO_COLOR|FORCE_COLOR|COLUMNS|LINES)$")
"""Environment variables that would change what the command does or how it looks. pytest-xdist sets COLUMNS."""

ENVIRONMENT = {name: value for name, value in os.environ.items() if not NOT_INHERITED.match(name)}

PAYMENT_TOOL = """
from turnwise import tool

@tool(approval=True)
def pay(amount: int) -> str:
    'Pay the bill.'
    return f"paid {amount}"
"""
ASKING_TOOL = """
from turnwise import QuestionOption, ToolContext, UserQuestion, tool

SURE = UserQuestion(question="Really?", options=(QuestionOption(label="Yes"), QuestionOption(label="No")))

@tool(exclusive=True, crash="idempotent")
async def book_table(context: ToolContext) -> str:
    'Book a table.'
    return f"The user says {(await context.ask([SURE])).answers['Really?']}."
"""
TWO_QUESTIONS_TOOL = """
from turnwise import Question, QuestionOption, UserQuestion, tool

NORTH, SOUTH = QuestionOption(label="North"), QuestionOption(label="South")

@tool(exclusive=True, acts=["question"])
def ask_twice(go: str) -> Question:
    'Go.'
    questions = [UserQuestion(question=f"Where {way}?", options=(NORTH, SOUTH)) for way in ("from", "to")]
    return Question(tuple(questions))
"""
SLOW_TOOLS = '''
import asyncio

async def wait_long(place: str) -> str:
    """Wait for a long time."""
    await asyncio.sleep(600)
    return "over"

async def refuse_to_stop(place: str) -> str:
    """Refuse to stop, stubbornly."""
    for _ in range(2):
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
    return "stopped"
'''
LOOK_TOOL = 'def look(place: str) -> str:\n    """Look somewhere."""\n    return "a bird"\n'
OWN_TALK_TOOL = """
from turnwise import Speech, tool

@tool(acts=["speech"], exclusive=True)
def talk(message: str) -> Speech:
    "Talk to the user."
    return Speech(text=f"Mine: {message}", when="now")
"""

TIMEOUT = 200
"""Seconds that a process may take on a busy machine."""


def run(
    *arguments: str | Path, cwd: Path, lines: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, with these lines on stdin."""
    return subprocess.run(
        [*python(), "-m", MODULE, *map(str, arguments)],
        cwd=cwd,
        input="".join(f"{line}\n" for line in lines),
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


async def run_beside(
    *arguments: str | Path, cwd: Path, lines: Sequence[str] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end while the event loop of the test runs."""
    return await asyncio.to_thread(lambda: run(*arguments, cwd=cwd, lines=lines, **environment))


@contextmanager
def terminal(*arguments: str | Path, cwd: Path, **environment: str) -> Iterator[pexpect.spawn]:
    """Run the command on a terminal of its own."""
    program, *options = python()
    child = pexpect.spawn(
        program,
        [*options, "-m", MODULE, *map(str, arguments)],
        cwd=str(cwd),
        env={**ENVIRONMENT, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", **environment},
        dimensions=(40, 100),
        encoding="utf-8",
        timeout=TIMEOUT,
    )
    try:
        yield child
    finally:
        child.close(force=True)


def at_prompt(child: pexpect.spawn) -> pexpect.spawn:
    """Wait for the prompt."""
    child.expect_exact("\x1b[0;36;1m> ")
    return child


def end_of(child: pexpect.spawn) -> int:
    """Wait for the process to end, and return its exit code."""
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus is not None
    return child.exitstatus


def conversation_id_in(output: str) -> str:
    """Return the id of the conversation that the output of a chat names."""
    found = re.search(r"chat ([0-9a-f-]{36})", output)
    assert found is not None
    return found[1]


def newest_id(folder: Path) -> str:
    """Return the id of the conversation that changed last."""
    return run("list", cwd=folder).stdout.split()[0]


def shown_on_resume(folder: Path) -> str:
    """Return what a resumed chat shows before its prompt."""
    with terminal("chat", "--resume", cwd=folder) as child:
        shown = str(at_prompt(child).before)
        child.send("\x04")

        assert end_of(child) == 0
    return shown


def output_after_hint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a chat below its first line, which says how to resume it."""
    assert (done.returncode, done.stderr) == (0, "")
    first, _, rest = done.stdout.partition("\n")
    assert first.startswith("To resume this conversation: ")
    return rest


def assert_one_sentence(done: subprocess.CompletedProcess[str], sentence: str, code: int = 2) -> None:
    """Check that the output is this sentence, on one line of stderr, and nothing else (P33)."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def database_with(folder: Path, *walks: Walk, name: str = "turnwise.db") -> Path:
    """Create a database with these conversations."""

    async def store_all() -> None:
        store = await SqliteStore.open(folder / name)
        for walk in walks:
            await walk.into(store)
        await store.close()

    asyncio.run(store_all())
    return folder / name


def execute_sql(path: Path, sql: str) -> None:
    """Change what is stored in a way that turnwise never does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(sql)


def diverging_walk(name: str, seq: int) -> Walk:
    """Return a conversation whose step `seq` has an effect that the machine does not produce."""
    walk = Walk(name).turn("tonight")
    event, step = walk.steps[seq - 1]
    walk.steps[seq - 1] = event, replace(step, effects=(*step.effects, Abort(effect_id=7)))
    return walk


InProcessRun = Callable[..., "subprocess.CompletedProcess[str]"]
"""The fixture `in_process`: called with arguments and `lines` for stdin."""


def exported(in_process: InProcessRun, *arguments: str) -> bytes:
    """Return the bytes of an export."""
    done = in_process("export", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.encode()
