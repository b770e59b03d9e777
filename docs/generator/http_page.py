"""Writes the tables about HTTP: the endpoints and the problems of docs/reference/http-api.md, and what users may do.

They are read from the OpenAPI document and from the tables that the server itself uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

from turnwise import Engine
from turnwise.hosts.http import create_app
from turnwise.hosts.http.permissions import PERMISSIONS
from turnwise.hosts.http.problems import codes_of

MOST_FIELDS = 20
SUCCESS = range(200, 300)
REFUSED = [status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST]


def endpoints() -> str:
    """Return the table of all endpoints: method, path, id of the operation, fields of the body, answers, meaning."""
    rows = ["| request | operation | body | answers | what it does |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*rows, *_endpoints()]) + "\n"


def permissions() -> str:
    """Return the table of permissions: the name of each, and what it lets a user do."""
    rows = ["| permission | lets a user |", "| --- | --- |"]
    return "\n".join([*rows, *(f"| `{name}` | {meaning} |" for name, meaning in PERMISSIONS.items())]) + "\n"


def problems() -> str:
    """Return the table of problems: the status, and the codes that tell the problems of one status apart."""
    rows = ["| status | `code` |", "| --- | --- |"]
    return "\n".join([*rows, *_problems()]) + "\n"


@cache
def _document() -> dict[str, Any]:
    return create_app(Engine.open("sqlite://")).openapi()


def _endpoints() -> Iterator[str]:
    for path, methods in _document()["paths"].items():
        for method, operation in methods.items():
            answers = ", ".join(status for status in operation["responses"] if int(status) in SUCCESS)
            meaning = " ".join(operation.get("description", "").split("\n\n")[0].split())
            shown = path.replace("{conversation_id}", "{id}")
            request = f"`{method.upper()} {shown}` | `{operation['operationId']}`"
            yield f"| {request} | {_body(operation)} | {answers} | {meaning} |"


def _body(operation: dict[str, Any]) -> str:
    """The fields of the body of a request: those that it must have first, the others in brackets. Of a body with very
    many, as those of other protocols, only the first ones."""
    content = operation.get("requestBody", {}).get("content", {})
    named = content.get("application/json", {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    schema = _document()["components"]["schemas"].get(named, {})
    required = [name for name in schema.get("properties", {}) if name in schema.get("required", ())]
    optional = [name for name in schema.get("properties", {}) if name not in required]
    fields = [*(f"`{name}`" for name in required), *(f"[`{name}`]" for name in optional)]
    return ", ".join(fields if len(fields) <= MOST_FIELDS else [*fields[: len(required)], "…"])


def _problems() -> Iterator[str]:
    for status in REFUSED:
        if codes := sorted(codes_of(status)):
            yield f"| {status.value} | {', '.join(f'`{code}`' for code in codes)} |"
