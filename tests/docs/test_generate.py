"""The command that writes the generated parts of the pages, and checks them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from generate import main
from generator.machine_page import markdown
from generator.pages import ROOT, TERMINAL
from generator.settings_page import terminal_settings
from turnwise.hosts.diagrams.mermaid import mermaid


class TestCommand:
    """`python docs/generate.py`."""

    def test_what_it_writes_is_fresh(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A page that was just written passes the check, and neither prints anything."""
        page = tmp_path / "machine.md"

        statuses = main([str(page)]), main(["--check", str(page)])

        assert statuses == (0, 0)
        assert page.read_bytes() == markdown(mermaid()).encode()
        assert capsys.readouterr() == ("", "")

    @pytest.mark.slow
    def test_a_file_with_a_marker_keeps_its_words(self, tmp_path: Path) -> None:
        """The table replaces the one below the marker, and everything else stays."""
        readme = tmp_path / "README.md"
        readme.write_text(f"Before.\n\n{TERMINAL}\n| old |\n\nAfter.\n", encoding="utf-8")

        stale = main(["--check", str(readme)])
        statuses = main([str(readme)]), main(["--check", str(readme)])

        assert (stale, *statuses) == (1, 0, 0)
        expected = f"Before.\n\n{TERMINAL}\n{terminal_settings()}\nAfter.\n"
        assert readme.read_text(encoding="utf-8") == expected

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "content", [b"", b"# The machine\n", b"\xff", None], ids=["empty", "old", "binary", "none"]
    )
    def test_a_stale_page_fails_the_check(
        self, content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """If a page is missing, or differs from what is generated, the command exits with 1 and one sentence that says
        what to do."""
        page = tmp_path / "machine.md"
        if content is not None:
            page.write_bytes(content)

        status = main(["--check", str(page)])

        assert status == 1
        assert capsys.readouterr() == ("", f"{page} is not what the code gives; run `make docs`.\n")

    def test_a_page_that_cannot_be_written_is_told_in_a_sentence(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """For a folder that does not exist it prints a sentence without a traceback."""
        page = tmp_path / "nowhere" / "machine.md"

        status = main([str(page)])

        assert status == 1
        assert capsys.readouterr() == ("", f"{page} cannot be written: No such file or directory.\n")

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", ["1", "2"])
    def test_another_process_makes_the_same_pages(self, seed: str) -> None:
        """The pages of the repository are up to date, in whatever order a process iterates over its sets."""
        command = [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"]

        done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
