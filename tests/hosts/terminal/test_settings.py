"""Settings of the environment and of turnwise.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...support.terminal import assert_one_sentence, run

pytestmark = pytest.mark.slow


def test_settings_come_from_the_directory(tmp_path: Path) -> None:
    """turnwise.toml names the database and a tool in the working directory; the environment takes precedence."""
    (tmp_path / "turnwise.toml").write_text('db = "unused.db"\ntools = ["mine:greet"]\n', encoding="utf-8")
    tool = 'def greet(name: str) -> str:\n    """Greet somebody."""\n    return f"Good day, {name}."\n'
    (tmp_path / "mine.py").write_text(tool, encoding="utf-8")

    done = run("chat", cwd=tmp_path, lines=["Greet Anna"], TURNWISE_DB="used.db")

    assert '✓ greet(name="Anna")' in done.stdout
    assert "Good day, Anna." in done.stdout
    assert {path.name for path in tmp_path.glob("*.db")} == {"used.db"}


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("model = ", "turnwise.toml cannot be read"),
        ("modell = 'rehearsal'", "There is no setting called modell. Did you mean model?"),
        ("engine = 'fast'", "There is no setting called engine. Known: db, model, models, tools"),
        ("tools = 3", "The setting tools (in turnwise.toml) is not valid: Input should be a list."),
    ],
)
def test_a_wrong_setting_is_one_sentence(written: str, sentence: str, tmp_path: Path) -> None:
    """A turnwise.toml that is no TOML, or that has an unknown setting or a wrong value."""
    (tmp_path / "turnwise.toml").write_text(written, encoding="utf-8")

    done = run("list", cwd=tmp_path)

    assert_one_sentence(done, sentence)


def test_a_wrong_value_that_is_replaced_does_not_matter(tmp_path: Path) -> None:
    """The file is not asked where the environment has a value, also when the chat says how it is resumed."""
    (tmp_path / "turnwise.toml").write_text('agentic_max_turns = "many"', encoding="utf-8")

    done = run("chat", cwd=tmp_path, lines=["Hello"], TURNWISE_AGENTIC_MAX_TURNS="3")

    assert (done.returncode, done.stderr) == (0, "")
