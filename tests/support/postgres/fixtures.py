"""Fixtures of tests that need a PostgreSQL server; the conftest.py at the top imports them, so every test can use them.

    async def test_stores(postgres_url: str) -> None:
        store = await open_store(postgres_url)

The server is the one that the environment variable `TURNWISE_POSTGRES` names, by the URL of a database from which new
ones may be created; else each process of the run starts one of the newest version that is installed, when it needs it.
Where there is none, these tests are skipped, and fail where `CI` is set.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from turnwise.persistence.opening import open_store
from turnwise.testing.postgres_server import Installation, PostgresServer, installations

from ..programs.missing import missing

SERVER = "TURNWISE_POSTGRES"
"""The environment variable that names a server for the tests."""

NO_SERVER = "No PostgreSQL server was found: `make services` installs one."
ONE_SERVER = "Only one version of PostgreSQL was found: `make services` installs a second one."

OLDEST_AND_NEWEST = pytest.mark.parametrize(
    "postgres_databases", ["newest", pytest.param("oldest", marks=pytest.mark.slow)], indirect=True
)
"""Runs a test that uses `postgres_url` on the newest server that is installed, and on the oldest one, which is slow."""


class Databases:
    """The databases of one server, over a connection that creates and drops them."""

    def __init__(self, url: str) -> None:
        import psycopg

        self.url = url
        self._server: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._names = (f"turnwise_test_{os.getpid()}_{number}" for number in itertools.count())

    def create(self, template: str = "template0", options: str = "") -> str:
        """Create a database with a name of its own, empty or as `template` is, and return its URL."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {options}")
        return self.url_of(name)

    def drop(self, url: str) -> None:
        """Drop the database at this URL, whoever is connected to it."""
        self.execute(f"DROP DATABASE IF EXISTS {self.name_of(url)} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Execute a statement as the user who may create databases."""
        self._server.execute(statement)

    @contextmanager
    def out_of_order(self, url: str) -> Iterator[None]:
        """While this lasts, all sessions of a database are ended and no new ones are taken, as while its server is shut
        down."""
        name = self.name_of(url)
        self.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        self.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        yield
        self.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")

    def url_of(self, name: str) -> str:
        """Return the URL of the database with this name."""
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    @staticmethod
    def name_of(url: str) -> str:
        """Return the name of the database at this URL."""
        return urlsplit(url).path[1:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()


def with_option(url: str, option: str) -> str:
    """Return the URL with one more option."""
    return f"{url}{'&' if '?' in url else '?'}{option}"


class Servers:
    """The servers of a process of the run, each started when a test first asks for it."""

    def __init__(self, started: ExitStack) -> None:
        self._started = started
        self._databases: dict[str | Path, Databases] = {}

    def oldest_or_newest(self, age: str) -> Databases:
        """Return the databases of the oldest or the newest server; skip the test if there is no such server."""
        if url := os.environ.get(SERVER):
            if age == "oldest":
                pytest.skip(f"{SERVER} names the one server that is tested.")
            return self._at(url)
        installation = installation_or_skip(age)
        if installation.folder not in self._databases:
            server = self._started.enter_context(PostgresServer.start(installation))
            self._databases[installation.folder] = self._started.enter_context(Databases(server.url("postgres")))
        return self._databases[installation.folder]

    def _at(self, url: str) -> Databases:
        if url not in self._databases:
            self._databases[url] = self._started.enter_context(Databases(url))
        return self._databases[url]


def installation_or_skip(age: str = "newest") -> Installation:
    """Return the oldest or the newest PostgreSQL that is installed. Skips the test if there is none, or only one where
    the oldest is asked for; but fails it where `CI` is set."""
    found = installations()
    if not found:
        missing(NO_SERVER)
    if age == "oldest" and len(found) == 1:
        missing(ONE_SERVER)
    return found[0 if age == "oldest" else -1]


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Servers]:
    """The servers of this process, which end with the run."""
    with ExitStack() as started:
        yield Servers(started)


@pytest.fixture(scope="session")
def postgres_databases(request: pytest.FixtureRequest, postgres_servers: Servers) -> Databases:
    """The databases of the newest server, or of the oldest one in a test that is marked with `OLDEST_AND_NEWEST`."""
    return postgres_servers.oldest_or_newest(getattr(request, "param", "newest"))


@pytest.fixture
def postgres_url(postgres_databases: Databases) -> Iterator[str]:
    """The URL of a new, empty database. It is dropped after the test."""
    url = postgres_databases.create()
    yield url
    postgres_databases.drop(url)


@pytest.fixture(scope="session")
def migrated_template(postgres_databases: Databases) -> Iterator[str]:
    """The name of a database that an engine has opened and nothing was stored in."""
    url = postgres_databases.create()
    asyncio.run(_migrate(url))
    yield postgres_databases.name_of(url)
    postgres_databases.drop(url)


async def _migrate(url: str) -> None:
    await (await open_store(url)).close()


@pytest.fixture
def migrated_postgres_url(postgres_databases: Databases, migrated_template: str) -> Iterator[str]:
    """The URL of a new database in which nothing is stored. To copy it is quicker than to make its tables."""
    url = postgres_databases.create(template=migrated_template)
    yield url
    postgres_databases.drop(url)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may restart, kill and stop."""
    with PostgresServer.start(installation_or_skip()) as server:
        yield server
