"""The server on real sockets: requests that no library would send, slow readers, and how it stops."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from turnwise import Engine
from turnwise.effects.model.port import ModelAnswer, ModelRequest, Token
from turnwise.hosts.http.problems import install_problems
from turnwise.hosts.http.security import HttpLimits, WrongTokens, middleware_of
from turnwise.hosts.http.server import ServerLimits
from turnwise.hosts.http.streams import PIECE
from turnwise.testing import reply

from ...support.cases import holds_for
from ...support.doors.waiting import until
from ...support.http import waiting_server
from ...support.http.event_stream import EventStreamParser, ServerSentEvent, events_of, read_until
from ...support.http.live_server import PATIENCE, LiveServer, serving, serving_app
from ...support.http.obedient_model import obedient_engine
from ...support.http.raw_client import ask, connected
from ...support.http.server_process import ServerProcess, started
from ...support.programs.missing import missing

# --- Requests that no library would send, on a real socket: each is refused or cut off, and the server serves on.


HEAD = b"POST /texts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Text(BaseModel):
    """A body with one field."""

    text: str


def _app(body_seconds: float = 30.0) -> FastAPI:
    limits = HttpLimits(body_bytes=1_000_000, body_seconds=body_seconds)
    wrong = WrongTokens(limits.wrong_tokens)
    app = FastAPI(
        middleware=middleware_of(token=None, hosts=None, origins=(), bound=False, limits=limits, wrong_tokens=wrong)
    )
    install_problems(app)
    taken: list[str] = []

    @app.post("/texts")
    async def take(body: Text) -> int:
        taken.append(body.text)
        return len(taken)

    @app.get("/texts")
    async def show() -> list[str]:
        return taken

    return app


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A server whose endpoint takes a text."""
    with serving_app(_app()) as server:
        yield server


@pytest.fixture
def impatient_server() -> Iterator[LiveServer]:
    """A server with short limits of time."""
    with serving_app(_app(0.3)) as server:
        yield server


@pytest.fixture
def serves_on(server: LiveServer) -> Iterator[None]:
    """After every test nothing was taken, and the server answers."""
    yield
    with server.client() as client:
        assert client.get("/texts").json() == []


