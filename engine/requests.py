"""Requests made from what a host hands over, with one sentence where it does not fit."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from ..effects.text import is_encodable
from ..states.errors import InvalidInput
from ..states.events import Event, exact
from ..states.policy.policy import Policy
from ..states.values.value import MAX_QUOTED, shortened

MAX_REQUEST = 4_000_000
"""Characters of a request as JSON, its images left out, which have bounds of their own (see
`states/values/images.py`). Ours: four
texts of the greatest length."""

LONGEST_ID = 200
"""Characters. Ours: the ids that the engine makes have 36."""

AS_GIVEN = {"event_id": "message_id"}
"""Fields whose name hosts do not know, and what they gave instead: the only id of a request that is theirs is that of
a message."""

R = TypeVar("R", bound=Event)


def make(kind: type[R], **fields: object) -> R:
    """A request of this kind. Raises `InvalidInput`, which names the first field at fault."""
    try:
        return bounded(kind.model_validate(fields))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        # Of a union pydantic also names the branches that it tried, in its own words.
        path = (AS_GIVEN.get(str(part), str(part)) for part in fault["loc"] if "[" not in str(part))
        where = ".".join(shortened(part, MAX_QUOTED) for part in path)
        raise InvalidInput(shortened(f"{where}: {fault['msg']}.")) from None


def bounded(request: R) -> R:
    """The request, unless it is too long as a whole. Raises `InvalidInput`."""
    images = sum(len(image.url) for image in getattr(request, "images", ()))
    if len(request.to_json()) - images > MAX_REQUEST:
        raise InvalidInput("The request is too long.")
    return request


def checked_id(conversation_id: str) -> str:
    """An id that a conversation may have. Raises `InvalidInput`."""
    if not isinstance(conversation_id, str):
        raise InvalidInput("The id of a conversation is a text.")
    if len(conversation_id) > LONGEST_ID or not is_encodable(conversation_id):
        raise InvalidInput("No conversation has such an id.")
    return conversation_id


def checked_policy(policy: Policy) -> Policy:
    """The rules as the log will hold them: a policy can be built past its own validation. Raises `InvalidInput`."""
    if not isinstance(policy, Policy):
        raise InvalidInput("The rules of a conversation are a Policy.")
    try:
        return Policy.model_validate_json(policy.model_dump_json(exclude_defaults=True, warnings="error"))
    except ValueError:
        raise InvalidInput("The rules of a conversation do not hold what they declare.") from None


def checked(event: Event) -> Event:
    """An event of the host's own making, as the log will hold it. Raises `InvalidInput`."""
    try:
        return bounded(exact(event))
    except ValueError:
        raise InvalidInput("This is not an event, or it does not hold what it declares.") from None
