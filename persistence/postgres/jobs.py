"""Jobs of procrastinate: each of them says that somebody has to look after one conversation.

    a step begins work   -> a job waits, from the commit of the step on
    a worker takes it    -> the job runs: its lock, the id of the conversation, keeps others from running another one
    the conversation rests -> the worker ends the job, which is deleted
    the worker dies      -> its heart stops; after a lease another worker calls again, and ends the old job

procrastinate keeps the jobs, the locks and the heartbeats, and its `JobManager` is used for all of them. Its `Worker`
is not: it stops when its heart misses a beat, and then ends what runs, but a server that was restarted is no reason to
drop a conversation; it misses a job that is inserted while it looks for one; and it takes twice the processor time.

Jobs are never retried, because nothing says who may end one: a process that stood still, and was given up, would end
the job under which another one works. So a new job comes first, and then the old one ends. Whoever dies in between
leaves a job too many, which finds nothing to do.

What is due later has no job. Timers, wake-ups and deliveries stand in the tables of the store, in indexes; one worker
looks every second for those that have become due, by the clock of the server, and calls. Every two leases it looks for
conversations that have not moved although they should have, whatever has become of their job. Such a one is called for
when it is two leases old, and then whenever its age has doubled, so one that cannot move is soon left alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from procrastinate import BaseConnector
from procrastinate.connector import Notify
from procrastinate.exceptions import NoResult
from procrastinate.jobs import Job, Notification
from procrastinate.manager import JobManager
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from ...states.errors import StoreError
from ..errors import StorageFailed
from ..patience import FIRST_WAIT, LONGEST_WAIT, Moment, until_stored
from ..ports import JobsHealth
from .connection import WRITES, adapt, failure, hearing, is_pooled, no_connection
from .examination import skew
from .job_tables import QUEUE, JobTables

if TYPE_CHECKING:
    from ..sql.statements import Driver
    from .address import PostgresAddress
    from .database import PostgresDatabase

logger = logging.getLogger("turnwise.postgres")

T = TypeVar("T")

LookAfter = Callable[[str], Awaitable[None]]

LOOK = 1.0
"""Seconds between two looks for jobs, of which nobody may have told this worker, and for what is due."""

SKEW = 5.0
"""Seconds by which the clock of a process may be behind that of the server. One that is further behind is called for
what is due by the sweeps."""

BATCH = 500
"""How many conversations are read at once that are called for."""

STAND_BY = 0.1
"""Seconds after which a worker looks for a job that it has heard of, if it is another one's turn. That one has taken it
by then, if it can: without turns all workers would look for each job."""

PATIENCE = 10.0
"""Seconds for which an answer of the server is waited for. Another connection may be better."""

LONGEST_END = 5.0
"""Seconds for which a worker that ends tries to tell the server what it has ended."""

REST = 1.0
"""Seconds until a conversation is called for again that could not be looked after."""


_HEALTH = """
SELECT (SELECT count(*) FROM {0}.procrastinate_jobs WHERE status = 'todo'),
    (SELECT count(*) FROM {0}.procrastinate_jobs WHERE status = 'doing'),
    (SELECT count(*) FROM {0}.procrastinate_jobs AS job WHERE status = 'doing' AND NOT EXISTS (
        SELECT FROM {0}.procrastinate_workers AS worker WHERE worker.id = job.worker_id AND last_heartbeat > since)),
    (SELECT count(*) FROM {0}.procrastinate_workers WHERE last_heartbeat > since),
    (SELECT extract(epoch FROM clock_timestamp() - event.at)::float8 FROM {0}.procrastinate_jobs AS job
        JOIN {0}.procrastinate_events AS event ON event.job_id = job.id AND event.type = 'deferred'
        WHERE job.status = 'todo' ORDER BY job.priority DESC, job.id LIMIT 1)
