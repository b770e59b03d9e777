"""The page about HTTP: its commands and programs run, and what it lists is what the server has."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from turnwise import Engine
from turnwise.hosts.http.streams import EndReason
from turnwise.hosts.terminal.configuration import tools_named

from ..support.http.live_server import LiveServer, serving, serving_app
from ..support.pages import Page, run
from ..support.programs.missing import missing

PAGE = Page("docs/http.md")


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
    commands = block.replace("http://127.0.0.1:8000", server.url)

    ran = subprocess.run(["bash", "-euc", commands], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert '"id":"dinner"' in ran.stdout
    assert "event: snapshot" in ran.stdout
    assert "You said: “Hello”" in ran.stdout


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
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.section("Problems"), re.DOTALL)
    with server.client() as client:
        conversation = client.post("/conversations", json={}).json()["id"]
        refused = client.post(f"/conversations/{conversation}/respond", json={"answers": {"When?": "Now"}})

    assert refused.json() == json.loads(example)


def test_it_lists_the_reasons_why_streams_end() -> None:
    """A client decides by them whether it comes back."""
    (end,) = re.findall(r"- \*\*The end\.\*\*(.*?)\n- ", PAGE.text, re.DOTALL)

    assert set(re.findall(r"`(\w+)`", end)) == {"end", "reason", *get_args(EndReason)}


def test_its_links_lead_somewhere() -> None:
    """Each names a file or a heading."""
    assert PAGE.broken_links() == []
