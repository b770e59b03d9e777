"""The page's projection of updates, with updates that a real engine published."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ...support.browser.page_recordings import record_all
from ...support.source.source_tree import ROOT

STATIC = ROOT / "hosts" / "page" / "static"
TESTS = Path(__file__).parent / "view.test.mjs"


async def test_the_view_of_a_conversation_follows_from_its_updates(node: str, tmp_path: Path) -> None:
    """The tests in view.test.mjs hold for recorded conversations of each kind."""
    recordings, modules = tmp_path / "recordings", tmp_path / "modules"
    recordings.mkdir()
    await record_all(recordings)
    shutil.copytree(STATIC, modules)
    (modules / "package.json").write_text('{"type": "module"}')
    shutil.copy(TESTS, modules)

    tests = subprocess.run(
        [node, "--test", str(modules / TESTS.name)],
        env={**os.environ, "RECORDINGS": str(recordings)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert tests.returncode == 0, tests.stdout + tests.stderr
