"""Requests made from what a host hands over, with one sentence where it does not fit."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from ..effects.text import is_encodable
from ..states.errors import InvalidInput
from ..states.events import Event, exact
from ..states.value import Value

LONGEST_SENTENCE = 300
"""Characters. Ours: what is wrong with an input must not be drowned in the input."""

LONGEST_ID = 200
"""Characters. Ours: the ids that the engine makes have 36."""

V = TypeVar("V", bound=Value)


def make(kind: type[V], **fields: object) -> V:
    """A value of this kind. Raises `InvalidInput`, which names the first field at fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise InvalidInput(f"{fault['loc'][0]}: {fault['msg']}."[:LONGEST_SENTENCE]) from None


def checked_id(conversation_id: str) -> str:
    """An id that a conversation may have. Raises `InvalidInput`."""
    if not isinstance(conversation_id, str):
        raise InvalidInput("The id of a conversation is a text.")
    if len(conversation_id) > LONGEST_ID or not is_encodable(conversation_id):
        raise InvalidInput("No conversation has such an id.")
    return conversation_id


def checked(event: Event) -> Event:
    """An event of the host's own making, as the log will hold it. Raises `InvalidInput`."""
    try:
        return exact(event)
    except ValueError:
        raise InvalidInput("This is not an event, or it does not hold what it declares.") from None
