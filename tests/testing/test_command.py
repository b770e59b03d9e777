"""`python -m tests.walking`, by which a developer looks for more walks."""

from pathlib import Path

import pytest

from ..walking import main, read_walks, take, write_walks

pytestmark = pytest.mark.slow


def test_it_tells_what_is_covered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the rows and the pairs in one line."""
    write_walks(tmp_path / "walks.txt", [(7, (0, 0, 0))])

    status = main([str(tmp_path / "walks.txt")])

    assert status == 0
    assert capsys.readouterr().out.startswith("1 walks cover ")


def test_a_search_keeps_what_it_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes the walks that it found; taken again, they cover the same."""
    file = tmp_path / "walks.txt"

    status = main([str(file), "--search", "0.5"])

    found = read_walks(file)
    assert status == 1
    assert f"{len(found)} walks cover {take(found)}" in capsys.readouterr().out
