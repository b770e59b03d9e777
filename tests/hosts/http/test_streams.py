"""Updates of a conversation as Server-Sent Events, cut off and resumed at any point; they carry any text, by whichever
protocol, read with the means that clients have.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import httpx
import pytest
from ag_ui.core import Event
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnwise import Conversation, Engine, EngineClosed, InvalidInput, tool
from turnwise.effects.model.port import ModelAnswer, ModelRequest, Token
from turnwise.effects.tools.context import ToolContext
from turnwise.hosts.http.security import HttpLimits
from turnwise.hosts.http.streams import PIECE, PiecewiseSend, data_line, tree_stream, update_stream
from turnwise.testing import call, reply
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm

from ...support.engine_scenarios import QUESTION, Gate, answers_after
from ...support.http.event_stream import EventStreamParser, ServerSentEvent
from ...support.http.live_server import LiveServer, serving
from ...support.http.stream_reader import reading

LIMITS = HttpLimits()


def served(engine: Engine, conversation: Conversation, after: str | None = None) -> ASGIApp:
    """The stream of a conversation as an application."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await update_stream(engine, conversation, after, LIMITS)
        await response(scope, receive, send)

    return app


def stored(events: list[ServerSentEvent]) -> list[ServerSentEvent]:
    """The events that can be resumed after."""
    return [event for event in events if event.id is not None]


@tool
async def look(place: str) -> str:
    """Look."""
    return f"{place}:\r\n{'x' * 40}\u2028\nevent: fake\ndata: fake\n\n"


def model() -> ScriptedLlm:
    """A model that calls a tool, asks the user and answers."""
    return ScriptedLlm(
        [call("look", place="Tōkyō"), call("ask_user_question", questions=[QUESTION]), reply("Done.\n\ndata: x\n\n")]
    )


async def run(conversation: Conversation) -> None:
    """Hold a conversation that has updates of most types."""
    await conversation.send("Go")
    await conversation.answer({"When?": "6:30 PM"})


def ended(reason: str) -> ServerSentEvent:
    """The last event of a stream."""
    return ServerSentEvent("end", f'{{"type":"end","id":null,"data":{{"reason":"{reason}"}}}}')


async def _check_cuts(engine: Engine, conversation: Conversation, live: list[ServerSentEvent], size: int) -> None:
    """Read the stream in pieces, each cut off after some bytes and resumed after the last complete update."""
    loop = asyncio.get_running_loop()

    @settings(max_examples=40)
    @given(st.lists(st.integers(0, size), min_size=1, max_size=6))
    def check(cuts: list[int]) -> None:
        asyncio.run_coroutine_threadsafe(resumed(cuts), loop).result(60)

    async def resumed(cuts: list[int]) -> None:
        shown = live[:1]
        for cut in [*cuts, size]:
            if shown[-1] != live[-1]:
                async with reading(served(engine, conversation, shown[-1].id)) as reader:
                    await reader.until_id(live[-1].id)
                shown += stored(EventStreamParser().feed(reader.received[:cut]))
        assert shown == live

    await asyncio.to_thread(check)


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


class TestResuming:
    """A stream that is cut off at any point and resumed."""

    async def test_a_newcomer_gets_the_snapshot_first(self) -> None:
        """H2: the first event of a new stream is a snapshot, and each event is what the schema says."""
        async with Engine.open("sqlite://", model=model(), tools=[look, "ask_user_question"]) as engine:
            conversation = await engine.create()
            await run(conversation)
            async with reading(served(engine, conversation)) as reader:
                first = await reader.until_event("snapshot")

        assert reader.events[0] == first
        assert first.json == {"type": "snapshot", "id": first.id, "data": first.json["data"]}
        assert reader.received.startswith(b"retry: 1000\n\n")

    @pytest.mark.slow
    async def test_a_run_cut_anywhere_shows_every_update_once(self) -> None:
        """H2: wherever the bytes of a stream are cut off, all updates come once and in order, whatever they quote."""
        async with Engine.open("sqlite://", model=model(), tools=[look, "ask_user_question"]) as engine:
            conversation = await engine.create()
            async with reading(served(engine, conversation)) as reader:
                await reader.until_event("snapshot")
                await run(conversation)
                await reader.until_event("turn_ended")
            live = stored(reader.events)
            assert len({event.id for event in live}) == len(live) > 12

            await _check_cuts(engine, conversation, live, len(reader.received))

    async def test_a_run_cut_while_it_goes_on_shows_every_update_once(self) -> None:
        """H2: a client that loses its connection after every event of a run under way has all updates at the end."""
        async with Engine.open("sqlite://", model=model(), tools=[look, "ask_user_question"]) as engine:
            conversation = await engine.create()
            async with reading(served(engine, conversation)) as uncut:
                beginning = await uncut.until_event("snapshot")
                running = asyncio.ensure_future(run(conversation))
                shown = [beginning]
                while shown[-1].event != "turn_ended":
                    async with reading(served(engine, conversation, shown[-1].id)) as reader:
                        shown.append(await reader.until_stored())
                await running
                await uncut.until_event("turn_ended")

        assert shown == stored(uncut.events)

    @pytest.mark.parametrize("after", ["nonsense", "1", "-1.0", "1.0\n", "99.0", "999999999999999999.0"])
    async def test_an_id_that_no_update_has_had_is_refused(self, after: str) -> None:
        """A malformed id, or one of the future, is refused before the stream begins."""
        async with Engine.open("sqlite://", model=model(), tools=[look, "ask_user_question"]) as engine:
            conversation = await engine.create()
            with pytest.raises(InvalidInput):
                await update_stream(engine, conversation, after, LIMITS)

    async def test_the_id_of_a_snapshot_can_be_resumed_after(self) -> None:
        """Whoever has seen the snapshot only, whose id is that of the next step, misses nothing of that step."""
        async with Engine.open("sqlite://", model=ScriptedLlm([reply("Hi")])) as engine:
            conversation = await engine.create()
            async with reading(served(engine, conversation)) as reader:
                first = await reader.until_event("snapshot")
            async with reading(served(engine, conversation, first.id)) as reader:
                await conversation.send("Hello")
                await reader.until_event("turn_ended")

        said = [event.json["data"]["text"] for event in reader.events if event.event == "message"]
        assert said == ["Hello", "Hi"]


