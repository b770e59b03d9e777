"""`turnwise worker`: it looks after conversations until it is told to stop, and leaves none of them in the middle."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnwise import Conversation, Engine
from turnwise.engine.custody import CustodyCounts
from turnwise.hosts.terminal.commands.worker import Health
from turnwise.persistence.ports import JobsHealth

from ....support.http.live_server import PATIENCE
from ....support.postgres.fixtures import Databases
from ....support.terminal import InProcessRun, assert_one_sentence, run, run_beside
from ....support.walks import NOON
from ....support.worker_process import MESSAGE, PAYMENT, TOOL, WorkerProcess, runs, worker, write_tool

processes = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the tool that is held up."""
    write_tool(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "held", raising=False)  # that of another test
    return tmp_path


@asynccontextmanager
async def requesting(url: str) -> AsyncIterator[Engine]:
    """Yield an engine that takes requests, and leaves the work to others."""
    async with Engine.open(url, worker=False, tools=held_tools()) as engine:
        yield engine


def held_tools() -> list[Any]:
    """The tools of the workers."""
    from held import look, pay  # type: ignore[import-not-found]  # written by the fixture

    return [look, pay]


async def until(condition: Callable[[], bool]) -> None:
    """Wait until this holds; the limit for a test ends the wait."""
    while not condition():
        await asyncio.sleep(0.02)


