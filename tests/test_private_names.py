"""Nothing in testing/, hosts/, tests/, examples/ or benchmarks/ depends on a private name of another module.

Whatever these need has a public name, so that an application can do it too. support/source/private_names.py
says what counts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .support.source.private_names import private_names_of_class, private_names_of_others
from .support.source.source_tree import python_files, relative

FILES = python_files("testing", "hosts", "tests", "examples", "benchmarks", "docs")


def test_no_private_name_of_another_module_is_used() -> None:
    """Neither read, set, patched, imported nor overridden."""
    found = {relative(path): private_names_of_others(path) for path in FILES}

    assert {path: sorted(names) for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("engine._loops.clear()", {"_loops"}),
        ("engine._store = None", {"_store"}),
        ("del engine._store", {"_store"}),
        ("monkeypatch.setattr(codec, '_parts', None)", {"_parts"}),
        ("patch.object(codec, '_parts')", {"_parts"}),
        ("patch('turnwise.engine._loops.x')", {"_loops"}),
        ("setattr(engine, '_store', 1)", {"_store"}),
        ("from turnwise.states.machine import _COMPILED", {"_COMPILED"}),
        ("import os\nos._exit(1)", set()),
        ("class A:\n    def __init__(self):\n        self._x = 1\n\ndef f(a):\n    return a._x", set()),
        ("from turnwise.testing import ManualClock\nclass A(ManualClock):\n    def _mine(self): ...", set()),
    ],
)
def test_it_is_found(code: str, found: set[str], tmp_path: Path) -> None:
    """What a module defines itself, and what Python documents, does not count."""
    file = tmp_path / "example.py"
    file.write_text(code)

    assert private_names_of_others(file) == found


def test_an_override_of_a_private_name_is_found(tmp_path: Path) -> None:
    """It depends on how the class of the other module calls itself."""
    inherited = min(private_names_of_class("turnwise", "Engine"))
    file = tmp_path / "example.py"
    file.write_text(f"from turnwise import Engine\nclass Mine(Engine):\n    def {inherited}(self): ...")

    assert private_names_of_others(file) == {inherited}