class TestTheEnd:
    """Why a stream ended."""

    async def test_a_closed_engine_ends_all_streams(self) -> None:
        """H9: a stream of a conversation and one of the tree end with the reason that the server stops."""
        engine = await Engine.open("sqlite://", model=ScriptedLlm([]))
        conversation = await engine.create()
        async with (
            reading(served(engine, conversation)) as of_conversation,
            reading(tree_stream(engine, None, LIMITS)) as of_tree,
        ):
            await of_conversation.until_event("snapshot")
            await of_tree.until_event("tree")
            await engine.close()
            for reader in (of_conversation, of_tree):
                await reader.until_end()
                assert reader.events[-1] == ended("server_stopping")

    async def test_a_closed_conversation_ends_its_stream(self) -> None:
        """A client of a conversation that is closed sees how it was closed, and that it need not come back."""
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            conversation = await engine.create()
            async with reading(served(engine, conversation)) as reader:
                await reader.until_event("snapshot")
                await conversation.close()
                await reader.until_end()

        assert [event.event for event in reader.events] == ["snapshot", "state_change", "end"]
        assert reader.events[-1] == ended("closed")

    async def test_a_deleted_conversation_ends_its_stream(self) -> None:
        """A client of a conversation that was deleted learns that it is gone."""
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            conversation = await engine.create()
            async with reading(served(engine, conversation)) as reader:
                await reader.until_event("snapshot")
                await engine.delete(conversation.id)
                await reader.until_end()

        assert reader.events[-1] == ended("deleted")

    async def test_a_tree_stream_of_a_closed_engine_is_refused(self) -> None:
        """A stream that cannot begin is a refusal, not a stream."""
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            pass
        with pytest.raises(EngineClosed):
            tree_stream(engine, None, LIMITS)


class TestDisconnecting:
    """Clients that go away."""

    async def test_a_client_that_disconnects_does_not_cancel_the_turn(self) -> None:
        """H4: the turn goes on without a reader, and nothing of the stream is left behind."""
        gate = Gate()
        async with Engine.open("sqlite://", model=FunctionLlm(answers_after(gate, "Done."))) as engine:
            conversation = await engine.create()
            async with reading(served(engine, conversation)) as reader:
                await reader.until_event("snapshot")
                sending = asyncio.ensure_future(conversation.send("Go"))
                await gate.arrived.wait()
            gate.opened.set()
            turn = await sending

        assert (turn.status, turn.reply) == ("completed", "Done.")

    async def test_a_client_that_does_not_read_is_disconnected(self, caplog: pytest.LogCaptureFixture) -> None:
        """H3: where the server does not watch its readers, the stream does: it stops, and the log has the reason."""
        async with Engine.open("sqlite://", model=ScriptedLlm([])) as engine:
            conversation = await engine.create()
            response = await update_stream(engine, conversation, None, HttpLimits(send_seconds=0.01))

            async def stuck(message: Message) -> None:
                await asyncio.Event().wait()

            scope = {"type": "http", "method": "GET", "path": "/events\n", "headers": []}
            await response(scope, asyncio.Event().wait, stuck)

        assert "A client of '/events\\n' was disconnected: it did not read for 0.01 s." in caplog.text

    async def test_long_events_are_sent_in_pieces(self) -> None:
        """A server holds one piece of an event that a client reads slowly, and the client gets all of it."""
        pieces: list[Message] = []

        async def send(message: Message) -> None:
            pieces.append(message)

        sending = PiecewiseSend(send, None)
        await sending({"type": "http.response.start", "status": 200, "headers": []})
        await sending({"type": "http.response.body", "body": b"x" * (2 * PIECE + 1), "more_body": True})
        await sending({"type": "http.response.body", "body": b"y" * PIECE, "more_body": False})
        await sending({"type": "http.response.body", "body": b"", "more_body": False})

        assert [len(piece.get("body", b"")) for piece in pieces] == [0, PIECE, PIECE, 1, PIECE, 0]
        assert [piece.get("more_body") for piece in pieces] == [None, True, True, True, False, False]


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

    @pytest.mark.slow
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
