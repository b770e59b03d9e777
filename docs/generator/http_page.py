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

SUCCESS = range(200, 300)
REFUSED = [status for status in HTTPStatus if status >= HTTPStatus.BAD_REQUEST]


def endpoints() -> str:
    """Return the table of all endpoints: method, path, the id of the operation, answers, and meaning."""
    rows = ["| request | operation | answers | what it does |", "| --- | --- | --- | --- |"]
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
            yield f"| `{method.upper()} {shown}` | `{operation['operationId']}` | {answers} | {meaning} |"


def _problems() -> Iterator[str]:
    for status in REFUSED:
        if codes := sorted(codes_of(status)):
            yield f"| {status.value} | {', '.join(f'`{code}`' for code in codes)} |"
