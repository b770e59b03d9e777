"""Who may call the server, and what a request may hold: each refusal is a problem, and reaches no endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any, ClassVar

import httpx
import pytest
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from starlette.requests import HTTPConnection
from starlette.types import Message

from turnwise import ConfigurationError
from turnwise.hosts.http import security
from turnwise.hosts.http.problems import Problem, install_problems
from turnwise.hosts.http.security import (
    MOST_CLIENTS,
    HttpLimits,
    WrongTokens,
    clear_session,
    middleware_of,
    set_session,
)

from ...support.cases import holds_for

TOKEN = "correct-horse"


class Text(BaseModel):
    """A body with one field."""

    text: str


class TokenBody(BaseModel):
    """What begins a session."""

    token: str


class Guarded:
    """An application behind the guards. `taken` is what reached its endpoint."""

    def __init__(self, *, token: str | None = None, limits: HttpLimits | None = None, **options: Any) -> None:
        self.taken: list[str] = []
        chosen = {"hosts": None, "origins": (), "bound": token is not None, **options}
        self.now = 0.0
        self._wrong = WrongTokens(3, lambda: self.now)
        self.app = FastAPI(
            middleware=middleware_of(token=token, limits=limits or HttpLimits(), wrong_tokens=self._wrong, **chosen)
        )
        install_problems(self.app)
        self.app.post("/texts")(self.take)
        self.app.get("/texts")(self.show)
        self.app.get("/broken")(self.fail)
        self.app.get("/health")(self.show)
        self._token = token
        self.app.post("/session", status_code=204)(self.begin)
        self.app.delete("/session", status_code=204)(self.end)

    async def take(self, body: Text) -> str:
        """Take a text."""
        self.taken.append(body.text)
        return "taken"

    async def show(self) -> list[str]:
        """Return what was taken."""
        return self.taken

    async def fail(self) -> None:
        """Fail in a way that nobody foresaw."""
        raise ValueError("the user said: my password is 1234")

    async def begin(self, body: TokenBody, request: Request, response: Response) -> None:
        """Begin a session."""
        set_session(response, request, body.token, self._token, self._wrong)

    async def end(self, request: Request, response: Response) -> None:
        """End a session."""
        clear_session(response, request)

    def client(self, base_url: str = "http://localhost", **options: Any) -> httpx.AsyncClient:
        """A client of the application."""
        root_path, address = options.pop("root_path", ""), options.pop("address", "192.0.2.1")
        transport = httpx.ASGITransport(self.app, root_path=root_path, client=(address, 1))
        return httpx.AsyncClient(transport=transport, base_url=base_url, **options)


def assert_problem(response: httpx.Response, status: int, code: str) -> None:
    """The response is this problem, in the form that all refusals have."""
    assert response.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(response.json())
    assert (response.status_code, problem.status, problem.code) == (status, status, code)


class TestHosts:
    """Names under which the server may be addressed."""

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "localhost."])
    async def test_the_local_machine_may_be_named(self, host: str) -> None:
        """Without a token the names of the local machine are allowed, with any port."""
        async with Guarded().client(headers={"host": host}) as client:
            assert (await client.get("/texts")).status_code == 200

    @holds_for(
        "host",
        [
            "evil.example",
            "testserver",
            "test",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "localhost:80@evil.example",
            "[::1].evil.example",
            "[localhost]:80.evil.example",
            "[::1",
            "[::2]",
            "",
        ],
    )
    async def test_a_foreign_host_is_refused(self, host: str) -> None:
        """H6: another name, which a foreign site may have given to this machine, is 403."""
        async with Guarded().client(headers={"host": host}) as client:
            assert_problem(await client.get("/texts"), 403, "forbidden_host")

    async def test_a_bound_server_takes_any_host(self) -> None:
        """With a token any name is allowed, and the request is refused for its lack of a token only."""
        async with Guarded(token=TOKEN).client(headers={"host": "chat.example"}) as client:
            assert_problem(await client.get("/texts"), 401, "unauthorized")

    async def test_given_hosts_replace_the_local_ones(self) -> None:
        """Whoever names hosts allows these, also with a token."""
        guarded = Guarded(token=TOKEN, hosts=["Chat.example"])
        async with guarded.client(headers={"authorization": f"Bearer {TOKEN}"}) as client:
            assert (await client.get("/texts", headers={"host": "chat.example:80"})).status_code == 200
            assert_problem(await client.get("/texts"), 403, "forbidden_host")


class TestOrigins:
    """Pages whose scripts call the server."""

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://localhost", "http://localhost:81", "x"])
    async def test_a_foreign_origin_is_refused(self, origin: str) -> None:
        """H6: a script of another site is refused, whatever it asks for, and nothing reaches the endpoint."""
        guarded = Guarded()
        async with guarded.client(headers={"origin": origin}) as client:
            assert_problem(await client.get("/texts"), 403, "forbidden_origin")
            assert_problem(await client.post("/texts", json={"text": "x"}), 403, "forbidden_origin")
        assert guarded.taken == []

    @pytest.mark.parametrize(
        ("base_url", "origin"),
        [
            ("http://localhost", "http://localhost"),
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("https://localhost", "https://localhost"),
            ("http://LOCALHOST", "http://localhost"),
        ],
    )
    async def test_the_servers_own_pages_may_call_it(self, base_url: str, origin: str) -> None:
        """The origin of the request's own host is allowed; a default port may be written."""
        async with Guarded().client(base_url, headers={"origin": origin}) as client:
            assert (await client.get("/texts")).status_code == 200

    async def test_a_given_origin_may_call_and_read(self) -> None:
        """A site that was allowed passes the browser's preflight, and its scripts may read refusals, too."""
        guarded = Guarded(token=TOKEN, origins=["https://app.example"])
        names = "authorization,idempotency-key,x-stainless-lang"  # the last two are of OpenAI's client
        asked = {"access-control-request-method": "POST", "access-control-request-headers": names}
        async with guarded.client(headers={"origin": "https://app.example"}) as client:
            preflight = await client.options("/texts", headers=asked)
            refused = await client.get("/texts")

        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-headers"] == names
        assert_problem(refused, 401, "unauthorized")
        for response in (preflight, refused):
            assert response.headers["access-control-allow-origin"] == "https://app.example"

    @pytest.mark.parametrize("origin", ["*", "example.org", "https://example.org/", "https://a b", ""])
    def test_what_is_no_origin_is_refused(self, origin: str) -> None:
        """An origin that no browser sends, or that stands for all, is an error of the configuration."""
        with pytest.raises(ConfigurationError):
            Guarded(origins=[origin])


