"""The README: its programs run, its diagram is the table's, and its links lead somewhere."""

import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ..support.pages import ROOT, Page

README = Page("README.md")
FRAGMENTS = [block for block in README.blocks if block.startswith("conversation = await")]
PROGRAMS = [block for block in README.blocks if block not in FRAGMENTS]


@pytest.mark.parametrize(("program", "shown"), [*zip(PROGRAMS, ["6:30 PM", "llm_requesting"], strict=True)])
def test_its_programs_run(program: str, shown: str, tmp_path: Path) -> None:
    """Each Python block is a complete program that succeeds and prints what it should."""
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=200)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert shown in ran.stdout


KILLED = """
import os, signal
from dinner import Engine, asyncio, find_table

async def main():
    async with Engine.open("dinner.db", tools=[find_table, "ask_user_question"]) as engine:
        conversation = await engine.create()
        turn = await conversation.send("A table for two, tonight, somewhere Japanese")
        print(turn.status, conversation.id, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""

GOES_ON = """
import sys
from dinner import Engine, asyncio, find_table

async def main(conversation_id):
    async with Engine.open("dinner.db", tools=[find_table, "ask_user_question"]) as engine:
        {}

asyncio.run(main(sys.argv[1]))
"""


def test_a_question_outlives_its_process(tmp_path: Path) -> None:
    """P19: a question that was asked in a process that was killed is answered in another one."""
    (fragment,) = FRAGMENTS
    (tmp_path / "dinner.py").write_text(PROGRAMS[0].replace("asyncio.run(main())\n", ""), encoding="utf-8")

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)

    killed = run(KILLED)
    status, conversation_id = killed.stdout.split()
    ran = run(GOES_ON.format(textwrap.indent(fragment, 8 * " ").lstrip()), conversation_id)

    assert (killed.returncode, status) == (-signal.SIGKILL, "awaiting_user")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "6:30 PM" in ran.stdout


def test_its_program_is_the_example() -> None:
    """`examples/dinner.py` is the host program, below a line that describes it."""
    example = (ROOT / "examples" / "dinner.py").read_text(encoding="utf-8")

    assert example.partition("\n\n")[2] == PROGRAMS[0]


def test_its_links_lead_somewhere() -> None:
    """Every relative link names a file or a folder of the repository, or a heading of a page."""
    assert README.links()
    assert README.broken_links() == []


def test_its_pictures_are_there_and_small() -> None:
    """The page in light and in dark, as `make picture` writes it; everybody who clones the repository loads them."""
    pictures = [ROOT / path for path in re.findall(r'(?:src|srcset)="(docs/[^"]+)"', README.text)]

    assert [picture.name for picture in pictures] == ["page-dark.png", "page.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert all(picture.stat().st_size < 300_000 for picture in pictures)
