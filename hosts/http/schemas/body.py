"""The bases of the bodies that clients send and receive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ....engine.requests import LONGEST_ID
from ....states.errors import has_many_faults, sentence_of_many
from ....states.values.value import DEEPEST, is_nested_deeper

BODY_REFUSALS = (400, 408, 413, 415, 422)
"""The statuses with which a body is refused: not JSON, too slow, too large, of another type, not as declared."""

LARGEST_NUMBER = 2**53 - 1
"""The largest number that every JSON reader takes exactly."""

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

    model_config = ConfigDict(extra="forbid", strict=True)

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
