"""What a stream carries: any text, by whichever protocol, read with the means that clients have."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import httpx
import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from turnwise import Engine, tool
from turnwise.effects.model.port import ModelAnswer, ModelRequest, Token
from turnwise.effects.tools.context import ToolContext
from turnwise.hosts.http.sse import data_line
from turnwise.testing import call, reply

from ....support.http.live_server import LiveServer, serving

HALF = "half \ud83d, swapped \ude48\ud83d, and \udfff"
SEPARATED = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh\ni"
FRAMED = "\n\ndata: [DONE]\n\nevent: end\ndata: {}\n\nid: 9.9\n: comment \0 \x1b[31m \ufeff \u202e"
HOSTILE = [HALF, SEPARATED, FRAMED, "🙈" * 3, "</script><!--", "\\ud800 \\u2028 \\"]

MENDED = {text: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in HOSTILE}
"""The texts as a client reads them: half a character is replaced."""


@tool(crash="pure")
async def work(context: ToolContext) -> str:
    """Report and return hostile texts."""
    for text in HOSTILE:
        context.progress(text)
    return "\n".join(HOSTILE)


class HostileLlm:
    """A model that thinks and says what breaks streams, token by token, and calls a tool with it."""

    name = "hostile"

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Call the tool first, and then speak."""
        if any(one["role"] == "tool" for one in request.messages):
            for text in HOSTILE:
                show(Token(text, "thinking"))
                show(Token(text, "text"))
            return reply("".join(HOSTILE), thinking="".join(HOSTILE))
        return call("work")


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    """A server whose model is hostile."""
    with serving(Engine.open("sqlite://", model=HostileLlm(), tools=[work])) as running:
        yield running


def read(response: httpx.Response) -> list[Any]:
    """The data of all events, read line by line as httpx splits lines: also at the separators of Unicode."""
    lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


class TestEveryStream:
    """Each arrives whole over a real connection."""

    def test_of_updates(self, server: LiveServer) -> None:
        """The updates of the conversation itself, and of the tree."""
        with server.client() as client:
            client.post("/conversations", json={"id": "updates"}).raise_for_status()
            client.post(
                "/conversations/updates/messages", json={"text": HALF.encode("utf-16", "replace").decode("utf-16")}
            )
            with client.stream("GET", "/conversations/updates/events", params={"last_event_id": "1.0"}) as response:
                updates = []
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        updates.append(json.loads(line.removeprefix("data: ")))
                        if updates[-1]["type"] == "turn_ended":
                            break

        assert updates[-1]["data"]["reply"] == "".join(map(MENDED.__getitem__, HOSTILE))

    def test_of_completions(self, server: LiveServer) -> None:
        """The chunks of a completion make its text, and end as they should."""
        body = {"model": "hostile", "messages": [{"role": "user", "content": "go"}], "stream": True}
        with server.client() as client, client.stream("POST", "/v1/chat/completions", json=body) as response:
            chunks = read(response)

        text = "".join(one["delta"].get("content") or "" for chunk in chunks for one in chunk["choices"])
        assert text.endswith("".join(map(MENDED.__getitem__, HOSTILE)))
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"

    @pytest.mark.parametrize("text", HOSTILE)
    def test_of_runs(self, server: LiveServer, text: str) -> None:
        """The events of a run are those of the protocol, whatever stands in ids and states that the client has sent and
        that are sent back to it; the run ends with an event that says how."""
        message = {"id": f"m {text}", "role": "user", "content": f"go {text}"}
        run = {"threadId": text, "runId": text, "parentRunId": text, "state": {text: [text, {"x": text}]}}
        content = json.dumps({**run, "messages": [message], "tools": [], "context": [], "forwardedProps": {}})
        headers = {"content-type": "application/json"}
        with server.client() as client, client.stream("POST", "/agui", content=content, headers=headers) as response:
            if response.status_code == 400:  # an unreadable body is refused as a whole
                assert "\0" in text
                return
            events = read(response)

        for event in events:
            TypeAdapter[Any](Event).validate_python(event)
        assert (events[0]["type"], events[0]["runId"]) == ("RUN_STARTED", MENDED[text])
        assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")

    def test_of_a_run_with_such_a_state(self, server: LiveServer) -> None:
        """A state that holds half characters, and numbers that no JSON has, is sent back as JSON."""
        message = {"id": "m", "role": "user", "content": "go"}
        body = {
            "threadId": "state",
            "runId": "r",
            "messages": [message],
            "tools": [],
            "context": [],
            "state": {"\ud800": nan},
        }
        content = json.dumps({**body, "forwardedProps": {}})
        headers = {"content-type": "application/json"}
        with server.client() as client, client.stream("POST", "/agui", content=content, headers=headers) as response:
            events = read(response)

        snapshot = next(event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT")
        assert snapshot["\ufffd"] is None
        assert events[-1]["type"] == "RUN_FINISHED"
        said = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
        assert said.endswith("".join(map(MENDED.__getitem__, HOSTILE)))

    def test_of_tasks(self, server: LiveServer) -> None:
        """The events of a task of another agent."""
        pytest.importorskip("a2a", reason="the extra `a2a` is not installed")
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": f"go {SEPARATED}"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
        headers = {"a2a-version": "1.0"}
        with server.client() as client, client.stream("POST", "/a2a", json=body, headers=headers) as response:
            events = [event["result"] for event in read(response)]

        pieces = [one["artifactUpdate"]["artifact"]["parts"][0]["text"] for one in events if "artifactUpdate" in one]
        assert "".join(pieces).endswith("".join(map(MENDED.__getitem__, HOSTILE)))
        assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


class TestTheLine:
    """The data of an event."""

    @pytest.mark.parametrize("text", HOSTILE)
    def test_is_one_line_of_json(self, text: str) -> None:
        """Wherever a program splits lines, and whether the text is a name or a value."""
        line = data_line({text: [text]}).decode()

        assert line.splitlines() == [line.removesuffix("\n")]
        assert json.loads(line.removeprefix("data: ")) == {MENDED[text]: [MENDED[text]]}

    def test_has_no_number_that_json_lacks(self) -> None:
        """JSON has neither NaN nor an infinite number."""
        line = data_line({"a": [nan, 1.5, (inf, -inf)], "b": 3})

        assert line == b'data: {"a":[null,1.5,[null,null]],"b":3}\n'
