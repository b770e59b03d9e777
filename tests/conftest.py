"""What all tests share: how they search, are collected and reported, and a store in a new database."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import pytest

from .support.databases import BOTH_STORES, STORES, Database
from .support.postgres.fixtures import (
    NO_SERVER,
    migrated_postgres_url,
    migrated_template,
    own_postgres,
    postgres_databases,
    postgres_servers,
    postgres_url,
)
from .support.searches import pytest_collection_modifyitems, pytest_configure, pytest_report_header
from .support.searches import pytest_terminal_summary as repeat_below_failures
from .support.servers.clients import each_client

__all__ = [
    "each_client",
    "migrated_postgres_url",
    "migrated_template",
    "own_postgres",
    "postgres_databases",
    "postgres_servers",
    "postgres_url",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_report_header",
]

SUMMARY_LINES = pytest.StashKey[list[str]]()
"""Lines that tests add to the end of the report, whether they pass or not."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin without such lines."""
    session.config.stash[SUMMARY_LINES] = []


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without looking for garbage, and look past the tests afterwards: they stay until the end of the run, and
    each full search would go through all of them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what a module promises of every store on each of them."""
    names = metafunc.fixturenames
    is_for_both = "database" in names and "database_file" not in names
    if is_for_both and metafunc.definition.get_closest_marker(BOTH_STORES.name):
        metafunc.parametrize("database", STORES, indirect=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the lines that tests added, how many were skipped for want of a server, and below failures how to repeat
    the search."""
    for line in config.stash[SUMMARY_LINES]:
        terminalreporter.write_line(line)
    without_server = [test for test in terminalreporter.stats.get("skipped", ()) if NO_SERVER in str(test.longrepr)]
    if without_server:
        terminalreporter.write_line(f"{len(without_server)} tests were skipped. {NO_SERVER}")
    repeat_below_failures(terminalreporter, config)


# --- with pytest-xdist, which runs the tests in several processes

SHARING = {
    "tests/states/test_walks.py::": "walks",
    "tests/states/test_table.py::TestNothingIsHidden::": "walks",
    "tests/test_distributions.py::": "distributions",
    "tests/test_packaging.py::TestOneNameForEachModule::": "syntax trees",
    "tests/test_private_names.py::": "syntax trees",
    "tests/test_structure.py::": "syntax trees",
}
"""How the ids of tests begin that share something slow, and what they share: one process runs all of them. (The option
`--dist loadgroup` does that by a marker, which xdist 3.8 does not find with pytest 9.2.)"""

SHARING_BY_MODULE = ("tests/hosts/page/",)
"""Folders in which the tests of a module share something slow: a server, and a page that is open in a browser."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand the tests out one by one, but for those that share something.

    Thousands are handed out function by function, with all parameters: xdist looks at all units of a worker whenever a
    test has ended, and with a unit for each test, that took as long as hundreds of tests.
    """
    from xdist.scheduler import LoadScopeScheduling

    end_of_unit = "[" if config.option.markexpr in ("", "not slow") else None

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            shared = next((name for beginning, name in SHARING.items() if nodeid.startswith(beginning)), None)
            end = "::" if nodeid.startswith(SHARING_BY_MODULE) else end_of_unit
            return shared or (nodeid.partition(end)[0] if end else nodeid)

    return Scheduling(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: hand the summary lines over."""
    if output := getattr(session.config, "workeroutput", None):
        output["summary_lines"] = session.config.stash[SUMMARY_LINES]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """In the process that reports: take the summary lines of a worker that has finished."""
    node.config.stash[SUMMARY_LINES] += getattr(node, "workeroutput", {}).get("summary_lines", [])


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Replace lone surrogates in a report that a worker sends: captured logs may hold them; xdist sends UTF-8."""
    return without_lone_surrogates((yield))


def without_lone_surrogates(value: Any) -> Any:
    """Return JSON-like data with a backslash escape in place of each lone surrogate."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {without_lone_surrogates(key): without_lone_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(without_lone_surrogates, value))
        case _:
            return value


@pytest.fixture
def database_file(tmp_path: Path) -> Path:
    """A database file of the test's own."""
    return tmp_path / "conversations.db"


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Database:
    """A database of the test's own: a file, and in a module that is marked `BOTH_STORES`, PostgreSQL, too."""
    is_file = getattr(request, "param", "sqlite") == "sqlite"
    database: Database = request.getfixturevalue("database_file" if is_file else "migrated_postgres_url")
    return database


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Any]:
    """A new database, open. One in a file waits for a lock only briefly."""
    from turnwise.persistence.opening import open_store
    from turnwise.persistence.sqlite.store import SqliteStore

    is_file = isinstance(database, Path)
    store = await (SqliteStore.open(database, busy_timeout=0.05) if is_file else open_store(database))
    yield store
    await store.close()
