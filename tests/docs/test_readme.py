"""The README and what it promises: programs that run, installing, types, and the requirements."""

from __future__ import annotations

import re
import runpy
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.cases import holds_for
from ..support.pages import ROOT, Page, paths_of_pages, table
from ..support.type_checking import BY_EACH_CHECKER, checked
from ..support.walkthroughs import FILE
from ..test_packaging import python_files

# --- The README: its programs run, its diagram is the table's, and its links lead somewhere.


README = Page("README.md")
DINNER, ASKED = README.blocks

MAX_BYTES = 8_000
"""How long the README may be: what is read in a few minutes. Everything else stands in the pages of docs/."""


def test_it_is_short() -> None:
    """It says what turnwise is, shows it, and links to the pages."""
    assert len(README.text.encode()) <= MAX_BYTES


def run_program(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the page in a folder, as a reader would."""
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=200)


EACH_PROGRAM = pytest.mark.parametrize(
    ("program", "shown"),
    [
        (DINNER, "6:30 PM"),
        (ASKED, "awaiting_user"),
        (Page("docs/explanation/the-machine.md").blocks[0], "llm_requesting ['persist_message', 'request_llm']"),
    ],
)


@EACH_PROGRAM
def test_its_programs_print_what_they_should(
    program: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each Python block is a complete program, and so is that of the pure core. Here it runs where turnwise is imported
    already."""
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


def test_its_pictures_are_there_and_small() -> None:
    """The page in light and in dark, as `make picture` writes it, and the machine, as `make docs` does; everybody who
    clones the repository loads them."""
    pictures = [ROOT / path for path in re.findall(r'(?:src|srcset)="(docs/[^"]+)"', README.text)]

    assert [picture.name for picture in pictures] == ["page-dark.png", "page.png"]
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert all(picture.stat().st_size < 300_000 for picture in pictures)
    assert "(docs/images/machine.svg)" in README.text


# --- How turnwise and its extras are installed is said in one way, in the pages, the examples and the errors.


NAMED = re.compile(r".{0,13}(?:turnwise|checkout)\[[\w,]+\].?")
"""A requirement with extras, and the text around it where the command should stand."""

TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *(file for file in python_files() if file.relative_to(ROOT).parts[0] != "tests"),
]
MENTIONS = [(str(file.relative_to(ROOT)), found) for file in TEXTS for found in NAMED.findall(file.read_text("utf-8"))]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


@holds_for(("file", "mention"), MENTIONS)
def test_extras_are_installed_by_name(file: str, mention: str) -> None:
    """Wherever extras are to be installed, the command can be copied: it names turnwise in quotes, and extras that
    there are."""
    command = re.fullmatch(r'pip install "turnwise\[([\w,]+)\]"', mention)

    assert command is not None, f"{file}: {mention}"
    assert EXTRAS.keys() >= {*command[1].split(",")}


def test_all_kinds_of_texts_are_read() -> None:
    """Pages name extras, and so do examples and errors."""
    files = {file for file, _ in MENTIONS}

    assert files >= {
        "README.md",
        "docs/guides/redaction.md",
        "examples/voice_loop.py",
        "effects/redaction/redaction.py",
    }


def test_the_readme_says_where_turnwise_comes_from() -> None:
    """The first command of its section is the one that needs no index of packages."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Installing\n")[1].split("\n## ")[0]
    commands = re.findall(r"^pip install (\S+)", section, re.MULTILINE)

    assert commands[0] == "path/to/this/checkout"
    assert all(command.startswith('"turnwise[') for command in commands[1:])


# --- The programs of the README and the docs, and the examples, are typed as a reader would type them.


NOT_COMPLETE = ("# panel.py, mended\n", "# program.py\n", "# states/", "# In [")
"""Beginnings of blocks that need a changed turnwise, that are the file of another block under another name, or that are
cells of a notebook."""


def projects() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name of each project to check, and its files. A page that names its files is one; the programs of all
    other pages, and the examples, stand side by side."""
    alone = {f"example_{file.name}": file.read_text(encoding="utf-8") for file in (ROOT / "examples").glob("*.py")}
    for path in ("README.md", *paths_of_pages()):
        name = re.sub(r"\W", "_", path.removesuffix(".md")).lower()
        blocks = [block for block in Page(path).blocks if not block.startswith(NOT_COMPLETE)]
        named = {block: Path(found[1]).name for block in blocks if (found := FILE.match(block))}
        files = {named.get(block, f"{name}_{number}.py"): block for number, block in enumerate(blocks, start=1)}
        if named:
            yield Path(path).stem, files
        else:
            alone |= files
    yield "alone", alone


PROJECTS = [pytest.param(files, id=name) for name, files in projects()]


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("files", PROJECTS)
@BY_EACH_CHECKER
def test_every_program_is_typed(checker: str, files: dict[str, str], tmp_path: Path) -> None:
    """The two checkers that people use find nothing."""
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    ran = checked(checker, tmp_path)

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


# --- The page about requirements: what it says of tests is so.


PAGE = Page("docs/reference/requirements.md")
SECTIONS = ("Where they are tested", "Where HTTP and the page are tested")
TESTED = {
    number: re.findall(r"[\w/]+\.py", " ".join(files))
    for section in SECTIONS
    for number, files in table(PAGE.section(section), "Number").items()
}


@holds_for("number", TESTED)
def test_each_test_that_it_names_quotes_the_requirement(number: str) -> None:
    """In a docstring, as every test quotes what it checks."""
    assert TESTED[number]
    for name in TESTED[number]:
        assert re.search(rf"\b{number}\b", (ROOT / "tests" / name).read_text(encoding="utf-8")), name


@pytest.mark.parametrize("title", ["Background agents (D)", "HTTP (H)"])
def test_all_requirements_of_a_section_are_listed(title: str) -> None:
    """Each of them has a row that says where it is tested."""
    listed = table(PAGE.section(title), "Number")

    assert {number for number in TESTED if number.startswith(title[-2])} == set(listed)
