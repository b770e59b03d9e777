"""The README: its programs run, its diagram is the table's, and its links lead somewhere."""

import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.pages import ROOT, Page

README = Page("README.md")
DINNER, ASKED, PURE = README.blocks


def run_program(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the page in a folder, as a reader would."""
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=200)


EACH_PROGRAM = pytest.mark.parametrize(
    ("program", "shown"), [(DINNER, "6:30 PM"), (ASKED, "awaiting_user"), (PURE, "llm_requesting")]
)


@EACH_PROGRAM
def test_its_programs_print_what_they_should(
    program: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each Python block is a complete program. Here it runs where turnwise is imported already."""
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py", run_name="__main__")

    printed = capsys.readouterr()
    assert printed.err == ""
    assert shown in printed.out


@pytest.mark.slow
@EACH_PROGRAM
def test_its_programs_run(program: str, shown: str, tmp_path: Path) -> None:
    """Each succeeds in a process of its own, as a reader starts it."""
    ran = run_program(tmp_path, program)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert shown in ran.stdout


@pytest.mark.slow
def test_a_question_outlives_its_process(tmp_path: Path) -> None:
    """P19: a question that was asked in a process that was killed is answered in another one."""
    shows = "print(turn.status, turn.reply)"
    dies = "print(turn.status, flush=True); import os; os.kill(os.getpid(), 9)"
    assert ASKED.count(shows) == 1

    killed = run_program(tmp_path, ASKED.replace(shows, dies))
    ran = run_program(tmp_path, ASKED)

    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "awaiting_user\n")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("completed ")
    assert "6:30 PM" in ran.stdout


def test_its_program_is_the_example() -> None:
    """`examples/dinner.py` is the host program, below a line that describes it."""
    example = (ROOT / "examples" / "dinner.py").read_text(encoding="utf-8")

    assert example.partition("\n\n")[2] == DINNER


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
