"""What the bodies that clients send and receive have in common: their bases, ids, policies, and values that are JSON
already.

States, turns, steps and messages know their JSON form (`.data`). So an endpoint sends `.data` as it is; validating it
again would only cost time. OpenAPI describes it by the class that wrote it all the same (`DescribedBy`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PlainValidator,
    RootModel,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from ...engine.inspection import StepView
from ...engine.json_forms import DescribedBy, message_model
from ...engine.turns import BaseTurn
from ...engine.updates import StateView
from ...persistence.summaries import LONGEST_ID
from ...states import presets
from ...states.errors import faults_of, has_many_faults, sentence_of_many
from ...states.policy import Policy
from ...states.values.value import DEEPEST, is_nested_deeper

BODY_REFUSALS = (400, 408, 413, 415, 422)
"""The statuses with which a body is refused: not JSON, too slow, too large, of another type, not as declared."""

LARGEST_NUMBER = 2**53 - 1
"""The largest number that every JSON reader takes exactly."""

TurnNumber = Annotated[int, Field(ge=0, le=LARGEST_NUMBER)]
"""The number of a turn, and so of the branch that ends with it, in a body."""

Shown: TypeAlias = Callable[[Any], Any]
"""Returns JSON in which ids of conversations stand as the caller calls them."""

RequestId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=LONGEST_ID,
        description="An id that the client chooses. A request that is sent again under it is carried out once.",
    ),
]


class Body(BaseModel):
    """A body that a client sends. It has no other keys, and a text is not taken for a number."""

    # FastAPI makes what reads a body when a route is declared, and expects the class to be complete by then.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, defer_build=False)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse what could be stored and then not be shown any more. Only the first fault of a body is told, but
        FastAPI describes all of them: a body with very many has one fault, their number."""
        if is_nested_deeper(given, DEEPEST):
            raise PydanticCustomError("nested_too_deeply", "Input may be nested at most 100 levels deep")
        try:
            return validate(given)
        except ValidationError as error:
            if not has_many_faults(error):
                raise
            raise PydanticCustomError("faults_many", "{sentence}", {"sentence": sentence_of_many(error)}) from None


class Repeatable(Body):
    """A request that may be sent again: it has the same result, and is carried out once."""

    request_id: RequestId | None = None


class Answer(BaseModel):
    """A body that a client receives. A later version may add keys."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="ignore", json_schema_serialization_defaults_required=True, defer_build=False
    )


Preset: TypeAlias = Literal[
    "assistant", "reply_flow", "explicit_response", "talk", "foreground", "background", "sub_agent"
]
"""The name of a ready-made policy."""

PRESETS: Mapping[Preset, Callable[[], Policy]] = {
    "assistant": presets.assistant,
    "reply_flow": presets.reply_flow,
    "explicit_response": presets.explicit_response,
    "talk": presets.talk,
    "foreground": presets.foreground,
    "background": presets.background,
    "sub_agent": presets.sub_agent,
}
"""The function that makes each of them."""


def _policy_of(given: Any) -> Policy:
    """Return the policy that is given as JSON, in which a text is not taken for a number. Raises
    `PydanticCustomError`, which names the first invalid field. `Pure.`"""
    try:
        return Policy.model_validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        fault = faults_of(error)[0]
        place = ".".join(map(str, fault["loc"]))
        where = f"{place}: " if place else ""
        raise PydanticCustomError("policy", "{where}{fault}", {"where": where, "fault": fault["msg"]}) from None


GivenPolicy = Annotated[Policy, PlainValidator(_policy_of, json_schema_input_type=Policy)]
"""A policy in a body. The rules of a conversation are given as this, or as the name of a preset."""


class EventsOf(DescribedBy):
    """Metadata of a type that stands for a stream of Server-Sent Events: its schema is that of one event, whose `data`
    is a model as JSON."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        content = super().__get_pydantic_json_schema__(schema, handler)
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
        text = {"type": "string"}
        properties = {"data": data, "event": text, "id": text, "retry": {"type": "integer", "minimum": 0}}
        return {"type": "object", "properties": properties}


def named(name: str, kind: Any, description: str) -> Any:
    """Return a type under a name of its own in OpenAPI. `Pure.`"""
    base: Any = RootModel.__class_getitem__(kind)
    return create_model(name, __base__=base, __doc__=description)


STATE = named("State", StateView, "A state: its type, and what it tells.")
TURN = named("Turn", BaseTurn, "A turn of a conversation.")

StateJson = Annotated[Any, DescribedBy(lambda: STATE)]
TurnJson = Annotated[Any, DescribedBy(lambda: TURN)]
StepJson = Annotated[Any, DescribedBy(lambda: StepView)]
MessageJson = Annotated[Any, DescribedBy(message_model)]
