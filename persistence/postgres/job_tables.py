"""The tables of procrastinate, and how a transaction of the store calls for a process.

They stand in a schema of their own, beside the one that holds the conversations: `turnwise_jobs` beside `public`. An
application may use procrastinate itself in the same database. Neither takes the jobs of the other then, or deletes
them, or meets tables of another version.

All of their names are procrastinate's, without a schema. So the function that a transaction calls brings its own search
path, and the transaction keeps its own. Where a job waits already, a constraint is violated, and the function catches
that, which would end the transaction otherwise. To ask first would cost more, and as much again for each job that waits
if the server has planned the question while there were none.

No call is lost by that. A step calls when it has locked the row of its conversation. A job that waits at that moment is
begun later, and the worker that begins it takes the custody, which waits for the same lock, and so sees the step. A job
that was begun before does not wait any more, so there is another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from procrastinate.schema import SchemaManager

from ...states.errors import StoreError
from .custody import SOON

if TYPE_CHECKING:
    from ..sql.statements import Driver

QUEUE = "turnwise"
"""The queue of all jobs."""

SILENCE = 60.0
"""Seconds without a sign of life after which a worker counts as gone for those who look at a database from outside, and
do not know its lease."""

TASK = "turnwise.conversation"
"""The task of all jobs. The lock of a job is the id of its conversation, and all that the task needs."""

REVISION = 2
"""The revision of what is added to procrastinate's tables. To be counted on when `_ADDED` changes."""

_LONGEST_NAME = 64
"""Bytes that PostgreSQL has for a name, one of which ends it."""

_ADDED = f"""
CREATE INDEX IF NOT EXISTS turnwise_lock ON procrastinate_jobs (lock) WHERE status IN ('todo', 'doing');

CREATE TABLE IF NOT EXISTS turnwise_looks (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    looked_at timestamptz NOT NULL DEFAULT now(),
    swept_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO turnwise_looks DEFAULT VALUES ON CONFLICT DO NOTHING;

ALTER TABLE procrastinate_jobs SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);
ALTER TABLE procrastinate_events SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 4000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 40000);
ALTER TABLE procrastinate_workers SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE OR REPLACE FUNCTION turnwise_call(conversation text) RETURNS void LANGUAGE plpgsql
SET search_path FROM CURRENT AS $body$
BEGIN
    PERFORM procrastinate_defer_jobs_v1(ARRAY[
        ROW('{QUEUE}', '{TASK}', 0, conversation, conversation, '{{}}', NULL)::procrastinate_job_to_defer_v1
    ]);
EXCEPTION WHEN unique_violation THEN
    NULL;
END
$body$;

ALTER TABLE procrastinate_jobs DISABLE TRIGGER procrastinate_jobs_notify_queue_job_inserted_v1;

CREATE OR REPLACE FUNCTION turnwise_exchange(
    worker bigint, ended bigint[], called text[], looks boolean, most integer, OUT job bigint, OUT conversation text
) RETURNS SETOF record LANGUAGE plpgsql
SET search_path FROM CURRENT AS $body$
DECLARE
    one bigint;
    its text;
    taken integer := 0;
BEGIN
    FOREACH one IN ARRAY ended LOOP
        DELETE FROM procrastinate_jobs WHERE id = one AND status = 'doing' RETURNING lock INTO its;
        IF FOUND THEN
            called := called || its;
        END IF;
    END LOOP;
    FOREACH its IN ARRAY called LOOP
        EXIT WHEN taken >= most;
        UPDATE procrastinate_jobs SET status = 'doing', worker_id = worker WHERE id = (
            SELECT id FROM procrastinate_jobs WHERE queueing_lock = its AND status = 'todo' AND NOT EXISTS (
                SELECT FROM procrastinate_jobs AS running WHERE running.lock = its AND running.status = 'doing'
            ) FOR UPDATE SKIP LOCKED
        ) RETURNING id, lock INTO job, conversation;
        IF FOUND THEN
            taken := taken + 1;
            RETURN NEXT;
        END IF;
    END LOOP;
    IF looks AND taken < most THEN
        SELECT id, lock FROM procrastinate_fetch_job_v2(ARRAY['{QUEUE}'], worker) INTO job, conversation;
        IF job IS NOT NULL THEN
            taken := taken + 1;
            RETURN NEXT;
        END IF;
    END IF;
    IF taken = 0 THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
END
$body$;
"""
"""The index finds the jobs of a conversation, and a fetch which jobs wait for one that runs: without it a fetch takes a
second while 10,000 jobs wait. Jobs are deleted when they end, so the table is small, and what is dead in it would soon
be many times what lives; how many rows live says nothing about when to clean up. The one row of `turnwise_looks` says
when workers have looked for what is due, and for what was left over.

`turnwise_exchange` ends jobs, and takes others, `most` at the most: those of the conversations that were `called` for
and of those whose jobs were ended, as far as they wait, and, if the worker `looks`, the first of all that wait. It
looks for one conversation at a time, by unique indexes: for several at once the server might rather read all that
wait. If none was taken, its commit does not wait for the disk: a worker whose server has crashed looks for jobs that
it has ended already.

Nothing is notified when a job is inserted: a notice in the transaction of a step would have all steps that begin work
wait for each other, and would wake every worker once more. Whoever calls tells the others behind the commit.

What an earlier revision has added is not dropped: while a deploy rolls, its workers go on with it."""