class TestTokens:
    """Callers without the token of the server."""

    @holds_for(
        "authorization",
        [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xff", "Bearer  "],
    )
    async def test_a_wrong_token_is_refused(self, authorization: str | None) -> None:
        """H6: without the token, or with a wrong one, the answer is 401 and says which scheme is expected."""
        headers = {} if authorization is None else {"authorization": authorization.encode("latin-1")}
        async with Guarded(token=TOKEN).client(headers=headers) as client:
            response = await client.get("/texts")

        assert_problem(response, 401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in response.text

    @pytest.mark.parametrize("path", ["/texts", "/nothing", "/openapi.json", "/healthy", "/page", "/session/"])
    async def test_every_path_needs_the_token(self, path: str) -> None:
        """What is not public by its exact path needs the token, also what does not exist."""
        async with Guarded(token=TOKEN).client() as client:
            assert_problem(await client.get(path), 401, "unauthorized")

    async def test_the_right_token_is_taken(self) -> None:
        """The name of the scheme is not case-sensitive (RFC 7235)."""
        async with Guarded(token=TOKEN).client() as client:
            for scheme in ("Bearer", "bearer", "BEARER"):
                response = await client.get("/texts", headers={"authorization": f"{scheme} {TOKEN}"})
                assert response.status_code == 200

    async def test_public_paths_need_no_token(self) -> None:
        """The health check is for programs that know no token; a mounted application has it below its own path."""
        async with Guarded(token=TOKEN).client() as client:
            assert (await client.get("/health")).status_code == 200
        async with Guarded(token=TOKEN).client(root_path="/assistant") as client:
            assert (await client.get("/assistant/health")).status_code == 200

    @pytest.mark.parametrize("token", ["", "two words", "tōken", "line\nbreak"])
    def test_a_token_that_no_header_can_carry_is_refused(self, token: str) -> None:
        """A token that no client could send is an error of the configuration."""
        with pytest.raises(ConfigurationError):
            Guarded(token=token)


class TestWrongTokens:
    """Callers who try one token after the other."""

    WRONG: ClassVar = {"authorization": "Bearer guess-4711"}
    RIGHT: ClassVar = {"authorization": f"Bearer {TOKEN}"}

    async def test_are_limited_for_each_client(self) -> None:
        """After some wrong tokens a client gets 429 and is told when to come back, by whichever door it tries; another
        client is not affected, and after a minute the count begins anew."""
        guarded = Guarded(token=TOKEN)
        async with guarded.client() as client, guarded.client(address="192.0.2.2") as other:
            for _ in range(3):
                assert_problem(await client.get("/texts", headers=self.WRONG), 401, "unauthorized")
            refused = await client.get("/texts", headers=self.WRONG)
            session = await client.post("/session", json={"token": "guess-4711"})
            assert_problem(await other.get("/texts", headers=self.WRONG), 401, "unauthorized")
            guarded.now += 60
            assert_problem(await client.get("/texts", headers=self.WRONG), 401, "unauthorized")

        assert_problem(refused, 429, "too_many_attempts")
        assert_problem(session, 429, "too_many_attempts")
        assert refused.headers["retry-after"] == "60"

    async def test_lock_nobody_out(self) -> None:
        """The right token and a session are taken from the very address that has sent too many wrong ones, which may be
        that of a proxy or an office; who sends none at all is told that one is needed."""
        guarded = Guarded(token=TOKEN)
        async with guarded.client() as client:
            for _ in range(20):
                await client.get("/texts", headers=self.WRONG)
            assert (await client.get("/texts", headers=self.RIGHT)).status_code == 200
            assert (await client.post("/session", json={"token": TOKEN})).status_code == 204
            assert (await client.get("/texts")).status_code == 200
            client.cookies.clear()
            assert_problem(await client.get("/texts"), 401, "unauthorized")

    async def test_are_logged_once_for_each_burst(self, caplog: pytest.LogCaptureFixture) -> None:
        """With the address, and without the token."""
        guarded = Guarded(token=TOKEN)
        async with guarded.client() as client:
            await client.get("/texts")
            for _ in range(20):
                await client.get("/texts", headers=self.WRONG)
            guarded.now += 61
            await client.post("/session", json={"token": "guess-4711"})

        assert caplog.messages == ["A wrong token came from 192.0.2.1."] * 2
        assert "4711" not in caplog.text

    async def test_of_many_addresses_take_no_memory(self, caplog: pytest.LogCaptureFixture) -> None:
        """Clients beyond a number are counted together, and so are the addresses of one IPv6 network, which one client
        has. The log does not grow with them either."""
        wrong = WrongTokens(3, lambda: 0.0)
        networks = [f"2001:db8:{n:x}::{m}" for n in range(MOST_CLIENTS) for m in (1, 2)]
        strangers = [f"10.1.{n // 250}.{n % 250}" for n in range(1000)]

        codes = [wrong.refusal(_from(address)).problem.status for address in (*networks, *strangers)]

        assert codes == [401] * (2 * MOST_CLIENTS + 3) + [429] * 997
        assert len(caplog.messages) == MOST_CLIENTS + 1
        assert wrong.refusal(_from("2001:db8::77")).problem.status == 401
        assert wrong.refusal(_from("2001:db8::78")).problem.status == 429

    def test_come_from_what_a_server_calls_a_client(self, caplog: pytest.LogCaptureFixture) -> None:
        """A proxy may hand on any text, and a socket may have no address; an IPv4 address may be written as IPv6."""
        wrong = WrongTokens(1, lambda: 0.0)
        for address in ("fake\nline", None, "::ffff:192.0.2.1", "192.0.2.1"):
            wrong.refusal(_from(address))

        assert [message.removeprefix("A wrong token came from ") for message in caplog.messages] == [
            "'fake\\nline'.",
            "an unknown address.",
            "192.0.2.1.",
        ]


def _from(address: str | None) -> HTTPConnection:
    return HTTPConnection({"type": "http", "headers": [], "client": address and (address, 1)})


class TestSessions:
    """Browsers that exchange the token for a cookie."""

    async def test_a_session_is_as_good_as_the_token(self) -> None:
        """Whoever has presented the token may call everything with the cookie, until the session is ended."""
        async with Guarded(token=TOKEN).client() as client:
            began = await client.post("/session", json={"token": TOKEN})
            assert (began.status_code, (await client.get("/texts")).status_code) == (204, 200)
            await client.delete("/session")
            assert_problem(await client.get("/texts"), 401, "unauthorized")

    async def test_a_wrong_token_begins_no_session(self) -> None:
        """H6: a wrong token is 401 here, too, and sets no cookie."""
        async with Guarded(token=TOKEN).client() as client:
            response = await client.post("/session", json={"token": "wrong"})

        assert_problem(response, 401, "unauthorized")
        assert "set-cookie" not in response.headers

    async def test_a_server_without_a_token_has_no_sessions(self) -> None:
        """Where no token is needed, a session sets nothing."""
        async with Guarded().client() as client:
            response = await client.post("/session", json={"token": "any"})

        assert (response.status_code, response.headers.get("set-cookie")) == (204, None)

    @pytest.mark.parametrize(
        ("base_url", "root_path", "path", "secure"),
        [("http://localhost", "", "/", ""), ("https://localhost", "/assistant", "/assistant", True)],
    )
    async def test_the_cookie_is_kept_from_scripts_and_other_sites(
        self, base_url: str, root_path: str, path: str, secure: object
    ) -> None:
        """The cookie is HttpOnly and SameSite=Strict, for the application's path only, and Secure over https."""
        async with Guarded(token=TOKEN).client(base_url, root_path=root_path) as client:
            response = await client.post(f"{root_path}/session", json={"token": TOKEN})

        cookie = SimpleCookie(response.headers["set-cookie"])[security.COOKIE]
        assert (cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (True, "strict", path)
        assert cookie["secure"] == secure
        assert TOKEN not in cookie.value

    @pytest.mark.parametrize("header", ["{name}={good}; {name}=another", "{name}=another; a=b;{name}={good}"])
    async def test_one_of_several_sessions_is_enough(self, header: str) -> None:
        """A browser sends the cookie of an application at / to the one below /assistant, too, under the same name."""
        name = security.COOKIE
        async with Guarded(token=TOKEN).client() as client:
            await client.post("/session", json={"token": TOKEN})
            good = client.cookies[name]
        async with Guarded(token=TOKEN).client(headers={"cookie": header.format(name=name, good=good)}) as client:
            assert (await client.get("/texts")).status_code == 200

    async def test_a_forged_cookie_is_refused(self) -> None:
        """A cookie of another token, with another time, or without a signature begins no session."""
        cookies = {}
        for token in (TOKEN, "another"):
            async with Guarded(token=token).client() as client:
                await client.post("/session", json={"token": token})
                cookies[token] = client.cookies[security.COOKIE]
        expires, _, signature = cookies[TOKEN].partition(".")
        forged = ["", ".", expires, f"{int(expires) + 1}.{signature}", f"{'9' * 50}.{signature}", cookies["another"]]
        for value in [*forged, f"{expires}.{signature[:-1]}", f"-1.{signature}", f"x.{signature}"]:
            async with Guarded(token=TOKEN).client(headers={"cookie": f"{security.COOKIE}={value}"}) as client:
                assert_problem(await client.get("/texts"), 401, "unauthorized")

    async def test_an_expired_session_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A session ends by itself, whatever the browser does with the cookie."""
        monkeypatch.setattr(security, "LIFETIME", 0)
        async with Guarded(token=TOKEN).client() as client:
            began = await client.post("/session", json={"token": TOKEN})
        value = SimpleCookie(began.headers["set-cookie"])[security.COOKIE].value
        async with Guarded(token=TOKEN).client(headers={"cookie": f"{security.COOKIE}={value}"}) as client:
            assert_problem(await client.get("/texts"), 401, "unauthorized")


class TestBodies:
    """What a request may hold."""

    async def test_a_body_over_the_limit_is_refused(self) -> None:
        """H6: a body that is larger than the limit is 413, whether its length is declared or it comes in chunks."""
        guarded = Guarded(limits=HttpLimits(body_bytes=100))

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(101):
                yield b" "

        async with guarded.client(headers={"content-type": "application/json"}) as client:
            assert_problem(await client.post("/texts", json={"text": "x" * 100}), 413, "too_large")
            assert_problem(await client.post("/texts", content=chunks()), 413, "too_large")
            assert (await client.post("/texts", content=b'{"text": "' + b"x" * 88 + b'"}')).status_code == 200
        assert [len(text) for text in guarded.taken] == [88]

    async def test_a_declared_length_is_refused_before_the_body_is_read(self) -> None:
        """Nothing of a body is read whose length is known to be too large."""
        sent: list[Message] = []

        async def receive() -> Message:
            raise AssertionError("the body was read")

        async def send(message: Message) -> None:
            sent.append(message)

        await Guarded().app(_scope({"content-length": "5000001"}), receive, send)

        assert sent[0]["status"] == 413

    async def test_a_body_that_does_not_come_is_refused(self) -> None:
        """A body that has not arrived in time is 408."""
        guarded = Guarded(limits=HttpLimits(body_seconds=0.01))

        async def never() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        async with guarded.client(headers={"content-type": "application/json"}) as client:
            assert_problem(await client.post("/texts", content=never()), 408, "timeout")
        assert guarded.taken == []

    async def test_a_client_that_goes_away_leaves_nothing(self) -> None:
        """A body that ends with the connection is neither taken nor answered."""
        guarded = Guarded()
        sent: list[Message] = []
        messages: list[Message] = [
            {"type": "http.request", "body": b'{"text": "x"}', "more_body": True},
            {"type": "http.disconnect"},
        ]

        async def receive() -> Message:
            return messages.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        await guarded.app(_scope({"content-length": "14"}), receive, send)

        assert (sent, guarded.taken) == ([], [])

    @holds_for(
        ("content_type", "body", "status", "code"),
        [
            ("text/plain", b'{"text": "x"}', 415, "unsupported_media_type"),
            ("application/x-www-form-urlencoded", b"text=x", 415, "unsupported_media_type"),
            ("multipart/form-data; boundary=x", b"--x--", 415, "unsupported_media_type"),
            ("", b'{"text": "x"}', 415, "unsupported_media_type"),
            ("application/jsonp", b'{"text": "x"}', 415, "unsupported_media_type"),
            ("application/json", b'{"text": "\xff"}', 400, "malformed_json"),
            ("application/json", '{"text": "x"}'.encode("utf-16"), 400, "malformed_json"),
            ("application/json", '{"text": "x"}'.encode("utf-16-le"), 400, "malformed_json"),
            ("application/json", b"{", 400, "malformed_json"),
            ("application/json", b"", 422, "invalid_input"),
        ],
    )
    async def test_only_json_is_taken(self, content_type: str, body: bytes, status: int, code: str) -> None:
        """H6: malformed JSON is 400, and what is not sent as JSON is 415: a foreign page may send that unasked."""
        guarded = Guarded()
        async with guarded.client(headers={"content-type": content_type}) as client:
            assert_problem(await client.post("/texts", content=body), status, code)
        assert guarded.taken == []

    @pytest.mark.parametrize(
        "content_type", ["application/json", "APPLICATION/JSON; charset=utf-8", "application/a2a+json"]
    )
    async def test_json_is_taken(self, content_type: str) -> None:
        """The type of the body may be written with parameters, and be one that is based on JSON."""
        async with Guarded().client(headers={"content-type": content_type}) as client:
            assert (await client.post("/texts", content=b'{"text": "x"}')).status_code == 200

    @pytest.mark.parametrize("length", ["-1", "x", "1" * 30, "\xb2"])
    async def test_a_length_that_is_no_number_is_refused(self, length: str) -> None:
        """A server that passes such a header on gets an answer, too."""
        async with Guarded().client() as client:
            response = await client.get("/texts", headers={"content-length": length.encode("latin-1")})

        assert_problem(response, 400, "malformed_request")


class TestErrors:
    """Errors that nobody foresaw."""

    async def test_an_unexpected_error_says_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """Neither the answer nor the log quotes the error, which may hold what a user said; the log says where it
        arose."""
        caplog.set_level(logging.INFO)
        async with Guarded().client() as client:
            response = await client.get("/broken")

        assert_problem(response, 500, "internal_error")
        assert "1234" not in response.text + caplog.text
        assert f"ValueError, raised in {__name__}:" in caplog.text

    async def test_every_response_has_the_headers(self) -> None:
        """Answers and refusals are not cached, not guessed at and not shown inside another site."""
        async with Guarded().client() as client:
            for path in ("/texts", "/nothing"):
                headers = (await client.get(path)).headers
                assert headers["cache-control"] == "no-store"
                assert headers["x-content-type-options"] == "nosniff"
                assert headers["referrer-policy"] == "no-referrer"


def _scope(headers: dict[str, str]) -> dict[str, Any]:
    known = {"host": "localhost", "content-type": "application/json", **headers}
    raw = [(name.encode(), value.encode()) for name, value in known.items()]
    return {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/texts",
        "query_string": b"",
        "root_path": "",
        "headers": raw,
    }
