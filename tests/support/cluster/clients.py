"""Clients of a cluster: they send every request again until it is acknowledged, and follow what happens.

Each asks any web process, and another one when that one does not answer. What was acknowledged is written into the
journal, so that it can be compared with what is stored.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import httpx

from turnwise.testing.crashes import Journal

from ..http.event_stream import ServerSentEvent, async_events_of
from .cluster import PATIENCE, Cluster
from .member import JOURNAL, QUESTIONS

SCENES = (
    "look note",
    "note pay",
    "pay",
    "look+note talk",
    "talk ask talk",
    "book talk",
    "mail",
    "spawn",
    "note+pay book",
    "talk pay talk",
)
"""What users say."""

REFUSED_FOR_NOW = (429, 500, 502, 503, 504)
"""The answers behind which a request is sent again."""

ENDED = ("completed", "incomplete", "cancelled")


class Client:
    """Sends requests to whatever web process answers."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = Random(seed)
        self.statuses: Counter[str] = Counter()
        """How turns ended, and what was refused."""
        self.repeated = 0
        """How often a request was sent again."""
        self._journal = Journal(cluster.folder / JOURNAL)
        self._http = httpx.AsyncClient(timeout=10)

    async def send(self, path: str, body: dict[str, Any], method: str = "POST") -> httpx.Response:
        """Send a request until it is answered, and return the answer. Raises AssertionError if nobody answers."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if webs := self.cluster.webs():
                try:
                    answer = await self._http.request(method, self.chance.choice(webs) + path, json=body)
                except httpx.TransportError:
                    pass
                else:
                    if answer.status_code not in REFUSED_FOR_NOW:
                        return answer
            self.repeated += 1
            await asyncio.sleep(0.1)
        raise AssertionError(f"{path} was not answered.\n{self.cluster.reported()}")

    async def request(self, conversation_id: str, name: str, request_id: str, **body: Any) -> dict[str, Any] | None:
        """Make a request of a conversation under an id, until it is acknowledged or refused; None if it was refused."""
        id_name = "message_id" if name == "messages" else "request_id"
        answer = await self.send(f"/conversations/{conversation_id}/{name}", {id_name: request_id, **body})
        if answer.is_success:
            if not answer.json().get("no_op"):  # there was nothing to cancel, so nothing is stored
                self._journal.add("taken", conversation_id, request_id)
            return dict(answer.json())
        assert answer.status_code == 409, answer.text
        self.statuses[f"refused: {answer.json()['code']}"] += 1
        return None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        self._journal.close()


class Talker(Client):
    """A user who has one turn after the other, answers what is asked, and tries again what has failed."""

    def __init__(self, cluster: Cluster, conversation_id: str, seed: int, scenes: tuple[str, ...] = SCENES) -> None:
        super().__init__(cluster, seed)
        self.conversation_id = conversation_id
        self.name = f"{conversation_id}-{seed}"
        self._scenes = scenes

    async def talk(self, goes_on: Callable[[], bool]) -> None:
        """Create the conversation, unless it is there, and have turns in it as long as this holds."""
        created = await self.send("/conversations", {"id": self.conversation_id})
        assert created.is_success, created.text
        number = 0
        while goes_on():
            number += 1
            await self.turn(f"{self.name}-m{number}", self.chance.choice(self._scenes))

    async def turn(self, message_id: str, text: str) -> int:
        """Have one turn, see it to its end, and return its number. A repeated request tells how its turn stands now."""
        name, body, tries, end = "messages", {"text": text}, 0, time.monotonic() + 2 * PATIENCE
        request_id = message_id
        while time.monotonic() < end:
            answer = await self.request(self.conversation_id, name, request_id, **body)
            turn = answer["turn"] if answer else {"status": "refused"}
            status = turn["status"]
            if status in ENDED:
                self.statuses[status] += 1
                return int(turn["turn"])
            if status == "failed":
                tries += 1
                self.statuses[f"failed: {turn['failure']}"] += 1
                name, body, request_id = "retry", {}, f"{message_id}-r{tries}"
            elif status == "refused" and name == "retry":
                return 0  # somebody else has retried it, or begun another turn
            elif turn.get("call_id"):
                await self._decide(message_id, turn)
            await asyncio.sleep(0.1)
        raise AssertionError(f"The turn of {message_id} does not end: {turn}.\n{self.cluster.reported()}")

    async def _decide(self, message_id: str, turn: dict[str, Any]) -> None:
        """Do what the turn waits for. A call in doubt is never to run again, so it runs once."""
        call_id, status = turn["call_id"], turn["status"]
        name, body = {
            "awaiting_user": ("respond", {"answers": {QUESTIONS[0]["question"]: "8:15 PM"}}),
            "awaiting_approval": ("approve", {"allowed": True}),
            "in_doubt": ("resolve", {"verdict": self.chance.choice(["ran", "did_not_run"])}),
        }[status]
        self.statuses[status] += 1
        request_id = f"{message_id}-{call_id}-{name}"
        await self.request(self.conversation_id, name, request_id, call_id=call_id, **body)


class Canceller(Client):
    """A user who stops the turns of a conversation now and then."""

    async def cancel(self, conversation_id: str, goes_on: Callable[[], bool]) -> None:
        """Cancel as long as this holds."""
        number = 0
        while goes_on():
            await asyncio.sleep(self.chance.uniform(0.2, 1.5))
            number += 1
            await self.request(conversation_id, "cancel", f"{conversation_id}-c{number}")


class Follower(Client):
    """Follows the updates of a conversation, at another web process whenever a stream breaks off."""

    def __init__(self, cluster: Cluster, conversation_id: str, seed: int, first: str = "") -> None:
        super().__init__(cluster, seed)
        self.conversation_id = conversation_id
        self.first = first
        """The id of the snapshot with which it began."""
        self.ids: list[str] = []
        """The ids of the updates behind the snapshot, as they came."""
        self.ended: dict[int, int] = {}
        """How many updates there were when each turn had ended."""
        self.live = 0
        """How many updates came that are not stored."""

    async def follow(self, turn: int | None = None) -> None:
        """Follow until this turn has ended, or until this is cancelled."""
        while turn is None or turn not in self.ended:
            with suppress(httpx.TransportError):
                await self._read(turn)
            await asyncio.sleep(0.1)

    async def _read(self, turn: int | None) -> None:
        webs = self.cluster.webs()
        if not webs:
            return
        last = self.ids[-1] if self.ids else self.first
        path = f"{self.chance.choice(webs)}/conversations/{self.conversation_id}/events"
        async with self._http.stream("GET", path, headers={"last-event-id": last} if last else {}) as response:
            if response.status_code in (404, *REFUSED_FOR_NOW):  # it is not created yet, or nobody can be asked
                return
            assert response.status_code == 200, await response.aread()
            async for event in async_events_of(response):
                self._take(event)
                if event.event == "end" or turn in self.ended:
                    return

    def _take(self, event: ServerSentEvent) -> None:
        if event.event == "snapshot":
            assert not self.first, "it was given a second snapshot"
            self.first = event.id or ""
        elif event.id:
            self.ids.append(event.id)
        elif event.event != "end":
            self.live += 1
        if event.event == "turn_ended":
            self.ended.setdefault(event.json["data"]["turn"], len(self.ids))

    async def check(self, turn: int) -> None:
        """Check what was received up to the end of this turn: every update once, in order, as another stream that is
        read at once has them. Raises AssertionError."""
        whole = Follower(self.cluster, self.conversation_id, 0, self.first)
        await asyncio.wait_for(whole.follow(turn), PATIENCE)
        await whole.close()
        expected, received = whole.ids[: whole.ended[turn]], self.ids[: self.ended[turn]]
        lost = [one for one in expected if one not in received]
        assert not lost, f"{self.conversation_id}: these updates were lost: {lost}"
        assert received == expected, f"{self.conversation_id}: received {received}, and there are {expected}"


def world_of(lines: list[str]) -> dict[tuple[str, str], Counter[str]]:
    """Return for each call, by tool and key, how often it began and ended, as the ledger has it."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for line in lines:
        kind, name, key, _ = json.loads(line)
        found.setdefault((name, key), Counter())[kind] += 1
    return found
