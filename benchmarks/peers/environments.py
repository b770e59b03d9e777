"""The systems, and an environment of its own for each library that turnwise is compared with.

An environment is made once in a folder outside of the source tree, with pinned versions from the index that pip is
configured for. A library that cannot be installed is not measured, which is no error.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnwise-benchmarks"


@dataclass(frozen=True)
class Measured:
    """A system that is measured."""

    name: str
    module: str
    """The module of `benchmarks/peers` that holds the system."""
    imports: str
    """What an application imports first."""
    requirements: tuple[str, ...] = ()
    """What pip installs for it; nothing for what runs in the environment of turnwise."""
    parts: tuple[str, ...] = ()
    """The parts that mean something for it, if not all do."""


TURNWISE = Measured("turnwise", "turnwise", "from turnwise import Engine")
FLOOR = Measured("floor", "floor", "import sqlite3", parts=("long", "many", "growth", "reopen", "syncs"))
PEERS = (
    Measured(
        "Burr",
        "burr",
        "from burr.core import ApplicationBuilder",
        ("apache-burr==0.42.0", "aiosqlite==0.22.1"),
    ),
    Measured(
        "LangGraph",
        "langgraph",
        "from langgraph.graph import StateGraph; from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver",
        ("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2", "langchain-core==1.7.2", "aiosqlite==0.22.1"),
    ),
    Measured(
        "openai-agents",
        "openai_agents",
        "from agents import Agent, Runner, SQLiteSession",
        ("openai-agents==0.24.0", "openai==3.54.0"),
    ),
    Measured(
        "pydantic-ai",
        "pydantic_ai",
        "from pydantic_ai import Agent",
        ("pydantic-ai-slim==2.68.0", "pydantic==2.14.3"),
    ),
)

LANGGRAPH_POSTGRES = Measured(
    "LangGraph over PostgreSQL",
    "langgraph_postgres",
    "from langgraph.graph import StateGraph; from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver",
    (
        *next(peer.requirements for peer in PEERS if peer.name == "LangGraph"),
        *("langgraph-checkpoint-postgres==3.2.0", "psycopg[binary,pool]==3.3.9"),
    ),
)
"""The one of them that is also measured over a server, by benchmarks/scale.py."""


class NotInstalled(Exception):
    """A library could not be installed. The message says why."""


def interpreter(system: Measured, cache: Path) -> Path:
    """Return the Python of the system's environment, which is made if it is missing. Raises NotInstalled."""
    if not system.requirements:
        return Path(sys.executable)
    pins = "\n".join((*system.requirements, sys.version))
    folder = cache / f"{system.module}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        _install(folder, python, system.requirements)
        complete.touch()
    return python


def _install(folder: Path, python: Path, requirements: tuple[str, ...]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    try:
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run(command, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as failed:
        errors = [line for line in str(failed.stderr).splitlines() if line.startswith("ERROR")]
        raise NotInstalled((errors or ["pip failed"])[-1]) from failed