@pytest.mark.usefixtures("serves_on")
class TestBrokenRequests:
    """What h11 cannot read."""

    @holds_for(
        "request_bytes",
        [
            b"\x00\x01\x02\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of TLS
            b"GET\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",  # without a host
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / a HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nname : value\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nx: a\x00b\r\n\r\n",
            HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
            HEAD + b"Content-Length: -1\r\n\r\n",
            HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        ],
    )
    def test_it_is_refused(self, server: LiveServer, request_bytes: bytes) -> None:
        """What is not HTTP gets 400, and the connection is closed. A body is refused by the application, as a
        problem."""
        with connected(server.port) as client:
            client.send(request_bytes)
            answer = client.answer()

            assert answer is not None
            assert answer.status == 400
            assert client.is_closed()

    @holds_for(
        "request_bytes",
        [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET http://evil.example/texts HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"FROB /texts HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /../texts HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET //evil.example/texts HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /texts HTTP/1.0\r\n\r\n",
            HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
        ],
    )
    def test_an_odd_request_is_a_problem(self, server: LiveServer, request_bytes: bytes) -> None:
        """What is HTTP, but not for this server, gets a refusal of the application, as a problem."""
        answer = ask(server.port, request_bytes)

        assert answer is not None
        assert 400 <= answer.problem().status < 500

    def test_a_proxy_of_this_machine_says_that_it_speaks_https(self, server: LiveServer) -> None:
        """Behind a proxy that passes `X-Forwarded-Proto` on, the server's own origin begins with https."""
        request = b"GET /texts HTTP/1.1\r\nHost: localhost\r\nOrigin: https://localhost\r\n"
        plain = ask(server.port, request + b"\r\n")
        forwarded = ask(server.port, request + b"X-Forwarded-Proto: https\r\n\r\n")

        assert plain is not None
        assert forwarded is not None
        assert (plain.problem().code, forwarded.status) == ("forbidden_origin", 200)

    def test_a_refused_head_request_is_complete(self, server: LiveServer) -> None:
        """The answer to HEAD has no body, and the connection goes on."""
        with connected(server.port) as client:
            for _ in range(2):
                client.send(b"HEAD /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = client.answer(b"HEAD")
                assert answer is not None
                assert (answer.status, answer.body) == (404, b"")


@pytest.mark.usefixtures("serves_on")
class TestHeads:
    """Heads that are too large. Those that are too slow are the proxy's: see tests/docs/test_http.py."""

    @holds_for(
        "flood",
        [
            b"x: " + b"y" * 1_000_000,
            b"\r\n".join(b"x%d: y" % n for n in range(100_000)),
            b"cookie: " + b"a=b; " * 40_000,
        ],
    )
    def test_a_flood_of_headers_is_refused(self, server: LiveServer, flood: bytes) -> None:
        """The server keeps a bounded part of a head, and refuses the rest."""
        answer = ask(server.port, b"GET /texts HTTP/1.1\r\nHost: localhost\r\n" + flood + b"\r\n\r\n")

        assert answer is None or answer.status == 400


@pytest.mark.usefixtures("serves_on")
class TestBodies:
    """Bodies that are too large or too slow."""

    @pytest.mark.slow
    def test_a_slow_body_is_refused(self, impatient_server: LiveServer) -> None:
        """A body that is not complete in time is 408; a client that sends nothing more is then cut off."""
        with connected(impatient_server.port) as client:
            client.send(HEAD + b'Content-Length: 100\r\n\r\n{"text": ')
            answer = client.answer()

            assert answer is not None
            assert answer.problem().code == "timeout"
            assert client.is_closed()

    @pytest.mark.parametrize(
        "framing", [b"Content-Length: 3000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n"]
    )
    def test_a_large_body_is_refused(self, server: LiveServer, framing: bytes) -> None:
        """H6: 413 reaches a client that has sent all of its body first, with or without a declared length."""
        answer = ask(server.port, HEAD + framing + b" " * 3_000_000)

        assert answer is not None
        assert answer.problem().code == "too_large"

    def test_a_connection_goes_on_after_a_refused_body(self, server: LiveServer) -> None:
        """Whoever has sent all of a refused body may send the next request."""
        with connected(server.port) as client:
            client.send(HEAD + b"Content-Length: 2000000\r\n\r\n" + b" " * 2_000_000)
            refused = client.answer()
            client.send(b"GET /texts HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = client.answer()

        assert refused is not None
        assert answer is not None
        assert (refused.status, answer.status) == (413, 200)

    def test_a_body_that_is_cut_off_is_not_taken(self, server: LiveServer) -> None:
        """A connection that ends in the middle of a body leaves nothing; `serves_on` looks."""
        with connected(server.port) as client:
            client.send(HEAD + b'Content-Length: 14\r\n\r\n{"text": "x"}')


@pytest.mark.usefixtures("serves_on")
class TestManyConnections:
    """More clients than the server takes."""

    def test_a_surplus_is_refused(self) -> None:
        """At the limit a request gets 503, so that files are left for the database; when clients have left, others are
        served."""
        limits = ServerLimits(connections=3)
        request = b"GET /texts HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with serving_app(_app(), limits=limits) as server:
            with ExitStack() as stack:
                clients = [stack.enter_context(connected(server.port)) for _ in range(limits.connections - 1)]
                for client in clients:
                    client.send(request)
                served = [client.answer() for client in clients]
                refused = ask(server.port, request)
            until(lambda: not server.connections)
            again = ask(server.port, request)

        assert [None if answer is None else answer.status for answer in (*served, refused, again)] == [
            200,
            200,
            503,
            200,
        ]


# --- Readers on real sockets: some do not read, some lose their connection, and none of them concerns the others.


TOKENS = 100
LENGTH = 65_536
"""The tokens of one answer fill what the system keeps of a connection several times over."""

UVICORN_KEEPS = 65_536
"""Bytes that a client has not read, above which uvicorn lets the application wait."""


class LongAnswer:
    """A model that shows a long text, and answers with a short one."""

    name = "long"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Show the tokens, one at a time."""
        for number in range(TOKENS):
            show(Token(f"{number} ".ljust(LENGTH, "x")))
            await asyncio.sleep(0)
        return reply("Done.")


@contextmanager
def served(send_seconds: float) -> Iterator[LiveServer]:
    """Run a server that waits so long for a reader that does not read."""
    engine = Engine.open("sqlite://", model=LongAnswer())
    with serving(engine, limits=HttpLimits(send_seconds=send_seconds)) as server:
        yield server


def numbers(events: list[ServerSentEvent]) -> list[int]:
    """The numbers of the tokens that were shown."""
    return [int(event.json["data"]["text"].split()[0]) for event in events if event.event == "token"]


@pytest.mark.slow
def test_readers_that_do_not_read_are_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    """H3: readers that do not read cost a bounded amount of memory each and are disconnected, with a reason in the log.
    Another reader has every token in order, and one that was disconnected resumes without a loss."""
    caplog.set_level(logging.WARNING, "turnwise.http")
    with served(2.0) as server, server.client() as client, ExitStack() as stack:
        path = f"/conversations/{client.post('/conversations', json={}).json()['id']}"
        idle = [stack.enter_context(connected(server.port, receive_buffer=4096)) for _ in range(8)]
        for one in idle:
            one.send(f"GET {path}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with server.events(f"{path}/events") as events:
            read_until(events, "snapshot")
            client.post(f"{path}/messages", json={"text": "Go"})
            seen = read_until(events, "turn_ended")
        unread = [connection.transport.get_write_buffer_size() for connection in server.connections]
        until(lambda: caplog.text.count("did not read for 2 s") == len(idle))

        assert numbers(seen) == list(range(TOKENS))
        assert max(unread) <= UVICORN_KEEPS + PIECE + 1_000
        assert all(one.is_closed() for one in idle)
        with server.events(f"{path}/events", after="1.0") as events:
            stored = [event for event in seen if event.id]
            assert list(islice(events, len(stored))) == stored


@pytest.mark.slow
def test_a_connection_that_is_cut_is_resumed() -> None:
    """H2: a client that loses its connection after every event, on a real socket, has every stored update once and in
    order."""
    with served(60.0) as server, server.client() as client:
        path = f"/conversations/{client.post('/conversations', json={}).json()['id']}"
        with server.events(f"{path}/events") as events:
            shown = read_until(events, "snapshot")
            client.post(f"{path}/messages", json={"text": "Go"})
        while shown[-1].event != "turn_ended":
            with server.events(f"{path}/events", after=shown[-1].id) as events:
                shown.append(next(event for event in events if event.id))
        with server.events(f"{path}/events", after=shown[0].id) as events:
            uncut = read_until(events, "turn_ended")

    assert shown[1:] == [event for event in uncut if event.id]


# --- Clients of other programs, over a real socket: two at once, and curl.


TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def real_clients_server() -> Iterator[LiveServer]:
    """A server that all tests of this module share."""
    with serving(obedient_engine(), token=TOKEN) as running:
        yield running


@pytest.mark.slow
class TestTwoClients:
    """Two people at two screens."""

    async def test_that_answer_one_question_at_once(self, real_clients_server: LiveServer) -> None:
        """H5: one answer is taken, the other is refused with 409 `wrong_state`, and both see the same afterwards."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with (
            real_clients_server.async_client(headers=headers) as ann,
            real_clients_server.async_client(headers=headers) as bob,
        ):
            mine = (await ann.post("/conversations", json={})).json()["id"]
            path = f"/conversations/{mine}"
            await ann.post(f"{path}/messages", json={"text": "ask"})
            for client in (ann, bob):
                assert await self.state_of(client, path, "awaiting_user_response") == "awaiting_user_response"

            call = (await ann.get(path)).json()["state"]["data"]["call_id"]
            answers = await asyncio.gather(
                ann.post(f"{path}/respond", json={"answers": {"When?": "6:30 PM"}, "call_id": call}),
                bob.post(f"{path}/respond", json={"answers": {"When?": "8:15 PM"}, "call_id": call}),
            )
            seen = [await self.state_of(client, path, "idle") for client in (ann, bob)]
            transcripts = [(await client.get(f"{path}/transcript")).json() for client in (ann, bob)]

        assert sorted(answer.status_code for answer in answers) == [200, 409]
        refused = next(answer for answer in answers if answer.status_code == 409)
        assert refused.json()["code"] == "wrong_state"
        assert seen == ["idle", "idle"]
        assert transcripts[0] == transcripts[1]
        taken = "6:30 PM" if answers[0].status_code == 200 else "8:15 PM"
        assert taken in json.dumps(transcripts[0])

    async def state_of(self, client: httpx.AsyncClient, path: str, wanted: str) -> str:
        """Follow the updates until the conversation is in this state, and return the state that it is in then."""
        parser = EventStreamParser()
        async with client.stream("GET", f"{path}/events") as response:
            async for received in response.aiter_bytes():
                for event in parser.feed(received):
                    data = event.json["data"] if event.event in ("snapshot", "state_change") else {}
                    if data.get("state", data).get("type") == wanted:
                        return str((await client.get(path)).json()["state"]["type"])
        raise AssertionError(f"the conversation did not come to {wanted}")


@pytest.mark.slow
class TestCurl:
    """The program that everybody has."""

    def curl(self, *arguments: str) -> str:
        """Run curl with the token, and return what it prints."""
        program = shutil.which("curl") or missing("curl is not installed: `apt-get install curl`.")
        options = ["--silent", "--show-error", "--fail-with-body", "--max-time", f"{PATIENCE:.0f}"]
        environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        done = subprocess.run(
            [program, *options, "--header", f"Authorization: Bearer {TOKEN}", *arguments],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def posted(self, url: str, body: object) -> dict[str, object]:
        """Post JSON, and return the answer."""
        answer: dict[str, object] = json.loads(self.curl("--json", json.dumps(body), url))
        return answer

    def test_creates_sends_and_follows(self, real_clients_server: LiveServer) -> None:
        """A conversation is created, a message sent, and its updates read until the stream ends with the close."""
        mine = self.posted(f"{real_clients_server.url}/conversations", {"title": "With curl"})["id"]
        conversation = f"{real_clients_server.url}/conversations/{mine}"
        sent = self.posted(f"{conversation}/messages", {"text": "Hello", "message_id": "m"})
        self.posted(f"{conversation}/close", {})
        events = EventStreamParser().feed(
            self.curl("--header", "Last-Event-ID: 1.0", f"{conversation}/events").encode()
        )

        assert sent["message_id"] == "m"
        assert [event.json["data"]["text"] for event in events if event.event == "message"][:1] == ["Hello"]
        assert (events[-1].event, events[-1].json["data"]) == ("end", {"reason": "closed"})


# --- How a server stops: real signals to real processes, and what is there at the next start.


@contextmanager
def stop_served(folder: Path, port: int = 0, engine_seconds: float = 20.0) -> Iterator[ServerProcess]:
    """Start the program of `waiting_server` in this folder."""
    with started([waiting_server.__file__, str(port), str(engine_seconds)], folder) as server:
        yield server


@contextmanager
def following(server: ServerProcess, conversation: str, after: str) -> Iterator[Iterator[ServerSentEvent]]:
    """Open the stream of a conversation after an update."""
    path = f"{server.url}/conversations/{conversation}/events"
    with httpx.stream("GET", path, headers={"Last-Event-ID": after}, timeout=PATIENCE) as response:
        yield events_of(response)


def begin_turn(server: ServerProcess) -> str:
    """Begin a conversation with a turn whose tool waits."""
    created = httpx.post(f"{server.url}/conversations", json={}, timeout=PATIENCE).json()
    conversation: str = created["id"]
    httpx.post(f"{server.url}/conversations/{conversation}/messages", json={"text": "Look!"}, timeout=PATIENCE)
    return conversation


@pytest.mark.slow
def test_a_stopped_server_goes_on_at_the_next_start(tmp_path: Path) -> None:
    """H9: SIGTERM while a tool runs: the stream ends with the reason, the process ends with 0, and at the next start
    the turn goes on. A client that resumes has every update once, in order."""
    with stop_served(tmp_path) as server:
        conversation = begin_turn(server)
        with following(server, conversation, "1.0") as events:
            first = read_until(events, "tool")
            server.process.terminate()
            first += events
        code = server.wait()
    (tmp_path / "go").touch()
    with stop_served(tmp_path, server.port) as server:
        last = [event.id for event in first if event.id][-1]
        with following(server, conversation, last) as events:
            second = read_until(events, "turn_ended")
        with following(server, conversation, "1.0") as events:
            uncut = read_until(events, "turn_ended")

    assert code == 0
    assert (first[-1].event, first[-1].json["data"]) == ("end", {"reason": "server_stopping"})
    assert [event for event in (*first, *second) if event.id] == [event for event in uncut if event.id]
    assert second[-1].json["data"]["final_content"] == "It is a bird."


@pytest.mark.slow
def test_nobody_holds_up_the_stop(tmp_path: Path) -> None:
    """H9: neither an idle client, nor one that sends half a body, nor an engine that does not close keeps the process
    from ending by itself; it takes no connections meanwhile."""
    (tmp_path / "stuck").touch()
    with (
        stop_served(tmp_path, engine_seconds=0.2) as server,
        connected(server.port) as idle,
        connected(server.port) as slow,
    ):
        slow.send(b"POST /conversations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        slow.send(b"Content-Length: 100\r\n\r\n{")
        server.process.send_signal(signal.SIGINT)
        code = server.wait()

        assert idle.answer() is None
        assert slow.answer() is None
    assert code == 0
    assert server.lines[1:] == ["stopping\n", "stopped\n"]


@pytest.mark.slow
def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    """Whoever does not want to wait signals again."""
    (tmp_path / "stuck").touch()
    with stop_served(tmp_path, engine_seconds=3600) as server:
        server.process.terminate()
        until(lambda: "stopping\n" in server.lines)
        code = server.terminate()

    assert code == -signal.SIGTERM
