"""What a PostgreSQL database must be like to be opened; otherwise one sentence says why, and nothing is changed."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from turnwise.persistence.errors import StoreError
from turnwise.persistence.postgres import schema
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.database import PostgresDatabase
from turnwise.persistence.postgres.job_tables import JobTables
from turnwise.testing.postgres_server import PostgresServer

from ...support.postgres.fixtures import OLDEST_AND_NEWEST, Databases, installation_or_skip, with_option


async def opened(url: str, *, read_only: bool = False, create: bool = True) -> PostgresDatabase:
    """Open the database at this URL."""
    return await PostgresDatabase.open(PostgresAddress.of(url), connections=2, read_only=read_only, create=create)


async def open_and_close(url: str, *, read_only: bool = False, create: bool = True) -> None:
    """Open the database at this URL, and close it."""
    await (await opened(url, read_only=read_only, create=create)).close()


async def refusal(url: str, *, read_only: bool = False, create: bool = True) -> str:
    """Return the sentence with which a database is refused."""
    with pytest.raises(StoreError) as refused:
        await open_and_close(url, read_only=read_only, create=create)
    return refused.value.sentence


def execute(url: str, *statements: str) -> None:
    """Execute statements in a database."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def content(url: str) -> list[tuple[object, ...]]:
    """Return what is defined in a database: tables, columns and indexes, each in its schema."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            """
            SELECT relnamespace::regnamespace::text, relname, attname, format_type(atttypid, atttypmod)
            FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
            WHERE relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
            ORDER BY 1, 2, 3
            """
        ).fetchall()


@pytest.fixture
def user(postgres_databases: Databases) -> Iterator[str]:
    """A user who may connect, and nothing else."""
    user = f"diner_{os.getpid()}"
    postgres_databases.execute(f"CREATE ROLE {user} LOGIN")
    yield user
    postgres_databases.execute(f"DROP ROLE {user}")


def as_user(url: str, user: str) -> str:
    """Return the URL for another user."""
    return url.replace("postgres@", f"{user}@", 1)


@OLDEST_AND_NEWEST
class TestNewDatabases:
    """The tables are made when a database is opened for the first time."""

    async def test_they_are_made_once(self, postgres_url: str) -> None:
        """Whoever opens it next changes nothing."""
        await open_and_close(postgres_url)
        made = content(postgres_url)

        await open_and_close(postgres_url)

        assert {"conversations", "events", "texts", schema.REVISION_TABLE} <= {str(row[1]) for row in made}
        assert content(postgres_url) == made

    async def test_by_one_of_many_that_open_it_at_once(self, postgres_url: str) -> None:
        """The others find them."""
        await asyncio.gather(*(open_and_close(postgres_url) for _ in range(6)))

    async def test_in_a_schema_of_their_own(self, postgres_url: str) -> None:
        """It is made, too, and one beside it for the jobs."""
        await open_and_close(with_option(postgres_url, "schema=turnwise"))

        assert {row[0] for row in content(postgres_url)} == {"turnwise", JobTables.beside("turnwise").schema}
        assert await refusal(postgres_url, create=False) != ""

    async def test_unless_they_are_not_to_be_made(self, postgres_url: str) -> None:
        """A database without tables holds no conversations."""
        name = PostgresAddress.of(postgres_url).name
        expected = f"{name} holds no conversations: turnwise has not been used with it yet."

        assert await refusal(postgres_url, create=False) == expected
        assert await refusal(postgres_url, read_only=True) == expected
        assert content(postgres_url) == []


class TestServersThatCannotBeReached:
    """The words are those of the server, or of the operating system."""

    async def test_an_unknown_host(self) -> None:
        """The name is not found."""
        said = await refusal("postgresql://no-such-host.invalid/dinner")

        assert said.startswith("postgresql://no-such-host.invalid/dinner cannot be opened now: ")
        assert "no-such-host.invalid" in said.partition("now: ")[2]

    @pytest.mark.parametrize("host", ["a" * 300, "a..b", "ä.invalid"])
    async def test_a_host_that_has_no_name(self, host: str) -> None:
        """It cannot even be looked up."""
        assert " cannot be opened now: " in await refusal(f"postgresql://ada:secret@{host}/dinner")

    async def test_a_port_at_which_nobody_listens(self) -> None:
        """The connection is refused."""
        said = await refusal("postgresql://127.0.0.1:1/dinner")

        assert said == "postgresql://127.0.0.1:1/dinner cannot be opened now: Connection refused."

    async def test_a_wrong_password(self, own_postgres: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
        """The sentence says who was refused, and not with what; nor does a log."""
        caplog.set_level(logging.DEBUG)
        said = await refusal(own_postgres.tcp_url("postgres").replace(own_postgres.password, "wrong-secret"))

        assert said.endswith('cannot be opened now: password authentication failed for user "postgres".')
        assert "secret" not in said
        assert "secret" not in caplog.text

    async def test_a_missing_database(self, postgres_url: str) -> None:
        """turnwise makes tables, and no databases."""
        said = await refusal(postgres_url.replace("turnwise_test", "no_such"))

        assert 'cannot be opened now: database "no_such' in said
        assert said.endswith(" does not exist.")

    async def test_an_unknown_user(self, postgres_url: str) -> None:
        """Without a password."""
        assert 'role "nobody_of_that_name" does not exist.' in await refusal(
            as_user(postgres_url, "nobody_of_that_name")
        )


class TestMissingRights:
    """The sentence says who lacks them."""

    async def test_to_make_tables(self, postgres_url: str, user: str) -> None:
        """In a schema that is another's."""
        execute(postgres_url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")

        said = await refusal(as_user(postgres_url, user))

        assert said.endswith(f"cannot be used: the user {user} may not create the tables of turnwise in it.")
        assert content(postgres_url) == []

    async def test_to_make_a_schema(self, postgres_url: str, user: str) -> None:
        """In a database that is another's."""
        said = await refusal(with_option(as_user(postgres_url, user), "schema=turnwise"))

        assert said.endswith(f"cannot be used: the user {user} may not create the tables of turnwise in it.")

    async def test_to_use_a_schema(self, postgres_url: str, user: str) -> None:
        """It is there, but not for this user."""
        await open_and_close(with_option(postgres_url, "schema=turnwise"))
        made = content(postgres_url)

        said = await refusal(with_option(as_user(postgres_url, user), "schema=turnwise"))

        assert f"the user {user}" in said
        assert content(postgres_url) == made

    @pytest.mark.parametrize("granted", ["", "SELECT", "SELECT, INSERT, UPDATE"])
    async def test_to_use_the_tables(self, postgres_url: str, user: str, granted: str) -> None:
        """Whoever may only read can open it for reading."""
        await open_and_close(postgres_url)
        if granted:
            execute(postgres_url, f"GRANT {granted} ON ALL TABLES IN SCHEMA public TO {user}")

        said = await refusal(as_user(postgres_url, user))

        assert said.endswith(f"cannot be used: the user {user} lacks rights on the tables of turnwise.")
        if granted:
            await open_and_close(as_user(postgres_url, user), read_only=True)
        execute(postgres_url, f"DROP OWNED BY {user}")

    @pytest.mark.parametrize("missing", ["DELETE ON outbox", "USAGE ON SEQUENCE conversations_key_seq"])
    async def test_on_one_of_the_tables(self, postgres_url: str, user: str, missing: str) -> None:
        """It would be noticed much later."""
        await open_and_close(postgres_url)
        execute(
            postgres_url,
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}",
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}",
            f"REVOKE {missing} FROM {user}",
        )

        assert f"the user {user} lacks rights" in await refusal(as_user(postgres_url, user))
        execute(postgres_url, f"DROP OWNED BY {user}")

    async def test_whoever_has_them_all_need_not_own_the_tables(self, postgres_url: str, user: str) -> None:
        """An administrator may make them, and grant them to the application."""
        await open_and_close(postgres_url)
        execute(
            postgres_url,
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}",
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {user}",
        )

        await open_and_close(as_user(postgres_url, user))
        execute(postgres_url, f"DROP OWNED BY {user}")


