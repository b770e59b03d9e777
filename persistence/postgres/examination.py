"""What can be wrong with a database in PostgreSQL as a whole: with the server, the tables, the clocks, and with what
calls for workers.

The server itself sees to it that rows belong together, unless its files were damaged or an administrator has had it
look away. So most of what is looked for here is how the database is run: clocks that differ, work that waits for
workers, indexes that were left behind half made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..ports import JobsHealth
from ..records import StorageFault
from ..sql.repairs import orphans
from ..sql.statements import Driver
from .schema import metadata

LATE = 60.0
"""Seconds after which work that waits has waited too long."""

_SKEW = 2.0
"""Seconds by which two clocks may differ: less than any deadline that people notice."""


def faults(driver: Driver, schema: str) -> tuple[StorageFault, ...]:
    """Return what is wrong, apart from workers that do not come. The jobs are in this schema."""
    found = [*orphans(driver), *_faults_of_pages(driver), *_faults_of_indexes(driver), *_faults_of_clock(driver)]
    has_jobs = driver.execute(_INSTALLED.format(schema=schema)).fetchone()[0]
    return (*found, *(_faults_of_calls(driver, schema) if has_jobs else (NO_JOBS,)))


_PAGES = "SELECT coalesce(checksum_failures, 0) FROM pg_stat_database WHERE datname = current_database()"


def _faults_of_pages(driver: Driver) -> Iterator[StorageFault]:
    (failures,) = driver.execute(_PAGES).fetchone()
    if failures:
        yield StorageFault(f"The server has read damaged pages of this database: {failures}; see its log.")


_INDEXES = """
SELECT relname::text, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE relnamespace = current_schema()::regnamespace
"""


def _faults_of_indexes(driver: Driver) -> Iterator[StorageFault]:
    is_valid = dict(driver.execute(_INDEXES).fetchall())
    for name in sorted(str(index.name) for table in metadata.sorted_tables for index in table.indexes):
        if name not in is_valid:
            yield StorageFault(f"The index {name} is missing; without it the server reads whole tables.")
        elif not is_valid[name]:
            yield StorageFault(f"The index {name} is not valid: rebuild it with REINDEX INDEX {name}.")


def _faults_of_clock(driver: Driver) -> Iterator[StorageFault]:
    before = time.time()
    (server,) = driver.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    if (sentence := skew(before, server, time.time())) is not None:
        yield StorageFault(sentence)


def skew(before: float, server: float, after: float) -> str | None:
    """Return a sentence that says by how much the clock of this machine differs from the server's, if that is more than
    it took to ask for its time: from `before` until `after`, in seconds since 1970. `Pure.`"""
    ahead, behind = before - server, server - after
    if max(ahead, behind) <= _SKEW:
        return None
    way = f"{ahead:.1f} s ahead of" if ahead > behind else f"{behind:.1f} s behind"
    sentence = "deadlines and wake-ups come at the wrong moment. Have both set by the network."
    return f"The clock of this machine is {way} that of the server, so {sentence}"


_INSTALLED = """SELECT to_regclass('"{schema}".procrastinate_jobs') IS NOT NULL"""
NO_JOBS = StorageFault(
    "The tables by which work finds workers are missing: an engine that opens the database for writing makes them."
)

_UNCALLED = """
SELECT count(*) FROM conversations WHERE (waits <> 0 OR next_timer < %s) AND updated_at < %s
AND NOT EXISTS (SELECT FROM "{schema}".procrastinate_jobs WHERE lock = conversations.id AND status IN ('todo', 'doing'))
"""


def _faults_of_calls(driver: Driver, schema: str) -> Iterator[StorageFault]:
    late = int((time.time() - LATE) * 1_000_000)
    (count,) = driver.execute(_UNCALLED.format(schema=schema), (late, late)).fetchone()
    if count:
        work = f"Conversations with work for which nobody was called: {count}"
        yield StorageFault(f"{work}. Workers look for such, so start one: `turnwise worker`.")


def faults_of_jobs(health: JobsHealth) -> tuple[StorageFault, ...]:
    """Return what is wrong with the workers: those that do not come, and those that are dead. `Pure.`"""
    found: list[StorageFault] = []
    if health.longest_wait is not None and health.longest_wait > LATE:
        who = "none runs" if not health.workers else "those that run have no slot free"
        waits = (
            f"Conversations that wait for a worker: {health.waiting}, the first for {_duration(health.longest_wait)}"
        )
        found.append(StorageFault(f"{waits}; {who}. Start `turnwise worker`."))
    if health.stalled:
        who = "Another one takes them over." if health.workers else "Start `turnwise worker`, which takes them over."
        found.append(StorageFault(f"Conversations that dead workers have left: {health.stalled}. {who}"))
    return tuple(found)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
