"""Tasks of A2A, with the client of the package a2a-sdk."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from turnwise import Engine
from turnwise.hosts.http import create_app

from ....support.doors.commanded_model import CommandedLlm, book
from ....support.http.live_server import serving

pytest.importorskip("a2a", reason="the extra `a2a` is not installed")

from a2a.client import ClientConfig, create_client
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value

from ....support.cases import holds_for
from ....support.pictures import PDF, WAV, base64, data_url


class Peer:
    """Another agent, which sends messages to the server."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def send(self, text: str = "", *, data: Any = None, now: bool = False, **members: Any) -> list[Any]:
        """Send a message, and return the events: one task, or those of a stream."""
        parts = [Part(text=text)] if data is None else [Part(data=ParseDict(data, Value()))]
        members = {"message_id": str(uuid.uuid4()), **members}
        message = Message(role=Role.ROLE_USER, parts=parts, **members)
        configuration = SendMessageConfiguration(return_immediately=now)
        request = SendMessageRequest(message=message, configuration=configuration)
        return [event async for event in self.client.send_message(request)]

    async def task(self, text: str = "", **members: Any) -> Any:
        """Send a message, and return the task."""
        (event,) = await self.send(text, **members)
        return event.task

    async def get(self, task_id: str) -> Any:
        """Return a task as it is now."""
        return await self.client.get_task(GetTaskRequest(id=task_id))


def said(task: Any) -> str:
    """The text of a task."""
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


@pytest.fixture
def model() -> CommandedLlm:
    """The model of the agent."""
    return CommandedLlm()


@pytest.fixture
async def transport(model: CommandedLlm) -> AsyncIterator[httpx.ASGITransport]:
    """The server, without a socket."""
    async with Engine.open("sqlite://", model=model, tools=["ask_user_question", book]) as engine:
        yield httpx.ASGITransport(create_app(engine, owner=lambda request: request.headers.get("x-user", "ann")))


async def peer_of(transport: httpx.ASGITransport, *, streaming: bool = False, user: str = "ann") -> Peer:
    """A client that has read the agent card."""
    client = httpx.AsyncClient(transport=transport, headers={"x-user": user})
    return Peer(await create_client("http://localhost", ClientConfig(streaming=streaming, httpx_client=client)))


@pytest.fixture
async def peer(transport: httpx.ASGITransport) -> Peer:
    """A client that does not stream."""
    return await peer_of(transport)


class TestATask:
    """A turn, as another agent sees it."""

    async def test_it_is_completed(self, peer: Peer) -> None:
        """What was said is its artifact; the context goes on with the next task."""
        first = await peer.task("say Hello")
        second = await peer.task("say again", context_id=first.context_id)

        assert (first.status.state, said(first)) == (TaskState.TASK_STATE_COMPLETED, "Hello")
        assert (second.id, said(second)) == (f"{first.id.removesuffix('.1')}.2", "again")
        assert await peer.get(first.id) == first

    async def test_it_is_streamed(self, transport: httpx.ASGITransport) -> None:
        """First the task, then what is said, then the state in which it stops."""
        events = await (await peer_of(transport, streaming=True)).send("say one\ntwo")
        kinds = [event.WhichOneof("payload") for event in events]

        assert (kinds[0], kinds[-1], {*kinds[1:-1]}) == ("task", "status_update", {"artifact_update"})
        assert "".join(event.artifact_update.artifact.parts[0].text for event in events[1:-1]) == "one\ntwo"
        assert events[-1].status_update.status.state == TaskState.TASK_STATE_COMPLETED

    async def test_a_message_that_is_sent_again_is_taken_once(self, peer: Peer, model: CommandedLlm) -> None:
        """By its id."""
        first = await peer.task("say once", message_id="m1", context_id="c")
        again = await peer.task("say once", message_id="m1", context_id="c")

        assert (first, len(model.requests)) == (again, 1)

    async def test_it_may_fail(self, peer: Peer) -> None:
        """With the sentence of the failure."""
        task = await peer.task("fail")

        assert task.status.state == TaskState.TASK_STATE_FAILED
        assert task.status.message.parts[0].text == "The provider refused."

    async def test_it_is_cancelled(self, peer: Peer, model: CommandedLlm) -> None:
        """While it works, and not afterwards."""
        task = await peer.task("wait", now=True)
        assert task.status.state == TaskState.TASK_STATE_WORKING
        while not model.is_waiting:
            await asyncio.sleep(0)

        cancelled = await peer.client.cancel_task(CancelTaskRequest(id=task.id))

        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotCancelableError):
            await peer.client.cancel_task(CancelTaskRequest(id=task.id))
        assert "The user stopped your answer" in said(await peer.task("recall", context_id=task.context_id))