class TestDatabasesOfOthers:
    """What is not turnwise's is left alone."""

    async def test_tables_of_the_same_names(self, postgres_url: str) -> None:
        """They belong to another program, which may share the database but not the schema."""
        execute(postgres_url, "CREATE TABLE events (id int)", "CREATE VIEW texts AS SELECT 1 AS one")
        before = content(postgres_url)

        said = await refusal(postgres_url)

        assert "tables of another program whose names turnwise needs (events, texts); " in said
        assert content(postgres_url) == before
        await open_and_close(with_option(postgres_url, "schema=turnwise"))

    async def test_tables_of_other_names(self, postgres_url: str) -> None:
        """An application keeps its own beside them, also if it uses alembic."""
        execute(postgres_url, "CREATE TABLE alembic_version AS SELECT 'theirs' AS version_num")

        await open_and_close(postgres_url)

        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("theirs",)]

    async def test_a_search_path_that_leads_nowhere(self, postgres_url: str, postgres_databases: Databases) -> None:
        """There is no schema in which to make tables."""
        postgres_databases.execute(
            f"ALTER DATABASE {postgres_databases.name_of(postgres_url)} SET search_path = missing"
        )

        assert "has none of the schemas of its search path" in await refusal(postgres_url)


class TestServersThatCannotBeUsed:
    """What follows from their version, their settings or their part in a cluster."""

    async def test_one_that_is_too_old(self, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The sentence says both versions. Here it is the newest one that is declared too old."""
        monkeypatch.setattr(schema, "OLDEST_SERVER", 990000)

        said = await refusal(postgres_url)

        assert " is PostgreSQL 1" in said
        assert said.endswith(", and turnwise needs 99 or newer.")
        assert content(postgres_url) == []

    @pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
    async def test_one_that_does_not_store_every_text(self, postgres_databases: Databases, encoding: str) -> None:
        """The encoding was chosen when the database was made."""
        url = postgres_databases.create(options=f"ENCODING {encoding} LOCALE 'C'")

        said = await refusal(url)

        assert f" keeps texts in {encoding}; " in said
        assert content(url) == []
        postgres_databases.drop(url)

    async def test_a_newer_turnwise(self, postgres_url: str) -> None:
        """Its tables are not touched."""
        await open_and_close(postgres_url)
        execute(postgres_url, f"UPDATE {schema.REVISION_TABLE} SET version_num = '9999'")

        assert "was written by a newer turnwise; " in await refusal(postgres_url)
        assert "was written by a newer turnwise; " in await refusal(postgres_url, read_only=True)

    @pytest.mark.slow
    async def test_a_standby(self, own_postgres: PostgresServer) -> None:
        """It can be read, and nothing is stored in it."""
        url = own_postgres.url("postgres")
        await open_and_close(url)
        own_postgres.shut_down()
        (own_postgres.folder / "data" / "standby.signal").touch()
        own_postgres.resume()

        assert (await refusal(url)).endswith("is on a standby server, which takes no writes: name the primary server.")
        database = await opened(url, read_only=True)
        assert await database.read(lambda driver: driver.execute("SELECT 1 FROM events").fetchall()) == []
        await database.close()

    @pytest.mark.slow
    async def test_a_standby_beside_its_primary(self, own_postgres: PostgresServer) -> None:
        """A URL may name both, in any order."""
        own_postgres.shut_down()
        (own_postgres.folder / "data" / "standby.signal").touch()
        own_postgres.resume()
        with PostgresServer.start(installation_or_skip()) as primary:
            hosts = f"{own_postgres.folder},{primary.folder}"
            ports = f"{own_postgres.port},{primary.port}"

            database = await opened(f"postgresql://postgres@/postgres?host={hosts}&port={ports}")

            assert not await database.write(lambda driver: driver.execute("SELECT pg_is_in_recovery()").fetchone()[0])
            await database.close()


NEXT_REVISION = """
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade():
    op.execute("CREATE TABLE added (id int)")
"""


class TestOlderDatabases:
    """They are brought to the newest revision by whoever opens them for writing."""

    @pytest.fixture
    async def older(self, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        """The URL of a database of the revision before the newest one, which adds a table."""
        await open_and_close(postgres_url)
        scripts = tmp_path / "migrations"
        shutil.copytree(schema.SCRIPTS, scripts)
        (scripts / "versions" / "0002_next.py").write_text(NEXT_REVISION)
        for name, value in {"SCRIPTS": scripts, "REVISIONS": ("0001", "0002"), "HEAD": "0002"}.items():
            monkeypatch.setattr(schema, name, value)
        return postgres_url

    async def test_they_are_migrated(self, older: str) -> None:
        """Once, also by several that open them at the same time."""
        await asyncio.gather(*(open_and_close(older) for _ in range(3)))

        with psycopg.connect(older) as connection:
            assert connection.execute(f"SELECT version_num FROM {schema.REVISION_TABLE}").fetchall() == [("0002",)]
            assert connection.execute("SELECT * FROM added").fetchall() == []

    async def test_in_their_schema(self, older: str) -> None:
        """A transaction of alembic sees it, too."""
        await open_and_close(older)

        assert ("public", "added") in {row[:2] for row in content(older)}

    async def test_not_by_whoever_only_reads(self, older: str) -> None:
        """One sentence says what to do."""
        before = content(older)

        assert "was written by an older turnwise; " in await refusal(older, read_only=True)
        assert content(older) == before
