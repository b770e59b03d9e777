"""Completions of the OpenAI API, with and without a conversation, and how its clients see refusals."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from turnwise import Engine, ModelAnswer
from turnwise.hosts.http import HttpLimits, create_app
from turnwise.testing import FunctionLlm, ScriptedLlm

from ....support.cases import holds_for
from ....support.doors.commanded_model import CommandedLlm
from ....support.doors.waiting import until
from ....support.http.live_server import LiveServer, serving
from ....support.pictures import PDF, PNG, WAV, base64, data_url

# --- Completions without a conversation id, asked for with the `openai` package as people use it.


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwAD"
    "hgGAWjR9awAAAABJRU5ErkJggg=="
)


def ask(client: openai.OpenAI, text: str, *before: Any, **options: Any) -> Any:
    """Ask for a completion of the messages `before` and this text."""
    messages = [*before, {"role": "user", "content": text}]
    return client.chat.completions.create(model="commanded", messages=messages, **options)


def streamed(client: openai.OpenAI, text: str, **options: Any) -> tuple[str, list[Any]]:
    """Ask for a completion in chunks; return its text and the chunks."""
    chunks = list(ask(client, text, stream=True, **options))
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices), chunks


def stored(server: LiveServer, engine: Engine) -> int:
    """The number of conversations that are stored."""
    return len(server.run(engine.list))


class TestACompletion:
    """A completion, asked for and answered at once."""

    def test_it_answers_the_last_message_after_all_others(self, client: openai.OpenAI) -> None:
        """The whole history is sent to the model, with the system message in front."""
        before = [
            {"role": "system", "content": "You are brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
        ]

        completion = ask(client, "recall", *before)

        assert json.loads(completion.choices[0].message.content) == ["system", "user", "assistant", "user"]
        assert completion.choices[0].finish_reason == "stop"

    def test_it_has_what_clients_read(self, client: openai.OpenAI) -> None:
        """The id, the model, the usage and the report on the turn are there."""
        completion = ask(client, "say Hello")

        assert completion.id.startswith("chatcmpl-")
        assert (completion.object, completion.model) == ("chat.completion", "commanded")
        assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 3)
        assert completion.usage.total_tokens == 10
        assert completion.turnwise["turn"]["status"] == "completed"
        assert completion.turnwise["conversation_id"] is None

    def test_nothing_of_it_is_kept(self, client: openai.OpenAI, server: LiveServer, engine: Engine) -> None:
        """When the answer is there, the conversation is gone, also one that was streamed, failed or asked."""
        before = stored(server, engine)

        ask(client, "say Hello")
        streamed(client, "say Hello")
        ask(client, "ask")
        with pytest.raises(openai.InternalServerError):
            ask(client, "fail")

        assert stored(server, engine) == before

    def test_tools_stay_inside(self, client: openai.OpenAI) -> None:
        """The engine runs its tools; the client receives what was said before and after, and no calls."""
        message = ask(client, "look Kyoto").choices[0].message

        assert message.content == "Let me look.\n\nThe tool said: found Kyoto"
        assert message.tool_calls is None

    def test_what_is_said_by_tool_is_said_once(self, client: openai.OpenAI) -> None:
        """A speech is part of the text, and not repeated because it was delivered."""
        content = ask(client, "speak Good evening").choices[0].message.content

        assert content.count("Good evening") == 1

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_text_beside_speech_is_not_said(self, model: CommandedLlm, stream: bool) -> None:
        """Where a tool speaks, the model's own text is for a turn in which it says nothing by tool: then it comes,
        whole, when the turn ends."""
        engine = Engine.open("sqlite://", model=model, tools=["respond_to_user"])
        with serving(engine) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            if stream:
                said = [streamed(client, text)[0] for text in ("speak Good evening", "say one\ntwo")]
            else:
                said = [ask(client, text).choices[0].message.content for text in ("speak Good evening", "say one\ntwo")]

        assert said == ["Good evening", "one\ntwo"]

    def test_images_are_sent(self, client: openai.OpenAI, model: CommandedLlm) -> None:
        """Parts of the types text and image_url reach the model."""
        content = [{"type": "text", "text": "say seen"}, {"type": "image_url", "image_url": {"url": PIXEL}}]

        completion = client.chat.completions.create(model="commanded", messages=[{"role": "user", "content": content}])

        assert completion.choices[0].message.content == "seen [image]"
        assert PIXEL in json.dumps(model.requests[-1].messages)

    def test_files_are_sent(self, client: openai.OpenAI, model: CommandedLlm) -> None:
        """PDFs, recordings and tables reach the model as they were sent, in this message and in those before it."""
        recording = {"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "wav"}}
        report = {"filename": "report.pdf", "file_data": data_url("application/pdf", PDF)}
        table = {"filename": "table.csv", "file_data": data_url("text/csv", b"May,120")}
        files = [recording, {"type": "file", "file": report}, {"type": "file", "file": table}]
        content = [{"type": "text", "text": "say read"}, *files]
        before: list[Any] = [{"role": "user", "content": content}, {"role": "assistant", "content": "read"}]

        completion = client.chat.completions.create(
            model="commanded", messages=[*before, {"role": "user", "content": content}]
        )

        assert completion.choices[0].message.content == "read [image] [image] [File table.csv, text/csv]\nMay,120"
        first, _, last = [message for message in model.requests[-1].messages if message["role"] != "system"]
        for message in (first, last):
            assert message["content"][1:3] == [recording, {"type": "file", "file": report}]
            assert message["content"][3]["text"].endswith("May,120")

    def test_files_of_a_conversation_are_stored(self, client: openai.OpenAI, server: LiveServer) -> None:
        """Its transcript names them, and holds no bytes."""
        content: Any = [{"type": "file", "file": {"filename": "a.pdf", "file_data": data_url("application/pdf", PDF)}}]

        for _ in range(2):
            client.chat.completions.create(
                model="commanded",
                messages=[{"role": "user", "content": content}],
                metadata={"conversation_id": "with-a-file", "message_id": "m1"},
            )

        with server.client() as http:
            said = http.get("/conversations/with-a-file/transcript").json()["messages"]
            (file,) = said[0]["files"]
            assert (file["name"], file["media_type"], file["size"]) == ("a.pdf", "application/pdf", len(PDF))
            assert len([message for message in said if message["role"] == "user"]) == 1
            assert http.get(f"/conversations/with-a-file/files/{file['sha256']}").content == PDF

    def test_a_question_is_text_and_data(self, client: openai.OpenAI) -> None:
        """A question can be read, with its options, and is in the report on the turn."""
        completion = ask(client, "ask")

        assert completion.choices[0].message.content == "Which airport?\n1. Haneda\n2. Narita: far"
        turn = completion.turnwise["turn"]
        assert (turn["status"], turn["questions"][0]["question"]) == ("awaiting_user", "Which airport?")

    def test_the_model_is_asked_with_the_parameters(self, client: openai.OpenAI) -> None:
        """What the engine can pass on to the model, it passes on."""
        completion = ask(client, "settings", temperature=0.5, top_p=0.9, max_completion_tokens=50, seed=4)

        settings = json.loads(completion.choices[0].message.content)
        assert settings == {"temperature": 0.5, "top_p": 0.9, "max_tokens": 50, "seed": 4}

    @holds_for(
        ("given", "asked"),
        [
            ({"max_tokens": 9}, {"max_tokens": 9}),
            ({"max_tokens": 9, "max_completion_tokens": 8}, {"max_tokens": 8}),
            ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
            ({"stop": "END"}, {"stop": ["END"]}),
            ({"stop": ["END", "\n"]}, {"stop": ["END", "\n"]}),
            ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
            ({"logprobs": True}, {"logprobs": True}),
            ({"logprobs": True, "top_logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
            ({"stop": [], "logprobs": False, "top_logprobs": 0, "tool_choice": "auto"}, {}),
        ],
    )
    def test_every_parameter_becomes_a_setting(self, client: openai.OpenAI, given: Any, asked: Any) -> None:
        """Of this one message; one that asks for nothing is left to the rules."""
        settings = json.loads(ask(client, "settings", **given).choices[0].message.content)

        assert settings == asked

    @holds_for(
        ("given", "asked"),
        [("none", "none"), ("required", "required"), ({"type": "function", "function": {"name": "look"}}, "look")],
    )
    def test_a_tool_may_be_forced(self, client: openai.OpenAI, model: CommandedLlm, given: Any, asked: str) -> None:
        """One of the engine's own."""
        ask(client, "say x", tool_choice=given)

        assert model.requests[-1].tool_choice == asked

    @pytest.mark.parametrize("stream", [False, True])
    def test_probabilities_are_told(self, stream: bool) -> None:
        """Those of all tokens of the turn; a stream has them at its end."""
        tokens = [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}]
        model = FunctionLlm(lambda request: ModelAnswer(content="Hi", logprobs={"content": tokens}), name="commanded")
        server_of = serving(Engine.open("sqlite://", model=model))
        with server_of as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            if stream:
                choices = [chunk.choices[0] for chunk in streamed(client, "Hello", logprobs=True)[1] if chunk.choices]
            else:
                choices = ask(client, "Hello", logprobs=True).choices
            unasked = ask(client, "Hello").choices[0]

        told = [token.model_dump() for choice in choices if choice.logprobs for token in choice.logprobs.content]
        assert (told, unasked.logprobs) == (tokens, None)