class TestInputRequired:
    """A task that waits."""

    async def test_a_question_is_answered_by_text_or_data(self, peer: Peer) -> None:
        """The question is in the status, in both forms."""
        asked = await peer.task("ask")
        text, data = asked.status.message.parts

        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert text.text == "Which airport?\n1. Haneda\n2. Narita: far"
        assert MessageToDict(data.data)["questions"][0]["question"] == "Which airport?"
        assert "Narita" in said(await peer.task("2", task_id=asked.id))

        again = await peer.task("ask", context_id=asked.context_id)
        answers = {"answers": {"Which airport?": "Haneda"}}
        assert "Haneda" in said(await peer.task(data=answers, task_id=again.id, context_id=again.context_id))

    async def test_a_reply_is_taken_once(self, peer: Peer) -> None:
        """Sent again, it has the same task as its answer; another one finds that nothing waits."""
        asked = await peer.task("ask")
        first = await peer.task("1", task_id=asked.id, message_id="r1")

        assert await peer.task("1", task_id=asked.id, message_id="r1") == first
        with pytest.raises(UnsupportedOperationError, match="waits for nothing"):
            await peer.task("2", task_id=asked.id, message_id="r2")

    @pytest.mark.slow
    async def test_an_approval(self, peer: Peer) -> None:
        """Neither a doubtful text nor the wrong data decides."""
        asked = await peer.task("book Nara")
        unfit = {"approved": True, "editedArgs": {"place": 3}}
        for reply in ({"text": "maybe"}, {"data": {"approved": "yes"}}, {"data": {"answers": {}}}, {"data": unfit}):
            with pytest.raises(InvalidParamsError):
                await peer.task(task_id=asked.id, **reply)

        assert "booked Kobe" in said(
            await peer.task(data={"approved": True, "editedArgs": {"place": "Kobe"}}, task_id=asked.id)
        )


class TestRefusals:
    """What is refused, with the errors of the protocol."""

    async def test_tasks_that_are_not_there(self, peer: Peer, transport: httpx.ASGITransport) -> None:
        """Unknown ones, those of others, and those of turns that have not been."""
        task = await peer.task("say x", context_id="mine")
        other = await peer_of(transport, user="bob")

        history = task.id.removesuffix(".1")
        ids = (f"{history}.2", f"{history}.0", history, "mine.1", "mine", "x.1")
        for client, task_id in ((other, task.id), *((peer, each) for each in ids)):
            with pytest.raises(TaskNotFoundError):
                await client.get(task_id)
        with pytest.raises(TaskNotFoundError):
            await other.task("1", task_id=task.id)

    @pytest.mark.slow
    async def test_a_context_of_somebody_else(self, peer: Peer, transport: httpx.ASGITransport) -> None:
        """The same id names a context of the caller's own."""
        await peer.task("say x", context_id="mine")
        bobs = await (await peer_of(transport, user="bob")).task("say y", context_id="mine")

        assert (bobs.context_id, said(bobs)) == ("mine", "y")
        assert bobs.id.startswith("mine.")

    async def test_what_is_not_offered(self, peer: Peer) -> None:
        """It says so."""
        with pytest.raises(A2AError):
            await peer.client.list_tasks(ListTasksRequest())

    @pytest.mark.slow
    @pytest.mark.parametrize("members", [{"context_id": "a/b"}, {"data": {"approved": True}}, {"text": " "}])
    async def test_messages_that_cannot_be_answered(self, peer: Peer, members: Any) -> None:
        """With a sentence."""
        with pytest.raises(InvalidParamsError):
            await peer.task(**members)

    @pytest.mark.slow
    @pytest.mark.parametrize("call_id", ['"\\ud800"', "[" * 150 + "]" * 150, "[" * 50_000, "9" * 5_000])
    async def test_what_cannot_be_read_or_quoted(self, transport: httpx.ASGITransport, call_id: str) -> None:
        """A call that the library of the protocol fails at is a problem, like every body that cannot be read."""
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = f'{{"jsonrpc": "2.0", "id": {call_id}, "method": "GetTask", "params": {{}}}}'
            response = await client.post("/a2a", content=body, headers={"content-type": "application/json"})

        assert (response.status_code, response.json()["code"]) == (400, "malformed_json")

    async def test_the_card_says_that_a_token_is_needed(self) -> None:
        """And the endpoint wants it."""
        async with Engine.open("sqlite://", model=CommandedLlm()) as engine:
            app = create_app(engine, token="secret")
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                headers = {"authorization": "Bearer secret"}
                card = (await client.get("/.well-known/agent-card.json", headers=headers)).json()
                assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
                assert card["supportedInterfaces"][0]["url"] == "http://localhost/a2a"
                assert (await client.post("/a2a", json={})).status_code == 401
                assert (await client.post("/a2a", json={}, headers=headers)).json()["error"]["code"] == -32600