def says(line: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a line of JSON says this, whatever else it says."""
    said = json.loads(line)
    return {**said, **wanted, "jobs": {**said["jobs"], **wanted["jobs"]}} == said


async def lines_up_to(text: str, lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """The lines of a stream up to the one with this text. Raises AssertionError if there is none."""
    async for line in lines:
        yield line
        if text in line:
            return
    raise AssertionError(f"The stream has ended without “{text}”.")


async def begin(engine: Engine, folder: Path, message: str = MESSAGE) -> Conversation:
    """Begin a conversation whose tool is held up in a worker."""
    conversation = await engine.create()
    before = len(runs(folder))
    await conversation.send(message, wait=False)
    await until(lambda: len(runs(folder)) > before)
    return conversation


class TestRefusals:
    """What does not start: each is one sentence and exit code 2."""

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--db", "x.db"], "A worker needs a database that processes share, such as PostgreSQL; x.db is one"),
            (["--db", "sqlite://"], "A worker needs a database that processes share"),
            (["--lease", "0.1"], "The setting lease is not valid"),
            (["--slots", "0"], "The setting worker_slots is not valid"),
            (["--drain", "-1"], "The setting drain is not valid"),
            (["--db", "postgresql://localhost:1/x", "--tools", "nonesuch:x"], "There is no module called nonesuch"),
            (["--db", "postgresql://localhost:1/x", "--channels", "json:nonesuch"], "There is no nonesuch in json."),
            (["--db", "postgresql://localhost:1/x", "--channels", "json:load"], "The channel json:load cannot be made"),
            (["--db", "postgresql://localhost:1/x", "--preset", "nonesuch"], "There is no preset called nonesuch."),
            (["--db", "postgresql://me:secret@localhost:1/x"], "postgresql://localhost:1/x cannot be opened now: "),
        ],
    )
    def test_what_cannot_work_is_said(self, arguments: list[str], sentence: str, in_process: InProcessRun) -> None:
        """Before anything is created."""
        done = in_process("worker", *arguments)

        assert_one_sentence(done, sentence)
        assert "secret" not in done.stderr
        assert not Path("x.db").exists()

    def test_a_server_cannot_leave_a_file_to_others(self, in_process: InProcessRun) -> None:
        """A file has one process."""
        done = in_process("serve", "--port", "0", "--no-worker", "--db", "x.db")

        assert_one_sentence(done, "such as PostgreSQL; x.db is one process's own.")


@processes
class TestAWorker:
    """It does the work of others, who take the requests."""

    async def test_ends_when_what_is_at_hand_has_come_to_rest(self, folder: Path, postgres_url: str) -> None:
        """SIGTERM: it takes nothing more, and waits. The exit code is 0."""
        async with requesting(postgres_url) as engine:
            with worker(folder, postgres_url) as process:
                conversation = await begin(engine, folder)
                process.tell(signal.SIGTERM)
                await asyncio.to_thread(process.expect, "Waiting up to 20 s for 1 conversation to come to rest")
                late = await engine.create()
                await late.send(MESSAGE, wait=False)
                (folder / "let_go").touch()

                assert await asyncio.to_thread(process.end) == 0
                assert [turn.status for turn in await conversation.turns()] == ["completed"]
                assert [run[0] for run in runs(folder)] == [str(process.process.pid)]
            with worker(folder, postgres_url) as another:
                turn = await late.wait()
                assert turn is not None
                assert turn.status == "completed"
                assert runs(folder)[-1][0] == str(another.process.pid)
                another.tell(signal.SIGINT)
                assert await asyncio.to_thread(another.end) == 0

    @pytest.mark.parametrize("way", ["bound", "second signal"])
    async def test_leaves_the_rest_to_others(self, way: str, folder: Path, postgres_url: str) -> None:
        """When its time is over, or at a second signal: the exit code is 1, and another worker goes on at once, long
        before a lease is over."""
        seconds = "0.1" if way == "bound" else "1000"
        async with requesting(postgres_url) as engine:
            with worker(folder, postgres_url, "--drain", seconds, "--lease", "3600") as process:
                conversation = await begin(engine, folder)
                process.tell(signal.SIGTERM)
                await asyncio.to_thread(process.expect, "Waiting up to")
                if way != "bound":
                    process.tell(signal.SIGTERM)
                await asyncio.to_thread(process.expect, "1 conversation had not come to rest: other workers go on.")
                assert await asyncio.to_thread(process.end) == 1
            (folder / "let_go").touch()
            with worker(folder, postgres_url, "--lease", "3600"):
                turn = await conversation.wait()

        assert turn is not None
        assert turn.status == "completed"
        assert len({key for _, key in runs(folder)}) == 1

    async def test_ends_at_once_at_a_third_signal(self, folder: Path, postgres_url: str) -> None:
        """A tool that does not stop holds nobody up."""
        with worker(folder, postgres_url) as process:
            async with requesting(postgres_url) as engine:
                await begin(engine, folder)
                for _ in range(3):
                    process.tell(signal.SIGTERM)
                    await asyncio.sleep(0.2)

                code = await asyncio.to_thread(process.end)

        assert code in (-signal.SIGTERM, 1)  # 1 if it has ended before the third signal

    async def test_says_how_it_fares(self, folder: Path, postgres_url: str) -> None:
        """As JSON, for programs, whenever something has changed."""
        with worker(folder, postgres_url, "--health", "0.1", "--json", "--slots", "1") as process:
            async with requesting(postgres_url) as engine:
                await begin(engine, folder)
                await (await engine.create()).send(MESSAGE, wait=False)
                busy = {"held": 1, "taken": 1, "lost": 0, "jobs": {"waiting": 1, "running": 1, "workers": 1}}
                while not says(await asyncio.to_thread(process.expect, '"held": '), busy):
                    pass
                (folder / "let_go").touch()
                idle = {"held": 0, "taken": 2, "jobs": {"waiting": 0, "stalled": 0, "longest_wait": None}}
                while not says(await asyncio.to_thread(process.expect, '"held": '), idle):
                    pass

    async def test_is_known_by_its_name(self, folder: Path, postgres_url: str) -> None:
        """It says by which name the database knows it, with its host and the number of its process."""
        import psycopg

        with worker(folder, postgres_url) as process:
            name = process.lines[0].partition(" as ")[2].partition(",")[0]
            async with requesting(postgres_url) as engine:
                conversation = await begin(engine, folder)
                with psycopg.connect(postgres_url) as server:
                    (holder,) = server.execute(
                        "SELECT holder FROM conversations WHERE id = %s", (conversation.id,)
                    ).fetchone() or ("",)

        host, number, _ = name.rsplit(":", 2)
        assert (number, bool(host)) == (str(process.process.pid), True)
        assert holder.partition("/")[0] == name

    def test_says_that_it_has_too_few_connections(
        self, folder: Path, postgres_url: str, postgres_databases: Databases
    ) -> None:
        """Once, and which setting it is about: it would wait for them in silence."""
        name = Databases.name_of(postgres_url)
        postgres_databases.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT 2")
        try:
            postgres_databases.execute(f"ALTER DATABASE {name} OWNER TO {name}")
            with worker(folder, postgres_url.replace("postgres@", f"{name}@", 1)) as process:
                process.expect("database_connections")
                process.tell(signal.SIGTERM)
                assert process.end() == 0
        finally:
            postgres_databases.drop(postgres_url)
            postgres_databases.execute(f"DROP ROLE {name}")

        beginnings = [line.partition(":")[0] for line in process.lines if "database_connections" in line]
        assert {*beginnings} <= {
            "No conversations can be taken for now",
            "Notices of other processes are not heard for now",
        }
        assert len(beginnings) == len({*beginnings})

    async def test_ends_where_there_is_nothing_to_work_with(self, folder: Path, postgres_url: str) -> None:
        """A supervisor is told by exit code 2, and starts it again."""
        import psycopg

        with worker(folder, postgres_url) as process:
            with psycopg.connect(postgres_url, autocommit=True) as server:
                server.execute("DROP SCHEMA turnwise_jobs CASCADE")

            assert await asyncio.to_thread(process.end) == 2
        assert len(process.lines) == 2
        assert process.lines[1].startswith("postgresql://")


@processes
async def test_a_server_with_a_worker_inside(folder: Path, postgres_url: str) -> None:
    """`turnwise serve` looks after conversations as well, unless it is told not to."""
    (folder / "let_go").touch()
    common = ("serve", "--port", "0", "--db", postgres_url, "--tools", TOOL)
    async with requesting(postgres_url) as engine:
        alone = WorkerProcess(folder, *common, "--no-worker")
        await asyncio.to_thread(alone.expect, "turnwise serves")
        conversation = await engine.create()
        await conversation.send(MESSAGE, wait=False)
        both = WorkerProcess(folder, *common)
        turn = await conversation.wait()
        for process in (alone, both):
            process.tell(signal.SIGTERM)
            assert await asyncio.to_thread(process.end) == 0

    assert turn is not None
    assert turn.status == "completed"
    assert [run[0] for run in runs(folder)] == [str(both.process.pid)]


@processes
@pytest.mark.parametrize("way", ["rest", "second signal"])
async def test_a_server_with_a_worker_inside_drains(way: str, folder: Path, postgres_url: str) -> None:
    """Its streams go on until the turns that it performs rest, or a second signal comes: then another process goes on
    with them, long before a lease is over."""
    async with requesting(postgres_url) as engine:
        process = WorkerProcess(folder, "serve", "--port", "0", "--db", postgres_url, "--tools", TOOL)
        address = (await asyncio.to_thread(process.expect, "turnwise serves")).split()[-1]
        conversation = await begin(engine, folder)
        async with (
            httpx.AsyncClient(base_url=address, timeout=PATIENCE) as client,
            client.stream("GET", f"/conversations/{conversation.id}/events") as stream,
        ):
            lines = stream.aiter_lines()
            assert [line async for line in lines_up_to("tool_executing", lines)]
            process.tell(signal.SIGTERM)
            await asyncio.to_thread(process.expect, "Waiting up to 20 s for 1 conversation to come to rest")
            if way == "rest":
                (folder / "let_go").touch()
                assert [line async for line in lines_up_to("turn_ended", lines)]
            else:
                process.tell(signal.SIGTERM)
            code = await asyncio.to_thread(process.end)
        (folder / "let_go").touch()
        with worker(folder, postgres_url, "--lease", "3600"):
            await until(lambda: conversation.state.type == "idle")
            (turn,) = await conversation.turns()

    assert code == (0 if way == "rest" else 1)
    assert turn.status == "completed"
    assert len(runs(folder)) == (1 if way == "rest" else 2)


@processes
async def test_a_call_in_doubt_is_resolved_while_workers_run(folder: Path, postgres_url: str) -> None:
    """A worker was killed while a tool ran that must not run twice. Another one goes on, once somebody has said what
    became of the call."""
    async with requesting(postgres_url) as engine:
        with worker(folder, postgres_url, "--lease", "1") as killed:
            conversation = await begin(engine, folder, PAYMENT)
            killed.tell(signal.SIGKILL)
            await asyncio.to_thread(killed.end)
        with worker(folder, postgres_url, "--lease", "1"):
            turn = await conversation.wait()
            assert turn is not None
            assert turn.status == "in_doubt"
            listed = await run_beside("resolve", conversation.id, "--db", postgres_url, cwd=folder)
            settled = await run_beside("resolve", conversation.id, "ran", "--db", postgres_url, cwd=folder)
            await until(lambda: conversation.state.type == "idle")
            (ended,) = await conversation.turns()

    assert "pay(" in listed.stdout
    assert settled.stdout.startswith("Resolved; the conversation is in ")
    assert ended.status == "completed"
    assert len(runs(folder)) == 1


@processes
async def test_what_was_copied_goes_on_in_a_worker(folder: Path, postgres_url: str) -> None:
    """A turn that was under way in a file."""
    async with Engine.open(folder / "old.db", tools=held_tools()) as engine:
        moved = await engine.create()
        await moved.send(MESSAGE, wait=False)
        await until(lambda: moved.state.type == "tool_executing")
    (folder / "let_go").touch()
    with worker(folder, postgres_url):
        copied = await run_beside("copy", "old.db", postgres_url, cwd=folder)
        async with requesting(postgres_url) as engine:
            conversation = await engine.get(moved.id)
            await until(lambda: conversation.state.type == "idle")
            (turn,) = await conversation.turns()

    assert (copied.returncode, copied.stderr) == (0, "")
    assert (turn.status, turn.reply) == ("completed", turn.final_content)


@processes
async def test_a_database_in_use_is_not_repaired(folder: Path, postgres_url: str) -> None:
    """Nor is it copied: workers may go on with what is looked at."""
    with worker(folder, postgres_url):
        repairing = await run_beside("doctor", "--fix", "--db", postgres_url, cwd=folder)
        copying = await run_beside("copy", postgres_url, "new.db", cwd=folder)
        looking = await run_beside("doctor", "--db", postgres_url, cwd=folder)

    assert_one_sentence(repairing, "is in use: end the processes that use it before it is repaired.")
    assert_one_sentence(copying, "is in use: end the programs that use it first")
    assert (looking.returncode, looking.stdout) == (0, "All is well: 0 conversations, 0 steps.\n")


@processes
class TestAChat:
    """Over a database that processes share."""

    async def test_leaves_the_work_to_workers(self, folder: Path, postgres_url: str) -> None:
        """If there are some: it would look after the conversations of others, too."""
        (folder / "let_go").touch()
        with worker(folder, postgres_url) as process:
            done = await run_beside("chat", "--db", postgres_url, "--tools", TOOL, cwd=folder, lines=[MESSAGE])

            assert (done.returncode, done.stderr) == (0, "")
            assert "Workers look after this database: their models, tools and channels count." in done.stdout
            assert "It is fine." in done.stdout
            assert [run[0] for run in runs(folder)] == [str(process.process.pid)]

    def test_works_itself_where_nobody_does(self, folder: Path, postgres_url: str) -> None:
        """In a new database, and when it is resumed."""
        (folder / "let_go").touch()
        common = ("chat", "--db", postgres_url, "--tools", TOOL)

        begun = run(*common, cwd=folder, lines=[MESSAGE])
        resumed = run(*common, "--resume", cwd=folder, lines=[MESSAGE])

        for done in (begun, resumed):
            assert (done.returncode, done.stderr) == (0, "")
            assert "Workers look after" not in done.stdout
            assert "It is fine." in done.stdout
        assert len(runs(folder)) == 2


class TestTheHealthLine:
    """How a worker fares, in one line."""

    COUNTS = CustodyCounts(held=3, taken=45, taken_over=1, lost=2, name="shelf:4711:3f9ac2")

    def test_for_people(self) -> None:
        """What is at hand, what was done, what waits."""
        jobs = JobsHealth(waiting=12, running=6, stalled=0, workers=2, longest_wait=3.21)

        assert Health(self.COUNTS, jobs).as_text(NOON)[8:] == (
            "  shelf:4711:3f9ac2: 3 held; 45 taken, 1 of them over from others, 2 lost; "
            "12 wait, the first for 3.2 s; 2 workers"
        )
        assert Health(CustodyCounts(name="shelf:1:0"), None).as_text(NOON)[8:] == (
            "  shelf:1:0: 0 held; 0 taken, 0 lost; the database does not say what waits"
        )

    def test_a_wait_that_grows_is_no_news(self) -> None:
        """A line is written when something has changed that does not change by itself."""
        jobs = JobsHealth(waiting=1, running=0, stalled=0, workers=0, longest_wait=1.0)

        assert Health(self.COUNTS, jobs).counted == Health(self.COUNTS, jobs).counted
        later = JobsHealth(waiting=1, running=0, stalled=0, workers=0, longest_wait=2.0)
        assert Health(self.COUNTS, later).counted == Health(self.COUNTS, jobs).counted