FROM (SELECT clock_timestamp() - %s * interval '1 second' AS since) AS lease"""


class PostgresJobs:
    """Implements the port `Jobs`, and what `Calls` of a store are made with: `tables`."""

    def __init__(self, database: PostgresDatabase, tables: JobTables) -> None:
        self._database = database
        self.tables = tables

    async def call(self, conversation_id: str) -> None:
        """See `Jobs`."""
        await self._database.write(lambda driver: self.tables.call(driver, conversation_id))

    async def serve(self, look_after: LookAfter, *, slots: int, lease: float) -> None:
        """See `Jobs`. Has two connections of its own, so that its heart beats although all others are in use."""
        session = _Session(self._database.address, self.tables)
        try:
            await _Worker(session, look_after, slots, lease).run()
        finally:
            await session.end()

    async def health(self, *, lease: float) -> JobsHealth:
        """How the jobs fare. A worker whose heart has not beaten for `lease` seconds counts as dead. Raises
        `StoreError`."""
        statement = _HEALTH.format(f'"{self.tables.schema}"')

        def read(driver: Driver) -> JobsHealth:
            waiting, running, stalled, workers, longest_wait = driver.execute(statement, (lease,)).fetchone()
            return JobsHealth(waiting, running, stalled, workers, longest_wait)

        return await self._database.read(read)


# --- a worker


class _Worker:
    """Takes jobs, of at most `slots` at once, has `look_after` do them, and sees to those of workers that have died."""

    def __init__(self, session: _Session, look_after: LookAfter, slots: int, lease: float) -> None:
        self._session = session
        self._manager = JobManager(session)
        self._look_after = look_after
        self._lease = lease
        self._id = 0
        self._slots = asyncio.Semaphore(slots)
        self._in_hand: dict[int, asyncio.Task[None]] = {}
        """The jobs that run here, until the server knows that they have ended."""
        self._takes = True
        self._expected = 0
        """How many jobs may wait that this worker has heard of."""
        self._is_to_look = True
        """Whether there may be any number of jobs."""
        self._has_news = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        self._place, self._workers = 0, 1
        """Which of the workers this one is, in the order of their ids, and how many there are."""
        self._is_in_doubt = False
        """Whether there may be jobs of this worker that it knows nothing of: an answer was lost, or a commit."""
        self._connections = 0
        self._beat_at = _now()
        self._well_since: float | None = None
        self._is_skewed = False

    async def run(self) -> None:
        """Work until this is cancelled, or something fails that will not pass, which is raised. Then wait for what has
        begun."""
        heart = asyncio.ensure_future(self._live())
        acts = [
            asyncio.ensure_future(act)
            for act in (
                self._take_all(),
                self._listen(),
                self._repeat(self._expect_any, LOOK),
                self._repeat(self._rescue, self._lease / 4),
                self._repeat(self._call_for_due, LOOK),
            )
        ]
        try:
            done, _ = await asyncio.wait([heart, *acts], return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            await _until_done(asyncio.ensure_future(self._end(heart, acts)))

    async def _end(self, heart: asyncio.Task[None], acts: list[asyncio.Task[None]]) -> None:
        taking, *others = acts
        self._takes = False
        self._has_news.set()
        for each in others:
            each.cancel()
        while waits := [each for each in (taking, *self._in_hand.values()) if not each.done()]:
            await asyncio.wait(waits)
        heart.cancel()
        await asyncio.gather(taking, *others, heart, return_exceptions=True)
        with suppress(StoreError):  # while it is registered, others miss it, and find what it has left
            while (job := await self._unknown_job()) is not None:
                await self._hand_on(job)
            await self._manager.unregister_worker(self._id)

    # --- the heart

    async def _live(self) -> None:
        await self._until_stored(self._register)
        await self._repeat(self._beat, self._lease / 4)

    async def _register(self) -> None:
        self._id = await self._manager.register_worker()
        self._has_news.set()

    async def _beat(self) -> None:
        """Tell the others that this worker is alive."""
        now = _now()
        try:
            await self._manager.update_heartbeat(self._id)
            alive = await self._session.rows(_ALIVE, {"lease": self._lease})
        except StorageFailed:
            self._well_since = None
            raise
        if self._well_since is None or now.since(self._beat_at) > self._lease / 2:
            self._well_since = now.monotonic  # everybody may have stood still
        self._beat_at = now
        before = [each["id"] < self._id for each in alive]
        self._place, self._workers = sum(before), max(1, len(before))
        self._compare_clocks(now.wall, [each["now"] for each in alive])

    def _compare_clocks(self, before: float, server: list[float]) -> None:
        """Warn if what is due is performed here at the wrong moment: the clock of this process decides."""
        sentence = skew(before, server[0], time.time()) if server else None
        if sentence is not None and not self._is_skewed:
            logger.warning("%s", sentence)
        self._is_skewed = sentence is not None

    # --- taking jobs

    async def _listen(self) -> None:
        async def note(*, channel: str, notification: Notification) -> None:
            if notification["job_id"] % self._workers == self._place:
                self._expect(1)
            elif self._later is None:
                self._later = asyncio.get_running_loop().call_later(STAND_BY, self._stand_in)

        while True:
            with suppress(StorageFailed):
                await self._manager.listen_for_jobs(on_notification=note, queues=[QUEUE])
            await asyncio.sleep(LOOK)

    def _stand_in(self) -> None:
        self._later, self._is_to_look = None, True
        self._has_news.set()

    def _expect(self, jobs: int) -> None:
        self._expected += jobs
        self._has_news.set()

    async def _expect_any(self) -> None:
        self._is_to_look = True
        self._has_news.set()

    async def _take_all(self) -> None:
        wait = FIRST_WAIT
        while self._takes:
            if not self._id or not (self._expected or self._is_to_look):
                self._has_news.clear()
                await self._has_news.wait()
                continue
            try:
                await self._take()
                wait = FIRST_WAIT
            except StorageFailed:
                self._is_in_doubt = self._is_to_look = True
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)

    async def _take(self) -> None:
        """Take a job, if there is one, once there is a slot for it."""
        await self._slots.acquire()
        try:
            job = await self._fetch() if self._takes else None
        except BaseException:
            self._slots.release()
            raise
        if job is None:
            self._slots.release()
        else:
            self._begin(job)

    async def _fetch(self) -> Job | None:
        if self._connections != self._session.connections:
            self._connections, self._is_in_doubt = self._session.connections, True
        if self._is_in_doubt:
            if (job := await self._unknown_job()) is not None:
                return job
            self._is_in_doubt = False
        expected = self._expected
        try:
            job = await self._manager.fetch_job([QUEUE], self._id)
        except psycopg.errors.ForeignKeyViolation:  # given up for long, so that this worker was forgotten
            await self._register()
            return None
        except psycopg.errors.UniqueViolation:  # another worker was faster, with another job of the conversation
            return None
        if job is not None:
            self._expected = max(0, self._expected - 1)
        else:
            # What was told of meanwhile may have come too late for this look.
            self._expected -= expected
            self._is_to_look = False
        return job

    async def _unknown_job(self) -> Job | None:
        """Return a job that this worker has taken without hearing of it."""
        mine = await self._manager.list_jobs_async(queue=QUEUE, status="doing", worker_id=self._id)
        return next((job for job in mine if job.id not in self._in_hand), None)

    def _begin(self, job: Job) -> None:
        assert job.id is not None, "the job is stored"
        job_id = job.id
        self._in_hand[job_id] = task = asyncio.ensure_future(self._do(job, job_id))

        def over(done: asyncio.Task[None]) -> None:
            del self._in_hand[job_id]
            self._slots.release()
            if done.cancelled() or done.exception() is not None:
                self._is_in_doubt = self._is_to_look = True

        task.add_done_callback(over)

    async def _do(self, job: Job, job_id: int) -> None:
        conversation_id = job.lock or ""
        if not self._takes or not await self._is_looked_after(conversation_id):
            await self._until_stored(lambda: self._call(conversation_id))
        await self._until_stored(lambda: self._finish(job_id, conversation_id))

    async def _is_looked_after(self, conversation_id: str) -> bool:
        try:
            await self._look_after(conversation_id)
            return True
        except StoreError as error:
            logger.warning("The conversation %s is called for again: %s", conversation_id, error)
        except Exception:
            logger.exception("The conversation %s is called for again.", conversation_id)
        if self._takes:
            await asyncio.sleep(REST)
        return False

    # --- calling and ending

    async def _call(self, conversation_id: str) -> None:
        await self._session.rows("SELECT turnwise_call(%(id)s)", {"id": conversation_id})

    async def _finish(self, job_id: int, conversation_id: str) -> None:
        """End a job. One that somebody else has ended already is none of this worker any more."""
        with suppress(psycopg.errors.RaiseException):
            given = {"job": job_id, "id": conversation_id}
            (found,) = await self._session.rows("SELECT turnwise_end(%(job)s, %(id)s) AS is_called", given)
            if found["is_called"]:
                self._expect(1)

    async def _until_stored(self, act: Callable[[], Awaitable[None]]) -> None:
        """Act, and try again while the server takes nothing. As the worker ends, not for long: others find what it
        leaves."""
        began = time.monotonic()
        with suppress(StorageFailed):
            await until_stored(act, lambda: not self._takes and time.monotonic() - began > LONGEST_END)

    async def _repeat(self, act: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Act, again and again, sooner where the server has failed."""
        while True:
            try:
                await act()
                await asyncio.sleep(seconds)
            except StorageFailed:
                await asyncio.sleep(min(seconds, LOOK))

    # --- what other workers have left

    async def _rescue(self) -> None:
        """Call again for what dead workers have in hand, and at once for what is in the hands of one that everybody
        has forgotten."""
        may_miss = self._may_miss_others()
        for job in await self._manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=self._lease):
            if job.worker_id is None or may_miss:
                await self._hand_on(job)
                logger.warning("The conversation %s was in the hands of a worker that is dead.", job.lock)

    def _may_miss_others(self) -> bool:
        """Whether who has not been heard of is dead. After an outage of the server, or of this process, that is so of
        all, so everybody gets a lease of time before anybody is missed."""
        now = _now()
        is_well = self._well_since is not None and now.monotonic - self._well_since >= self._lease
        return is_well and now.since(self._beat_at) <= self._lease / 2  # else it is this process that stood still

    async def _hand_on(self, job: Job) -> None:
        """Call for somebody else who does the job, and then end it."""
        assert job.id is not None, "the job is stored"
        await self._call(job.lock or "")
        await self._finish(job.id, job.lock or "")

    async def _call_for_due(self) -> None:
        """Call for what has become due, and now and then for what was left over, unless another worker does."""
        found = await self._session.rows(_CLAIM, {"look": 0.9 * LOOK, "sweep": 2 * self._lease})
        for look in found:
            async for conversation_id in self._session.pages(_DUE, look):
                await self._call(conversation_id)
            if look["sweeps"]:
                async for conversation_id in self._session.pages(_LEFT_OVER, {**look, "lease": self._lease * 1e6}):
                    await self._call(conversation_id)
                await self._manager.prune_stalled_workers(10 * self._lease)


