"""Many processes over PostgreSQL: what a turn costs there, how soon it begins, and how soon a dead worker is replaced.

A server is started for the while, which keeps what it promises (fsync), on the disk that holds the folder for temporary
files. The standard turn is held by one process over SQLite, by one process over PostgreSQL, and by one process that
takes requests together with 1, 2 and 4 workers. LangGraph holds the same turns over the same server with its own saver.

    python benchmarks/scale.py            all of it, some minutes
    python benchmarks/scale.py --quick    tiny sizes, to see that it works; its figures say nothing

How to read it: processor time is that of everybody who works for a turn: the process that takes the request (with the
client in it), the workers, and the server with all its processes. On a machine with few cores, more workers do not make
more turns a second where nothing waits; so the workers are also measured with a model that takes half a second and a
bound of slots, where only the slots count. Times are meant for a quiet machine. A take-over is counted from the moment
at which a worker is killed until another one asks the model of the same conversation again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import standard_turn
from figures import Figure, at_least, at_most, run
from scale_worker import WAITS, opened

from peers.environments import CACHE, LANGGRAPH_POSTGRES, NotInstalled, interpreter
from peers.rounds import BENCHMARKS, ENVIRONMENT
from peers.standard import REPLIED, SAID, SYSTEM
from turnwise import Conversation, Engine
from turnwise.persistence.opening import open_store
from turnwise.testing.postgres_server import PostgresServer

DURABLE = {"fsync": "on", "full_page_writes": "on"}
FIRST_EFFECT, CLUSTER_TURN, TAKE_OVER, AT_REST = 25.0, 15.0, 1.5, 2.0
"""The aims: milliseconds from a request to its first effect, milliseconds of processor time of a turn in the whole
cluster, leases until a take-over (p95), and percent of a core that a worker needs where nothing happens."""


@dataclass(frozen=True)
class Sizes:
    """How much of everything is done."""

    conversations: int = 40
    turns: int = 10
    warmed: tuple[int, int] = (40, 2)
    """Conversations and turns of each that come before, so that every process has loaded what it needs."""
    settling: float = 2.0
    """Seconds behind them, in which what processes load in the background is loaded."""
    workers: tuple[int, ...] = (1, 2, 4)
    slots: int = 10
    """Of each worker, where a model takes `model_seconds`."""
    model_seconds: float = 0.5
    slow_turns: int = 2
    requests: int = 100
    """One after the other, for the time to the first effect."""
    kills: int = 8
    lease: float = 2.0
    """Seconds, where workers are killed."""
    at_rest: int = 10_000
    idle_seconds: float = 30.0
    commit_seconds: float = 4.0


QUICK = Sizes(
    conversations=2,
    turns=1,
    warmed=(2, 1),
    settling=0.1,
    workers=(1,),
    slots=2,
    model_seconds=0.05,
    slow_turns=1,
    requests=2,
    kills=1,
    lease=1.0,
    at_rest=20,
    idle_seconds=1.0,
    commit_seconds=0.5,
)


@dataclass(frozen=True)
class Spent:
    """What some turns took: seconds by the clock, and seconds of processor by whoever needed them."""

    turns: int
    wall: float
    web: float
    workers: float
    server: float

    @property
    def rate(self) -> float:
        """Turns a second."""
        return self.turns / self.wall

    def each(self, seconds: float) -> float:
        """Milliseconds of a turn."""
        return 1000 * seconds / self.turns

    @property
    def cluster(self) -> float:
        """Milliseconds of processor time of a turn, of everybody."""
        return self.each(self.web + self.workers + self.server)

    def shares(self) -> str:
        """Who needed how much of it."""
        return f"{self.each(self.web):.1f} + {self.each(self.workers):.1f} + {self.each(self.server):.1f}"


class Database:
    """A new database of the server, and what is known of it from outside."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name, self.url = server, name, server.url(name)
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]

    def execute(self, statement: str) -> list[Any]:
        """Execute a statement, and return the rows that it returns."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def number(self, statement: str) -> int:
        """Return the number that the database answers with."""
        return int(self.execute(statement)[0][0])

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of the database, and how much the server has written to its log so far."""
        bytes_ = self.number("SELECT pg_database_size(current_database())")
        return bytes_, self.number("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")

    def processor(self) -> float:
        """Return the processor seconds of the server so far."""
        first = self.server.process_id
        running = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
        children = (pid for pid in running if _parent(pid) == first)
        return processor_of(first, with_ended=True) + sum(map(processor_of, children))


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:  # it has ended
        return []


