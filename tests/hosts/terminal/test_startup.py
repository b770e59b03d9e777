"""What the command `turnwise` imports: imports take nearly all of the time that it needs to start.

How long that is depends on the machine, so `benchmarks/startup.py` measures it, and no test does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from ...support.terminal import ENVIRONMENT, TIMEOUT, at_prompt, end_of

pytestmark = pytest.mark.slow

IMPORTED = re.compile(r"^import time: .*\| *(\S+)$", re.MULTILINE)
"""A line of `python -X importtime`, with the name of the module."""

MODEL_LIBRARIES = {"aiohttp", "httpx", "litellm", "openai"}
OPTIONAL = {"hypothesis", "jsonschema_rs", "opentelemetry", "pytest", "pyttsx3"}


def imports_of(*arguments: str, folder: Path) -> set[str]:
    """Return the packages that a run of the command imports; those of turnwise with their first folder."""
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "turnwise", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("TURNWISE_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ran.returncode == 0, ran.stderr
    modules = IMPORTED.findall(ran.stderr)
    return {".".join(module.split(".")[: 2 if module.startswith("turnwise.") else 1]) for module in modules}


def test_a_demo_imports_no_model_library(tmp_path: Path) -> None:
    """The rehearsal model works without litellm, whose import takes seconds, and its tool without a JSON schema."""
    imported = imports_of("demo", folder=tmp_path)

    assert "turnwise.engine" in imported
    assert not imported & (MODEL_LIBRARIES | OPTIONAL)


def test_a_demo_without_a_terminal_imports_no_prompt(tmp_path: Path) -> None:
    """There is no user to type."""
    assert not imports_of("demo", folder=tmp_path) & {"prompt_toolkit", "questionary"}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_what_needs_no_conversation_imports_the_commands_and_their_options_only(option: str, tmp_path: Path) -> None:
    """Neither the machine nor a store, and neither an event loop nor the library that draws boxes."""
    imported = imports_of(option, folder=tmp_path)

    assert not imported & {"asyncio", "pydantic", "rich", "sqlalchemy", "alembic", "transitions", *MODEL_LIBRARIES}
    assert not imported & {"turnwise.states", "turnwise.engine", "turnwise.persistence"}


def test_a_list_imports_neither_a_model_library_nor_menus(tmp_path: Path) -> None:
    """It reads a database, and nothing more."""
    imports_of("demo", "--db", "turnwise.db", folder=tmp_path)

    assert not imports_of("list", folder=tmp_path) & {"prompt_toolkit", "questionary", *MODEL_LIBRARIES}


def test_alembic_is_imported_neither_for_a_new_database_nor_for_an_existing_one(tmp_path: Path) -> None:
    """Only a database of an older turnwise has to be migrated."""
    for imported in (imports_of("demo", "--db", "demo.db", folder=tmp_path) for _ in range(2)):
        assert "sqlalchemy" in imported
        assert "alembic" not in imported


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
def test_a_chat_says_what_it_waits_for(tmp_path: Path) -> None:
    """The import of litellm takes seconds."""
    environment = {**ENVIRONMENT, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1", "OPENAI_API_KEY": "test"}
    command = ["-m", "turnwise", "chat", "--model", "openai/test"]
    child = pexpect.spawn(
        sys.executable, command, cwd=str(tmp_path), env=environment, encoding="utf-8", timeout=TIMEOUT
    )
    try:
        child.expect_exact("loading litellm")
        at_prompt(child).sendeof()

        assert end_of(child) == 0
    finally:
        child.close(force=True)