def _now() -> Moment:
    return Moment(time.monotonic(), time.time())


async def _until_done(task: asyncio.Task[None]) -> None:
    """Wait for a task, also if this is cancelled once more."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])


_ALIVE = """
SELECT id, extract(epoch FROM clock_timestamp())::float8 AS now FROM procrastinate_workers
WHERE last_heartbeat > now() - %(lease)s * interval '1 second'"""

# --- what is due, by the clock of the server

_CLAIM = """
WITH before AS (
    SELECT looked_at, swept_at, set_config('synchronous_commit', 'off', true) FROM turnwise_looks
    FOR UPDATE SKIP LOCKED
)
UPDATE turnwise_looks AS looks SET looked_at = clock_timestamp(), swept_at = CASE
    WHEN before.swept_at BETWEEN clock_timestamp() - %(sweep)s * interval '1 second' AND clock_timestamp()
    THEN before.swept_at ELSE clock_timestamp() END
FROM before
WHERE before.looked_at NOT BETWEEN clock_timestamp() - %(look)s * interval '1 second' AND clock_timestamp()
RETURNING (extract(epoch FROM before.looked_at) * 1000000)::bigint AS since,
    (extract(epoch FROM looks.looked_at) * 1000000)::bigint AS until,
    (extract(epoch FROM before.swept_at) * 1000000)::bigint AS swept,
    before.swept_at <> looks.swept_at AS sweeps"""
"""Has one worker look, and hand over to the next one up to when it has looked. Nothing is lost with it that would not
be found again, so its commit does not wait for the disk."""

_NOT_CALLED = """
NOT EXISTS (SELECT FROM procrastinate_jobs AS job WHERE job.lock = found.id AND job.status IN ('todo', 'doing'))"""

_DUE = f"""
WITH late (by) AS (VALUES (0::bigint), ({int(SKEW * 1e6)}))
SELECT DISTINCT key, id FROM (
    SELECT key, id FROM late JOIN conversations
        ON next_timer > %(since)s - late.by AND next_timer <= %(until)s - late.by
    UNION ALL SELECT key, id FROM late JOIN conversations
        ON wakes_at > %(since)s - late.by AND wakes_at <= %(until)s - late.by
    UNION ALL SELECT key, id FROM late JOIN outbox
        ON next_attempt > %(since)s - late.by AND next_attempt <= %(until)s - late.by
        JOIN conversations ON key = conversation
) AS found WHERE key > %(after)s AND {_NOT_CALLED} ORDER BY key LIMIT {BATCH}"""
"""What is due since the look before; and what was due a while before, and still is: a process whose clock is behind
that of the server has found nothing to do."""

_LEFT_OVER = f"""
SELECT DISTINCT key, id FROM (
    SELECT key, id, updated_at AS at FROM conversations WHERE waits <> 0
    UNION ALL SELECT key, id, next_timer FROM conversations WHERE next_timer <= %(until)s
    UNION ALL SELECT key, id, wakes_at FROM conversations WHERE wakes_at <= %(until)s
    UNION ALL SELECT key, id, coalesce(next_attempt, updated_at) FROM outbox JOIN conversations ON key = conversation
) AS found WHERE key > %(after)s AND %(until)s - at >= 2 * %(lease)s
    AND floor(log(2, (greatest(%(until)s - at, %(lease)s) / %(lease)s)::numeric))
        > floor(log(2, (greatest(%(swept)s - at, %(lease)s) / %(lease)s)::numeric))
    AND {_NOT_CALLED} ORDER BY key LIMIT {BATCH}"""
"""Those whose age, in leases, has reached a power of two since the sweep before."""


# --- the connections of a worker

_SETTINGS = """
SET {scope} search_path = "{jobs}", "{conversations}"; SET {scope} enable_sort = off; SET {scope} enable_seqscan = off;
SET {scope} enable_bitmapscan = off; SET {scope} enable_hashjoin = off; SET {scope} enable_mergejoin = off;
SET {scope} enable_material = off; SET {scope} max_parallel_workers_per_gather = 0; SET {scope} jit = off"""
"""The server keeps no useful statistics of a table whose rows live for moments. Left to itself it may sort all jobs
that wait in order to find the first one. The indexes have the order already. What is off counts as infinitely dear, so
the server would also translate each statement into machine code, which takes a second, where it then takes 0.2 ms."""


class _Session(BaseConnector):
    """A connection that executes one statement after the other, each in a transaction of its own, and is made anew when
    it broke. Through it procrastinate reaches the server.

    Raises `StorageFailed` where the server fails or does not answer, and `StoreError` for what will not pass. What
    violates a constraint, and what procrastinate's functions raise, is raised as it is.
    """

    def __init__(self, address: PostgresAddress, tables: JobTables) -> None:
        self._name = address.name
        self._conninfo = address.direct_conninfo
        self._tables = tables
        self._connection: psycopg.AsyncConnection[dict[str, Any]] | None = None
        self._is_pooled = False
        self._is_well = True
        self.connections = 0
        """How many connections were made so far."""
        self._turn = asyncio.Lock()

    async def rows(self, query: str, arguments: Mapping[str, Any], *, is_planned: bool = False) -> list[dict[str, Any]]:
        """Execute a statement, and return what it finds. `is_planned` has the server plan it now, for the tables as
        they are."""
        async with self._turn:
            try:
                async with asyncio.timeout(PATIENCE):
                    found = await self._execute(await self._connected(), query, arguments, is_planned)
                self._is_well = True
                return found
            except (psycopg.IntegrityError, psycopg.errors.RaiseException):
                raise
            except (psycopg.Error, OSError, StorageFailed) as error:
                await self._drop()
                failed = error if isinstance(error, StorageFailed) else failure(self._name, error)
                if self._is_well and isinstance(failed, StorageFailed):
                    logger.warning("No conversations can be taken for now: %s", failed)
                self._is_well = False
                raise failed from error
            except BaseException:
                await self._drop()
                raise

    async def pages(self, query: str, arguments: Mapping[str, Any]) -> AsyncIterator[str]:
        """Yield the ids that a statement finds, page by page."""
        after = 0
        while found := await self.rows(query, {**arguments, "after": after}, is_planned=True):
            for row in found:
                yield row["id"]
            if len(found) < BATCH:
                return
            after = found[-1]["key"]

    async def end(self) -> None:
        """Close the connection."""
        async with self._turn:
            await self._drop()

    async def _execute(
        self,
        connection: psycopg.AsyncConnection[dict[str, Any]],
        query: str,
        arguments: Mapping[str, Any],
        is_planned: bool,
    ) -> list[dict[str, Any]]:
        async with connection.transaction() if self._is_pooled else nullcontext():
            if self._is_pooled:
                await connection.execute(self._settings("LOCAL").encode())
            cursor = await connection.execute(query.encode(), arguments, prepare=False if is_planned else None)
            return await cursor.fetchall() if cursor.description else []

    async def _connected(self) -> psycopg.AsyncConnection[dict[str, Any]]:
        if self._connection is not None:
            return self._connection
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._conninfo, autocommit=True, row_factory=dict_row, prepare_threshold=2
            )
        except (psycopg.Error, OSError, UnicodeError) as error:
            raise no_connection(self._name, error) from error
        self._connection = connection
        self.connections += 1
        adapt(connection)
        self._is_pooled = await is_pooled(connection)
        if self._is_pooled:
            connection.prepare_threshold = None
            await connection.set_read_only(False)
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        else:
            await connection.execute(f"{WRITES}; {self._settings('SESSION')}".encode())
        return connection

    def _settings(self, scope: str) -> str:
        return _SETTINGS.format(scope=scope, jobs=self._tables.schema, conversations=self._tables.conversations)

    async def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    # --- for procrastinate

    async def execute_query_async(self, query: str, **arguments: Any) -> None:
        """Execute a statement."""
        await self.rows(query, arguments)

    async def execute_query_one_async(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Execute a statement, and return the first row that it finds. Raises `NoResult`."""
        found = await self.rows(query, arguments)
        if not found:
            raise NoResult
        return found[0]

    async def execute_query_all_async(self, query: str, **arguments: Any) -> list[dict[str, Any]]:
        """Execute a statement, and return what it finds."""
        return await self.rows(query, arguments)

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        """Listen, on a connection of its own, until it breaks. Behind a pooler nothing is heard."""
        try:
            async with await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
                for channel in channels:
                    await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
                with hearing(connection) as heard:
                    while True:
                        for notice in await heard.next():
                            with suppress(ValueError, KeyError, TypeError):  # anybody may notify
                                await on_notification(channel=notice.channel, payload=notice.payload)
        except (psycopg.Error, OSError) as error:
            raise failure(self._name, error) from error


if TYPE_CHECKING:
    from ..ports import Jobs

    _FILLS: type[Jobs] = PostgresJobs