class TestAStream:
    """A completion in chunks."""

    def test_it_says_the_same_as_the_whole(self, client: openai.OpenAI) -> None:
        """The chunks joined are the text of the completion, also with tools and a question."""
        for text in ("say one\ntwo\nthree", "look Kyoto", "ask", "speak Good evening"):
            assert streamed(client, text)[0] == ask(client, text).choices[0].message.content

    def test_its_chunks_have_their_order(self, client: openai.OpenAI) -> None:
        """First the role, then the text as it is written, then the reason of the end with the report."""
        _, chunks = streamed(client, "say one\ntwo")

        assert chunks[0].choices[0].delta.role == "assistant"
        assert all(chunk.choices[0].delta.content for chunk in chunks[1:-1])
        assert chunks[-1].choices[0].finish_reason == "stop"
        assert chunks[-1].turnwise["turn"]["reply"] == "one\ntwo"
        assert len({chunk.id for chunk in chunks}) == 1
        assert all(chunk.usage is None for chunk in chunks)

    def test_a_text_comes_while_it_is_written(self, client: openai.OpenAI, model: CommandedLlm) -> None:
        """The first words arrive before the model has written the last."""
        texts = []
        for chunk in ask(client, "wait for it", stream=True):
            text = chunk.choices[0].delta.content
            texts.append(text)
            if text == "Wait":
                model.release()

        assert texts == ["", "Wait", "ed for it", None]

    def test_the_usage_comes_if_it_is_wanted(self, client: openai.OpenAI) -> None:
        """With `stream_options.include_usage` a last chunk without a choice has it."""
        _, chunks = streamed(client, "say one", stream_options={"include_usage": True})

        assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 10)

    def test_a_beginning_that_the_model_gave_up_stays_apart(self, client: openai.OpenAI, model: CommandedLlm) -> None:
        """A model that fails in the middle writes its answer again: as a paragraph of its own, and as the reply."""
        chunks = []
        for chunk in ask(client, "break off here", stream=True):
            chunks.append(chunk)
            if chunk.choices[0].delta.content == "Half an":
                model.release()

        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Half an\n\nNow whole: here"
        assert chunks[-1].turnwise["turn"]["reply"] == "Now whole: here"

    def test_a_failure_in_the_middle_is_an_error(self, client: openai.OpenAI) -> None:
        """The client raises its own error with the sentence of the failure."""
        with pytest.raises(openai.APIError, match="The provider refused") as raised:
            streamed(client, "fail")

        assert raised.value.code == "turn_failed"