def _parent(pid: int) -> int:
    return int(stat[1]) if (stat := _stat(pid)) else 0


def processor_of(pid: int, with_ended: bool = False) -> float:
    """Return the processor seconds of a process; on request with those of its children that have ended."""
    fields = _stat(pid)[11 : 15 if with_ended else 13]
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


class Workers:
    """Some workers over a database, in processes of their own, and the ledger of what they ask the model."""

    def __init__(self, url: str, ledger: Path, settings: dict[str, Any]) -> None:
        self.ledger = ledger
        self._command = [sys.executable, "scale_worker.py", url, str(ledger), json.dumps(settings)]
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, count: int) -> None:
        """Start so many more, and wait until they are ready."""
        new = [
            subprocess.Popen(self._command, cwd=BENCHMARKS, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        self.processes += new
        for one in new:
            assert one.stdout
            assert one.stdout.readline() == "ready\n", "a worker did not start"

    def processor(self) -> list[float]:
        """Return the processor seconds of each so far."""
        return [processor_of(one.pid) for one in self.processes]

    def asked(self) -> list[dict[str, Any]]:
        """Return what the model was asked so far, in the order of the moments."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return sorted(map(json.loads, lines), key=lambda line: line["at"])

    def kill(self, worker: subprocess.Popen[str]) -> float:
        """Kill one with SIGKILL, and return the moment."""
        self.processes.remove(worker)
        worker.kill()
        moment = time.time()
        _end(worker)
        return moment

    def stop(self) -> None:
        """End all of them."""
        for worker in self.processes:
            worker.send_signal(signal.SIGTERM)
        for worker in self.processes:
            _end(worker)


def _end(worker: subprocess.Popen[str]) -> None:
    worker.wait(60)
    if worker.stdout:
        worker.stdout.close()


@contextmanager
def working(database: Database, folder: Path, count: int, **settings: Any) -> Iterator[Workers]:
    """Workers over this database, ready."""
    settings = {"seconds": 0, "lease": 15, "worker_slots": 100, **settings}
    workers = Workers(database.url, folder / f"{database.name}.jsonl", settings)
    try:
        workers.start(count)
        yield workers
    finally:
        workers.stop()


@asynccontextmanager
async def asking(database: Database, folder: Path, *, worker: bool = False, **settings: Any) -> AsyncIterator[Engine]:
    """An engine in this process that takes requests, and as a `worker` performs them, too."""
    async with opened(database.url, folder / "web.jsonl", worker=worker, seconds=0, **settings) as engine:
        yield engine


async def talk(engine: Engine, count: int, turns: int) -> None:
    """Hold so many turns in so many new conversations at once."""

    async def one() -> None:
        conversation = await engine.create(system=SYSTEM)
        for _ in range(turns):
            assert (await conversation.send(SAID)).reply == REPLIED

    await asyncio.gather(*(one() for _ in range(count)))


async def spent(
    engine: Engine, sizes: Sizes, database: Database | None = None, workers: Workers | None = None
) -> Spent:
    """Hold the turns of all conversations, and return what they took."""

    def now() -> tuple[float, float, float, float]:
        busy = sum(workers.processor()) if workers else 0.0
        return time.perf_counter(), time.process_time(), busy, database.processor() if database else 0.0

    await talk(engine, *sizes.warmed)
    await asyncio.sleep(sizes.settling)
    before = now()
    await talk(engine, sizes.conversations, sizes.turns)
    return Spent(
        sizes.conversations * sizes.turns, *(after - earlier for earlier, after in zip(before, now(), strict=True))
    )


# --- what is measured


async def one_process(server: PostgresServer, folder: Path, sizes: Sizes) -> list[Figure]:
    """One process over a file, and one over the server."""
    async with standard_turn.opened(standard_turn.fresh(folder), standard_turn.Model()) as engine:
        file = await spent(engine, sizes)
    database = Database(server, "one_process")
    async with asking(database, folder, worker=True) as engine:
        over = await spent(engine, sizes, database)
    return [
        Figure("one process over SQLite, turns/s", f"{file.rate:.0f}", name="scale-sqlite-rate", number=file.rate),
        Figure("   processor time a turn", f"{file.cluster:.1f} ms", name="scale-sqlite", number=file.cluster),
        Figure("one process over PostgreSQL, turns/s", f"{over.rate:.0f}", name="scale-one-rate", number=over.rate),
        Figure(
            "   processor time a turn, process + server",
            f"{over.cluster:.1f} ms ({over.each(over.web):.1f} + {over.each(over.server):.1f})",
            name="scale-one",
            number=over.cluster,
        ),
    ]


async def clusters(server: PostgresServer, folder: Path, sizes: Sizes) -> list[Figure]:
    """One process that takes requests, and more and more workers."""
    figures = []
    for count in sizes.workers:
        database = Database(server, f"cluster_{count}")
        with working(database, folder, count) as workers:
            async with asking(database, folder) as engine:
                bytes_, log = database.sizes()
                took = await spent(engine, sizes, database, workers)
                sizes_after = database.sizes()
        turns = took.turns + sizes.warmed[0] * sizes.warmed[1]
        title = f"{count} worker{'s' * (count > 1)}"
        named = {"name": f"scale-cluster-{count}", "number": took.cluster}
        value = f"{took.cluster:.1f} ms ({took.shares()})"
        figures.append(Figure(f"{title}, turns/s", f"{took.rate:.0f}", name=f"scale-rate-{count}", number=took.rate))
        what = "   processor time a turn, web + workers + server"
        aim = f"at most {CLUSTER_TURN:g} ms"
        figures.append(Figure(what, value, aim, took.cluster <= CLUSTER_TURN, **named))
        if count == sizes.workers[-1]:
            stored, written = (sizes_after[0] - bytes_) / turns, (sizes_after[1] - log) / turns
            what = "   bytes a turn, in the database and in the server's log"
            figures.append(Figure(what, f"{stored:,.0f} and {written:,.0f}", name="scale-bytes", number=stored))
    return figures


async def slots(server: PostgresServer, folder: Path, sizes: Sizes) -> list[Figure]:
    """Workers that are bounded by their slots, because the model takes its time."""
    rates = []
    for count in sizes.workers:
        database = Database(server, f"slots_{count}")
        settings = {"seconds": sizes.model_seconds, "worker_slots": sizes.slots}
        with working(database, folder, count, **settings):
            async with asking(database, folder) as engine:
                conversations = 2 * sizes.slots * count
                began = time.perf_counter()
                await talk(engine, conversations, sizes.slow_turns)
                rates.append(conversations * sizes.slow_turns / (time.perf_counter() - began))
    by_count = ", ".join(f"{count}: {rate:.1f}" for count, rate in zip(sizes.workers, rates, strict=True))
    times, most = rates[-1] / rates[0], sizes.workers[-1]
    return [
        Figure(f"bound by {sizes.slots} slots, turns/s by workers", by_count, name="scale-slots", number=rates[-1]),
        at_least(f"   {most} workers beside one", times, 0.8 * most, "times", name="scale-slots-ratio"),
    ]


async def first_effects(server: PostgresServer, folder: Path, sizes: Sizes) -> list[Figure]:
    """Requests one after the other, while nothing else happens: until a worker asks the model."""
    database = Database(server, "first_effects")
    with working(database, folder, 2) as workers:
        async with asking(database, folder) as engine:
            conversations = [await engine.create(system=SYSTEM) for _ in range(4)]
            for conversation in conversations:
                await conversation.send(SAID)
            sent, took = [], []
            for number in range(sizes.requests):
                await asyncio.sleep(0.05)
                sent.append(time.time())
                await conversations[number % len(conversations)].send(SAID)
                took.append(1000 * (time.time() - sent[-1]))
        asked = [line["at"] for line in workers.asked() if line["role"] == "user"]
    first = [1000 * (next(each for each in asked if each >= moment) - moment) for moment in sent]
    return [
        at_most(
            "from a request to its first effect, p50",
            median(first),
            FIRST_EFFECT,
            "ms",
            f" (p95 {at(first, 0.95):.1f})",
            name="scale-first-effect",
        ),
        Figure("   to the end of the turn, p50", f"{median(took):.1f} ms", name="scale-turn-time", number=median(took)),
    ]


async def take_overs(server: PostgresServer, folder: Path, sizes: Sizes) -> list[Figure]:
    """Workers that are killed while their models answer: until others ask the same again."""
    database = Database(server, "take_overs")
    longest, leases = 1.5 * sizes.lease, []
    settings = {"lease": sizes.lease, "seconds": longest}
    with working(database, folder, 2, **settings) as workers:
        async with asking(database, folder, lease=sizes.lease) as engine:
            for number in range(sizes.kills):
                conversations = [await engine.create() for _ in range(8)]
                turns = [asyncio.ensure_future(say(one, f"{WAITS} {number}")) for one in conversations]
                leases += [seconds / sizes.lease for seconds in await killed(workers, len(turns), number)]
                workers.start(1)
                await asyncio.gather(*turns)
    return [
        at_most(
            f"a dead worker's turns go on elsewhere, p95 of {len(leases)}",
            at(leases, 0.95),
            TAKE_OVER,
            "leases",
            f" (p50 {median(leases):.2f}, longest {max(leases):.2f})",
            name="scale-take-over",
        )
    ]


async def say(conversation: Conversation, text: str) -> None:
    """Have a turn in which the model takes its time."""
    text = f"{text} in {conversation.id}"
    assert (await conversation.send(text)).reply == text


async def killed(workers: Workers, count: int, number: int) -> list[float]:
    """Kill a worker once so many turns are under way, and return the seconds until each that it performed goes on."""

    def asked() -> list[dict[str, Any]]:
        return [line for line in workers.asked() if line["text"].startswith(f"{WAITS} {number} ")]

    while len({line["text"] for line in asked()}) < count:
        await asyncio.sleep(0.01)
    victim = max(workers.processes, key=lambda one: sum(line["process"] == one.pid for line in asked()))
    lost = {line["text"] for line in asked() if line["process"] == victim.pid}
    moment = workers.kill(victim)
    while True:
        again = {line["text"]: line["at"] - moment for line in asked() if line["process"] != victim.pid}
        if lost <= set(again):
            return [again[text] for text in lost]
        await asyncio.sleep(0.01)


async def at_rest(server: PostgresServer, folder: Path, sizes: Sizes) -> list[Figure]:
    """Very many conversations that have had a turn, and nothing to do."""
    database = Database(server, "at_rest")
    async with asking(database, folder, worker=True) as engine:
        conversation = await engine.create(system=SYSTEM)
        await conversation.send(SAID)
        template = conversation.id
    store = await open_store(database.url)
    record = await store.read_record(template)
    for start in range(0, sizes.at_rest, 500):
        numbers = range(start, min(start + 500, sizes.at_rest))
        await store.write_records([record._replace(id=f"resting-{number}") for number in numbers])
    await store.close()
    with working(database, folder, 2) as workers:
        await asyncio.sleep(2)
        before, server_before = workers.processor(), database.processor()
        await asyncio.sleep(sizes.idle_seconds)
        shares = [100 * (b - a) / sizes.idle_seconds for a, b in zip(before, workers.processor(), strict=True)]
        server_share = 100 * (database.processor() - server_before) / sizes.idle_seconds
        jobs = database.number("SELECT count(*) FROM turnwise_jobs.procrastinate_jobs")
    title = f"{sizes.at_rest:,} conversations at rest"
    share = f"{server_share:.2f} %"
    return [
        at_most(f"{title}, jobs", jobs, 0, "", name="scale-rest-jobs"),
        at_most("   a worker, percent of a core", max(shares), AT_REST, "%", name="scale-rest-worker"),
        Figure("   the server, percent of a core", share, name="scale-rest-server", number=server_share),
    ]


def notify(server: PostgresServer, folder: Path, sizes: Sizes) -> list[Figure]:
    """What the server commits for 24 connections at once, with a NOTIFY in each transaction and without."""
    database = Database(server, "notify")
    database.execute("CREATE TABLE steps (id bigserial PRIMARY KEY, payload text)")
    insert = "INSERT INTO steps (payload) VALUES (repeat('x', 600));"
    scripts = {"without": insert, "with": f"BEGIN;\n{insert}\nSELECT pg_notify('turnwise', 'a step');\nCOMMIT;"}
    program = server.installation.folder / "pgbench"
    if not program.exists():
        return []
    rates = {}
    for name, script in scripts.items():
        file = folder / f"{name}.sql"
        file.write_text(script)
        command = [program, "-n", "-c", "24", "-j", "2", "-T", str(max(1, round(sizes.commit_seconds))), "-f", file]
        said = subprocess.run([*command, database.url], check=True, capture_output=True, text=True).stdout
        rates[name] = next(float(line.split()[2]) for line in said.splitlines() if line.startswith("tps"))
    value = f"{rates['without']:,.0f} and {rates['with']:,.0f}"
    what = "commits/s of 24 connections, without and with NOTIFY in each"
    return [Figure(what, value, name="scale-notify", number=rates["with"] / rates["without"])]


def langgraph(server: PostgresServer, sizes: Sizes, cache: Path = CACHE) -> list[Figure]:
    """LangGraph with its saver over the same server: the same turns, in one process."""
    try:
        python = interpreter(LANGGRAPH_POSTGRES, cache)
    except NotInstalled as reason:
        return [Figure("LangGraph over PostgreSQL", f"not measured: {reason}", name="scale-langgraph")]
    database = Database(server, "langgraph")
    given = json.dumps({"conversations": sizes.conversations, "turns": sizes.turns})
    command = [str(python), "-m", "peers.langgraph_postgres", database.url, given]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=BENCHMARKS, env=ENVIRONMENT, **pipes) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        busy, (bytes_, log) = database.processor(), database.sizes()
        said = json.loads(process.communicate("go\n")[0].splitlines()[-1])
    turns = sizes.conversations * sizes.turns
    took = Spent(turns, said["wall"], said["processor"], 0.0, database.processor() - busy)
    stored, written = ((after - before) / turns for before, after in zip((bytes_, log), database.sizes(), strict=True))
    shares = f"{took.each(took.web):.1f} + {took.each(took.server):.1f}"
    name = f"LangGraph {said['versions']['langgraph']} over PostgreSQL, one process"
    return [
        Figure(f"{name}, turns/s", f"{took.rate:.0f}", name="scale-langgraph-rate", number=took.rate),
        Figure(
            "   processor time a turn, process + server",
            f"{took.cluster:.1f} ms ({shares})",
            name="scale-langgraph",
            number=took.cluster,
        ),
        Figure(
            "   bytes a turn, in the database and in the server's log",
            f"{stored:,.0f} and {written:,.0f}",
            name="scale-langgraph-bytes",
            number=stored,
        ),
    ]


def at(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


PARTS = (one_process, clusters, slots, first_effects, take_overs, at_rest)


def measure(sizes: Sizes, folder: Path) -> Iterator[Figure]:
    """Every figure."""
    with PostgresServer.start(settings=DURABLE) as server:
        version = ".".join(map(str, server.installation.version))
        yield Figure("the server", f"PostgreSQL {version}", name="scale-server")
        for part in PARTS:
            yield from asyncio.run(part(server, folder, sizes))
        yield from notify(server, folder, sizes)
        yield from langgraph(server, sizes)


if __name__ == "__main__":
    run(measure, Sizes(), QUICK, __doc__)
