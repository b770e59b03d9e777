"""The how-to pages, followed step by step: what they show is what their readers see."""

from __future__ import annotations

import runpy
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from ..support.http.event_stream import events_of
from ..support.http.live_server import serving_app
from ..support.pages import Page
from ..support.walkthroughs import PATIENCE, Walk, blocks_of, matches, run_cells

WALKED = ("chat-server", "data", "flask-and-notebooks", "nightly-batch", "operations", "testing-a-bot", "voice-host")
"""The how-to pages that are written as steps: files, commands, and what these print."""

GUIDES = [Page(f"docs/guides/{name}.md") for name in WALKED]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.path.stem)
def test_its_commands_print_what_it_shows(page: Page, tmp_path: Path) -> None:
    """In an empty folder, from the first command to the last."""
    with Walk(tmp_path) as walk:
        walk.follow(page)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.path.stem)
def test_it_has_commands_and_shows_what_they_print(page: Page) -> None:
    """So none of them is tested in vain."""
    assert any(block.is_run and block.shown for block in blocks_of(page))


# --- The chat server keeps its users apart, and bounds what they cost.


@pytest.fixture
def chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A client of the server with endpoints of its own, as Ada."""
    (tmp_path / "server.py").write_text(Page("docs/guides/chat-server.md").files["server.py"], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with serving_app(runpy.run_path("server.py")["app"]) as server, server.client() as client:
        client.headers["authorization"] = "Bearer key-of-ada"
        yield client


BO = {"authorization": "Bearer key-of-bo"}


@pytest.mark.slow
def test_the_chat_server_keeps_its_users_apart(chats: httpx.Client) -> None:
    """A chat of another user is as one that does not exist, and a caller without a key gets nothing."""
    chat = chats.post("/chats").json()["id"]
    paths = [f"/chats/{chat}/usage", f"/chats/{chat}/events", "/chats/none/usage"]

    assert [chats.get(path, headers=BO).status_code for path in paths] == [404, 404, 404]
    assert chats.get("/chats", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert [one["id"] for one in chats.get("/chats").json()] == [chat]


@pytest.mark.slow
def test_the_chat_server_limits_messages(chats: httpx.Client) -> None:
    """So many a minute of one user; another one is not concerned. Neither a message that is sent again counts, nor one
    that is refused."""
    chat = chats.post("/chats").json()["id"]
    missing = {"sha256": "0" * 64, "url": "", "media_type": "text/csv", "name": "report.csv", "size": 21}
    refused = chats.post(f"/chats/{chat}/messages", json={"id": "0", "text": "Hello!", "files": [missing]})
    assert refused.status_code == 422
    answers = [
        chats.post(f"/chats/{chat}/messages", json={"id": str(number), "text": "Hello!"}) for number in range(11)
    ]

    again = chats.post(f"/chats/{chat}/messages", json={"id": "0", "text": "Hello!"})

    assert [answer.status_code for answer in answers] == [202] * 10 + [429]
    assert again.status_code == 202
    chat = chats.post("/chats", headers=BO).json()["id"]
    assert chats.post(f"/chats/{chat}/messages", json={"id": "1", "text": "Hi"}, headers=BO).status_code == 202


@pytest.mark.slow
def test_a_file_of_another_chat_is_refused(chats: httpx.Client) -> None:
    """Whoever knows its digest has nothing by it."""
    chat, other = (chats.post("/chats").json()["id"] for _ in range(2))
    file = chats.post(f"/chats/{chat}/files?name=a.txt", content=b"Secret").json()

    refused = chats.post(f"/chats/{other}/messages", json={"id": "1", "files": [file]})

    assert refused.status_code == 422
    assert refused.json()["code"] == "invalid_input"


@pytest.mark.slow
def test_the_chat_server_answers_with_an_object(chats: httpx.Client) -> None:
    """Of the type that its endpoint asks the model for."""
    path = f"/chats/{chats.post('/chats').json()['id']}"

    answer = chats.post(f"{path}/ticket", json={"id": "1", "text": 'My parcel "Blue" is lost'})

    assert (answer.status_code, {*answer.json()}) == (200, {"title", "urgent"})


@pytest.mark.slow
def test_calls_answers_and_edits_go_through_the_chat_server(chats: httpx.Client) -> None:
    """A call waits for approval; a message is edited; a turn that is over cannot be stopped."""
    chat = chats.post("/chats").json()["id"]
    path = f"/chats/{chat}"
    chats.post(f"{path}/messages", json={"id": "1", "text": "Cancel the order 7"})
    with chats.stream("GET", f"{path}/events") as events:
        shown = (event.json for event in events_of(events))
        states = (one.get("state", one).get("data", {}) for one in shown)  # of a snapshot, or of a change
        call_id = next(state["call_id"] for state in states if "call_id" in state)

    allowed = chats.post(f"{path}/approvals", json={"call_id": call_id, "allowed": True})
    late = chats.post(f"{path}/approvals", json={"call_id": call_id, "allowed": False})
    edited = chats.post(f"{path}/edits", json={"id": "1", "text": "Hello!"})

    assert (allowed.status_code, late.status_code, edited.status_code) == (202, 409, 202)
    assert chats.post(f"{path}/cancel?turn=1").json() == {"nothing_to_stop": True}


# --- The notebook.


@pytest.mark.slow
def test_the_cells_of_the_notebook_print_what_they_show(tmp_path: Path) -> None:
    """One after the other, in an event loop that runs already."""
    cells = [block for block in blocks_of(Page("docs/guides/flask-and-notebooks.md")) if block.is_cell]

    assert run_cells(cells, tmp_path) == "".join(cell.shown or "" for cell in cells)
    assert len(cells) > 3


# --- The batch goes on where it was.


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_batch_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    """Killed in the middle, it labels what is left: each item has one message and one answer in the end."""
    for name, text in Page("docs/guides/nightly-batch.md").files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with subprocess.Popen([sys.executable, "label.py"], cwd=tmp_path) as first:
        until_stored(tmp_path / "batch.db", 40)
        first.kill()

    second = subprocess.run([sys.executable, "label.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200)

    assert second.returncode == 0, second.stderr
    assert "  200 completed\n" in second.stdout
    assert count(tmp_path / "batch.db", "user_message") == 200


def until_stored(database: Path, messages: int) -> None:
    """Return when so many messages are stored."""
    end = time.monotonic() + PATIENCE
    while not database.exists() or count(database, "user_message") < messages:
        assert time.monotonic() < end, "Nothing is stored."
        time.sleep(0.05)


def count(database: Path, kind: str) -> int:
    """How many events of this type are stored."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as look:
        try:
            (number,) = look.execute("SELECT count(*) FROM events WHERE type = ?", [kind]).fetchone()
        except sqlite3.OperationalError:  # the tables are just being made
            return 0
    return int(number)


# --- The reader's eyes.


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("Hello\n", "Hello \n", True),
        ("Hello\n", "Hello\nthere\n", False),
        ("Hello …\n", "Hello you and\n", True),
        ("Hello …\n", "Hello\nyou\n", False),
        ("…\nthere\n", "Hello\nyou\nthere\n", True),
        ("…\nthere\n", "Hello\nyou\n", False),
        ("a.c\n", "abc\n", False),
    ],
)
def test_a_difference_is_seen(shown: str, printed: str, same: bool) -> None:
    """… stands for anything within a line, and alone for any lines; nothing else does."""
    assert matches(shown, printed) is same
