"""Describes the arguments of a tool to a model, as JSON schema.

Pydantic writes schemas with references to shared definitions. Models read a schema more reliably without them, and some
providers do not follow a `$ref`; so definitions are put where they are used. Titles and defaults of null are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from .normalization import STRICT, Schema

_REFERENCE = "#/$defs/"
_NULL = {"type": "null"}


def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON schema of a model's fields. What is declared as strict is marked: `without_marks` is the schema that a
    model reads. `Pure.`"""
    schema = _without_title(model.model_json_schema(schema_generator=_SchemaGenerator))
    definitions = schema.pop("$defs", {})
    try:
        inlined: Schema = _inline(schema, definitions, ())
    except RecursionError:  # a type that contains itself needs the reference
        return {**schema, "$defs": definitions}
    return inlined


def without_marks(node: Any) -> Any:
    """The schema without the marks of what is strict. `Pure.`"""
    if isinstance(node, dict):
        return {key: without_marks(value) for key, value in node.items() if key != STRICT}
    return [without_marks(item) for item in node] if isinstance(node, list) else node


class _SchemaGenerator(GenerateJsonSchema):
    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """The schema of a type, marked if the type is strict."""
        return _marked(super().generate_inner(schema), schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """The schema of a model, marked if its configuration is strict."""
        return _marked(super().model_schema(schema), schema.get("config", {}))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """The schema of a dataclass, marked if its configuration is strict."""
        return _marked(super().dataclass_schema(schema), schema.get("config", {}))

    def render_warning_message(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Return no warning: a default that JSON cannot express is still the function's default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """The schema of a field with a default. A field whose default is null is described as optional, without the
        null; null is still accepted."""
        described = super().default_schema(schema)
        if not _is_json(described.get("default")):
            del described["default"]
        if described.get("default", ...) is not None:
            return described
        rest = {key: value for key, value in described.items() if key not in {"default", "anyOf"}}
        choices = [choice for choice in described.get("anyOf", ()) if choice != _NULL]
        if len(choices) == 1:
            return {**choices[0], **rest}
        return {"anyOf": choices, **rest} if choices else rest


def _marked(described: JsonSchemaValue, declared: Mapping[str, Any]) -> JsonSchemaValue:
    return {**described, STRICT: True} if declared.get("strict") else described


def _is_json(default: object) -> bool:
    """Whether JSON can express it. Python's encoder would write infinities, which JSON does not have."""
    try:
        json.dumps(default, allow_nan=False)
    except ValueError:
        return False
    return True


def _without_title(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "title"}


def _inline(node: Any, definitions: Schema, parents: tuple[str, ...]) -> Any:
    """The node with its references resolved. Raises RecursionError if one of the `parents` contains itself."""
    if isinstance(node, list):
        return [_inline(item, definitions, parents) for item in node]
    if not isinstance(node, dict):
        return node
    inlined = {key: _inline(value, definitions, parents) for key, value in node.items() if not _is_mapping(key, value)}
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return inlined
    name = reference.removeprefix(_REFERENCE)
    if name in parents:
        raise RecursionError(name)
    del inlined["$ref"]
    return {**_inline(_without_title(definitions[name]), definitions, (*parents, name)), **inlined}


def _is_mapping(key: str, value: Any) -> bool:
    """Whether this maps the tags of a union to definitions, which is useless once the definitions are inlined."""
    return key == "discriminator" and isinstance(value, dict) and "propertyName" in value