class Wire:
    """Calls in JSON-RPC over a real connection, as they stand in the specification."""

    def __init__(self, client: httpx.Client, model: CommandedLlm) -> None:
        self.model = model
        self._client = client

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a call, and return the whole answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self._client.post("/a2a", json=body, headers={"a2a-version": "1.0"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
        return dict(answer.json())

    def delete(self, context_id: str) -> None:
        """Delete the conversation of this context."""
        assert self._client.delete(f"/conversations/{context_id}").status_code == 204

    def send(self, *parts: Any, method: str = "SendMessage", **members: Any) -> dict[str, Any]:
        """Send a message of these parts."""
        message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": list(parts), **members}
        return self.call(method, message=message)


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    """A server on a socket."""
    model = CommandedLlm()
    engine = Engine.open("sqlite://", model=model, tools=["ask_user_question", book])
    with serving(engine) as server, server.client() as client:
        yield Wire(client, model)


def code_of(answer: dict[str, Any]) -> int:
    """The code of an error, which has a sentence."""
    assert answer["error"]["message"].endswith((".", "found", "supported", "canceled")), answer
    return int(answer["error"]["code"])


class TestErrorCodes:
    """The codes of the specification (section 5.4), on the wire."""

    NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED, CONTENT_TYPE = -32001, -32002, -32003, -32004, -32005

    @pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
    def test_a_message_to_a_task(self, wire: Wire, method: str) -> None:
        """A task that has ended takes none, one that is not there is not found, and one that waits takes what fits."""
        done = wire.send({"text": "say done"})["result"]["task"]
        asked = wire.send({"text": "ask"})["result"]["task"]
        to = lambda **members: code_of(wire.send({"text": "1"}, method=method, **members))  # noqa: E731

        assert to(taskId=done["id"]) == self.UNSUPPORTED
        assert to(taskId=done["id"], contextId=done["contextId"]) == self.UNSUPPORTED
        assert to(taskId="nonesuch.1") == to(taskId="nonesuch") == self.NOT_FOUND
        assert to(taskId=f"{done['id'].removesuffix('.1')}.2") == self.NOT_FOUND
        assert to(taskId=asked["id"], contextId="other") == -32602
        image = {"raw": "iVBORw0KGgo=", "mediaType": "image/png"}
        assert code_of(wire.send(image, method=method, taskId=asked["id"])) == self.CONTENT_TYPE
        assert (
            wire.send({"text": "1"}, taskId=asked["id"])["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        )

    @holds_for(
        "part",
        [
            {"raw": "AAAA", "mediaType": "application/zip"},
            {"url": "https://example.org/a.tiff", "mediaType": "image/tiff"},
            {"text": "<p>", "mediaType": "text/html"},
            {"data": {"approved": True}, "mediaType": "application/cbor"},
        ],
    )
    def test_content_of_an_unknown_type(self, wire: Wire, part: dict[str, Any]) -> None:
        """What is neither text, a file that models take, nor JSON is refused by its media type."""
        assert code_of(wire.send({"text": "look"}, part)) == self.CONTENT_TYPE

    @holds_for(
        "part",
        [
            {"raw": "AAAA"},
            {"raw": "AAAA", "mediaType": "audio/wav"},
            {"raw": base64(PDF), "mediaType": "image/png"},
            {"url": "ftp://example.org/a.pdf"},
        ],
    )
    def test_files_that_cannot_be_used(self, wire: Wire, part: dict[str, Any]) -> None:
        """Their bytes are nothing known, or not what they are declared as."""
        assert code_of(wire.send({"text": "look"}, part)) == -32602

    def test_files_are_sent(self, wire: Wire) -> None:
        """A file needs no media type: its bytes, or its address, say what it is."""
        wire.send(
            {"text": "say read"},
            {"raw": base64(PDF), "filename": "report.pdf"},
            {"raw": base64(WAV), "mediaType": "audio/x-wav"},
            {"raw": base64(b"May,120"), "mediaType": "text/csv"},
            {"url": "https://example.org/a.pdf"},
            {"url": "https://example.org/b", "mediaType": "video/mp4"},
        )

        assert wire.model.requests[-1].messages[-1]["content"] == [
            {"type": "text", "text": "say read"},
            {"type": "file", "file": {"filename": "report.pdf", "file_data": data_url("application/pdf", PDF)}},
            {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}},
            {"type": "text", "text": "[File, text/csv]\nMay,120"},
            {"type": "file", "file": {"file_id": "https://example.org/a.pdf", "format": "application/pdf"}},
            {"type": "file", "file": {"file_id": "https://example.org/b", "format": "video/mp4"}},
        ]

    def test_content_of_a_known_type(self, wire: Wire) -> None:
        """The type may be written with parameters."""
        sent = wire.send({"text": "say typed", "mediaType": "Text/Plain; charset=utf-8"})

        assert sent["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"

    def test_what_is_no_message(self, wire: Wire) -> None:
        """Parameters that are missing, or that are of another form, are invalid."""
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "say x"}]}
        without = [{name: value for name, value in message.items() if name != left} for left in message]

        for broken in (
            *without,
            {**message, "parts": [{}]},
            {**message, "parts": "x"},
            {**message, "contextId": "a/b"},
        ):
            assert wire.call("SendMessage", message=broken)["error"]["code"] == -32602, broken
        assert wire.call("SendMessage")["error"]["code"] == -32602
        assert wire.call("GetTask")["error"]["code"] == -32602
        assert wire.call("DoSomething")["error"]["code"] == -32601

    @holds_for("method", ["GetTask", "CancelTask", "SubscribeToTask"])
    @holds_for("task_id", ["nonesuch.1", "nonesuch", "x.0", "x.99999999999999999999", "../x.1", "\U0001f648"])
    def test_a_task_that_is_not_there(self, wire: Wire, method: str, task_id: str) -> None:
        """Whatever is asked of it, it is not found, and in time for an answer that is no stream."""
        assert code_of(wire.call(method, id=task_id)) == self.NOT_FOUND

    def test_a_task_of_an_earlier_history(self, wire: Wire) -> None:
        """A reply that was meant for a conversation which was deleted is not taken by the one that has its id now."""
        earlier = wire.send({"text": "ask"}, contextId="again")["result"]["task"]
        wire.delete("again")
        now = wire.send({"text": "ask"}, contextId="again")["result"]["task"]

        assert now["id"] != earlier["id"]
        assert code_of(wire.send({"text": "1"}, taskId=earlier["id"])) == self.NOT_FOUND
        assert code_of(wire.call("CancelTask", id=earlier["id"])) == self.NOT_FOUND
        assert wire.call("GetTask", id=now["id"])["result"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    def test_what_the_agent_does_not_do(self, wire: Wire) -> None:
        """A task that has ended is not cancelled or followed; there are no lists, push notifications and cards for
        callers who are known."""
        done = wire.send({"text": "say done"})["result"]["task"]["id"]
        of_task = {"taskId": done, "id": "c"}

        assert code_of(wire.call("CancelTask", id=done)) == self.NOT_CANCELABLE
        assert code_of(wire.call("SubscribeToTask", id=done)) == self.UNSUPPORTED
        assert code_of(wire.call("ListTasks")) == code_of(wire.call("GetExtendedAgentCard")) == self.UNSUPPORTED
        for method in ("CreateTask", "GetTask", "DeleteTask"):
            refused = wire.call(f"{method}PushNotificationConfig", **of_task, url="https://example.org")
            assert code_of(refused) == self.NO_PUSH
        assert code_of(wire.call("ListTaskPushNotificationConfigs", taskId=done)) == self.NO_PUSH

    def test_a_context_that_is_closed(self) -> None:
        """It takes no message any more."""
        engine = Engine.open("sqlite://", model=(model := CommandedLlm()))
        with serving(engine) as server, server.client() as client:
            client.post("/conversations", json={"id": "over"})
            client.post("/conversations/over/close")
            refused = Wire(client, model).send({"text": "say x"}, contextId="over")

        assert code_of(refused) == self.UNSUPPORTED
        assert refused["error"]["data"][0]["metadata"] == {"code": "closed"}
