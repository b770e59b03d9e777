"""The pages about HTTP: its programs, the doors for other protocols, and the proxies run."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from turnwise import Engine
from turnwise.hosts.http.security import HttpLimits
from turnwise.hosts.http.server import ServerLimits
from turnwise.hosts.http.streams import EndReason
from turnwise.hosts.terminal.configuration import tools_named

from ..support.doors.waiting import until
from ..support.http.event_stream import ServerSentEvent, events_of, read_until
from ..support.http.live_server import PATIENCE, LiveServer, serving, serving_app
from ..support.http.raw_client import connected
from ..support.http.server_process import ServerProcess, started
from ..support.npm.fixtures import node, npm
from ..support.npm.node_packages import NodePackages
from ..support.pages import Page, run, table
from ..support.programs.missing import missing
from ..support.terminal import COMMAND

# --- The page about HTTP: its commands and programs run, and what it lists is what the server has.


PAGE = Page("docs/guides/http.md")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The server that the page starts, with the rehearsal model and the tools of the command."""
    (served,) = PAGE.served_tools
    database = tmp_path_factory.mktemp("database") / "turnwise.db"
    with serving(Engine.open(database, tools=tools_named(served))) as server:
        yield server


@pytest.mark.slow
def test_its_client_holds_a_conversation(server: LiveServer, tmp_path: Path) -> None:
    """It sends a message, answers the question that comes, and prints the reply."""
    (tmp_path / "client.py").write_text(PAGE.files["client.py"], encoding="utf-8")

    ran = run(tmp_path, "client.py", server.url)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "Kikunoi" in ran.stdout


