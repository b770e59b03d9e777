"""Typed answers over HTTP: a client sends a JSON schema with its message, and reads the object in the turn."""

from __future__ import annotations

import json
from typing import Any

import httpx

from turnwise import Engine
from turnwise.testing import ScriptedLlm, call

from ...support.http.live_server import serving

SCHEMA = {"title": "Ticket", "type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def updates_in(stream: httpx.Response) -> Any:
    """Yield the updates of a stream until a turn has ended."""
    for line in stream.iter_lines():
        if line.startswith("data: "):
            update = json.loads(line.removeprefix("data: "))
            yield update
            if update["type"] == "turn_ended":
                return


def test_a_message_brings_a_schema_and_the_turn_has_the_object() -> None:
    """In the update that shows its end; without a schema there is no such field."""
    engine = Engine.open("sqlite://", model=ScriptedLlm([call("final_result", title="It burns"), "Fine."]))
    with serving(engine) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        path = f"/conversations/{client.post('/conversations', json={}).json()['id']}"
        ends = []
        for body in ({"text": "Hello", "output": SCHEMA}, {"text": "Hello"}):
            with client.stream("GET", f"{path}/events") as stream:
                answer = client.post(f"{path}/messages", json=body)
                assert answer.status_code == 202
                ends += [one for one in updates_in(stream) if one["type"] == "turn_ended"]

    assert ends[0]["data"]["output"] == {"title": "It burns"}
    assert "output" not in ends[-1]["data"]


def test_a_conversation_has_a_schema_for_all_its_answers() -> None:
    """It is given when the conversation is created."""
    engine = Engine.open("sqlite://", model=ScriptedLlm([call("final_result", title="It burns")]))
    with serving(engine) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        created = client.post("/conversations", json={"output": SCHEMA}).json()
        path = f"/conversations/{created['id']}"
        with client.stream("GET", f"{path}/events") as stream:
            client.post(f"{path}/messages", json={"text": "Hello"})
            ends = [one for one in updates_in(stream) if one["type"] == "turn_ended"]

    assert ends[0]["data"]["output"] == {"title": "It burns"}


def test_a_schema_that_cannot_be_used_is_refused() -> None:
    """With a 422 that names the field; nothing is stored."""
    engine = Engine.open("sqlite://", model=ScriptedLlm([]))
    with serving(engine) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        path = f"/conversations/{client.post('/conversations', json={}).json()['id']}"
        refused = [
            client.post(f"{path}/messages", json={"text": "Hello", "output": schema})
            for schema in ({"type": 7}, {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}})
        ]

    assert [one.status_code for one in refused] == [422, 422]
    assert all(one.json()["detail"].startswith("output") for one in refused)
