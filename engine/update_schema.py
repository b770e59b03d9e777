"""The JSON schemas of what clients receive: of updates, as {"type", "id", "data"}, and of turns.

They are made from the dataclasses, so they say what these say. pydantic, which also validates the parts of an update
(messages, questions), writes them; no update is validated when it is made. A program that describes its own interface,
as an OpenAPI document does, uses the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_type_hints

from pydantic import BaseModel, Field, TypeAdapter, create_model

from ..persistence.summaries import Summary
from ..states.values.messages import Message, ToolCall
from ..states.values.questions import UserQuestion
from .turns import TurnStatus, data_fields
from .updates import NOT_IN_TREE, LiveUpdate, StateChangeUpdate, StateView, Streaming, TurnEndedUpdate, Update

_ID_PATTERN = r"^\d+\.\d+$"


def update_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of an update as JSON, `{"type": update.type, "id": update.id, "data":
    update.data}`. The `type` tells the updates apart. A client ignores keys that it does not know: a later version may
    add some. `Pure.`"""
    schema: dict[str, Any] = TypeAdapter(update_model()).json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Update", **_open(schema)}


@cache
def update_model() -> Any:
    """Return the type of an update as JSON: a union of pydantic models, told apart by `type`. `Pure.`"""
    return Annotated[Union[tuple(map(_wire_form, get_args(Update)))], Field(discriminator="type")]  # noqa: UP007


@cache
def turn_model() -> type[BaseModel]:
    """Return the model of `Turn.data`: the data of `turn_ended`, and what a turn that waits for a person has.
    `Pure.`"""
    fields = data_model(TurnEndedUpdate).model_fields
    ended = {name: (field.annotation, field) for name, field in fields.items()}
    waits: dict[str, Any] = {
        "status": (TurnStatus, ...),
        "questions": (tuple[UserQuestion, ...], ()),
        "call_id": (str, None),
        "call": (call_model(), None),
    }
    return _model("Turn", "A turn of a conversation.", {**ended, **waits})


def _wire_form(kind: Any) -> type[BaseModel]:
    update_type: Any = Literal[kind.type]
    update_id: Any = None if kind in get_args(LiveUpdate) else Annotated[str, Field(pattern=_ID_PATTERN)]
    fields = {"type": (update_type, ...), "id": (update_id, ...), "data": (data_model(kind), ...)}
    return _model(kind.__name__, kind.__doc__, fields)


@cache
def data_model(kind: Any) -> type[BaseModel]:
    """Return the model of what `.data` holds, which leaves out fields that have their default: of an update, of a
    state, or of what an update holds, by its dataclass. `Pure.`"""
    if kind is StateChangeUpdate:
        return state_model()
    defaults = {name: ... if field.default is MISSING else field.default for name, field in data_fields(kind).items()}
    return _fields_model(kind, kind.__name__.removesuffix("Update") + "Data", defaults)


@cache
def complete_model(kind: Any) -> type[BaseModel]:
    """Return the model of `.data` where that always has all fields of the dataclass, as that of a `StepView`.
    `Pure.`"""
    return _fields_model(kind, kind.__name__, dict.fromkeys(data_fields(kind), ...))


def _fields_model(kind: Any, name: str, defaults: Mapping[str, Any]) -> type[BaseModel]:
    hints = get_type_hints(kind)
    return _model(name, kind.__doc__, {field: (_wire_type(hints[field]), defaults[field]) for field in defaults})


@cache
def state_model() -> type[BaseModel]:
    """Return the model of a state as JSON, `{"type", "data"}`. `Pure.`"""
    details = data_model(StateView)
    fields = {"type": (get_type_hints(StateView)["type"], ...), "data": (details, ...)}
    return _model("State", StateView.__doc__, fields)


def _wire_type(annotation: Any) -> Any:
    """The type of a field on the wire, where that is not the type of the attribute."""
    if annotation is StateView:
        return state_model()
    if annotation == tuple[Message, ...]:
        return list[message_model()]  # type: ignore[misc]
    if annotation is Summary:
        return summary_model()
    if annotation == tuple[Summary, ...]:
        return list[summary_model()]  # type: ignore[misc]
    if annotation == Streaming | None:
        return data_model(Streaming) | None
    return annotation


@cache
def summary_model() -> type[BaseModel]:
    """Return the model of a conversation of a tree as JSON. `Pure.`"""
    shown = {name: field for name, field in Summary.model_fields.items() if name not in NOT_IN_TREE}
    fields = {name: (field.annotation, ...) for name, field in shown.items()}
    return _model("TreeConversation", Summary.__doc__, fields)


@cache
def message_model() -> type[BaseModel]:
    """Return the model of a message as JSON, whose calls have their arguments as objects. `Pure.`"""
    return _like(Message, tool_calls=(list[call_model()], ()))  # type: ignore[misc]


@cache
def call_model() -> type[BaseModel]:
    """Return the model of a tool call as JSON, with its arguments as an object. `Pure.`"""
    return _like(ToolCall, arguments=(dict[str, Any], ...), raw_arguments=(str, None))


def _like(kind: type[BaseModel], **changes: Any) -> type[BaseModel]:
    fields = {name: (field.annotation, field) for name, field in kind.model_fields.items()}
    return _model(kind.__name__, kind.__doc__, {**fields, **changes})


def _model(name: str, description: str | None, fields: Mapping[str, Any]) -> type[BaseModel]:
    return create_model(name, __doc__=" ".join((description or "").split()), **fields)


def _open(schema: Any) -> Any:
    """The schema without what forbids further keys."""
    if isinstance(schema, list):
        return [_open(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _open(value) for key, value in schema.items() if (key, value) != ("additionalProperties", False)}
