"""The programs of the README and the docs, and the examples, are typed as a reader would type them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.pages import ROOT, Page
from ..support.type_checking import BY_EACH_CHECKER, checked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(280),  # both checkers read the whole package, on a machine that may be busy
]

PAGES = (
    "README.md",
    "docs/host.md",
    "docs/agents.md",
    "docs/extending.md",
    "docs/http.md",
    "docs/redaction.md",
    "docs/reply_flow.md",
    "docs/testing.md",
)

NOT_COMPLETE = ("# panel.py, mended\n", "# program.py\n", "# states/")
"""Beginnings of blocks that need a changed turnwise, or the file of another block under another name."""


def programs() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file to check: a block that names its file keeps the name."""
    for path in PAGES:
        page = Page(path)
        named = {block: name for name, block in page.files.items()}
        for number, block in enumerate(page.blocks, start=1):
            if not block.startswith(NOT_COMPLETE):
                yield named.get(block, f"{Path(path).stem.lower()}_{number}.py"), block
    for example in (ROOT / "examples").glob("*.py"):
        yield f"example_{example.name}", example.read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of all the programs, which uses turnwise as it is here."""
    for name, text in programs():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@BY_EACH_CHECKER
def test_every_program_is_typed(checker: str, folder: Path) -> None:
    """The two checkers that people use find nothing."""
    ran = checked(checker, folder)

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
