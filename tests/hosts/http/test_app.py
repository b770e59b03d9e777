"""The application that `create_app` returns: on its own, and mounted into the programs of others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.routing import Mount

from turnwise import Engine
from turnwise.hosts.http import HttpLimits, create_app

from ...support.http.documented_client import DocumentedClient, api_document, calling, operations_of
from ...support.http.event_stream import EventStreamParser
from ...support.http.live_server import serving_app
from ...support.http.obedient_model import Conversations, obedient_engine
from ...support.http.stream_reader import reading

PREFIX = "/apps/assistant"

OTHER_PROTOCOLS = ("/v1/", "/agui", "/a2a", "/.well-known/")
"""Paths whose bodies and refusals are those of other protocols."""


def in_fastapi(app: FastAPI) -> Any:
    """A FastAPI program that mounts the application."""
    program = FastAPI()
    program.mount(PREFIX, app)
    return program


def in_starlette(app: FastAPI) -> Any:
    """A Starlette program that mounts the application."""
    return Starlette(routes=[Mount(PREFIX, app)])


class TestMounted:
    """Under a prefix, in a program of somebody else, which opens the engine."""

    @pytest.mark.slow
    @pytest.mark.parametrize("program", [in_fastapi, in_starlette])
    async def test_everything_is_below_the_prefix(self, program: Any) -> None:
        """The endpoints, their refusals, the OpenAPI document, the streams and the page work, and nothing lies
        outside."""
        engine = obedient_engine()
        app = program(create_app(engine))
        async with engine, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            created = await client.post(f"{PREFIX}/conversations", json={"title": "Mounted"})
            path = f"{PREFIX}/conversations/{created.json()['id']}"
            sent = await client.post(f"{path}/messages", json={"text": "Hello"})
            unknown = await client.get(f"{PREFIX}/conversations/nobody")
            methods = await client.put(path)
            document = await client.get(f"{PREFIX}/openapi.json")
            page = await client.get(f"{PREFIX}/")
            async with reading(app, f"{path}/events") as reader:
                await reader.until_event("snapshot")
            outside = await client.get("/conversations")

        assert (created.status_code, sent.status_code) == (201, 202)
        assert unknown.json()["code"] == "unknown_conversation"
        assert methods.headers["allow"] == "GET, HEAD, PATCH, DELETE"
        assert document.json()["servers"] == [{"url": PREFIX}]
        assert page.headers["content-type"].startswith("text/html")
        assert outside.status_code == 404

    @pytest.mark.slow
    async def test_a_session_is_for_the_prefix_only(self) -> None:
        """The cookie is sent below the prefix, and opens what needs the token."""
        engine = obedient_engine()
        app = in_starlette(create_app(engine, token="secret"))
        async with engine, httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            refused = await client.get(f"{PREFIX}/conversations")
            opened = await client.post(f"{PREFIX}/session", json={"token": "secret"})
            listed = await client.get(f"{PREFIX}/conversations")
            await client.delete(f"{PREFIX}/session")
            ended = await client.get(f"{PREFIX}/conversations")

        assert f"path={PREFIX}".lower() in opened.headers["set-cookie"].lower()
        assert [one.status_code for one in (refused, opened, listed, ended)] == [401, 204, 200, 401]


class TestTheEngine:
    """Who opens it and closes it."""

    def test_is_opened_and_closed_with_the_application(self) -> None:
        """An engine that is not open is opened when the server starts, and closed when it stops."""
        engine = obedient_engine()
        assert not engine.is_open
        with serving_app(create_app(engine)) as server, server.client() as client:
            assert client.get("/health").json() == {"status": "ok"}
            assert engine.is_open
        assert not engine.is_open

    async def test_that_is_open_already_stays_open(self) -> None:
        """An engine that its program has opened is the program's own."""
        async with obedient_engine() as engine:
            app = create_app(engine)
            async with app.router.lifespan_context(app):
                assert engine.is_open
            assert engine.is_open


class TestThePage:
    """The files for browsers."""

    async def test_may_be_left_out(self) -> None:
        """Without the page there is only the API."""
        engine = obedient_engine()
        async with engine, calling(create_app(engine, page=False)) as api:
            without = await api.client.get("/")
        async with obedient_engine() as engine, calling(create_app(engine)) as api:
            served = await api.client.get("/")

        assert (without.status_code, without.json()["code"]) == (404, "not_found")
        assert served.status_code == 200


