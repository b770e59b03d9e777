"""`turnwise serve`: where it listens, whom it serves, and how it stops and goes on."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path

import httpx
import pytest

from ....support.http.live_server import PATIENCE
from ....support.http.server_process import started
from ....support.terminal import COMMAND, InProcessRun, assert_one_sentence

HARD = "9f86d081884c7d659a2feaa0c55ad015"
"""A token as it should be."""


class TestRefusals:
    """What does not start: each is one sentence and exit code 2."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
    def test_without_a_token_only_this_machine_is_served(self, in_process: InProcessRun, host: str) -> None:
        """H6: an address that other machines can reach is not served without a token."""
        done = in_process("serve", "--port", "0", "--host", host)

        assert_one_sentence(done, "A server that other machines can reach needs a token: give --token, or set")

    @pytest.mark.parametrize("token", ["a", "correct-horse", "a" * 40, "0123456789" * 4, "ab12cd" * 5, "x" + "y" * 30])
    def test_a_token_that_is_easy_to_guess_is_refused(self, in_process: InProcessRun, token: str) -> None:
        """A server that others can reach wants a token that nobody finds by trying, wherever it was given."""
        given = in_process("serve", "--port", "0", "--host", "0.0.0.0", "--token", token)

        assert_one_sentence(given, "A token that others must not guess is random and has at least 20 characters")
        assert len(token) == 1 or token not in given.stderr

    @pytest.mark.slow
    def test_on_this_machine_any_token_will_do(self, tmp_path: Path) -> None:
        """Who can reach the server can read the files of its owner as well."""
        with started([*COMMAND, "serve", "--port", "0", "--token", "a"], tmp_path, {}) as server:
            headers = {"authorization": "Bearer a"}
            assert httpx.get(f"{server.url}/conversations", headers=headers, timeout=PATIENCE).status_code == 200

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["--host", "nonesuch.invalid"], "The host nonesuch.invalid is not known."),
            (["--host", "192.0.2.1", "--token", HARD], "this machine does not have the address"),
            (["--port", "70000"], "The setting port is not valid"),
            (["--port", "0", "--token", "two words"], "A token consists of visible ASCII characters"),
            (["--port", "0", "--origin", "example.org"], "An origin reads like https://example.org"),
            (["--port", "0", "--preset", "nonesuch"], "There is no preset called nonesuch."),
            (["--port", "0", "--demo", "--db", "x.db"], "give --demo without --db,"),
        ],
    )
    def test_what_cannot_work_is_said(self, in_process: InProcessRun, arguments: list[str], sentence: str) -> None:
        """A wrong option is found before anything is created."""
        assert_one_sentence(in_process("serve", *arguments), sentence)

        assert not Path("turnwise.db").exists()

    def test_a_port_in_use_is_said(self, in_process: InProcessRun) -> None:
        """The sentence names the port."""
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            done = in_process("serve", "--port", str(port))

        assert_one_sentence(done, f"127.0.0.1, port {port}: another program uses the port.")

    def test_a_foreign_database_is_said(self, in_process: InProcessRun, tmp_path: Path) -> None:
        """A database that cannot be opened ends the command before it listens."""
        (tmp_path / "x.db").write_bytes(b"no database" * 100)

        done = in_process("serve", "--port", "0", "--db", "x.db")

        assert_one_sentence(done, "x.db")
        assert done.stdout == ""

    def test_the_extra_is_named(self, in_process: InProcessRun, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the libraries of the extra `http` the command says how to install them."""
        found = importlib.util.find_spec
        monkeypatch.setattr(
            "turnwise.hosts.terminal.commands.app.find_spec",
            lambda name: None if name == "sse_starlette" else found(name),
        )

        assert_one_sentence(in_process("serve"), 'pip install "turnwise[http]"')


@pytest.mark.slow
class TestServing:
    """A server in a process of its own."""

    def test_a_token_and_an_owner_are_for_all_requests(self, tmp_path: Path) -> None:
        """H6, H9: the token may come from the environment, the owner is that of every conversation, and SIGTERM ends
        the process with the exit code 0."""
        environment = {"TURNWISE_TOKEN": "correct-horse", "TURNWISE_OWNER": "ada"}
        with started([*COMMAND, "serve", "--port", "0"], tmp_path, environment) as server:
            refused = httpx.get(f"{server.url}/conversations", timeout=PATIENCE)
            headers = {"authorization": "Bearer correct-horse", "host": "chat.example"}
            created = httpx.post(f"{server.url}/conversations", json={}, headers=headers, timeout=PATIENCE)
            code = server.terminate()

        assert (refused.status_code, refused.json()["code"]) == (401, "unauthorized")
        assert (created.status_code, created.json()["owner"]) == (201, "ada")
        assert (code, server.lines) == (0, [f"turnwise serves {server.url}/\n"])
