"""Clients of other programs, over a real socket: two at once, and curl."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from ...support.http.event_stream import EventStreamParser
from ...support.http.live_server import PATIENCE, LiveServer, serving
from ...support.http.obedient_model import obedient_engine
from ...support.programs.missing import missing

pytestmark = pytest.mark.slow

TOKEN = "a-token-for-tests"


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A server that all tests of this module share."""
    with serving(obedient_engine(), token=TOKEN) as running:
        yield running


class TestTwoClients:
    """Two people at two screens."""

    async def test_that_answer_one_question_at_once(self, server: LiveServer) -> None:
        """H5: one answer is taken, the other is refused with 409 `wrong_state`, and both see the same afterwards."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with server.async_client(headers=headers) as ann, server.async_client(headers=headers) as bob:
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

    def test_creates_sends_and_follows(self, server: LiveServer) -> None:
        """A conversation is created, a message sent, and its updates read until the stream ends with the close."""
        mine = self.posted(f"{server.url}/conversations", {"title": "With curl"})["id"]
        conversation = f"{server.url}/conversations/{mine}"
        sent = self.posted(f"{conversation}/messages", {"text": "Hello", "message_id": "m"})
        self.posted(f"{conversation}/close", {})
        events = EventStreamParser().feed(
            self.curl("--header", "Last-Event-ID: 1.0", f"{conversation}/events").encode()
        )

        assert sent["message_id"] == "m"
        assert [event.json["data"]["text"] for event in events if event.event == "message"][:1] == ["Hello"]
        assert (events[-1].event, events[-1].json["data"]) == ("end", {"reason": "closed"})
