"""The OpenAPI document of the HTTP host, from which client types are generated.

FastAPI writes it from the routes. This adds what FastAPI does not know: that every refusal is a problem, how a caller
identifies itself, and that a later version may add keys to what clients receive, but takes no key that it does not
know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...engine.json_forms import extensible
from .problems import problem_schema
from .security import COOKIE

Schema = dict[str, Any]

NEEDS_NO_TOKEN: Schema = {"security": []}
"""For a route that everybody may call: the guard of the token lets it through."""

_REFERENCE = "#/components/schemas/"
_STREAM = "text/event-stream"
_VALIDATION = f"{_REFERENCE}HTTPValidationError"


def completed(document: Schema, *, needs_token: bool) -> Schema:
    """Return the document that FastAPI wrote with what it does not know. `Pure.`"""
    operations = {
        path: {method: _operation(operation) for method, operation in methods.items()}
        for path, methods in document["paths"].items()
    }
    components = document.get("components", {})
    schemas = {**components.get("schemas", {}), "Problem": problem_schema()}
    used = _reachable([operations], schemas)
    schemas = {name: _without_defaults(schema) for name, schema in schemas.items() if name in used}
    received = _reachable(_bodies(operations), schemas)
    shown = {name: schema if name in received else extensible(schema) for name, schema in schemas.items()}
    complete = {**document, "paths": operations, "components": {**components, "schemas": shown}}
    return _protected(complete) if needs_token else complete


def _operation(operation: Schema) -> Schema:
    """An operation without the form of refusals that FastAPI declares by default, and with events as OpenAPI 3.1 can
    describe them."""
    responses = {status: answer for status, answer in operation["responses"].items() if not _is_default(answer)}
    return {**operation, "responses": {status: _with_events(answer) for status, answer in responses.items()}}


def _with_events(answer: Schema) -> Schema:
    """An answer in which a stream is a text that holds events (`contentSchema`). OpenAPI 3.2 has a word for the items
    of a stream, but few generators of clients read it."""
    content = answer.get("content", {})
    if _STREAM not in content:
        return answer
    event = content[_STREAM].get("schema", {})
    stream = {"type": "string", "contentMediaType": _STREAM, "contentSchema": event}
    described = {"schema": stream} if event.get("type") == "object" else {}  # the events of a door are its protocol's
    return {**answer, "content": {**content, _STREAM: described}}


def _is_default(answer: Schema) -> bool:
    return bool(answer.get("content", {}).get("application/json", {}).get("schema") == {"$ref": _VALIDATION})


def _bodies(operations: Schema) -> Iterator[Any]:
    """The bodies that clients send."""
    for methods in operations.values():
        yield from (operation["requestBody"] for operation in methods.values() if "requestBody" in operation)


def _reachable(parts: Iterable[Any], schemas: Schema) -> set[str]:
    """The names of the schemas that these parts of the document refer to, directly or not."""
    found: set[str] = set()
    waiting = [name for part in parts for name in _references(part)]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _references(schemas[name])
    return found


def _references(part: Any) -> Iterator[str]:
    """The names of the schemas that a part of the document refers to."""
    if isinstance(part, list):
        for one in part:
            yield from _references(one)
    elif isinstance(part, dict):
        if isinstance(reference := part.get("$ref"), str):
            yield reference.removeprefix(_REFERENCE)
        for one in part.values():
            yield from _references(one)


def _without_defaults(schema: Any) -> Any:
    """A schema without the values that stand for what is left out. Generators of types take a property that has one
    for a property that is always there."""
    if isinstance(schema, list):
        return [_without_defaults(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "default"}
    properties = {name: _without_defaults(one) for name, one in kept.pop("properties", {}).items()}
    others = {key: _without_defaults(value) for key, value in kept.items()}
    return {**others, "properties": properties} if properties else others


def _protected(document: Schema) -> Schema:
    """The document of a server that has a token: every operation needs it, but for those that declare otherwise."""
    schemes = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
    }
    components = {**document["components"], "securitySchemes": schemes}
    return {**document, "components": components, "security": [{"token": []}, {"session": []}]}
