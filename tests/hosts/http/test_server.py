"""Requests that no library would send, on a real socket: each is refused or cut off, and the server serves on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from turnwise.hosts.http.problems import install_problems
from turnwise.hosts.http.security import HttpLimits, WrongTokens, middleware_of
from turnwise.hosts.http.server import ServerLimits

from ...support.cases import holds_for
from ...support.doors.waiting import until
from ...support.http.live_server import LiveServer, serving_app
from ...support.http.raw_client import ask, connected

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


@pytest.fixture(autouse=True)
def serves_on(server: LiveServer) -> Iterator[None]:
    """After every test nothing was taken, and the server answers."""
    yield
    with server.client() as client:
        assert client.get("/texts").json() == []


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


class TestBodies:
    """Bodies that are too large or too slow."""

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
