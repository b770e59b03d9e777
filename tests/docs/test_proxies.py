"""The configurations of proxies in the page about HTTP, in front of a real server: what they let through, and what they
keep away."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnwise.hosts.http.security import HttpLimits
from turnwise.hosts.http.server import ServerLimits

from ..support.doors.waiting import until
from ..support.http.event_stream import ServerSentEvent, events_of, read_until
from ..support.http.live_server import PATIENCE
from ..support.http.raw_client import connected
from ..support.http.server_process import ServerProcess, started
from ..support.pages import Page
from ..support.programs.missing import missing
from ..support.terminal import COMMAND

pytestmark = pytest.mark.slow

PAGE = Page("docs/http.md")

TOKEN = "9f86d081884c7d659a2feaa0c55ad015"

HEAD_SECONDS = 1
"""How long these proxies wait for a head: less than in the page, so that tests need not wait as long."""


def configuration(language: str) -> str:
    """The block of the page in this language."""
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE.text, re.DOTALL)
    return block


def nginx(folder: Path, port: int, server_port: int) -> list[str]:
    """Write the files of nginx, and return its command. TLS is left out, and nginx is kept to this folder."""
    block = re.sub(r" *ssl_\w+ .*\n", "", configuration("nginx"))
    for written, here in [
        ("443 ssl", f"127.0.0.1:{port}"),
        ("127.0.0.1:8000", f"127.0.0.1:{server_port}"),
        ("client_header_timeout 10s", f"client_header_timeout {HEAD_SECONDS}s"),
    ]:
        assert written in block
        block = block.replace(written, here)
    kept = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"user root root;\ndaemon off;\npid {folder}/pid;\nerror_log {folder}/errors;\n"
        f"events {{ worker_connections 1024; }}\n"
        f"http {{\naccess_log off;\n{kept}{block}\n}}\n"
    )
    return ["nginx", "-p", str(folder), "-e", f"{folder}/errors", "-c", f"{folder}/nginx.conf"]


def caddy(folder: Path, port: int, server_port: int) -> list[str]:
    """Write the file of Caddy, and return its command."""
    block = configuration("caddy")
    for written, here in [
        ("{\n\tservers", "{\n\tadmin off\n\tservers"),
        ("chat.example.org", f"http://127.0.0.1:{port}"),
        ("127.0.0.1:8000", f"127.0.0.1:{server_port}"),
        ("read_header 10s", f"read_header {HEAD_SECONDS}s"),
    ]:
        assert written in block
        block = block.replace(written, here)
    (folder / "Caddyfile").write_text(block)
    return ["caddy", "run", "--config", f"{folder}/Caddyfile", "--adapter", "caddyfile"]


COMMANDS = {"nginx": nginx, "caddy": caddy}


@dataclass(frozen=True)
class Proxied:
    """A server behind a proxy that listens at `port`."""

    proxy: str
    port: int
    folder: Path
    server: ServerProcess

    def client(self, address: str = "127.0.0.1") -> httpx.Client:
        """Return a client that calls the proxy from this address."""
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}",
            headers={"authorization": f"Bearer {TOKEN}"},
            transport=httpx.HTTPTransport(local_address=address),
            timeout=PATIENCE,
        )

    def answers(self) -> bool:
        """Whether the server answers through the proxy."""
        try:
            with self.client() as client:
                return client.get("/health").status_code == 200
        except httpx.TransportError:
            return False


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def serving(folder: Path, port: int) -> Iterator[ServerProcess]:
    """Run `turnwise serve` at this port."""
    command = [*COMMAND, "serve", "--port", str(port), "--token", TOKEN]
    with started(command, folder) as server:
        yield server


@contextmanager
def proxying(command: list[str], folder: Path) -> Iterator[None]:
    """Run a proxy."""
    environment = {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "PATH": "/usr/sbin:/usr/bin:/bin"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture(scope="module", params=COMMANDS)
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """A server behind each of the proxies of the page."""
    proxy: str = request.param
    if not shutil.which(proxy, path="/usr/sbin:/usr/bin:/bin"):
        missing(f"{proxy} is not installed: `apt-get install {proxy}`.")
    folder = tmp_path_factory.mktemp(proxy)
    port, server_port = free_port(), free_port()
    with serving(folder, server_port) as server, proxying(COMMANDS[proxy](folder, port, server_port), folder):
        proxied = Proxied(proxy, port, folder, server)
        until(proxied.answers)
        yield proxied


@contextmanager
def following(client: httpx.Client, path: str, after: str | None = None) -> Iterator[Iterator[ServerSentEvent]]:
    """Follow a conversation, from its beginning or after an event."""
    headers = {"Last-Event-ID": after} if after else {}
    with client.stream("GET", f"{path}/events", headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield events_of(response)


def begun(client: httpx.Client) -> str:
    """Create a conversation, and return its path."""
    created: dict[str, Any] = client.post("/conversations", json={}).raise_for_status().json()
    return f"/conversations/{created['id']}"


def test_a_stream_has_its_events_at_once(proxied: Proxied) -> None:
    """A conversation goes on through the proxy, and its stream shows it while it happens, also after nothing has come
    for longer than a head may take."""
    with proxied.client() as client:
        path = begun(client)
        with following(client, path) as events:
            first = read_until(events, "snapshot")
            time.sleep(HEAD_SECONDS + 1)
            client.post(f"{path}/messages", json={"text": "Hello"}).raise_for_status()
            shown = read_until(events, "turn_ended")

    assert [event.event for event in first] == ["snapshot"]
    assert "token" in [event.event for event in shown]
    assert "Hello" in shown[-1].json["data"]["reply"]


def test_a_large_body_is_refused(proxied: Proxied) -> None:
    """H6: a body over the limit gets 413."""
    with proxied.client() as client:
        path = begun(client)
        refused = client.post(f"{path}/messages", json={"text": "x" * 6_000_000})
        taken = client.post(f"{path}/messages", json={"text": "x" * 100_000})

    assert (refused.status_code, taken.status_code) == (413, 202)


def test_a_slow_head_is_cut_off(proxied: Proxied) -> None:
    """The proxy waits for a head no longer than its configuration says."""
    with connected(proxied.port) as client:
        client.send(b"GET /health HTTP/1.1\r\nHost:")
        began = time.monotonic()

        assert client.is_closed()
        assert time.monotonic() - began < PATIENCE / 2


def test_unfinished_heads_keep_nobody_out(proxied: Proxied) -> None:
    """While an address holds 100 connections without the end of a head, others are served, and so is this one."""
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connected(proxied.port)).send(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        for address in ("127.0.0.1", "127.0.0.2"):
            with proxied.client(address) as client:
                assert client.get("/models").status_code == 200


def test_an_address_has_so_many_streams(proxied: Proxied) -> None:
    """What one address holds open is limited, and others are served."""
    if proxied.proxy == "caddy":
        pytest.skip("Caddy does not count the requests of an address.")
    with ExitStack() as stack:
        client, other = (stack.enter_context(proxied.client(address)) for address in ("127.0.0.3", "127.0.0.4"))
        request = f"GET /events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        for _ in range(50):
            held = stack.enter_context(connected(proxied.port, address="127.0.0.3"))
            held.send(request)
            assert held.socket.recv(1)

        assert (client.get("/models").status_code, other.get("/models").status_code) == (503, 200)


def test_the_server_knows_who_calls(proxied: Proxied) -> None:
    """Wrong tokens are counted by the address of the client, not by that of the proxy, whatever the client says."""
    with proxied.client("127.0.0.5") as client:
        lies = {"authorization": "Bearer wrong", "x-forwarded-for": "192.0.2.1"}
        assert client.get("/models", headers=lies).status_code == 401

    until(lambda: any("A wrong token came from 127.0.0.5." in line for line in proxied.server.lines))


def test_the_proxy_waits_longer_than_the_server_is_silent() -> None:
    """A stream is not ended because nothing happens, and the server has fewer connections than it takes."""
    for language, waits, most in [
        ("nginx", "proxy_read_timeout", "max_conns="),
        ("caddy", "read_timeout", "max_conns_per_host "),
    ]:
        block = configuration(language)
        (seconds,) = re.findall(rf"\b{waits} (\d+)s", block)
        (connections,) = re.findall(rf"{most}(\d+)", block)
        assert int(seconds) >= 2 * HttpLimits().keep_alive_seconds
        assert int(connections) < ServerLimits().connections


def test_a_stream_is_resumed_after_a_restart(proxied: Proxied) -> None:
    """H2, H9: the server stops and starts again behind the proxy; a client that resumes with the last id has every
    update once, in order. It comes last: it ends the server of the others."""
    with proxied.client() as client:
        path = begun(client)
        with following(client, path) as events:
            shown = read_until(events, "snapshot")
            client.post(f"{path}/messages", json={"text": "Hello"}).raise_for_status()
            shown += read_until(events, "message")
            proxied.server.process.terminate()
            shown += events
        assert proxied.server.wait() == 0
        with serving(proxied.folder, proxied.server.port) as server:
            until(replace(proxied, server=server).answers)
            last = [event.id for event in shown if event.id][-1]
            if "turn_ended" not in [event.event for event in shown]:
                with following(client, path, last) as events:
                    shown += read_until(events, "turn_ended")
            with following(client, path, shown[0].id) as events:
                uncut = read_until(events, "turn_ended")

    stored = [event for event in shown[1:] if event.id]
    assert next(event for event in shown if event.event == "end").json["data"] == {"reason": "server_stopping"}
    assert stored == [event for event in uncut if event.id]
