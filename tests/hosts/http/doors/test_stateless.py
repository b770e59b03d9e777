"""Completions without a conversation id, asked for with the `openai` package as people use it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import openai
import pytest

from turnwise import Engine

from ....support.doors.commanded_model import CommandedLlm
from ....support.doors.waiting import until
from ....support.http.live_server import LiveServer, serving

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
