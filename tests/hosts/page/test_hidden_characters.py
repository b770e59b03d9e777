"""Characters without a shape, in arguments that a person reads before a call runs."""

from __future__ import annotations

from pathlib import Path

from ...support.browser.node_tests import check_modules

TESTS = Path(__file__).parent / "hidden_characters.test.mjs"


def test_hidden_characters_are_shown(node: str, tmp_path: Path) -> None:
    """The tests in hidden_characters.test.mjs hold: nobody approves a text that reads differently from what it is."""
    check_modules(node, TESTS, tmp_path)