@dataclass(frozen=True)
class JobTables:
    """Where procrastinate's tables are: in `schema`, and in `conversations` the tables that they belong to. Implements
    `custody.Calls`. Made by `install` or `found`."""

    schema: str
    conversations: str

    @classmethod
    def beside(cls, schema: str) -> JobTables:
        """The tables that belong to the conversations in this schema. `Pure.`"""
        name = "turnwise_jobs" if schema == "public" else f"turnwise_jobs_{schema}"
        if len(name) >= _LONGEST_NAME:
            name = f"turnwise_jobs_{blake2b(schema.encode()).hexdigest()[:16]}"
        return cls(name, schema)

    @classmethod
    def found(cls, driver: Driver) -> JobTables:
        """The tables that belong to the conversations which this transaction sees."""
        (schema,) = driver.execute("SELECT current_schema()").fetchone()
        if schema is None:
            raise StoreError("The database has no schema for the tables of turnwise: its search path leads nowhere.")
        return cls.beside(schema)

    @classmethod
    def install(cls, driver: Driver) -> JobTables:
        """Create the tables unless they are there, and migrate those of an older procrastinate, in this transaction.

        Of several processes that do so at once, one does it and the others wait. Raises `StoreError` for tables that a
        newer version has made, or somebody else, and if the user of the database may not create a schema.
        """
        tables, newest = cls.found(driver), (REVISION, _migrations()[-1].name)
        if tables._version(driver) != newest:
            driver.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (tables.schema,))
            (path,) = driver.execute("SELECT current_setting('search_path')").fetchone()
            tables._bring_up_to_date(driver)
            driver.execute("SELECT set_config('search_path', %s, true)", (path,))
        return tables

    def call(self, driver: Driver, conversation_id: str) -> None:
        """See `Calls`. A step has to be stored in the row of its conversation before."""
        driver.execute(f"SELECT {self.expression}", (conversation_id,))

    @property
    def expression(self) -> str:
        """See `Calls`."""
        return f'"{self.schema}".turnwise_call(%s)'

    def call_at(self, driver: Driver, conversation_id: str, due: datetime) -> None:
        """See `Calls`. What is due later stands in the tables of the store, where it is found when it is due."""
        if due < datetime.now(UTC) + SOON:
            self.call(driver, conversation_id)

    def are_served(self, driver: Driver) -> bool:
        """Whether some worker has given a sign of life within `SILENCE`."""
        recent = "last_heartbeat > now() - %s * interval '1 second' LIMIT 1"
        found = driver.execute(f'SELECT 1 FROM "{self.schema}".procrastinate_workers WHERE {recent}', (SILENCE,))
        return found.fetchone() is not None

    # --- installing

    def _version(self, driver: Driver) -> tuple[int, str] | None:
        """Return the revision of what is here, and the newest migration of procrastinate that it has had."""
        table = f'"{self.schema}".turnwise_installed'
        if driver.execute("SELECT to_regclass(%s)", (table,)).fetchone()[0] is None:
            return None
        row = driver.execute(f"SELECT revision, migration FROM {table}").fetchone()
        return None if row is None else (int(row[0]), str(row[1]))

    def _bring_up_to_date(self, driver: Driver) -> None:
        migrations = _migrations()
        newest = (REVISION, migrations[-1].name)
        version = self._version(driver)
        if version == newest:  # somebody else was faster
            return
        if version is None:
            self._create(driver)
        elif version[0] > REVISION or version[1] > newest[1]:
            raise StoreError(
                f'The tables of the jobs, in the schema "{self.schema}", are of a newer turnwise or procrastinate: '
                "upgrade both here, too."
            )
        else:
            driver.execute(f'SET LOCAL search_path = "{self.schema}"')
            for migration in migrations:
                if migration.name > version[1]:
                    _run(driver, migration.read_text(encoding="utf-8"))
        _run(driver, _ADDED)
        driver.execute("DELETE FROM turnwise_installed")
        driver.execute("INSERT INTO turnwise_installed VALUES (%s, %s)", newest)

    def _create(self, driver: Driver) -> None:
        exists = driver.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self.schema,)).fetchone()
        if not exists:
            try:
                driver.execute(f'CREATE SCHEMA "{self.schema}"')
            except psycopg.errors.InsufficientPrivilege as error:
                raise StoreError(
                    f'The schema "{self.schema}", in which jobs are kept, cannot be created: an administrator of the '
                    f'database has to (CREATE SCHEMA "{self.schema}" AUTHORIZATION …).'
                ) from error
        elif driver.execute("SELECT to_regclass(%s)", (f'"{self.schema}".procrastinate_jobs',)).fetchone()[0]:
            raise StoreError(f'The schema "{self.schema}" has tables of procrastinate that turnwise has not made.')
        driver.execute(f'SET LOCAL search_path = "{self.schema}"')
        _run(driver, SchemaManager.get_schema())
        driver.execute("CREATE TABLE turnwise_installed (revision integer NOT NULL, migration text NOT NULL)")


def _migrations() -> list[Path]:
    """Return procrastinate's migrations, in their order."""
    return sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))


def _run(driver: Driver, statements: str) -> None:
    """Execute several statements without parameters."""
    driver.execute(statements.replace("%", "%%"))


if TYPE_CHECKING:
    from .custody import Calls

    _FILLS: type[Calls] = JobTables