class TestAsynchronousClients:
    """The client for programs with an event loop."""

    async def test_they_get_the_same(self, server: LiveServer) -> None:
        """The asynchronous client completes and streams."""
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            messages: Any = [{"role": "user", "content": "say Hello"}]
            completion = await client.chat.completions.create(model="commanded", messages=messages)
            stream = await client.chat.completions.create(model="commanded", messages=messages, stream=True)
            texts = [chunk.choices[0].delta.content or "" async for chunk in stream]

        assert completion.choices[0].message.content == "".join(texts) == "Hello"


class TestAClientThatLeaves:
    """A client whose connection ends before the answer is there."""

    @pytest.mark.parametrize("stream", [False, True])
    def test_it_stops_the_turn(self, server: LiveServer, engine: Engine, model: CommandedLlm, stream: bool) -> None:
        """The model is not asked on for nobody, and the conversation is deleted."""
        before, cancelled = stored(server, engine), model.cancelled
        body = json.dumps({"model": "commanded", "messages": [{"role": "user", "content": "wait"}], "stream": stream})
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until(lambda: model.is_waiting)

        until(lambda: model.cancelled == cancelled + 1)
        until(lambda: stored(server, engine) == before)


class TestModels:
    """The list of models."""

    def test_they_are_those_of_the_engine(self, client: openai.OpenAI) -> None:
        """The list, and each by its name."""
        assert [model.id for model in client.models.list()] == ["commanded", "second"]
        assert client.models.retrieve("commanded").owned_by == "turnwise"
        with pytest.raises(openai.NotFoundError) as raised:
            client.models.retrieve("other/model")
        assert raised.value.code == "model_not_found"


class TestAServerThatStops:
    """Completions under way when the process ends."""

    def test_the_stream_ends_with_an_error(self, tmp_path: Path) -> None:
        """The engine closes, and the client is told."""
        model = CommandedLlm()
        engine = Engine.open(tmp_path / "stopped.db", model=model)
        with serving(engine) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            stream = ask(client, "wait", stream=True)
            until(lambda: model.is_waiting)
            server.run(engine.close)
            with pytest.raises(openai.APIError) as raised:
                list(stream)

        assert raised.value.code == "engine_closed"

    def test_what_a_killed_process_left_is_deleted(self, tmp_path: Path) -> None:
        """When the next one starts; conversations that are kept stay."""
        database = tmp_path / "killed.db"
        with Engine.open_blocking(database) as before:
            before.create(marks={"completion": "stateless", "process": "another"})
            kept = before.create().id

        engine = Engine.open(database)
        with serving(engine) as server:
            assert [summary.id for summary in server.run(engine.list)] == [kept]

    def test_what_a_client_only_calls_so_is_kept(self, tmp_path: Path) -> None:
        """Metadata of a client deletes no conversation, whatever it says: not a word that the server once used, and
        the names that it uses now are refused."""
        database = tmp_path / "named.db"
        with serving(Engine.open(database)) as server, server.client() as client:
            body = {"id": "mine", "metadata": {"chat_completions": "stateless", "process": "another"}}
            client.post("/conversations", json=body).raise_for_status()
            marks = {"turnwise.completion": "stateless", "turnwise.process": "another"}
            created = client.post("/conversations", json={"metadata": marks})
            changed = client.patch("/conversations/mine", json={"metadata": marks})
            said = {"model": "rehearsal", "messages": [{"role": "user", "content": "Hello"}]}
            body = {**said, "metadata": {"conversation_id": "kept", **marks}}
            completed = client.post("/v1/chat/completions", json=body)

        assert {(one.status_code, one.json()["code"]) for one in (created, changed)} == {(422, "invalid_input")}
        assert (completed.status_code, completed.json()["error"]["code"]) == (400, "invalid_input")
        engine = Engine.open(database)
        with serving(engine) as server:
            assert [summary.id for summary in server.run(engine.list)] == ["mine"]


# --- Completions with a conversation id: the conversation is kept, and goes on.


class Talk:
    """A conversation with a server, as a client of the OpenAI API has it that keeps all messages itself."""

    def __init__(self, client: openai.OpenAI) -> None:
        self.client = client
        self.id = f"talk-{uuid.uuid4()}"
        self.messages: list[dict[str, Any]] = []

    def say(self, text: str, *, message_id: str | None = None, **options: Any) -> Any:
        """Send the history and this text, and keep both it and the answer. Returns the completion."""
        self.messages.append({"role": "user", "content": text})
        completion = self.send(self.messages, message_id=message_id, **options)
        self.messages.append({"role": "assistant", "content": completion.choices[0].message.content})
        return completion

    def reply(self, **reply: Any) -> Any:
        """Do something about what the turn waits for."""
        return self.send([{"role": "user", "content": ""}], extra_body={"turnwise": reply})

    def send(self, messages: Sequence[Any], *, message_id: str | None = None, **options: Any) -> Any:
        """Ask for a completion in this conversation."""
        noted = {"conversation_id": self.id, **({} if message_id is None else {"message_id": message_id})}
        return self.client.chat.completions.create(
            model="commanded", messages=list(messages), metadata=noted, **options
        )


