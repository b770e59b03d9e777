"""The page's projection of updates, with updates that a real engine published."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...support.browser.node_tests import check_modules
from ...support.browser.page_recordings import record_all

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent / "view.test.mjs"


async def test_the_view_of_a_conversation_follows_from_its_updates(node: str, tmp_path: Path) -> None:
    """The tests in view.test.mjs hold for recorded conversations of each kind."""
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    await record_all(recordings)

    check_modules(node, TESTS, tmp_path, RECORDINGS=str(recordings))
