"""What a reader cannot see, in arguments that a person reads before a call runs."""

from __future__ import annotations

import json
import sys
import unicodedata
from pathlib import Path

import pytest

from turnwise.effects.printable import with_hidden_shown

from ...support.browser.node_tests import check_modules
from ...support.hidden_texts import HIDDEN, INNOCENT

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent / "hidden_characters.test.mjs"


CHANGED = {"\U0001171e"}
"""Characters whose category differs between the versions of Unicode that Python and browsers know."""


def characters() -> list[str]:
    """All characters that this Python knows, without line breaks and halves of pairs. A browser knows more."""
    every = set(map(chr, range(sys.maxunicode + 1))) - CHANGED - {"\n"}
    return sorted(one for one in every if unicodedata.category(one) not in ("Cs", "Cn"))


def test_hidden_characters_are_shown(node: str, tmp_path: Path) -> None:
    """The tests in hidden_characters.test.mjs hold: nobody approves a text that reads differently from what it is, and
    the page marks each character of Unicode as the terminal does: within a word, and twice in a row."""
    every = "\n".join(f"a{one}b {one}{one}" for one in characters())
    known = {"examples": HIDDEN, "innocent": INNOCENT, "every": every, "shown": with_hidden_shown(every)}
    given = tmp_path / "texts.json"
    given.write_text(json.dumps(known))

    check_modules(node, TESTS, tmp_path, TEXTS=str(given))