def said(completion: Any) -> str:
    """The text of a completion."""
    return str(completion.choices[0].message.content)


def turn_of(completion: Any) -> dict[str, Any]:
    """The report on the turn of a completion."""
    turn: dict[str, Any] = completion.turnwise["turn"]
    return turn


@pytest.fixture
def talk(client: openai.OpenAI) -> Talk:
    """A new conversation, which the server does not know yet."""
    return Talk(client)


def transcript(server: LiveServer, engine: Engine, talk: Talk) -> list[tuple[str, str]]:
    """What was said in a conversation, as the engine has it."""

    async def read() -> list[tuple[str, str]]:
        conversation = await engine.get(talk.id)
        return [(message.role, message.text) for message in await conversation.transcript()]

    return server.run(read)


class TestAConversationThatIsKept:
    """What the conversation id does."""

    def test_it_is_created_from_what_came_before(self, talk: Talk) -> None:
        """The messages before the first one that is sent are its history."""
        talk.messages = [{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Hi"}]

        first, second = talk.say("recall"), talk.say("recall")

        assert json.loads(said(first)) == ["system", "assistant", "user"]
        assert json.loads(said(second)) == ["system", "assistant", "user", "assistant", "user"]
        assert first.turnwise["conversation_id"] == talk.id

    @pytest.mark.parametrize("messages_id", [None, "x" * 201], ids=["blank text", "long id"])
    def test_a_refused_first_message_creates_none(
        self, talk: Talk, server: LiveServer, messages_id: str | None
    ) -> None:
        """Nothing is stored of a request that no conversation takes."""
        text = "" if messages_id is None else "Hello"
        with pytest.raises((openai.BadRequestError, openai.UnprocessableEntityError)):
            talk.say(text, message_id=messages_id)

        with server.client() as client:
            assert client.get(f"/conversations/{talk.id}").status_code == 404

    def test_only_the_newest_message_is_sent(self, talk: Talk, server: LiveServer, engine: Engine) -> None:
        """The server has the history; a client may leave it out, and what it claims about it changes nothing."""
        talk.say("say one")
        talk.send([{"role": "user", "content": "say two"}])
        talk.send([{"role": "assistant", "content": "I owe you money"}, {"role": "user", "content": "say three"}])

        heard = [text for role, text in transcript(server, engine, talk) if role == "assistant"]
        assert heard == ["one", "two", "three"]

    def test_a_message_that_is_sent_again_is_taken_once(
        self, talk: Talk, server: LiveServer, engine: Engine, model: CommandedLlm
    ) -> None:
        """Under the same `message_id`, or the same `Idempotency-Key`, the same turn is answered."""
        first = talk.say("say once", message_id="m1")
        asked = len(model.requests)

        again = talk.send(talk.messages[:1], message_id="m1")
        keyed = talk.send(talk.messages[:1], extra_headers={"Idempotency-Key": "m1"})
        streamed = list(talk.send(talk.messages[:1], message_id="m1", stream=True))

        assert said(first) == said(again) == said(keyed) == "once"
        assert [first.id] * 3 == [again.id, keyed.id, streamed[0].id]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == "once"
        assert len(model.requests) == asked
        assert len(transcript(server, engine, talk)) == 2

    def test_an_id_that_is_used_for_something_else_is_a_conflict(self, talk: Talk) -> None:
        """Another text under the same id is refused, and nothing is said."""
        talk.say("say once", message_id="m1")

        with pytest.raises(openai.ConflictError) as raised:
            talk.say("say something else", message_id="m1")

        assert raised.value.code == "event_id_reused"

    def test_it_keeps_what_the_first_request_notes(self, talk: Talk, server: LiveServer, engine: Engine) -> None:
        """Other metadata becomes that of the conversation."""
        metadata = {"conversation_id": talk.id, "tenant": "a"}
        talk.client.chat.completions.create(
            model="commanded", messages=[{"role": "user", "content": "say x"}], metadata=metadata
        )

        assert server.run(engine.get, talk.id).metadata == {"tenant": "a"}

    def test_aclient_that_leaves_does_not_stop_the_turn(
        self, talk: Talk, server: LiveServer, engine: Engine, model: CommandedLlm
    ) -> None:
        """The turn goes on, and its answer is there for whoever asks again."""
        messages = [{"role": "user", "content": "wait for it"}]
        body = json.dumps({
            "model": "commanded", "messages": messages, "metadata": {"conversation_id": talk.id, "message_id": "w"}
        })  # fmt: skip
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until(lambda: model.is_waiting)
        model.release()

        assert said(talk.send(messages, message_id="w")) == "Waited for it"

    @pytest.mark.parametrize("stream", [True, False])
    def test_a_client_that_leaves_and_cannot_ask_again_stops_the_turn(
        self, talk: Talk, server: LiveServer, engine: Engine, model: CommandedLlm, stream: bool
    ) -> None:
        """P8: without an id for its message. What was streamed is kept, and the next message goes on behind it."""
        messages = [{"role": "user", "content": "wait for it"}]
        body = json.dumps({
            "model": "commanded", "messages": messages, "metadata": {"conversation_id": talk.id}, "stream": stream
        })  # fmt: skip
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            until(lambda: model.is_waiting)
            if stream:
                received = b""
                while b'"Wait"' not in received:
                    received += connection.recv(4096)
        conversation = server.run(engine.get, talk.id)
        until(lambda: conversation.state.type == "idle")

        stopped = server.run(conversation.transcript)[-1]
        assert (stopped.text, stopped.stopped) == ("Wait", "cancelled")
        assert (said(talk.send([{"role": "user", "content": "say x"}])) or "").endswith("\n\nsay x")

    def test_a_client_that_leaves_a_question_leaves_it_open(
        self, talk: Talk, server: LiveServer, engine: Engine
    ) -> None:
        """What waits for a person goes on waiting."""
        stream = talk.send([{"role": "user", "content": "ask"}], stream=True)
        list(stream)
        stream.close()

        assert server.run(engine.get, talk.id).state.type == "awaiting_user_response"

    def test_a_message_during_a_turn_is_refused(self, talk: Talk, model: CommandedLlm) -> None:
        """As the rules of the conversation say. The client may send it again by itself."""
        stream = talk.send([{"role": "user", "content": "wait"}], stream=True)
        until(lambda: model.is_waiting)

        with pytest.raises(openai.ConflictError) as raised:
            talk.send([{"role": "user", "content": "say x"}])
        model.release()
        list(stream)

        assert (raised.value.code, raised.value.response.headers["x-should-retry"]) == ("busy", "true")

    def test_its_model_stays(self, talk: Talk) -> None:
        """A conversation that another model answers cannot be continued under this name."""
        talk.say("say x")

        with pytest.raises(openai.BadRequestError) as raised:
            talk.client.chat.completions.create(
                model="second", messages=talk.messages[:1], metadata={"conversation_id": talk.id}
            )

        assert (raised.value.code, raised.value.param) == ("model_mismatch", "model")

    def test_parameters_hold_for_their_message(self, talk: Talk) -> None:
        """The next message has its own; a reply to a question leaves the turn those that it has."""
        first, second, third = talk.say("settings", temperature=0.5), talk.say("settings", seed=1), talk.say("settings")

        assert [json.loads(said(one)) for one in (first, second, third)] == [{"temperature": 0.5}, {"seed": 1}, {}]
        talk.say("ask")
        assert turn_of(talk.say("1", temperature=1.0))["status"] == "completed"

    async def test_two_first_requests_at_once_create_one(self, server: LiveServer, engine: Engine) -> None:
        """Also if they bring different histories: one of them is too early for the other, and nothing is lost."""
        metadata = {"conversation_id": "at-once"}
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=20) as client:
            histories: list[Any] = [[], [{"role": "system", "content": "Be brief."}]]
            asked = (
                client.chat.completions.create(
                    model="commanded", messages=[*history, {"role": "user", "content": "say x"}], metadata=metadata
                )
                for history in histories
            )
            answers = await asyncio.gather(*asked)

        assert [said(answer) for answer in answers] == ["x", "x"]
        assert server.run(engine.get, "at-once").state.book.turn == 2


class TestAQuestion:
    """A question of the model, which the next message answers."""

    @pytest.mark.parametrize(
        ("reply", "answer"),
        [("Narita", "Narita"), (" narita ", "Narita"), ("2", "Narita"), ("Kansai", "Kansai"), ("3", "3")],
    )
    def test_a_text_answers_it(self, talk: Talk, reply: str, answer: str) -> None:
        """An option by its label or its number, or anything in the user's own words."""
        talk.say("ask")

        completion = talk.say(reply)

        assert said(completion) == f'The tool said: {{"answers": {{"Which airport?": "{answer}"}}}}'
        assert turn_of(completion)["status"] == "completed"

    @pytest.mark.parametrize(
        ("reply", "answer"), [("fish, 2", ["Fish", "Rice"]), ("Fish", ["Fish"]), ("Fish and eggs", ["Fish and eggs"])]
    )
    def test_several_options_may_be_chosen(self, talk: Talk, reply: str, answer: list[str]) -> None:
        """Where the question allows it, separated by commas."""
        assert said(talk.say("ask many")) == "Which meals? (Several may be chosen.)\n1. Fish\n2. Rice"

        assert json.loads(said(talk.say(reply)).removeprefix("The tool said: ")) == {
            "answers": {"Which meals?": answer}
        }

    def test_several_questions_take_a_line_each(self, talk: Talk) -> None:
        """Fewer lines answer nothing, and the questions stay open."""
        talk.say("ask two")
        with pytest.raises(openai.BadRequestError) as raised:
            talk.send([*talk.messages, {"role": "user", "content": "Narita"}])
        assert (raised.value.code, raised.value.param) == ("missing_answer", "Which class?")

        completion = talk.say("Narita\nbusiness")

        assert '"Which airport?": "Narita", "Which class?": "Business"' in said(completion)

    def test_answers_may_be_given_as_data(self, talk: Talk) -> None:
        """With the id of the call; an answer to another call is refused."""
        call_id = turn_of(talk.say("ask two"))["call_id"]
        answers = {"Which airport?": "Haneda", "Which class?": "Economy"}
        with pytest.raises(openai.ConflictError) as raised:
            talk.reply(call_id="call_9_9", answers=answers)
        assert raised.value.code == "wrong_state"

        completion = talk.reply(call_id=call_id, answers=answers, annotations={"Which class?": {"notes": "window"}})

        assert "Economy" in said(completion)
        assert "window" in said(completion)

    def test_it_may_be_declined(self, talk: Talk) -> None:
        """The rules say what follows; here the turn ends."""
        call_id = turn_of(talk.say("ask"))["call_id"]

        assert turn_of(talk.reply(call_id=call_id, decline=True))["status"] == "cancelled"

    def test_an_answer_that_is_sent_again_is_taken_once(self, talk: Talk) -> None:
        """Also when the conversation has gone on since, and when the message that led to the question is repeated."""
        asked = talk.say("ask", message_id="m1")
        again = talk.send(talk.messages[:1], message_id="m1")
        answered = talk.say("Narita", message_id="m2")
        talk.say("ask", message_id="m3")

        later = talk.send(talk.messages[:1], message_id="m1")
        repeated = talk.send(talk.messages[:3], message_id="m2")
        streamed = list(talk.send(talk.messages[:3], message_id="m2", stream=True))

        assert said(asked) == said(again) == said(later)
        assert turn_of(asked) == turn_of(later)
        assert said(repeated) == said(answered)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == said(answered)
        with pytest.raises(openai.ConflictError):
            talk.send([*talk.messages[:2], {"role": "user", "content": "Haneda"}], message_id="m2")

    def test_an_answer_to_another_question_is_refused(self, talk: Talk) -> None:
        """A reply to what was shown before does not answer what waits now."""
        talk.say("ask many")
        late = [*talk.messages, {"role": "user", "content": "Fish"}]
        talk.say("Rice")
        talk.say("ask")

        with pytest.raises(openai.ConflictError) as raised:
            talk.send(late)

        assert raised.value.code == "wrong_state"


class TestAnApproval:
    """A call that runs only if a person allows it."""

    def test_it_is_asked_for_in_words_and_as_data(self, talk: Talk) -> None:
        """The text names the tool, its arguments and the call."""
        asked = talk.say("book Nara")
        call = turn_of(asked)["call"]

        assert said(asked).startswith('May the tool book run with {"place": "Nara"}? Answer "yes" or "no".')
        assert (call["name"], call["arguments"]) == ("book", {"place": "Nara"})

    @pytest.mark.parametrize(("reply", "result"), [("Yes.", "booked Nara"), ("no", "Denied by the user")])
    def test_yes_or_no_decides(self, talk: Talk, reply: str, result: str) -> None:
        """After the message that asks for it."""
        talk.say("book Nara")

        assert result in said(talk.say(reply))

    @pytest.mark.parametrize("reply", ["maybe", "yes please", "", "say hello"])
    def test_anything_else_decides_nothing(self, talk: Talk, reply: str) -> None:
        """The call goes on waiting."""
        talk.say("book Nara")
        with pytest.raises(openai.ConflictError) as raised:
            talk.send([*talk.messages, {"role": "user", "content": reply}])
        assert raised.value.code == "awaiting_approval"

        assert "booked Nara" in said(talk.say("yes"))

    def test_a_yes_to_another_call_decides_nothing(self, talk: Talk) -> None:
        """A yes that is sent again, or without what it answers, allows no later call."""
        talk.say("book Nara")
        yes = [*talk.messages, {"role": "user", "content": "yes"}]
        talk.say("yes")
        talk.say("book Nara")

        for messages in (yes, yes[-1:]):
            with pytest.raises(openai.ConflictError) as raised:
                talk.send(messages)
            assert raised.value.code == "awaiting_approval"

    def test_it_may_be_given_as_data(self, talk: Talk) -> None:
        """Also with other arguments."""
        call_id = turn_of(talk.say("book Nara"))["call_id"]

        completion = talk.reply(call_id=call_id, approval={"allowed": True, "arguments": {"place": "Kobe"}})

        assert "booked Kobe" in said(completion)

    def test_arguments_that_do_not_fit_decide_nothing(self, talk: Talk) -> None:
        """The refusal names them, and others may be given."""
        call_id = turn_of(talk.say("book Nara"))["call_id"]

        with pytest.raises(openai.BadRequestError) as raised:
            talk.reply(call_id=call_id, approval={"allowed": True, "arguments": {"place": 3}})
        assert (raised.value.code, raised.value.param) == ("invalid_input", "arguments")
        assert "place: Input should be a valid string" in raised.value.message
        completion = talk.reply(call_id=call_id, approval={"allowed": True, "arguments": {"place": "Kobe"}})
        assert "booked Kobe" in said(completion)

    def test_nothing_is_created_for_it(self, talk: Talk) -> None:
        """A conversation that does not exist waits for nobody; the request creates none."""
        for _ in range(2):
            with pytest.raises(openai.NotFoundError) as raised:
                talk.reply(call_id="call_1_0", decline=True)
            assert raised.value.code == "unknown_conversation"

    def test_what_is_given_is_one_thing(self, talk: Talk) -> None:
        """Two decisions at once, or none, are refused."""
        call_id = turn_of(talk.say("book Nara"))["call_id"]

        for reply in ({}, {"decline": True, "approval": {"allowed": True}}):
            with pytest.raises(openai.BadRequestError) as raised:
                talk.reply(call_id=call_id, **reply)
            assert raised.value.param == "turnwise"


# --- What is refused, and how clients of the OpenAI API see it.


HELLO: Any = [{"role": "user", "content": "say Hello"}]


def refused(client: openai.OpenAI, **options: Any) -> openai.BadRequestError:
    """Ask with these parameters, and return the refusal."""
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**{"model": "commanded", "messages": HELLO, **options})
    return raised.value


