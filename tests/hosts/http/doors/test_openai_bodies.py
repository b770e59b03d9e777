"""What is refused, and how clients of the OpenAI API see it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest

from turnwise import Engine
from turnwise.hosts.http import HttpLimits, create_app
from turnwise.testing import ScriptedLlm

from ....support.cases import holds_for
from ....support.http.live_server import LiveServer

HELLO: Any = [{"role": "user", "content": "say Hello"}]


def refused(client: openai.OpenAI, **options: Any) -> openai.BadRequestError:
    """Ask with these parameters, and return the refusal."""
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**{"model": "commanded", "messages": HELLO, **options})
    return raised.value


class TestParameters:
    """Parameters that would change the meaning of a request and cannot be carried out."""

    @holds_for(
        ("name", "value"),
        [
            ("n", 2),
            ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
            ("tool_choice", "required"),
            ("functions", [{"name": "f"}]),
            ("function_call", {"name": "f"}),
            ("response_format", {"type": "json_object"}),
            ("stop", ["\n"]),
            ("logprobs", True),
            ("top_logprobs", 3),
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
            {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
            {"type": "file", "file": {"file_id": "f"}},
            {"text": "x"},
        ],
    )
    def test_parts_that_no_model_is_sent(self, client: openai.OpenAI, part: Any) -> None:
        """Audio and files are refused wherever they stand, since leaving them out would change the meaning."""
        for messages in ([{"role": "user", "content": [part]}], [{"role": "user", "content": [part]}, *HELLO]):
            error = refused(client, messages=messages)
            assert (error.code, error.param) == ("unsupported_content", "messages.0.content.0.type")

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