def bodies_of(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body of an operation in each media type that it takes; test_files.py has those that are files."""
    return operation.get("requestBody", {}).get("content", {})


def made_call(name: str) -> tuple[str, str, Any]:
    """The method, the path and a body that is not needed for a refusal, of an operation."""
    method, path, operation = operations_of(api_document())[name]
    return method, path.replace("{conversation_id}", "c").replace("{seq}", "1"), operation


class TestEveryOperation:
    """What holds for all of them, also for those that will be added."""

    @pytest.fixture
    async def engine(self) -> Any:
        """An open engine."""
        async with obedient_engine() as engine:
            yield engine

    @pytest.mark.slow
    async def test_needs_the_token_unless_it_says_otherwise(self, engine: Engine) -> None:
        """H6: without the token, and with a wrong one, the answer is 401; the document says which need none."""
        app = create_app(engine, token="secret", limits=HttpLimits(wrong_tokens=1000))
        document = app.openapi()
        async with calling(app) as api:
            for name, (method, path, operation) in operations_of(document).items():
                url = path.replace("{conversation_id}", "c").replace("{seq}", "1").replace("{model}", "m")
                for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}):
                    answer = await api.client.request(method, url, headers=headers)
                    assert (answer.status_code == 401) == (operation.get("security") != []), name

        assert document["security"] == [{"token": []}, {"session": []}]
        assert {name for name, (_, _, one) in operations_of(document).items() if one.get("security") == []} == {
            "getHealth",
            "openSession",
            "closeSession",
        }

    async def test_refuses_foreign_hosts_and_origins(self, engine: Engine) -> None:
        """H6: a request under a foreign name, or by the page of a foreign site, is refused with 403."""
        async with calling(create_app(engine)) as api:
            for name in api.operations:
                method, path, _ = made_call(name)
                host = await api.client.request(method, path, headers={"host": "evil.example"})
                origin = await api.client.request(method, path, headers={"origin": "http://evil.example"})
                assert (host.status_code, origin.status_code) == (403, 403), name

    async def test_refuses_a_body_that_is_not_json(self, engine: Engine) -> None:
        """H6: broken JSON, broken UTF-8, another type and too much are refused, each with its status; nothing is
        stored."""
        conversation = await Conversations(engine).idle()
        before = await conversation.events()
        async with calling(create_app(engine)) as api:
            with_body = {name: one for name, one in api.operations.items() if "application/json" in bodies_of(one[2])}
            for name, (method, path, _) in with_body.items():
                if not path.startswith(OTHER_PROTOCOLS):
                    await self.check_bodies(api, name, method, path.replace("{conversation_id}", conversation.id))
            stored = await engine.list()

        assert len(with_body) > 15
        assert [summary.id for summary in stored] == [conversation.id]
        assert await conversation.events() == before

    async def check_bodies(self, api: DocumentedClient, name: str, method: str, path: str) -> None:
        """Send an operation bodies that nobody takes."""
        json = {"content-type": "application/json"}
        for content, headers, status in (
            (b"{", json, 400),
            (b'{"text": "\xff"}', json, 400),
            (b"text=hello", {"content-type": "application/x-www-form-urlencoded"}, 415),
            (b'"' + b"x" * 5_000_001 + b'"', json, 413),
            (b'["a list"]', json, 422),
        ):
            answer = await api.client.request(method, path, content=content, headers=headers)
            assert answer.status_code == status, f"{name}: {answer.status_code} for {content[:20]!r}"

    @pytest.mark.slow
    async def test_that_is_read_answers_head(self, engine: Engine) -> None:
        """HEAD has the status and the headers that GET has, without the body; a stream does not stay open."""
        conversation = await Conversations(engine).idle()
        app = create_app(engine)
        async with calling(app) as api:
            paths = [path for method, path, _ in api.operations.values() if method == "get"]
            for given in (
                *paths,
                "/conversations/nobody",
                "/nothing",
                "/openapi.json",
                "/.well-known/agent-card.json",
                "/",
            ):
                path = given.replace("{conversation_id}", conversation.id).replace("{seq}", "2").replace("{model}", "m")
                head = await api.client.head(path)
                if path.endswith("/events"):
                    assert head.headers["content-type"].startswith("text/event-stream")
                    assert (head.status_code, head.content) == (200, b"")
                    continue
                read = await api.client.get(path)
                assert (head.status_code, head.headers) == (read.status_code, read.headers), path
                assert (head.content, read.content != b"") == (b"", True), path
            refused = await api.client.head("/agui")

        assert len(paths) > 10
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")

    def test_that_is_read_answers_head_over_a_socket(self) -> None:
        """The connection goes on after a HEAD, also after that of a stream."""
        with serving_app(create_app(obedient_engine())) as server, server.client() as client:
            answers = [client.head(path) for path in ("/conversations", "/events", "/v1/models/none", "/health")]
            connections = len(server.connections)

        assert [one.status_code for one in answers] == [200, 200, 404, 200]
        assert [one.content for one in answers] == [b""] * 4
        assert connections == 1

    def test_has_a_sentence_and_an_id_that_reads_well(self) -> None:
        """The ids are verb phrases in camelCase, and every operation is described."""
        for name, (_, _, operation) in operations_of(api_document()).items():
            assert name.isidentifier(), name
            assert name[0].islower() and "_" not in name, name
            assert operation["description"].strip(), name


async def test_a_stream_reads_as_its_document_says() -> None:
    """The updates of a turn are what the component `Update` of the document says."""
    engine = obedient_engine()
    app = create_app(engine)
    async with engine, calling(app):
        conversation = await Conversations(engine).asking()
        await conversation.close()
        async with reading(app, f"/conversations/{conversation.id}/events", "last_event_id=1.0") as reader:
            await reader.until_end()
        async with reading(app, "/events") as tree:
            first = await tree.until_event("tree")

    components = {"components": api_document()["components"]}
    update = Draft202012Validator({"$ref": "#/components/schemas/Update", **components})
    events = EventStreamParser().feed(reader.received)
    for event in events[:-1]:
        update.validate(event.json)
    Draft202012Validator({"$ref": "#/components/schemas/End", **components}).validate(events[-1].json)
    Draft202012Validator({"$ref": "#/components/schemas/TreeUpdate", **components}).validate(first.json)
    assert {"message", "tool", "state_change", "turn_ended"} <= {event.event for event in events}


@pytest.mark.slow
def test_without_its_extra_it_says_what_to_install() -> None:
    """A program that imports `create_app` where the libraries are missing is told so in one sentence."""
    program = "import sys; sys.modules['fastapi'] = None; from turnwise.hosts.http import create_app"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.endswith('turnwise.hosts.http needs its extra `http`: pip install "turnwise[http]".\n')