class Ticket(BaseModel):
    """A ticket of a help desk."""

    title: str
    priority: int


class TestResponseFormat:
    """The answer is JSON, in the form that the client asks for."""

    def test_a_schema(self, client: openai.OpenAI) -> None:
        """The client's own library sends it, and reads the object."""
        messages: Any = [{"role": "user", "content": 'say {"title": "It burns", "priority": 1}'}]

        completion = client.chat.completions.parse(model="commanded", messages=messages, response_format=Ticket)

        assert completion.choices[0].message.parsed == Ticket(title="It burns", priority=1)

    def test_any_object(self, client: openai.OpenAI) -> None:
        """Whatever stands around it is left out."""
        messages: Any = [{"role": "user", "content": 'say Here: {"a": [1]}'}]

        completion = client.chat.completions.create(
            model="commanded", messages=messages, response_format={"type": "json_object"}
        )

        assert json.loads(completion.choices[0].message.content or "") == {"a": [1]}

    def test_a_stream(self, client: openai.OpenAI) -> None:
        """Only a valid answer is streamed."""
        messages: Any = [{"role": "user", "content": 'say Here: {"a": [1]}'}]

        chunks = client.chat.completions.create(
            model="commanded", messages=messages, response_format={"type": "json_object"}, stream=True
        )

        assert json.loads("".join(chunk.choices[0].delta.content or "" for chunk in chunks)) == {"a": [1]}

    def test_no_valid_answer(self, client: openai.OpenAI) -> None:
        """The turn fails, and so does the completion."""
        messages: Any = [{"role": "user", "content": "say No."}]

        with pytest.raises(openai.InternalServerError, match="no answer of the form"):
            client.chat.completions.create(
                model="commanded", messages=messages, response_format={"type": "json_object"}
            )

    @pytest.mark.parametrize(
        "schema", [{"type": 7}, {"type": "object", "properties": {"a": {"$ref": "https://example.com"}}}]
    )
    def test_a_schema_that_cannot_be_used(self, client: openai.OpenAI, schema: Any) -> None:
        """A 400 says why."""
        error = refused(client, response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})

        assert error.code == "invalid_input"


