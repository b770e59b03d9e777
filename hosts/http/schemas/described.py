"""Values that are JSON already, described in OpenAPI by the models that the engine makes of its own data classes.

An update, a state or a turn knows its JSON form (`.data`), and the schema of that form is made from the same class. So
an endpoint sends `.data` as it is; validating it again would only cost time.
"""

from __future__ import annotations

from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class DescribedBy:
    """Metadata of an `Annotated` type: its schema is that of a model, and its values are not validated."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        described = handler.generate_schema(self._model)
        return core_schema.no_info_plain_validator_function(_unchanged, json_schema_input_schema=described)


class EventsOf(DescribedBy):
    """Metadata of a type that stands for a stream of Server-Sent Events: its schema is that of one event, whose `data`
    is a model as JSON."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": handler(schema)}
        text = {"type": "string"}
        properties = {"data": data, "event": text, "id": text, "retry": {"type": "integer", "minimum": 0}}
        return {"type": "object", "properties": properties}


def _unchanged(value: Any) -> Any:
    return value
