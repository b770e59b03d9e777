"""The README tells the truth: its programs run, its picture is the table's, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("program", "shown"), [*zip(PROGRAMS, ["6:30 PM", "", "llm_requesting"], strict=True)])
def test_its_programs_run(program: str, shown: str, tmp_path: Path) -> None:
    """Each Python block is a whole program that ends well and prints what it should."""
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=50)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert shown in ran.stdout


def test_its_links_lead_somewhere() -> None:
    """Every relative link names a file or a folder of the repository."""
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