class TestParameters:
    """Parameters that would change the meaning of a request and cannot be carried out."""

    @holds_for(
        ("name", "value"),
        [
            ("n", 2),
            ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
            ("tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}),
            ("tool_choice", "any"),
            ("functions", [{"name": "f"}]),
            ("function_call", {"name": "f"}),
            ("logit_bias", {"5": 1}),
            ("modalities", ["text", "audio"]),
            ("audio", {"voice": "alloy", "format": "mp3"}),
            ("frequency_penalty", 1.0),
            ("presence_penalty", -1.0),
            ("verbosity", "low"),
            ("web_search_options", {}),
        ],
    )
    def test_they_are_refused(self, client: openai.OpenAI, name: str, value: Any) -> None:
        """With a 400 that names the parameter."""
        error = refused(client, **{name: value})

        assert (error.code, error.param, error.type) == ("unsupported_parameter", name, "invalid_request_error")

    @holds_for(
        ("given", "param"),
        [
            ({"stop": ""}, "stop"),
            ({"stop": ["a", ""]}, "stop"),
            ({"stop": 3}, "stop"),
            ({"temperature": 3}, "temperature"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
            ({"tool_choice": {"type": "function", "function": {"name": "nonesuch"}}}, "tool_choice"),
        ],
    )
    def test_invalid_ones_are_refused(self, client: openai.OpenAI, given: Any, param: str) -> None:
        """With a sentence, and the name of the parameter."""
        error = refused(client, extra_body=given)

        assert (error.status_code, error.code, error.param) == (400, "invalid_input", param)

    def test_their_neutral_values_are_taken(self, client: openai.OpenAI) -> None:
        """Clients that send every parameter are served."""
        completion = client.chat.completions.create(
            model="commanded",
            messages=HELLO,
            n=1,
            tools=[],
            tool_choice="auto",
            response_format={"type": "text"},
            frequency_penalty=0,
            presence_penalty=0,
            logprobs=False,
            user="u",
            store=False,
            parallel_tool_calls=True,
        )

        assert completion.choices[0].message.content == "Hello"

    def test_unknown_ones_are_refused(self, client: openai.OpenAI) -> None:
        """A misspelt parameter is not left out in silence."""
        error = refused(client, extra_body={"temprature": 1})

        assert (error.code, error.param) == ("invalid_input", "temprature")

    @holds_for(
        ("options", "param"),
        [
            ({"temperature": 3}, "temperature"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
            ({"metadata": {"conversation_id": ""}}, "metadata.conversation_id"),
            ({"metadata": {"tenant": 1}}, "metadata.tenant"),
            ({"extra_body": {"turnwise": {"call_id": "c", "decline": True}}}, "turnwise"),
        ],
    )
    def test_bad_values_are_named(self, client: openai.OpenAI, options: Any, param: str) -> None:
        """The place of the fault is in `param`."""
        assert refused(client, **options).param == param


class TestMessages:
    """Messages that cannot be answered."""

    @pytest.mark.parametrize(
        "last", [{"role": "assistant", "content": "And then"}, {"role": "tool", "tool_call_id": "c", "content": "x"}]
    )
    def test_the_last_one_is_of_the_user(self, client: openai.OpenAI, last: Any) -> None:
        """A text to continue, or the result of a tool, is refused."""
        error = refused(client, messages=[*HELLO, last])

        assert (error.code, error.param) == ("unsupported_messages", "messages.1.role")

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
            {"type": "input_text", "text": "x"},
            {"text": "x"},
        ],
    )
    def test_parts_that_no_model_is_sent(self, client: openai.OpenAI, part: Any) -> None:
        """They are refused wherever they stand, since leaving them out would change the meaning."""
        for messages in ([{"role": "user", "content": [part]}], [{"role": "user", "content": [part]}, *HELLO]):
            error = refused(client, messages=messages)
            assert (error.code, error.param) == ("unsupported_content", "messages.0.content.0.type")

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file"},
            {"type": "image_url", "image_url": {}},
        ],
    )
    def test_files_that_are_not_there(self, client: openai.OpenAI, part: Any) -> None:
        """A file without bytes, or one that another service keeps, is refused wherever it stands."""
        for messages in ([{"role": "user", "content": [part]}], [{"role": "user", "content": [part]}, *HELLO]):
            error = refused(client, messages=messages)
            assert (error.code, error.param) == ("invalid_input", f"messages.0.content.0.{part['type']}")

    @pytest.mark.parametrize(
        ("part", "sentence"),
        [
            ({"type": "file", "file": {"file_data": "###"}}, "base64 cannot be read"),
            (
                {"type": "file", "file": {"file_data": data_url("application/pdf", PNG)}},
                "its bytes are a file of the type image/png",
            ),
            ({"type": "file", "file": {"filename": "a.zip", "file_data": "UEsDBA=="}}, "a.zip cannot be sent"),
            ({"type": "input_audio", "input_audio": {"data": base64(WAV), "format": "mp3"}}, "declared as audio/mpeg"),
        ],
    )
    def test_files_that_cannot_be_used(self, client: openai.OpenAI, part: Any, sentence: str) -> None:
        """In one sentence that says why."""
        error = refused(client, messages=[{"role": "user", "content": [part]}])

        assert (error.status_code, error.code) == (400, "invalid_input")
        assert sentence in error.message

    @holds_for(
        "content", ["", "  ", [], [{"type": "image_url"}], [{"type": "image_url", "image_url": {"url": "ftp://x"}}]]
    )
    def test_what_says_nothing(self, client: openai.OpenAI, content: Any) -> None:
        """An empty message and an image that is none are refused."""
        assert refused(client, messages=[{"role": "user", "content": content}]).code == "invalid_input"


