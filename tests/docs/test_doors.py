"""The page about other protocols: its programs run with the real clients, and what it lists is what the code has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise import Engine
from turnwise.hosts.terminal.configuration import tools_named

from ..support.http.live_server import LiveServer, serving
from ..support.npm.fixtures import node, npm
from ..support.npm.node_packages import NodePackages
from ..support.pages import Page, run, table

__all__ = ["node", "npm"]

PAGE = Page("docs/doors.md")
(AGENT,) = re.findall(r"```js\n(// agent\.mjs\n.*?)```", PAGE.text, re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The server that the page about HTTP starts, to which this page sends its readers."""
    (served,) = Page("docs/http.md").served_tools
    database = tmp_path_factory.mktemp("database") / "turnwise.db"
    with serving(Engine.open(database, tools=tools_named(served))) as server:
        yield server


def printed(folder: Path, name: str, *arguments: str) -> str:
    """What a program of the page prints."""
    (folder / name).write_text(PAGE.files[name], encoding="utf-8")
    ran = run(folder, name, *arguments)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.slow
def test_its_completion_is_streamed(server: LiveServer, tmp_path: Path) -> None:
    """And nothing is kept of it."""
    assert "You said: “Hello”" in printed(tmp_path, "chat.py", server.url)
    with server.client() as client:
        assert client.get("/conversations").json()["conversations"] == []


@pytest.mark.slow
def test_its_conversation_answers_a_question(server: LiveServer, tmp_path: Path) -> None:
    """By a number. The program may run again and gets the same."""
    first = printed(tmp_path, "book.py", server.url, "dinner")
    again = printed(tmp_path, "book.py", server.url, "dinner")

    assert "1. " in first
    assert "Kikunoi" in first
    assert first == again


@pytest.mark.slow
def test_its_agent_resumes_after_an_interrupt(server: LiveServer, npm: NodePackages, tmp_path: Path) -> None:
    """With the npm package @ag-ui/client."""
    module = tmp_path / "agent.mjs"
    module.write_text(AGENT, encoding="utf-8")

    assert "Kikunoi" in npm.program(module, server.url, "lunch")


@pytest.mark.slow
def test_its_request_of_another_agent_is_answered(server: LiveServer) -> None:
    """With a task that waits for an answer."""
    pytest.importorskip("a2a", reason="the extra `a2a` is not installed")
    (request,) = re.findall(r"```json\n(.*?)```", PAGE.section("A2A"), re.DOTALL)
    with server.client() as client:
        answer = client.post("/a2a", json=json.loads(request), headers={"A2A-Version": "1.0"}).json()

    assert answer["result"]["task"]["contextId"] == "evening"


def test_its_codes_are_those_of_the_code() -> None:
    """Each code of the OpenAI API that the page names is one that the door raises, and it names all."""
    sources = Path(__file__).parents[2].glob("hosts/http/doors/openai*.py")
    raised = {code for path in sources for code in re.findall(r'OpenAiRefusal\(\s*"(\w+)"', path.read_text("utf-8"))}
    named = set(re.findall(r"`(\w+)`", PAGE.text.partition("Errors have the shape")[2].partition("\n\n")[0]))

    assert raised - {"invalid_input"} == named


def test_its_reasons_are_those_of_the_code() -> None:
    """The table has each reason of an interrupt."""
    source = Path(__file__).parents[2] / "hosts/http/doors/agui_runs.py"

    assert {reason.strip("`") for reason in table(PAGE.text, "`reason`")} == set(
        re.findall(r'reason, schema = "([\w:]+)"', source.read_text("utf-8"))
    )


def test_its_links_lead_somewhere() -> None:
    """Each names a file or a heading."""
    assert PAGE.broken_links() == []
