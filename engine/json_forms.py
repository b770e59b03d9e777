"""The values that clients receive as JSON: how pydantic writes them, and how their schemas read.

Updates and turns are plain dataclasses. A `TypeAdapter` of their class writes them, and its JSON schema describes what
it writes, so a field is declared once. What differs from the field itself stands in its annotation: a message is shown
without what only models read, and the arguments of a call are an object. No value is validated when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from functools import cache
from typing import Annotated, Any, ClassVar, get_type_hints

from pydantic import (
    BaseModel,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from ..persistence.summaries import Summary
from ..states.values.messages import Message, ToolCall, Usage
from ..states.values.questions import UserQuestion
from ..states.values.value import DEEPEST, adapter_of, is_nested_deeper, json_object, writer_of


def as_json(value: Any, *, complete: bool = False) -> dict[str, Any]:
    """Return a dataclass as a JSON object. A field that has its default is left out, unless it is `complete`.
    `Pure.`"""
    writer = writer_of(type(value))
    data: dict[str, Any] = writer.to_python(value, mode="json", by_alias=True, exclude_defaults=not complete)
    return data


def extensible(schema: Any) -> Any:
    """Return a schema without what forbids further keys: a later version may add some. `Pure.`"""
    if isinstance(schema, list):
        return [extensible(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: extensible(value) for key, value in schema.items() if (key, value) != ("additionalProperties", False)}


class DescribedBy:
    """Metadata of an `Annotated` type: its schema is that of another type, which a function returns. Its values are not
    validated, and are written by the function `write`, if there is one."""

    def __init__(self, kind: Callable[[], Any], write: Callable[[Any], Any] | None = None) -> None:
        self._kind = kind
        self._writer = None if write is None else core_schema.plain_serializer_function_ser_schema(write)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema(serialization=self._writer)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = adapter_of(self._kind()).core_schema
        return handler(core_schema.definitions_schema(described, []))  # so that the handler looks at its metadata


def arguments_data(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as an object, and the text that the model wrote where that is no JSON object, or one that is
    nested too deeply to be shown. `Pure.`"""
    arguments = json_object(call.raw_arguments)
    if arguments is None or is_nested_deeper(arguments, DEEPEST):
        return {"arguments": {}, "raw_arguments": call.raw_arguments}
    return {"arguments": arguments}


def call_data(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as JSON: its arguments as an object, and the text that the model wrote where that is no JSON
    object. `Pure.`"""
    return call.model_dump(mode="json", exclude_defaults=True) | arguments_data(call)


_OF_MODELS = {"opaque", "provider"}
"""What a provider wrote for its models only."""


def message_data(message: Message) -> dict[str, Any]:
    """Return a message as JSON; a field that has its default is left out, and so is what only models read. `Pure.`"""
    writer = writer_of(Message)
    data: dict[str, Any] = writer.to_python(message, mode="json", exclude=_OF_MODELS, exclude_defaults=True)
    return data | ({"tool_calls": [call_data(call) for call in message.tool_calls]} if message.tool_calls else {})


def question_data(question: UserQuestion) -> dict[str, Any]:
    """Return a question as JSON. It always has `options`, which are empty if any text answers it. `Pure.`"""
    return {"options": [], **question.model_dump(mode="json", exclude_defaults=True)}


@cache
def call_model() -> type[BaseModel]:
    """Return the model of a tool call as JSON, with its arguments as an object. `Pure.`"""
    declared = {name: (one.annotation, one) for name, one in ToolCall.model_fields.items()}
    return _like(ToolCall, declared, arguments=(dict[str, Any], ...), raw_arguments=(str, None))


@cache
def message_model() -> type[BaseModel]:
    """Return the model of a message as JSON, whose calls have their arguments as objects. `Pure.`"""
    types = get_type_hints(Message, include_extras=True)
    shown = (one for one in fields(Message) if one.name not in _OF_MODELS)
    declared = {one.name: (types[one.name], ... if one.default is MISSING else one.default) for one in shown}
    return _like(Message, declared, tool_calls=(list[call_model()], ()))  # type: ignore[misc]


_NOT_IN_TREE = {"metadata", "origin"}
"""What the update of a tree leaves out of a summary: a tree is sent whole, and does not show these."""


def summary_data(summary: Summary) -> dict[str, Any]:
    """Return a conversation of a tree as JSON. `Pure.`"""
    return summary.model_dump(mode="json", exclude=_NOT_IN_TREE)


@cache
def summary_model() -> type[BaseModel]:
    """Return the model of a conversation of a tree as JSON. `Pure.`"""
    shown = {name: (one.annotation, ...) for name, one in Summary.model_fields.items() if name not in _NOT_IN_TREE}
    fields: Any = shown
    return create_model("TreeConversation", __doc__=Summary.__doc__, **fields)


def _like(kind: type, declared: Mapping[str, Any], **changes: Any) -> type[BaseModel]:
    return create_model(kind.__name__, __doc__=kind.__doc__, **{**declared, **changes})


ShownCall = Annotated[ToolCall, DescribedBy(call_model, call_data)]
ShownMessage = Annotated[Message, DescribedBy(message_model, message_data)]
ShownSummary = Annotated[Summary, DescribedBy(summary_model, summary_data)]
ShownQuestion = Annotated[UserQuestion, DescribedBy(lambda: UserQuestion, question_data)]
ShownUsage = Annotated[Usage, DescribedBy(lambda: Usage, lambda usage: usage.model_dump(mode="json"))]
"""With all of its fields."""

ShownValue = Annotated[JsonValue, DescribedBy(lambda: JsonValue)]
"""Any JSON."""

Moment = Annotated[datetime, DescribedBy(lambda: datetime, datetime.isoformat)]
"""A moment, with its offset from UTC in digits."""


class Enveloped:
    """A dataclass that is written as an object with its `type`, perhaps its `id`, and its fields as `data`."""

    data_field: ClassVar[str | None] = None
    """The one field that is the `data`, if it is not all of them."""

    type: str

    def envelope(self) -> dict[str, Any]:
        """Return what is written beside the data."""
        return {"type": self.type}

    @classmethod
    def envelope_schema(cls) -> dict[str, CoreSchema]:
        """Return the schema of each key beside the data."""
        return {"type": core_schema.literal_schema([cls.type])}

    @model_serializer(mode="wrap")
    def _write(self, write_fields: SerializerFunctionWrapHandler) -> Any:
        fields = write_fields(self)
        return {**self.envelope(), "data": fields if self.data_field is None else fields[self.data_field]}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        fields: Any = {key: value for key, value in schema.items() if key != "serialization"}
        reference = handler(fields)
        described = handler.resolve_ref_schema(reference)
        head = {key: described.pop(key) for key in ("title", "description") if key in described}
        data = dict(described) if cls.data_field is None else described["properties"][cls.data_field]
        properties = {**{key: handler(one) for key, one in cls.envelope_schema().items()}, "data": data}
        described.clear()
        described |= head | {"type": "object", "properties": properties, "required": [*properties]}
        return reference
