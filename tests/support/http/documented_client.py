"""A client that calls operations of the HTTP host by their ids, and holds every answer against the OpenAPI document.

answer = await api.call("sendMessage", {"text": "Hello"}, conversation_id="c")
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from turnwise import Engine
from turnwise.hosts.http import create_app

NO_BODY: Any = object()
"""Stands for a request without a body."""


@cache
def api_document() -> dict[str, Any]:
    """The OpenAPI document of a server without a token."""
    return create_app(Engine.open("sqlite://")).openapi()


class DocumentedClient:
    """Calls an application in the same process."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.operations = operations_of(api_document())

    async def call(
        self, operation_id: str, body: Any = NO_BODY, /, *, headers: Mapping[str, str] | None = None, **parameters: Any
    ) -> httpx.Response:
        """Call an operation. Raises AssertionError for an answer that the document does not have."""
        method, path, operation = self.operations[operation_id]
        query = {name: value for name, value in parameters.items() if f"{{{name}}}" not in path}
        for name in parameters.keys() - query.keys():
            path = path.replace(f"{{{name}}}", quote(str(parameters[name]), safe=""))
        sent = {} if body is NO_BODY else {"json": body}
        response = await self.client.request(method, path, params=query, headers=headers, **sent)
        self._check(operation, response)
        return response

    async def result(self, operation_id: str, body: Any = NO_BODY, /, **parameters: Any) -> Any:
        """Call an operation that succeeds, and return the JSON of the answer."""
        response = await self.call(operation_id, body, **parameters)
        assert response.is_success, response.text
        return response.json()

    async def problem(self, operation_id: str, body: Any = NO_BODY, /, **parameters: Any) -> tuple[int, str]:
        """Call an operation that is refused, and return the status and the code."""
        response = await self.call(operation_id, body, **parameters)
        assert not response.is_success, response.text
        return response.status_code, response.json()["code"]

    def _check(self, operation: Mapping[str, Any], response: httpx.Response) -> None:
        declared = operation["responses"].get(str(response.status_code))
        assert declared is not None, f"{operation['operationId']}: {response.status_code} {response.text}"
        if not response.content:
            assert "content" not in declared
            return
        media_type = response.headers["content-type"].partition(";")[0]
        described = declared["content"].get(media_type) or declared["content"].get("*/*")
        assert described is not None, media_type
        schema = {**described["schema"], "components": api_document()["components"]}
        is_json = media_type in declared["content"]
        Draft202012Validator(schema).validate(response.json() if is_json else response.text)


def operations_of(document: Mapping[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return the method, the path and the description of each operation, by its id."""
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


@asynccontextmanager
async def calling(app: FastAPI, **options: Any) -> AsyncIterator[DocumentedClient]:
    """A client of this application, whose engine is open."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", **options) as client:
        yield DocumentedClient(client)


@asynccontextmanager
async def serving_here(engine: Engine, **options: Any) -> AsyncIterator[DocumentedClient]:
    """A client of an engine that is not yet open, in this process and this event loop. `options` are those of
    `create_app`."""
    async with engine, calling(create_app(engine, **options)) as client:
        yield client
