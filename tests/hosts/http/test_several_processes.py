"""HTTP servers over one PostgreSQL database, each a process of its own, of which two perform nothing: a client may send
each request to another one, and goes on with a stream at another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import openai
import pytest

from ...support.http.event_stream import ServerSentEvent, events_of, read_until
from ...support.http.live_server import PATIENCE
from ...support.http.server_process import ServerProcess, started
from ...support.pages import ROOT
from ...support.postgres.fixtures import Databases

pytestmark = pytest.mark.slow

PROGRAM = ("-m", "tests.support.http.shared_server")

Clients = tuple[httpx.Client, httpx.Client]


@pytest.fixture(scope="module")
def servers(postgres_databases: Databases) -> Iterator[list[ServerProcess]]:
    """Two web processes, and a worker."""
    url = postgres_databases.create()
    with ExitStack() as running:
        running.callback(postgres_databases.drop, url)
        roles = ("worker", "web", "web")
        worker, *webs = [running.enter_context(started([*PROGRAM, role, url], ROOT)) for role in roles]
        yield [*webs, worker]


@pytest.fixture
def clients(servers: list[ServerProcess]) -> Iterator[Clients]:
    """Clients of the two web processes."""
    with ExitStack() as opened:
        first, second = [
            opened.enter_context(httpx.Client(base_url=server.url, timeout=PATIENCE)) for server in servers[:2]
        ]
        yield first, second


def created(client: httpx.Client, **fields: Any) -> str:
    """Create a conversation, and return its path."""
    response = client.post("/conversations", json=fields)
    assert response.status_code == 201, response.text
    return f"/conversations/{response.json()['id']}"


def sent(client: httpx.Client, path: str, text: str) -> None:
    """Send a message, and return once it is stored."""
    response = client.post(f"{path}/messages", json={"text": text})
    assert response.status_code == 202, response.text


@contextmanager
def following(client: httpx.Client, path: str, after: str | None = None) -> Iterator[Iterator[ServerSentEvent]]:
    """Follow a stream from its beginning, or after an event."""
    headers = {} if after is None else {"Last-Event-ID": after}
    with client.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, response.read()
        yield events_of(response)


def ends_turn(number: int) -> Any:
    """Tell the event by which this turn ends."""
    return lambda event: event.event == "turn_ended" and event.json["data"]["turn"] == number


def ids(events: list[ServerSentEvent]) -> list[str]:
    """The ids of the events that have one."""
    return [event.id for event in events if event.id is not None]


class TestStreams:
    """The updates of one conversation."""

    def test_a_client_that_changes_the_server_at_every_event_misses_nothing(self, clients: Clients) -> None:
        """Each stored update comes once, and in order, whatever server sends it."""
        path = created(clients[0])
        with following(clients[0], f"{path}/events") as events:
            last = read_until(events, "snapshot")[-1].id
        first = last
        sent(clients[1], path, "look 5 say All of it.")
        seen: list[str] = []
        is_over = False
        while not is_over:
            with following(clients[len(seen) % 2], f"{path}/events", last) as events:
                event = next(event for event in events if event.id is not None)
            assert event.id is not None
            last = event.id
            seen.append(last)
            is_over = ends_turn(1)(event)
        with following(clients[0], f"{path}/events", first) as events:
            at_once = ids(read_until(events, ends_turn(1)))

        assert seen == at_once
        assert len(seen) > 20

    def test_what_is_written_is_seen_at_every_server(self, clients: Clients) -> None:
        """Tokens come while the answer is written by a third process."""
        path = created(clients[0])
        words = " ".join(f"word-{number}" for number in range(60))
        with following(clients[0], f"{path}/events") as left, following(clients[1], f"{path}/events") as right:
            read_until(left, "snapshot")
            read_until(right, "snapshot")
            sent(clients[0], path, f"say {words}")
            found = [read_until(events, ends_turn(1)) for events in (left, right)]

        for events in found:
            tokens = [event.json["data"]["text"] for event in events if event.event == "token"]
            assert f"{words} ".startswith("".join(tokens))
            assert len(tokens) > 5
        assert ids(found[0]) == ids(found[1])

    def test_a_tree_is_seen_at_every_server(self, clients: Clients) -> None:
        """What begins, moves and is deleted at the other server, and that of no other owner."""
        with following(clients[1], "/events?owner=anna") as events:
            read_until(events, lambda event: event.json["type"] == "tree_snapshot")
            path, other = created(clients[0], owner="anna"), created(clients[0], owner="berta")
            for conversation in (other, path):
                sent(clients[0], conversation, "look 2 say Done.")
            found = read_until(events, lambda event: event.json["type"] == "turn_ended")
            clients[0].delete(path)
            found += read_until(events, lambda event: event.json["type"] == "conversation_deleted")

        assert {event.json["conversation_id"] for event in found} == {path.rpartition("/")[2]}
        assert found[0].json["type"] == "conversation_opened"
        assert [event.json["data"]["text"] for event in found if event.json["type"] == "message"][-1] == "Done. "

    def test_a_stream_ends_when_the_conversation_is_deleted_elsewhere(self, clients: Clients) -> None:
        """With the reason."""
        path = created(clients[0])
        with following(clients[1], f"{path}/events") as events:
            read_until(events, "snapshot")
            assert clients[0].delete(path).status_code == 204
            (end,) = read_until(events, "end")

        assert end.json["data"] == {"reason": "deleted"}


class TestRequests:
    """A client that sends each request to another server."""

    def test_a_question_is_answered_at_the_other_server(self, clients: Clients) -> None:
        """As soon as it was seen at one of them."""
        for turn in range(1, 6):
            path = created(clients[0])
            with following(clients[0], f"{path}/events") as events:
                sent(clients[0], path, "ask say Booked.")
                read_until(events, lambda event: event.event == "state_change" and "questions" in event.data)
            answered = clients[1].post(f"{path}/respond", json={"answers": {"When?": "6:30 PM"}})

            assert answered.status_code == 200, (turn, answered.text)
            assert clients[0].get(path).json()["state"]["type"] != "awaiting_user_response"

    def test_a_request_that_is_repeated_elsewhere_is_taken_once(self, clients: Clients) -> None:
        """By its id, which stands in the log."""
        path = created(clients[0])
        for client in (*clients, *clients):
            response = client.post(f"{path}/messages", json={"text": "say Once.", "message_id": "m-1"})
            assert response.status_code == 202, response.text
        with following(clients[1], f"{path}/events") as events:
            (snapshot,) = read_until(events, "snapshot")

        said = [message["text"] for message in snapshot.json["data"]["transcript"] if message["role"] == "user"]
        assert said == ["say Once."]

    def test_a_completion_is_streamed_and_repeated_elsewhere(self, servers: list[ServerProcess]) -> None:
        """The door of the OpenAI API, in a conversation that is kept."""
        texts = []
        for server in servers[:2]:
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
                chunks = client.chat.completions.create(
                    model="words",
                    messages=[{"role": "user", "content": "look 2 say One two three."}],
                    stream=True,
                    extra_headers={"Idempotency-Key": "once"},
                    metadata={"conversation_id": "kept"},
                )
                texts.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))

        assert texts[0] == texts[1]
        assert texts[0].endswith("One two three. ")
        assert texts[0].count("Looking") == 2