@pytest.mark.slow
def test_its_commands_work_with_curl(server: LiveServer, tmp_path: Path) -> None:
    """They create a conversation, send a message, and read what became of it."""
    if not shutil.which("curl"):
        missing("curl is not installed: `apt-get install curl`.")
    (block,) = re.findall(r"```\n(BASE=.*?)```", PAGE.text, re.DOTALL)
    *commands, transcript = block.replace("http://127.0.0.1:8000", server.url).splitlines()
    replied = f"until {transcript} | grep -q said; do sleep 0.1; done"
    program = "\n".join([*commands, replied, transcript]).replace("--max-time 1", "--max-time 5")

    ran = subprocess.run(["bash", "-euc", program], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert '"id":"dinner"' in ran.stdout
    assert "event: snapshot" in ran.stdout
    assert "You said: “Hello”" in ran.stdout


@pytest.mark.slow
def test_its_upload_works_with_curl(server: LiveServer, tmp_path: Path) -> None:
    """A file is stored, named in a message by its digest, and comes back byte for byte."""
    if not shutil.which("curl"):
        missing("curl is not installed: `apt-get install curl`.")
    (block,) = re.findall(r"```\n(printf .*?)```", PAGE.text, re.DOTALL)
    with server.client() as client:
        client.post("/conversations", json={"id": "banquet"}).raise_for_status()

        commands = block.replace("http://127.0.0.1:8000", server.url).replace("/dinner", "/banquet")
        ran = subprocess.run(["bash", "-euc", commands], cwd=tmp_path, capture_output=True, text=True, timeout=120)

        (said, *_) = client.get("/conversations/banquet/transcript").json()["messages"]
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("month,guests\nMay,120\n")
    assert (said["files"][0]["name"], said["files"][0]["media_type"]) == ("report.csv", "text/csv")


def test_its_program_serves_each_user_their_own_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mounted under a path of another application, with the users of that application."""
    (tmp_path / "server.py").write_text(PAGE.files["server.py"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    app = runpy.run_path("server.py")["app"]

    with serving_app(app) as server, server.client() as client:
        ada, bo = [{"cookie": f"session=secret-of-{name}"} for name in ("ada", "bo")]
        created = client.post("/assistant/conversations", json={}, headers=ada).json()
        path = f"/assistant/conversations/{created['id']}"

        assert created["owner"] == "ada"
        assert client.get(path, headers=ada).status_code == 200
        assert client.get(path, headers=bo).json()["code"] == "unknown_conversation"
        assert client.get("/assistant/conversations").json()["code"] == "unauthorized"
        assert client.get("/assistant/").headers["content-type"] == "text/html; charset=utf-8"


def test_its_example_of_a_problem_is_one(server: LiveServer) -> None:
    """An answer where nothing is asked is refused in these words."""
    (example,) = re.findall(r"```json\n(.*?)```", Page("docs/reference/http-api.md").section("Problems"), re.DOTALL)
    with server.client() as client:
        conversation = client.post("/conversations", json={}).json()["id"]
        refused = client.post(f"/conversations/{conversation}/respond", json={"answers": {"When?": "Now"}})

    assert refused.json() == json.loads(example)


def test_it_lists_the_reasons_why_streams_end() -> None:
    """A client decides by them whether it comes back."""
    (end,) = re.findall(r"- \*\*The end\.\*\*(.*?)\n- ", PAGE.text, re.DOTALL)

    assert set(re.findall(r"`(\w+)`", end)) == {"end", "reason", *get_args(EndReason)}


# --- The page about other protocols: its programs run with the real clients, and what it lists is what the code has.


__all__ = ["node", "npm"]

DOORS_PAGE = Page("docs/guides/doors.md")
(AGENT,) = re.findall(r"```js\n(// agent\.mjs\n.*?)```", DOORS_PAGE.text, re.DOTALL)


@pytest.fixture(scope="module")
def doors_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The server that the page about HTTP starts, to which this page sends its readers."""
    (served,) = Page("docs/guides/http.md").served_tools
    database = tmp_path_factory.mktemp("database") / "turnwise.db"
    with serving(Engine.open(database, tools=tools_named(served))) as server:
        yield server


def printed(folder: Path, name: str, *arguments: str) -> str:
    """What a program of the page prints."""
    (folder / name).write_text(DOORS_PAGE.files[name], encoding="utf-8")
    ran = run(folder, name, *arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.slow
def test_its_completion_is_streamed(doors_server: LiveServer, tmp_path: Path) -> None:
    """And nothing is kept of it."""
    assert "You said: “Hello”" in printed(tmp_path, "chat.py", doors_server.url)
    with doors_server.client() as client:
        assert client.get("/conversations").json()["conversations"] == []


@pytest.mark.slow
def test_its_conversation_answers_a_question(doors_server: LiveServer, tmp_path: Path) -> None:
    """By a number. The program may run again and gets the same."""
    first = printed(tmp_path, "book.py", doors_server.url, "dinner")
    again = printed(tmp_path, "book.py", doors_server.url, "dinner")

    assert "1. " in first
    assert "Kikunoi" in first
    assert first == again


@pytest.mark.slow
def test_its_agent_resumes_after_an_interrupt(doors_server: LiveServer, npm: NodePackages, tmp_path: Path) -> None:
    """With the npm package @ag-ui/client."""
    module = tmp_path / "agent.mjs"
    module.write_text(AGENT, encoding="utf-8")

    assert "Kikunoi" in npm.program(module, doors_server.url, "lunch")


@pytest.mark.slow
def test_its_request_of_another_agent_is_answered(doors_server: LiveServer) -> None:
    """With a task that waits for an answer."""
    pytest.importorskip("a2a", reason="the extra `a2a` is not installed")
    (request,) = re.findall(r"```json\n(.*?)```", DOORS_PAGE.section("A2A"), re.DOTALL)
    with doors_server.client() as client:
        answer = client.post("/a2a", json=json.loads(request), headers={"A2A-Version": "1.0"}).json()

    assert answer["result"]["task"]["contextId"] == "evening"


def test_its_codes_are_those_of_the_code() -> None:
    """Each code of the OpenAI API that the page names is one that the door raises, and it names all."""
    sources = Path(__file__).parents[2].glob("hosts/http/doors/openai*.py")
    raised = {code for path in sources for code in re.findall(r'OpenAiRefusal\(\s*"(\w+)"', path.read_text("utf-8"))}
    named = set(re.findall(r"`(\w+)`", DOORS_PAGE.text.partition("Errors have the shape")[2].partition("\n\n")[0]))

    assert raised - {"invalid_input"} == named


def test_its_reasons_are_those_of_the_code() -> None:
    """The table has each reason of an interrupt."""
    source = Path(__file__).parents[2] / "hosts/http/doors/agui_runs.py"

    assert {reason.strip("`") for reason in table(DOORS_PAGE.text, "`reason`")} == set(
        re.findall(r'reason, schema = "([\w:]+)"', source.read_text("utf-8"))
    )


# --- The configurations of proxies in the page about HTTP, in front of a real server: what they let through, and what
# they keep away.


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
def proxies_serving(folder: Path, port: int) -> Iterator[ServerProcess]:
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
    with proxies_serving(folder, server_port) as server, proxying(COMMANDS[proxy](folder, port, server_port), folder):
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_large_body_is_refused(proxied: Proxied) -> None:
    """H6: a body over the limit gets 413."""
    with proxied.client() as client:
        path = begun(client)
        refused = client.post(f"{path}/messages", json={"text": "x" * 6_000_000})
        taken = client.post(f"{path}/messages", json={"text": "x" * 100_000})

    assert (refused.status_code, taken.status_code) == (413, 202)


@pytest.mark.slow
def test_a_slow_head_is_cut_off(proxied: Proxied) -> None:
    """The proxy waits for a head no longer than its configuration says."""
    with connected(proxied.port) as client:
        client.send(b"GET /health HTTP/1.1\r\nHost:")
        began = time.monotonic()

        assert client.is_closed()
        assert time.monotonic() - began < PATIENCE / 2


@pytest.mark.slow
def test_unfinished_heads_keep_nobody_out(proxied: Proxied) -> None:
    """While an address holds 100 connections without the end of a head, others are served, and so is this one."""
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(connected(proxied.port)).send(b"GET /health HTTP/1.1\r\nHost: x\r\n")
        for address in ("127.0.0.1", "127.0.0.2"):
            with proxied.client(address) as client:
                assert client.get("/models").status_code == 200


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_server_knows_who_calls(proxied: Proxied) -> None:
    """Wrong tokens are counted by the address of the client, not by that of the proxy, whatever the client says."""
    with proxied.client("127.0.0.5") as client:
        lies = {"authorization": "Bearer wrong", "x-forwarded-for": "192.0.2.1"}
        assert client.get("/models", headers=lies).status_code == 401

    until(lambda: any("A wrong token came from 127.0.0.5." in line for line in proxied.server.lines))


@pytest.mark.slow
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


@pytest.mark.slow
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
        with proxies_serving(proxied.folder, proxied.server.port) as server:
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
