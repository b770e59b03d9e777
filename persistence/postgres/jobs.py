"""Jobs of procrastinate: each of them says that somebody has to look after one conversation.

    a step begins work   -> a job waits, from the commit of the step on, and the workers are told
    a worker takes it    -> the job runs: its lock, the id of the conversation, keeps others from running another one
    the conversation rests -> the worker ends the job, which is deleted
    the worker dies      -> its heart stops; after a lease another worker calls again, and ends the old job

procrastinate keeps the jobs, the locks and the heartbeats, and its `JobManager` is used for what is rare. Its `Worker`
is not: it stops when its heart misses a beat, and then ends what runs, but a server that was restarted is no reason to
drop a conversation; it misses a job that is inserted while it looks for one; and it takes twice the processor time.

Each conversation belongs to one of the workers that are alive, which takes its jobs as soon as it hears of them: it has
the conversation in memory then, from the turns before. Only what that one does not take is taken by another. What a
worker ends and what it takes next is one statement, so a job costs one way to the server.

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
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import psycopg
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

from ...states.errors import StoreError
from ..errors import StorageFailed
from ..patience import FIRST_WAIT, LONGEST_WAIT, Moment, until_stored
from ..ports import JobsHealth
from .examination import skew
from .job_session import JobSession
from .job_tables import QUEUE, JobTables
from .notices import JobWaits, Notices

if TYPE_CHECKING:
    from ..sql.statements import Driver
    from .database import PostgresDatabase

logger: logging.Logger = logging.getLogger("turnwise.postgres")

LookAfter = Callable[[str], Awaitable[None]]

LOOK = 1.0
"""Seconds between two looks for jobs, of which nobody may have told this worker, and for what is due."""

SKEW = 5.0
"""Seconds by which the clock of a process may be behind that of the server. One that is further behind is called for
what is due by the sweeps."""

BATCH = 500
"""How many conversations are read at once that are called for, and how many jobs are looked for."""

STAND_BY = 0.1
"""Seconds after which a worker sees to a job that it has heard of, if the conversation belongs to another one. That one
has taken it by then, if it can: else all workers would look for each job."""

END_DELAY = 0.05
"""Seconds for which a job that has ended waits for the next one to be taken. Until then its conversation is looked
after by nobody else, but whoever calls for it is heard by this worker, and this one ends it then."""

MOST_HEARD = 10_000
"""How many conversations are remembered that were called for. If there are more, any job is looked for."""

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
    """Implements the port `Jobs`, and what `Calls` of a store are made with: `tables`.

    Workers hear of calls by the `notices` of the store, while somebody listens to these. A call of which nothing is
    heard waits until a worker looks.
    """

    def __init__(self, database: PostgresDatabase, tables: JobTables, notices: Notices) -> None:
        self._database = database
        self.tables = tables
        self._notices = notices
        self._workers: list[_Worker] = []
        notices.note_job = self._hear

    async def call(self, conversation_id: str) -> None:
        """See `Jobs`."""
        await self._database.write(lambda driver: self.tables.call(driver, conversation_id))
        self.tell(conversation_id)

    def tell(self, conversation_id: str) -> None:
        """Tell the workers, here and in other processes, that a process was called for. The call must be committed."""
        self._notices.tell(JobWaits(conversation_id))
        self._hear(conversation_id)

    def _hear(self, conversation_id: str) -> None:
        for worker in self._workers:
            worker.hear(conversation_id)

    async def serve(self, look_after: LookAfter, *, slots: int, lease: float) -> None:
        """See `Jobs`. Has a connection of its own, so that its heart beats although all others are in use."""
        session = JobSession(self._database.address, self.tables)
        worker = _Worker(session, look_after, self.tell, slots, lease)
        self._workers.append(worker)
        try:
            await worker.run()
        finally:
            self._workers.remove(worker)
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
    """Takes jobs, of at most `slots` at once, has `look_after` do them, and sees to those of workers that have died.
    `tell` tells all workers that a process was called for."""

    def __init__(
        self, session: JobSession, look_after: LookAfter, tell: Callable[[str], None], slots: int, lease: float
    ) -> None:
        self._session = session
        self._manager = JobManager(session)
        self._look_after = look_after
        self._tell = tell
        self._slots = slots
        self._lease = lease
        self._heart = _Heart(session, self._manager, lease)
        self._in_hand: dict[int, asyncio.Task[None]] = {}
        """The jobs that run here, until the server knows that they have ended."""
        self._running: dict[str, int] = {}
        """The same jobs, by conversation."""
        self._called_again = set[int]()
        """Those of them whose conversation was called for meanwhile."""
        self._ended: dict[int, asyncio.Event] = {}
        """Those of them of which the server does not know yet that they have ended, and what is set when it does."""
        self._is_to_end = False
        """Whether the server is to be told of these now."""
        self._takes = self._exchanges = True
        """Whether it takes jobs, which it does until it ends; and whether it tells the server of those that have ended,
        which it does until that has failed for good, or for long while the worker ends."""
        self._heard: dict[str, None] = {}
        """The conversations of which a job may wait for this worker, in order."""
        self._left_to_others: dict[str, float] = {}
        """Those that belong to other workers, in order, and when they were called for."""
        self._stands_by: asyncio.TimerHandle | None = None
        self._is_to_look = True
        """Whether there may be any number of jobs."""
        self._has_news = asyncio.Event()
        self._is_in_doubt, self._connections = False, 0
        """Whether there may be jobs of this worker that it knows nothing of: an answer was lost or late, or a commit;
        and how many connections of the session it knows of, for with each new one there may be."""

    async def run(self) -> None:
        """Work until this is cancelled, or something fails that will not pass, which is raised. Then wait for what has
        begun."""
        heart = asyncio.ensure_future(self._live())
        acts = [
            asyncio.ensure_future(act)
            for act in (
                self._exchange_all(),
                self._repeat(self._look, LOOK),
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
        exchanging, *others = acts
        self._takes = False
        self._has_news.set()
        for each in others:
            each.cancel()
        while waits := [each for each in (exchanging, *self._in_hand.values()) if not each.done()]:
            await asyncio.wait(waits)
        heart.cancel()
        await asyncio.gather(exchanging, *others, heart, return_exceptions=True)
        with suppress(StoreError):  # while it is registered, others miss it, and find what it has left
            while (job := await self._unknown_job()) is not None:
                await self._hand_on(job)
            await self._manager.unregister_worker(self._heart.worker_id)

    async def _live(self) -> None:
        await self._until_stored(self._heart.register)
        self._has_news.set()
        await self._repeat(self._heart.beat, self._lease / 4)

    # --- taking and ending jobs

    def hear(self, conversation_id: str) -> None:
        """Somebody has called for a process that looks after this conversation."""
        job_id = self._running.get(conversation_id)
        if job_id is not None and job_id not in self._ended:
            self._called_again.add(job_id)
        elif job_id is not None or self._heart.is_mine(conversation_id):
            self._expect(conversation_id)
        elif len(self._left_to_others) < MOST_HEARD:
            self._left_to_others.setdefault(conversation_id, time.monotonic())
            if self._stands_by is None:
                self._stands_by = asyncio.get_running_loop().call_later(STAND_BY, self._stand_in)

    def _stand_in(self) -> None:
        """See to the jobs that were left to other workers for long, if there is a slot."""
        now, self._stands_by = time.monotonic(), None
        while self._left_to_others:
            conversation_id, heard_at = next(iter(self._left_to_others.items()))
            if (rest := heard_at + STAND_BY - now) > 0:
                self._stands_by = asyncio.get_running_loop().call_later(rest, self._stand_in)
                break
            del self._left_to_others[conversation_id]
            if self._free:
                self._expect(conversation_id)
            else:
                self._is_to_look = True

    def _expect(self, conversation_id: str) -> None:
        """Expect that a job of this conversation waits."""
        if len(self._heard) < MOST_HEARD:
            self._heard[conversation_id] = None
        else:
            self._is_to_look = True
        self._has_news.set()

    async def _look(self) -> None:
        self._is_to_look = True
        self._has_news.set()

    async def _exchange_all(self) -> None:
        """Take jobs, and end those that were done, until nothing more is taken and all have ended."""
        wait, well_at = FIRST_WAIT, time.monotonic()
        try:
            while self._takes or self._in_hand:
                if not self._has_to_exchange():
                    self._has_news.clear()
                    await self._has_news.wait()
                    well_at = time.monotonic()
                    continue
                try:
                    await self._exchange()
                    wait, well_at = FIRST_WAIT, time.monotonic()
                except StorageFailed:
                    self._is_in_doubt = self._is_to_look = True
                    if not self._takes and time.monotonic() - well_at > LONGEST_END:
                        self._note_ended(tuple(self._ended))  # others find what this one leaves
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LONGEST_WAIT)
        finally:
            self._exchanges = False
            self._note_ended(tuple(self._ended))

    def _has_to_exchange(self) -> bool:
        if not self._heart.worker_id:
            return False
        if self._ended and (self._is_to_end or not self._takes):
            return True
        return self._takes and bool(self._free) and (bool(self._heard) or self._is_to_look)

    @property
    def _free(self) -> int:
        """How many more conversations may be looked after, once the server knows which jobs have ended."""
        return max(0, self._slots - len(self._in_hand) + len(self._ended))

    async def _exchange(self) -> None:
        """End the jobs that were done, and take others."""
        if self._connections != self._session.connections:
            self._connections, self._is_in_doubt = self._session.connections, True
        if not self._is_in_doubt or not self._takes or not self._free:
            await self._end_and_take()
        elif (job := await self._unknown_job()) is not None:
            assert job.id is not None, "the job is stored"
            self._begin(job.id, job.lock or "")
        else:
            self._is_in_doubt = False

    async def _end_and_take(self) -> None:
        most = self._free if self._takes else 0
        ended, heard, looks = list(self._ended), list(islice(self._heard, BATCH)), self._is_to_look and most > 0
        for each in heard:  # before the statement: whoever calls meanwhile is to be heard once more
            del self._heard[each]
        self._is_to_look = self._is_to_look and not looks
        self._is_to_end = False
        given = {"worker": self._heart.worker_id, "ended": ended, "called": heard, "looks": looks, "most": most}
        try:
            taken = await self._session.rows(_EXCHANGE, given)
        except psycopg.errors.ForeignKeyViolation:  # given up for long, so that this worker was forgotten
            self._is_to_look = self._is_to_end = True
            await self._heart.register()
            return
        except psycopg.errors.UniqueViolation:  # another worker was faster, with another job of the conversation
            self._is_to_look = self._is_to_end = True
            return
        self._note_ended(ended)
        if self._ended:  # meanwhile
            self._end_soon()
        for row in taken:
            self._begin(row["job"], row["conversation"])
        if taken and (looks or len(taken) == most):
            self._is_to_look = True  # more of them may wait

    def _note_ended(self, jobs: Iterable[int]) -> None:
        """Nobody need be told any more that these jobs have ended."""
        for job_id in jobs:
            self._ended.pop(job_id).set()

    async def _unknown_job(self) -> Job | None:
        """Return a job that this worker has taken without hearing of it."""
        mine = await self._manager.list_jobs_async(queue=QUEUE, status="doing", worker_id=self._heart.worker_id)
        return next((job for job in mine if job.id not in self._in_hand), None)

    def _begin(self, job_id: int, conversation_id: str) -> None:
        self._in_hand[job_id] = task = asyncio.ensure_future(self._do(job_id, conversation_id))
        self._running[conversation_id] = job_id

        def over(done: asyncio.Task[None]) -> None:
            del self._in_hand[job_id]
            self._called_again.discard(job_id)
            if self._running.get(conversation_id) == job_id:  # else others have missed this worker, and handed it on
                del self._running[conversation_id]
            if done.cancelled() or done.exception() is not None:
                self._is_in_doubt = self._is_to_look = True
            self._has_news.set()

        task.add_done_callback(over)

    async def _do(self, job_id: int, conversation_id: str) -> None:
        if not self._takes or not await self._is_looked_after(conversation_id):
            await self._until_stored(lambda: self._call(conversation_id))
        if job_id in self._called_again:
            self._expect(conversation_id)
        await self._until_ended(job_id)

    async def _until_ended(self, job_id: int) -> None:
        """Return when the server knows that this job has ended, or nobody tells it any more."""
        if not self._exchanges:
            return
        if not self._ended:
            self._end_soon()
        ended = self._ended[job_id] = asyncio.Event()
        self._has_news.set()
        await ended.wait()

    def _end_soon(self) -> None:
        asyncio.get_running_loop().call_later(END_DELAY, self._end_now)

    def _end_now(self) -> None:
        self._is_to_end = True
        self._has_news.set()

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

    # --- calling

    async def _call(self, conversation_id: str) -> None:
        await self._session.rows("SELECT turnwise_call(%(id)s)", {"id": conversation_id})
        self._tell(conversation_id)

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
        has forgotten. What this one has without knowing, it finds when it takes jobs again: the server may have
        committed that after it was asked."""
        self._is_in_doubt = True
        may_miss = self._heart.may_miss_others
        for job in await self._manager.get_stalled_jobs(queue=QUEUE, seconds_since_heartbeat=self._lease):
            if job.worker_id is None or may_miss:
                await self._hand_on(job)
                logger.warning("The conversation %s was in the hands of a worker that is dead.", job.lock)

    async def _hand_on(self, job: Job) -> None:
        """Call for somebody else who does the job, and then end it."""
        await self._call(job.lock or "")
        with suppress(psycopg.errors.RaiseException):  # somebody else has ended it
            await self._manager.finish_job(job, Status.SUCCEEDED, delete_job=True)

    async def _call_for_due(self) -> None:
        """Call for what has become due, and now and then for what was left over, unless another worker does."""
        found = await self._session.rows(_CLAIM, {"look": 0.9 * LOOK, "sweep": 2 * self._lease})
        for look in found:
            async for conversation_id in self._session.pages(_DUE, look, BATCH):
                await self._call(conversation_id)
            if look["sweeps"]:
                async for conversation_id in self._session.pages(
                    _LEFT_OVER, {**look, "lease": self._lease * 1e6}, BATCH
                ):
                    await self._call(conversation_id)
                await self._manager.prune_stalled_workers(10 * self._lease)


