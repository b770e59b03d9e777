"""Describes the arguments of a tool to a model, as JSON schema.

Pydantic writes correct schemas for people who read references. A model reads better what is said in place, and not
every provider follows a `$ref`; so definitions are put where they are used, and what tells nothing (titles, a default
of null) is left out.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

Schema = dict[str, Any]

_REFERENCE = "#/$defs/"
_NULL = {"type": "null"}


def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON schema of a model's fields. `Pure.`"""
    written = _untitled(model.model_json_schema(schema_generator=_ForModels))
    definitions = written.pop("$defs", {})
    try:
        inlined: Schema = _in_place(written, definitions, ())
    except RecursionError:  # a type that holds itself can only be told by reference
        return {**written, "$defs": definitions}
    return inlined


class _ForModels(GenerateJsonSchema):
    def render_warning_message(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """No warnings: a default that JSON cannot show is still the function's default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """What may be left out and is null then is simply optional; null is still accepted."""
        written = super().default_schema(schema)
        if not _is_json(written.get("default")):
            del written["default"]
        if written.get("default", ...) is not None:
            return written
        kept = {key: value for key, value in written.items() if key not in {"default", "anyOf"}}
        choices = [choice for choice in written.get("anyOf", ()) if choice != _NULL]
        if len(choices) == 1:
            return {**choices[0], **kept}
        return {"anyOf": choices, **kept} if choices else kept


def _is_json(default: object) -> bool:
    """Whether it can be sent: Python writes infinities in a way that JSON does not know."""
    try:
        json.dumps(default, allow_nan=False)
    except ValueError:
        return False
    return True


def _untitled(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "title"}


def _in_place(node: Any, definitions: Schema, above: tuple[str, ...]) -> Any:
    """The node with its references resolved. Raises RecursionError if a definition, `above` it, holds itself."""
    if isinstance(node, list):
        return [_in_place(each, definitions, above) for each in node]
    if not isinstance(node, dict):
        return node
    inlined = {key: _in_place(value, definitions, above) for key, value in node.items() if not _is_mapping(key, value)}
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return inlined
    name = reference.removeprefix(_REFERENCE)
    if name in above:
        raise RecursionError(name)
    del inlined["$ref"]
    return {**_in_place(_untitled(definitions[name]), definitions, (*above, name)), **inlined}


def _is_mapping(key: str, value: Any) -> bool:
    """Whether this says which tag stands for which definition: of no use once the definitions stand in place."""
    return key == "discriminator" and isinstance(value, dict) and "propertyName" in value
