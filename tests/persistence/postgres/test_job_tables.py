"""The tables of procrastinate: how they come to be there, and that an application may have its own beside them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import procrastinate
import pytest
from procrastinate.schema import SchemaManager

from turnwise.persistence.postgres.job_tables import JobTables
from turnwise.states.errors import StoreError

from ...support.engine_scenarios import until
from ...support.postgres.fixtures import OLDEST_AND_NEWEST, Databases
from .test_jobs import jobs_of, looking, serving, statuses, total
from .test_store import opened

OBJECTS = """
SELECT 'table ' || table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns
    WHERE table_schema = 'turnwise_jobs'
UNION SELECT 'index ' || indexdef FROM pg_indexes WHERE schemaname = 'turnwise_jobs'
UNION SELECT 'function ' || proname || prosrc FROM pg_proc WHERE pronamespace = 'turnwise_jobs'::regnamespace
UNION SELECT 'trigger ' || trigger_name || event_manipulation || action_statement FROM information_schema.triggers
    WHERE trigger_schema = 'turnwise_jobs'"""


def objects(url: str) -> set[str]:
    """All that is in the schema of the jobs."""
    with looking(url) as connection:
        return {row for (row,) in connection.execute(OBJECTS)}


class TestInstalling:
    """Whoever opens a database finds the tables there, or makes them."""

    @OLDEST_AND_NEWEST
    async def test_many_processes_may_open_a_database_at_once(self, postgres_url: str) -> None:
        """One of them makes the tables, and the others find them."""
        stores = [opened(postgres_url) for _ in range(5)]
        await asyncio.gather(*(store.__aenter__() for store in stores))
        for store in stores:
            await store.__aexit__(None, None, None)
        async with serving(postgres_url) as (worker,):
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)

    async def test_tables_of_an_older_procrastinate_are_migrated(self, postgres_databases: Databases) -> None:
        """They are as if this one had made them."""
        fresh, older = postgres_databases.create(), postgres_databases.create()
        async with opened(fresh), opened(older):
            pass
        migrations = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
        past = [each for each in migrations if each.name < "03.03"]
        with looking(older) as connection:
            connection.execute("DROP SCHEMA turnwise_jobs CASCADE")
            connection.execute("CREATE SCHEMA turnwise_jobs")
            connection.execute("SET search_path = turnwise_jobs")
            for migration in past:
                connection.execute(migration.read_text(encoding="utf-8").encode())
            connection.execute("CREATE TABLE turnwise_installed (revision integer NOT NULL, migration text NOT NULL)")
            connection.execute("INSERT INTO turnwise_installed VALUES (0, %s)", (past[-1].name,))
        async with serving(older) as (worker,):
            await worker.jobs.call("dinner")
            await until(lambda: worker.runs["dinner"] == 1)
        added = {each for each in objects(fresh) if each.startswith("function")}
        assert added <= objects(older)
        postgres_databases.drop(fresh)
        postgres_databases.drop(older)

    async def test_tables_of_an_earlier_revision_are_brought_up_to_date(self, postgres_url: str) -> None:
        """A job that waits there is looked after, and transactions that call notify nobody from now on."""
        async with opened(postgres_url) as store:
            await store.jobs.call("dinner")
        with looking(postgres_url) as connection:
            connection.execute("SET search_path = turnwise_jobs")
            connection.execute("DROP FUNCTION turnwise_exchange")
            connection.execute("ALTER TABLE procrastinate_jobs ENABLE TRIGGER ALL")
            connection.execute("UPDATE turnwise_installed SET revision = 1")
            connection.execute("LISTEN procrastinate_any_queue_v1")
            connection.execute("SELECT turnwise_call('lunch')")
            assert [*connection.notifies(timeout=0)]
            async with serving(postgres_url) as (worker,):
                await until(lambda: worker.runs == {"dinner": 1, "lunch": 1})
                connection.execute("SELECT turnwise_call('supper')")
                assert not [*connection.notifies(timeout=0)]
                await until(lambda: worker.runs["supper"] == 1)

    @pytest.mark.parametrize("version", [(9, "03.00"), (1, "99.00.00_01_later.sql")])
    async def test_newer_tables_are_left_alone(self, postgres_url: str, version: tuple[int, str]) -> None:
        """An old process would not know what to do with them."""
        async with opened(postgres_url):
            pass
        with looking(postgres_url) as connection:
            connection.execute("UPDATE turnwise_jobs.turnwise_installed SET (revision, migration) = (%s, %s)", version)
        before = objects(postgres_url)
        with pytest.raises(StoreError, match=r"are of a newer turnwise or procrastinate: upgrade both here, too\."):
            async with opened(postgres_url):
                pass
        assert objects(postgres_url) == before

    async def test_tables_of_somebody_else_are_left_alone(self, postgres_url: str) -> None:
        """Nobody knows what they are for."""
        with looking(postgres_url) as connection:
            connection.execute("CREATE SCHEMA turnwise_jobs")
            connection.execute("SET search_path = turnwise_jobs")
            connection.execute(SchemaManager.get_schema())
        before = objects(postgres_url)
        with pytest.raises(StoreError, match="has tables of procrastinate that turnwise has not made"):
            async with opened(postgres_url):
                pass
        assert objects(postgres_url) == before

    async def test_a_user_who_may_not_create_a_schema_is_told_what_to_do(self, postgres_url: str) -> None:
        """Then somebody else creates it, and the user fills it."""
        role = Databases.name_of(postgres_url)
        with looking(postgres_url) as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN")
            connection.execute(f"GRANT ALL ON SCHEMA public TO {role}")
            try:
                theirs = f"{postgres_url}&user={role}" if "?" in postgres_url else f"{postgres_url}?user={role}"
                with pytest.raises(StoreError, match=r'The schema "turnwise_jobs", in which jobs are kept, cannot be'):
                    async with opened(theirs):
                        pass
                connection.execute(f"CREATE SCHEMA turnwise_jobs AUTHORIZATION {role}")
                async with serving(theirs) as (worker,):
                    await worker.jobs.call("dinner")
                    await until(lambda: worker.runs["dinner"] == 1)
            finally:
                connection.execute(f"DROP OWNED BY {role} CASCADE")
                connection.execute(f"DROP ROLE {role}")

    def test_each_schema_of_conversations_has_its_own(self) -> None:
        """However long its name is."""
        names = ["public", "turnwise", "jobs", "x" * 63, "x" * 62 + "y"]
        schemas = [JobTables.beside(name).schema for name in names]
        assert schemas[:3] == ["turnwise_jobs", "turnwise_jobs_turnwise", "turnwise_jobs_jobs"]
        assert len(set(schemas)) == len(names)
        assert all(len(schema) < 64 for schema in schemas)

    async def test_conversations_in_two_schemas_do_not_meet(self, postgres_url: str) -> None:
        """Each worker looks after those of its own database."""
        option = "&schema=" if "?" in postgres_url else "?schema="
        async with serving(f"{postgres_url}{option}one") as (one,), serving(f"{postgres_url}{option}two") as (two,):
            await one.jobs.call("dinner")
            await two.jobs.call("lunch")
            await until(lambda: bool(one.runs and two.runs))
            await asyncio.sleep(1.5)
            assert (one.runs, two.runs) == ({"dinner": 1}, {"lunch": 1})


class TestApplications:
    """An application may use procrastinate itself, in the same database and the same schema."""

    async def test_neither_takes_the_jobs_of_the_other(self, postgres_url: str) -> None:
        """Its worker takes jobs from all queues, and deletes what is old."""
        application = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=postgres_url))
        done: list[str] = []

        @application.task(name="turnwise.conversation", queue="turnwise", lock="dinner")
        async def theirs(what: str) -> None:
            done.append(what)

        async with application.open_async():
            await application.schema_manager.apply_schema_async()
            async with opened(postgres_url) as store:
                await store.jobs.call("dinner")
                await theirs.defer_async(what="their own")
                await application.run_worker_async(wait=False, install_signal_handlers=False, delete_jobs="always")
                assert (done, statuses(postgres_url)) == (["their own"], ["todo"])
                await theirs.defer_async(what="later")
                async with serving(postgres_url, 2) as workers:
                    await until(lambda: total(workers) == {"dinner": 1})
                    await workers[0].jobs.call("lunch")
                    await until(lambda: len(total(workers)) == 2)
                assert (await jobs_of(store).health(lease=10)).waiting == 0
            jobs = list(await application.job_manager.list_jobs_async())
        assert [(job.task_kwargs, job.status) for job in jobs] == [({"what": "later"}, "todo")]
