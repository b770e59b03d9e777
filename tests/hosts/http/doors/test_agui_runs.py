"""Runs of AG-UI, event by event, and with the client of its npm package."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import Event
from pydantic import TypeAdapter

from turnwise import Engine, UserQuestion, tool
from turnwise.effects.tools.context import ToolContext
from turnwise.hosts.http import create_app
from turnwise.testing import ScriptedLlm, call

from ....support.doors.commanded_model import CommandedLlm
from ....support.doors.waiting import until
from ....support.http.event_stream import events_of
from ....support.http.live_server import LiveServer, serving
from ....support.npm.node_packages import NodePackages
from ....support.pictures import PDF, WAV, base64, data_url

# --- Runs of AG-UI, event by event.


EVENT: TypeAdapter[Any] = TypeAdapter(Event)


class Thread:
    """A thread of a server."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client
        self.id = f"thread-{uuid.uuid4()}"

    def body(self, *messages: Any, **members: Any) -> dict[str, Any]:
        """The input of a run with these messages; a text is one of the user."""
        written = [
            {"id": f"m-{message}", "role": "user", "content": message} if isinstance(message, str) else message
            for message in messages
        ]
        return {"threadId": self.id, "runId": str(uuid.uuid4()), "messages": written, **members}

    def run(self, *messages: Any, **members: Any) -> list[dict[str, Any]]:
        """Run the agent, and return the events, each of which the protocol's own types accept."""
        with self.running(*messages, **members) as events:
            return list(events)

    @contextmanager
    def running(self, *messages: Any, **members: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """Run the agent, and yield its events as they come."""
        body = self.body(*messages, **members)
        with self._client.stream("POST", "/agui", json=body) as response:
            assert (response.status_code, response.headers["content-type"].partition(";")[0]) == (
                200,
                "text/event-stream",
            )
            yield (_checked(event.data) for event in events_of(response))

    def resume(self, interrupt: Any, payload: Any = None, status: str = "resolved") -> list[dict[str, Any]]:
        """Answer an interrupt."""
        entry = {"interruptId": interrupt["id"], "status": status}
        return self.run(resume=[entry if payload is None else {**entry, "payload": payload}])


def _checked(data: str) -> dict[str, Any]:
    EVENT.validate_json(data)
    event: dict[str, Any] = json.loads(data)
    return event


@pytest.fixture(scope="module")
def client(server: LiveServer) -> Iterator[httpx.Client]:
    """A client of the server."""
    with server.client() as client:
        yield client


@pytest.fixture
def thread(client: httpx.Client) -> Thread:
    """A new thread."""
    return Thread(client)


def interrupt_in(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The interrupt at the end of a run."""
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    return dict(interrupt)


def said(events: list[dict[str, Any]]) -> str:
    """The texts of a run."""
    return "|".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")


def texts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events of the texts of a run."""
    return [event for event in events if event["type"].startswith("TEXT")]


def error(events: list[dict[str, Any]]) -> str:
    """The code of the error at the end of a run."""
    assert [event["type"] for event in events] == ["RUN_STARTED", "RUN_ERROR"]
    return str(events[-1]["code"])


class TestARun:
    """One request of a client."""

    def test_a_text_comes_while_it_is_written(self, thread: Thread, model: CommandedLlm) -> None:
        """The first words arrive before the model has written the last."""
        written = []
        with thread.running("wait for it") as events:
            for event in events:
                if event["type"] == "TEXT_MESSAGE_CONTENT":
                    written.append(event["delta"])
                    if event["delta"] == "Wait":
                        model.release()

        assert written == ["Wait", "ed for it"]

    def test_a_beginning_that_the_model_gave_up_is_removed(self, thread: Thread, model: CommandedLlm) -> None:
        """The client is told which messages there are: those that it had, and none of the failed attempt."""
        received = []
        greeting = {"id": "a", "role": "assistant", "content": "Hello"}
        with thread.running(greeting, "break off there") as events:
            for event in events:
                received.append(event)
                if event.get("delta") == "Half an":
                    model.release()

        (snapshot,) = [event for event in received if event["type"] == "MESSAGES_SNAPSHOT"]
        assert [message["id"] for message in snapshot["messages"]] == ["a", "m-break off there"]
        assert said(received) == "Half an|Now whole: there"

    def test_it_goes_on_without_its_client(self, thread: Thread, model: CommandedLlm) -> None:
        """The turn is not cancelled; the same message shows what became of it."""
        with thread.running("wait alone") as events:
            next(event for event in events if event.get("delta") == "Wait")
        model.release()

        assert said(thread.run("wait alone")) == "Waited alone"

    def test_a_client_that_wants_it_stops_it_by_leaving(
        self, thread: Thread, server: LiveServer, engine: Engine, model: CommandedLlm
    ) -> None:
        """P8: what was streamed is kept, and the same message shows it."""
        wanted = {"forwardedProps": {"turnwise": {"stopOnDisconnect": True}}}
        with thread.running("wait alone", **wanted) as events:
            next(event for event in events if event.get("delta") == "Wait")
        conversation = server.run(engine.get, thread.id)
        until(lambda: conversation.state.type == "idle")

        stopped = server.run(conversation.transcript)[-1]
        assert (stopped.text, stopped.stopped) == ("Wait", "cancelled")
        again = thread.run("wait alone")
        assert (said(again), again[-1]["outcome"]) == ("Wait", {"type": "cancelled"})

    def test_a_message_that_is_sent_again_is_taken_once(
        self, thread: Thread, server: LiveServer, engine: Engine
    ) -> None:
        """By its id, whichever run sends it; the events have the same ids."""
        first, again = thread.run("say once"), thread.run("say once")

        assert first[-1]["result"] == again[-1]["result"]
        assert texts(first) == texts(again)
        transcript = server.run(server.run(engine.get, thread.id).transcript)
        assert [message.text for message in transcript] == ["say once", "once"]

    def test_its_history_begins_a_new_thread(self, thread: Thread, model: CommandedLlm) -> None:
        """Messages that another agent has seen are sent to the model, without reasoning and displays."""
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        history = [
            {"id": "1", "role": "developer", "content": "Be brief."},
            {"id": "2", "role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"id": "3", "role": "reasoning", "content": "Hm"},
            {"id": "4", "role": "activity", "activityType": "map", "content": {}},
            {"id": "5", "role": "assistant", "toolCalls": [call]},
            {"id": "6", "role": "tool", "toolCallId": "c1", "content": "found"},
            {"id": "7", "role": "assistant", "content": "Hello"},
        ]

        roles = json.loads(said(thread.run(*history, "recall")))

        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
        assert model.requests[-1].messages[0]["content"].startswith("Be brief.")

    def test_images_are_sent(self, thread: Thread, model: CommandedLlm) -> None:
        """Inline, or by their address."""
        sources = [
            {"type": "data", "value": "R0lGODlhAQABAAAAACw=", "mimeType": "image/gif"},
            {"type": "url", "value": "https://example.org/a.png"},
        ]
        parts = [{"type": "text", "text": "say seen"}, *({"type": "image", "source": source} for source in sources)]

        thread.run({"id": "1", "role": "user", "content": parts})

        sent = json.dumps(model.requests[-1].messages)
        assert "data:image/gif;base64,R0lGODlhAQABAAAAACw=" in sent
        assert "https://example.org/a.png" in sent

    def test_files_are_sent(self, thread: Thread, model: CommandedLlm) -> None:
        """Recordings, videos and documents, of this message and of those before it; a document may have a name."""
        parts = [
            {"type": "text", "text": "say read"},
            {"type": "audio", "source": {"type": "data", "value": base64(WAV), "mimeType": "audio/wav"}},
            {"type": "video", "source": {"type": "url", "value": "https://example.org/a"}},
            {
                "type": "document",
                "source": {"type": "data", "value": base64(PDF), "mimeType": "application/pdf"},
                "metadata": {"filename": "report.pdf"},
            },
        ]
        before = [{"id": "1", "role": "user", "content": parts}, {"id": "2", "role": "assistant", "content": "read"}]

        thread.run(*before, {"id": "3", "role": "user", "content": parts})

        first, _, last = [message for message in model.requests[-1].messages if message["role"] != "system"]
        for message in (first, last):
            assert message["content"][1:] == [
                {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}},
                {"type": "file", "file": {"file_id": "https://example.org/a", "format": "video/mp4"}},
                {"type": "file", "file": {"filename": "report.pdf", "file_data": data_url("application/pdf", PDF)}},
            ]

    @pytest.mark.parametrize(
        ("value", "media_type"),
        [(base64(PDF), "audio/wav"), ("###", "application/pdf"), ("UEsDBA==", "application/zip")],
    )
    def test_files_that_cannot_be_used(self, thread: Thread, value: str, media_type: str) -> None:
        """The run ends with an error."""
        source = {"type": "data", "value": value, "mimeType": media_type}
        parts = [{"type": "document", "source": source}]

        assert error(thread.run({"id": "1", "role": "user", "content": parts})) == "invalid_input"

    def test_a_state_that_is_no_object_is_left_alone(self, thread: Thread) -> None:
        """There is no place in it for that of the conversation."""
        types = {event["type"] for event in thread.run("say x", state=[1, 2])}

        assert not {"STATE_SNAPSHOT", "STATE_DELTA"} & types

    def test_a_conversation_ends_with_an_error_where_its_server_stops(self, tmp_path: Any) -> None:
        """The engine closes, and the run says so."""
        model = CommandedLlm()
        engine = Engine.open(tmp_path / "stopped.db", model=model)
        with serving(engine) as server, server.client() as client, Thread(client).running("wait") as events:
            until(lambda: model.is_waiting)
            server.run(engine.close)
            *_, last = events

        assert (last["type"], last["code"]) == ("RUN_ERROR", "engine_closed")


class TestAnInterrupt:
    """What a run waits for, and its answer."""

    def test_the_same_answer_may_be_sent_again(self, thread: Thread) -> None:
        """Also when the conversation has gone on since. Another answer is refused."""
        interrupt = interrupt_in(thread.run("ask"))
        payload = {"answers": {"Which airport?": "Narita"}}
        first = thread.resume(interrupt, payload)
        thread.run("ask", "say next")

        again = thread.resume(interrupt, payload)

        assert "Narita" in said(first)
        assert said(first) == said(again)
        assert error(thread.resume(interrupt, {"answers": {"Which airport?": "Haneda"}})) == "unknown_interrupt"

    def test_it_may_be_answered_with_a_text(self, thread: Thread) -> None:
        """As in a chat."""
        assert "Narita" in said(thread.resume(interrupt_in(thread.run("ask")), "2"))

    def test_it_must_be_answered_first(self, thread: Thread) -> None:
        """A message to a thread that waits is refused, and the interrupt stays open."""
        interrupt = interrupt_in(thread.run("ask"))

        assert error(thread.run("ask", "say x")) == "awaiting_user_response"
        assert interrupt_in(thread.run("ask"))["id"] == interrupt["id"]
        assert "Haneda" in said(thread.resume(interrupt, "Haneda"))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("payload", "code"),
        [
            (None, "invalid_input"),
            ({}, "invalid_input"),
            ({"answers": {"Which airport?": 3}}, "invalid_input"),
            ({"answers": {}}, "missing_answer"),
            ({"answers": {"Which airport?": "Narita", "And?": "x"}}, "unknown_question"),
            ([1], "invalid_input"),
        ],
    )
    def test_a_bad_payload_answers_nothing(self, thread: Thread, payload: Any, code: str) -> None:
        """It stays open."""
        interrupt = interrupt_in(thread.run("ask"))

        assert error(thread.resume(interrupt, payload)) == code
        assert "Narita" in said(thread.resume(interrupt, "Narita"))

    def test_an_approval_is_denied_or_given_up(self, thread: Thread) -> None:
        """Neither lets the call run."""
        first = interrupt_in(thread.run("book Nara"))
        assert "Too far" in said(thread.resume(first, {"approved": False, "note": "Too far"}))
        second = interrupt_in(thread.run("book Nara again"))
        assert "Denied" in said(thread.resume(second, status="cancelled"))

    def test_arguments_that_do_not_fit_decide_nothing(self, thread: Thread) -> None:
        """The interrupt stays open for others."""
        interrupt = interrupt_in(thread.run("book Nara"))

        assert error(thread.resume(interrupt, {"approved": True, "editedArgs": {"place": 3}})) == "invalid_input"
        assert "Kobe" in said(thread.resume(interrupt, {"approved": True, "editedArgs": {"place": "Kobe"}}))

    @pytest.mark.parametrize("number", [0, 2])
    def test_exactly_one_is_open(self, thread: Thread, number: int) -> None:
        """A resume of none is a run without a message, and one of several is refused."""
        interrupt = interrupt_in(thread.run("ask"))
        entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": "Narita"}

        assert error(thread.run(resume=[entry] * number)) == ("unknown_interrupt" if number else "no_message")

    def test_a_thread_that_is_not_there_has_none(self, thread: Thread) -> None:
        """A resume creates no conversation."""
        assert error(thread.resume({"id": "call_1_0.4"}, "x")) == "unknown_conversation"

    def test_a_tool_that_asks_twice_raises_two(self, tmp_path: Any) -> None:
        """Both belong to one call. The answer to the first is not one to the second, although it is the same."""

        @tool(exclusive=True)
        async def count(context: ToolContext) -> str:
            """Ask twice."""
            assert context.asking is not None
            answers = [await context.ask([UserQuestion(question="Again?")]) for _ in range(2)]
            return " and ".join(str(one.answers["Again?"]) for one in answers)

        model = ScriptedLlm([call("count"), "Done"])
        engine = Engine.open(tmp_path / "twice.db", model=model, tools=[count])
        with serving(engine) as server, server.client() as client:
            thread = Thread(client)
            first = interrupt_in(thread.run("count"))
            second = interrupt_in(thread.resume(first, "Yes"))
            assert (first["toolCallId"], first["id"] == second["id"]) == (second["toolCallId"], False)
            assert interrupt_in(thread.resume(first, "Yes"))["id"] == second["id"]
            last = thread.resume(second, "Yes")

        assert next(event["content"] for event in last if event["type"] == "TOOL_CALL_RESULT") == "Yes and Yes"


class TestRefusals:
    """Runs that cannot begin."""

    @pytest.mark.parametrize(
        ("members", "code"),
        [
            ({"tools": [{"name": "t", "description": "d"}]}, "unsupported_tools"),
            ({"context": [{"description": "d", "value": "v"}]}, "unsupported_context"),
            ({"threadId": "a/b"}, "invalid_input"),
            ({"messages": []}, "no_message"),
            ({"messages": [{"id": "1", "role": "assistant", "content": "x"}]}, "no_message"),
            ({"messages": [{"id": "1", "role": "user", "content": " "}]}, "invalid_input"),
            ({"messages": [{"id": "x" * 201, "role": "user", "content": "say x"}]}, "invalid_input"),
            (
                {
                    "messages": [
                        {
                            "id": "1",
                            "role": "user",
                            "content": [{"type": "document", "source": {"type": "file", "value": "f"}}],
                        }
                    ]
                },
                "unsupported_content",
            ),
        ],
    )
    def test_they_end_with_an_error(self, thread: Thread, members: Any, code: str) -> None:
        """The protocol's own event, with a code and a sentence."""
        assert error(thread.run("say x", **members)) == code

    @pytest.mark.parametrize(
        ("body", "status", "code"),
        [
            (b"{", 400, "malformed_json"),
            (b"{}", 422, "invalid_input"),
            (b'{"threadId": 1, "runId": "r", "messages": []}', 422, "invalid_input"),
            (b'{"threadId": "t", "runId": "r", "messages": [{"role": "robot"}]}', 422, "invalid_input"),
            (b'{"threadId": "t", "runId": "r", "messages": [], "resume": 3}', 422, "invalid_input"),
            (
                b'{"threadId": "t", "runId": "r", "messages": [], "state": ' + b"[" * 400 + b"]" * 400 + b"}",
                422,
                "invalid_input",
            ),
        ],
    )
    def test_what_is_no_input_is_a_problem(self, client: httpx.Client, body: bytes, status: int, code: str) -> None:
        """As at every endpoint."""
        answer = client.post("/agui", content=body, headers={"Content-Type": "application/json"})

        assert (answer.status_code, answer.json()["code"]) == (status, code)

    async def test_threads_of_others_are_not_found(self) -> None:
        """A message under the same id begins a thread of its sender's own, and there is nothing to resume."""
        async with Engine.open("sqlite://", model=ScriptedLlm(["Hello", "Hello"])) as engine:
            app = create_app(engine, owner=lambda request: request.headers.get("x-user"))
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                codes = []
                for user, members in (
                    ("ann", {}),
                    ("bob", {"resume": [{"interruptId": "i", "status": "cancelled"}]}),
                    ("bob", {}),
                ):
                    message = {"id": "1", "role": "user", "content": "Hi"}
                    body = {"threadId": "mine", "runId": "r", "messages": [message], **members}
                    answer = await client.post("/agui", json=body, headers={"x-user": user})
                    codes.append(json.loads(answer.text.strip().splitlines()[-1].removeprefix("data: ")).get("code"))
                unknown = await client.post("/agui", json=body)
            owners = {one.owner for one in await engine.list()}

        assert codes == [None, "unknown_conversation", None]
        assert owners == {"ann", "bob"}
        assert unknown.status_code == 401


# --- Runs of the HttpAgent of the npm package @ag-ui/client, which verifies the order of events itself.


AGENT = Path(__file__).with_name("agent.mjs")


@pytest.fixture(scope="module")
def reports(server: LiveServer, npm: NodePackages) -> dict[str, Any]:
    """What the agent received in each scenario."""
    reports: dict[str, Any] = json.loads(npm.program(AGENT, f"{server.url}/agui"))
    return reports


def types(run: dict[str, Any]) -> list[str]:
    """The types of the events of a run, without those of the state."""
    return [event["type"] for event in run["events"] if not event["type"].startswith("STATE_")]


def contents(report: dict[str, Any]) -> list[tuple[str, Any]]:
    """The messages that the agent holds at the end."""
    return [(message["role"], message.get("content")) for message in report["messages"]]


@pytest.mark.slow
def test_a_message_is_answered(reports: dict[str, Any]) -> None:
    """The text arrives as one message, and the thread goes on with the next one."""
    report = reports["says"]
    first, second = report["runs"]

    assert types(first)[:2] == ["RUN_STARTED", "TEXT_MESSAGE_START"]
    assert types(first)[-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert first["result"]["reply"] == "Hello"
    assert first["events"][-1]["usage"][0]["totalTokens"] == 10
    assert contents(report)[1] == ("assistant", "Hello")
    assert json.loads(second["result"]["reply"])[-3:] == ["user", "assistant", "user"]


@pytest.mark.slow
def test_the_state_of_the_client_is_kept(reports: dict[str, Any]) -> None:
    """The conversation stands beside it, under `turnwise`, as it is at the end of the run."""
    state = reports["says"]["state"]

    assert state["page"] == 3
    assert state["turnwise"]["state"] == {"type": "idle", "data": {"turn": 2}}
    assert state["turnwise"]["conversation"].startswith("says-")


@pytest.mark.slow
def test_a_tool_is_shown(reports: dict[str, Any]) -> None:
    """The call, its arguments and its result, between the texts before and after."""
    (run,) = reports["looks"]["runs"]
    shown = [name for name in types(run) if name != "TEXT_MESSAGE_CONTENT"]
    arguments = next(event["delta"] for event in run["events"] if event["type"] == "TOOL_CALL_ARGS")

    assert shown == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert json.loads(arguments) == {"place": "Kyoto"}
    assert ("tool", "found Kyoto") in contents(reports["looks"])


@pytest.mark.slow
def test_thoughts_are_reasoning(reports: dict[str, Any]) -> None:
    """What the model thinks is apart from what it says."""
    assert contents(reports["thinks"])[1:] == [("reasoning", "Hmm."), ("assistant", "Well")]


@pytest.mark.slow
def test_a_question_is_an_interrupt(reports: dict[str, Any]) -> None:
    """It can be shown with its text alone, or built from the questions and the schema; the resume answers it."""
    asked, answered = reports["asks"]["runs"]
    (interrupt,) = asked["interrupts"]

    assert (interrupt["reason"], interrupt["message"]) == (
        "input_required",
        "Which airport?\n1. Haneda\n2. Narita: far",
    )
    assert interrupt["responseSchema"]["properties"]["answers"]["required"] == ["Which airport?"]
    assert interrupt["metadata"]["turnwise"]["questions"][0]["options"][0] == {"label": "Haneda"}
    assert interrupt["toolCallId"] in {event.get("toolCallId") for event in asked["events"]}
    assert "TOOL_CALL_START" not in types(answered)
    assert "Narita" in answered["result"]["reply"]
    assert answered["interrupts"] == []


@pytest.mark.slow
def test_a_cancelled_interrupt_declines(reports: dict[str, Any]) -> None:
    """The rules say what follows; here the turn is cancelled."""
    _, declined = reports["declines"]["runs"]

    assert declined["events"][-1]["outcome"] == {"type": "cancelled"}


@pytest.mark.slow
def test_an_approval_is_an_interrupt(reports: dict[str, Any]) -> None:
    """It is bound to the call, whose arguments may be replaced."""
    asked, approved = reports["approves"]["runs"]
    (interrupt,) = asked["interrupts"]

    assert interrupt["reason"] == "tool_call"
    assert "TOOL_CALL_START" in types(asked)
    assert "TOOL_CALL_START" not in types(approved)
    assert "booked Kobe" in approved["result"]["reply"]
    assert "editedArgs" in interrupt["responseSchema"]["properties"]


@pytest.mark.slow
def test_a_failed_turn_is_an_error(reports: dict[str, Any]) -> None:
    """With the sentence of the failure."""
    (run,) = reports["fails"]["runs"]

    assert run["error"] == {"code": "turn_failed", "message": "The provider refused."}


@pytest.mark.slow
def test_tools_of_the_client_are_refused(reports: dict[str, Any]) -> None:
    """The engine runs tools of its own only, and says so."""
    (run,) = reports["offers"]["runs"]

    assert run["error"]["code"] == "unsupported_tools"