class TestTheServer:
    """Refusals that do not depend on the completion."""

    def test_a_broken_body_is_named(self, server: LiveServer) -> None:
        """Whatever is sent, the answer has the shape of the OpenAI API."""
        with server.client() as client:
            for body in (b"{", b"\xff", b"[]", b"null"):
                answer = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
                assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
                assert answer.json()["error"]["type"] == "invalid_request_error"

    def test_paths_and_methods_that_are_not_there(self, server: LiveServer) -> None:
        """Below /v1/ they are refused in its shape, elsewhere as problems."""
        with server.client() as client:
            assert client.get("/v1/other").json()["error"]["code"] == "not_found"
            assert client.delete("/v1/models").json()["error"]["code"] == "method_not_allowed"
            assert client.get("/other").headers["content-type"] == "application/problem+json"

    @pytest.mark.slow
    async def test_who_may_not_call(self) -> None:
        """A missing token, a foreign host and a large body raise the errors that the client has for them."""
        limits = HttpLimits(body_bytes=2_000)
        async with served(token="secret", hosts=["test"], limits=limits) as transport:
            with pytest.raises(openai.AuthenticationError) as unknown:
                await client_of(transport, key="wrong").models.list()
            with pytest.raises(openai.PermissionDeniedError) as foreign:
                await client_of(transport, key="secret", host="evil").models.list()
            with pytest.raises(openai.APIStatusError) as large:
                messages: Any = [{"role": "user", "content": "x" * 3_000}]
                await client_of(transport, key="secret").chat.completions.create(model="scripted", messages=messages)
            models = await client_of(transport, key="secret").models.list()

        assert (unknown.value.code, unknown.value.response.headers["www-authenticate"]) == ("unauthorized", "Bearer")
        assert foreign.value.code == "forbidden_host"
        assert (large.value.status_code, large.value.code) == (413, "too_large")
        assert [model.id for model in models.data] == ["scripted"]

    async def test_a_conversation_of_somebody_else(self) -> None:
        """It is neither continued nor shown: the same id names one of the caller's own."""
        owner, answers = (lambda request: request.headers.get("x-user")), ["Hello of Ann", "Hello of Bob"]
        async with served(owner=owner, answers=answers) as transport:
            metadata = {"conversation_id": "mine"}
            own, other = (client_of(transport, headers={"x-user": user}) for user in ("ann", "bob"))
            await own.chat.completions.create(model="scripted", messages=HELLO, metadata=metadata)
            his = await other.chat.completions.create(model="scripted", messages=HELLO, metadata=metadata)
            body = {"turnwise": {"call_id": "call", "decline": True}}
            nobodys = {"conversation_id": "yours"}
            with pytest.raises(openai.NotFoundError) as raised:
                await other.chat.completions.create(model="scripted", messages=HELLO, metadata=nobodys, extra_body=body)

        assert his.choices[0].message.content == "Hello of Bob"
        assert his.turnwise["conversation_id"] == "mine"  # type: ignore[attr-defined]
        assert his.turnwise["turn"]["turn"] == 1  # type: ignore[attr-defined]
        assert raised.value.code == "unknown_conversation"


@asynccontextmanager
async def served(*, answers: Any = (), **options: Any) -> AsyncIterator[httpx.ASGITransport]:
    """An application over an engine in memory, without a socket."""
    async with Engine.open("sqlite://", model=ScriptedLlm(answers)) as engine:
        yield httpx.ASGITransport(create_app(engine, **options))


def client_of(
    transport: httpx.ASGITransport, *, key: str = "none", host: str = "test", headers: Any = None
) -> openai.AsyncOpenAI:
    """A client of that application."""
    return openai.AsyncOpenAI(
        base_url=f"http://{host}/v1",
        api_key=key,
        max_retries=0,
        default_headers=headers,
        http_client=httpx.AsyncClient(transport=transport),
    )
