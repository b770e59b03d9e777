"""Web processes and workers over one PostgreSQL server, for tests that kill and stop them, and take the server away."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal

import psycopg

from turnwise.testing.postgres_server import PostgresServer, ShutdownMode

from ..pages import ROOT

Role = Literal["web", "worker", "both"]

PATIENCE = 120.0
"""Seconds to wait for what certainly happens: the machine may be busy."""


class Member:
    """A process of the cluster. `address` is where a web process serves, "" for a worker."""

    def __init__(self, role: Role, url: str, folder: Path, number: int, options: Sequence[str]) -> None:
        self.role = role
        self.name = f"{role}-{number}"
        self.errors = folder / f"{self.name}.log"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.cluster.member", role, url, str(folder), *options],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.address = ""
        self.is_stopped = False

    def until_ready(self) -> None:
        """Return once it takes requests, or performs. Raises AssertionError if it ends before."""
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        assert line, f"{self.name} ended: {self.errors.read_text(encoding='utf-8')}"
        self.address = "" if self.role == "worker" else line

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, which a process that has ended does not get."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        code = self.process.wait(PATIENCE)
        if self.process.stdout:
            self.process.stdout.close()
        return code


class Cluster:
    """Some web processes and workers over one database of this server."""

    def __init__(self, server: PostgresServer, url: str, folder: Path, seed: int, options: Sequence[str] = ()) -> None:
        self.server, self.url, self.folder = server, url, folder
        self.members: list[Member] = []
        self.kills: list[float] = []
        """When processes were killed, in seconds since 1970."""
        self._chance = Random(seed)
        self._started = 0
        self._options = options

    def start(self, role: Role) -> Member:
        """Start one more process, and return at once."""
        self._started += 1
        member = Member(role, self.url, self.folder, self._started, self._options)
        self.members.append(member)
        return member

    @property
    def alive(self) -> list[Member]:
        """The members that run and do not stand still."""
        return [one for one in self.members if not one.is_stopped and one.process.poll() is None]

    def webs(self) -> list[str]:
        """The addresses at which requests are taken."""
        return [one.address for one in self.alive if one.address]

    def workers(self) -> list[Member]:
        """The members that perform and nothing else."""
        return [one for one in self.alive if one.role == "worker"]

    def pick(self) -> Member:
        """Any member."""
        return self._chance.choice(self.alive)

    def pick_worker(self) -> Member:
        """Any worker."""
        return self._chance.choice(self.workers())

    def moment(self, longest: float) -> float:
        """Some seconds, at most so many."""
        return self._chance.uniform(0, longest)

    # --- what befalls it

    async def kill(self, member: Member | None = None) -> None:
        """Kill a member with SIGKILL, and start another one in its place, as a supervisor does."""
        victim = self.pick() if member is None else member
        victim.kill()
        self.kills.append(time.time())
        self.members.remove(victim)
        await asyncio.to_thread(self.start(victim.role).until_ready)

    async def freeze(self, member: Member, seconds: float) -> None:
        """Stop a member for so many seconds (SIGSTOP), and let it go on (SIGCONT)."""
        member.is_stopped = True
        member.send(signal.SIGSTOP)
        self.kills.append(time.time())
        await asyncio.sleep(seconds)
        member.send(signal.SIGCONT)
        member.is_stopped = False

    async def restart_server(self, mode: ShutdownMode) -> None:
        """Restart the server, whoever is connected."""
        await asyncio.to_thread(self.server.restart, mode)

    def break_connections(self, count: int) -> int:
        """Break off connections of members, those first that are in the middle of a transaction. Returns how many."""
        broken = self.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend' "
            "ORDER BY state = 'idle', random() LIMIT %s",
            count,
        )
        return len(broken)

    @contextmanager
    def full_server(self) -> Iterator[int]:
        """Take all connections that the server has left, so that nobody gets another one; yield how many that were."""
        taken: list[psycopg.Connection[Any]] = []
        try:
            while True:
                try:
                    taken.append(psycopg.connect(self.server.url("postgres"), connect_timeout=5))
                except psycopg.OperationalError:
                    break
            yield len(taken)
        finally:
            for connection in taken:
                connection.close()

    # --- what it holds

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Ask the database, over a connection of its own."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]

    def left_to_do(self) -> dict[str, int]:
        """How many conversations wait for work or are held, and how many deliveries and jobs there are."""
        ((waiting, held, deliveries, jobs),) = self.rows(
            "SELECT (SELECT count(*) FROM conversations WHERE waits <> 0), "
            "(SELECT count(*) FROM conversations WHERE holder IS NOT NULL), (SELECT count(*) FROM outbox), "
            "(SELECT count(*) FROM turnwise_jobs.procrastinate_jobs)"
        )
        return {"waiting": waiting, "held": held, "deliveries": deliveries, "jobs": jobs}

    async def until_quiet(self) -> None:
        """Return when nothing is left to do. Raises AssertionError that says what is left."""
        for _ in range(int(PATIENCE / 0.5)):
            left = await asyncio.to_thread(self.left_to_do)
            if not any(left.values()):
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"It does not come to rest: {left}.\n{self.reported()}")

    def found(self) -> str:
        """Where each conversation stands that is not at rest, and the jobs and workers."""
        statements = (
            "SELECT id, seq, state_type, waits, fence, holder, was_left, now() - to_timestamp(updated_at / 1e6) "
            "FROM conversations WHERE waits <> 0 OR holder IS NOT NULL",
            "SELECT job.id, status, lock, worker_id, (SELECT max(at) FROM turnwise_jobs.procrastinate_events "
            "WHERE job_id = job.id) AS at FROM turnwise_jobs.procrastinate_jobs AS job",
            "SELECT id, now() - last_heartbeat FROM turnwise_jobs.procrastinate_workers",
            "SELECT now()",
        )
        try:
            return "\n".join(str(row) for statement in statements for row in self.rows(statement))
        except psycopg.Error as error:
            return str(error)

    def reported(self) -> str:
        """Where it stands, and the end of what each member has reported."""
        texts = {one.name: one.errors.read_text(encoding="utf-8", errors="replace") for one in self.members}
        return "\n".join([self.found(), *(f"--- {name}\n{text[-2000:]}" for name, text in texts.items() if text)])

    def stop(self) -> list[int]:
        """Ask all members to stop (SIGTERM), and return their exit codes."""
        for member in self.members:
            member.send(signal.SIGTERM)
        return [member.wait() for member in self.members]

    def end(self) -> None:
        """Kill whatever still runs."""
        for member in self.members:
            if member.process.poll() is None:
                member.kill()


@contextmanager
def running(
    server: PostgresServer, folder: Path, *, webs: int = 2, workers: int = 2, seed: int = 0, **options: float
) -> Iterator[Cluster]:
    """A cluster over a new database of this server, ready. `options` are those of a member, such as `lease=2`."""
    name = f"cluster_{os.getpid()}_{seed}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")  # type: ignore[call-overload]
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    words = [f"--{option}={value}" for option, value in options.items()]
    cluster = Cluster(server, server.url(name), folder, seed, words)
    try:
        cluster.start("worker" if workers else "web").until_ready()  # it makes the tables
        others: list[Role] = ["web"] * (webs if workers else webs - 1) + ["worker"] * (workers - 1)
        for member in [cluster.start(role) for role in others]:
            member.until_ready()
        yield cluster
    finally:
        cluster.end()
