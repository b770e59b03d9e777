"""The files of the corpus, and what is known of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILES = sorted(Path(__file__).parent.glob("*/*.db.xz"))

Expected = dict[str, dict[str, Any]]
"""What expected.json says of each conversation of a database."""


def described(folder: Path) -> dict[str, Any]:
    """Return what expected.json says of each database of a folder."""
    files: dict[str, Any] = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["files"]
    return files