class _Heart:
    """Tells the other workers that one is alive, and knows which of them are."""

    def __init__(self, session: JobSession, manager: JobManager, lease: float) -> None:
        self._session = session
        self._manager = manager
        self._lease = lease
        self.worker_id = 0
        """By which the worker is registered; 0 before it is."""
        self._place, self._workers = 0, 1
        """Which of the workers this one is, in the order of their ids, and how many there are."""
        self._beat_at = _now()
        self._well_since: float | None = None
        self._is_skewed = False

    async def register(self) -> None:
        """Have the others know of this worker. Raises `StorageFailed`, as `beat` does."""
        self.worker_id = await self._manager.register_worker()

    async def beat(self) -> None:
        """Tell the others that this worker is alive."""
        now = _now()
        try:
            await self._manager.update_heartbeat(self.worker_id)
            alive = await self._session.rows(_ALIVE, {"lease": self._lease})
        except StorageFailed:
            self._well_since = None
            raise
        if self._well_since is None or now.since(self._beat_at) > self._lease / 2:
            self._well_since = now.monotonic  # everybody may have stood still
        self._beat_at = now
        before = [each["id"] < self.worker_id for each in alive]
        self._place, self._workers = sum(before), max(1, len(before))
        self._compare_clocks(now.wall, [each["now"] for each in alive])

    def is_mine(self, conversation_id: str) -> bool:
        """Whether a conversation belongs to this worker: each belongs to one of those that are alive."""
        return crc32(conversation_id.encode()) % self._workers == self._place

    @property
    def may_miss_others(self) -> bool:
        """Whether who has not been heard of is dead. After an outage of the server, or of this process, that is so of
        all, so everybody gets a lease of time before anybody is missed."""
        now = _now()
        is_well = self._well_since is not None and now.monotonic - self._well_since >= self._lease
        return is_well and now.since(self._beat_at) <= self._lease / 2  # else it is this process that stood still

    def _compare_clocks(self, before: float, server: list[float]) -> None:
        """Warn if what is due is performed here at the wrong moment: the clock of this process decides."""
        sentence = skew(before, server[0], time.time()) if server else None
        if sentence is not None and not self._is_skewed:
            logger.warning("%s", sentence)
        self._is_skewed = sentence is not None


def _now() -> Moment:
    return Moment(time.monotonic(), time.time())


async def _until_done(task: asyncio.Task[None]) -> None:
    """Wait for a task, also if this is cancelled once more."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task])


_EXCHANGE = """
SELECT job, conversation
FROM turnwise_exchange(%(worker)s, %(ended)s::bigint[], %(called)s::text[], %(looks)s, %(most)s::integer)"""

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


if TYPE_CHECKING:
    from ..ports import Jobs

    _FILLS: type[Jobs] = PostgresJobs
