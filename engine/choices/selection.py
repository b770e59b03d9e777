"""Checks by what an application selects the conversations of a list, and says in one sentence what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, get_args

from pydantic import JsonValue, TypeAdapter

from ...effects.text import is_encodable
from ...persistence.summaries import place_of
from ...states.errors import InvalidInput
from ...states.roles import Role
from ...states.states import STATES
from ...states.values.acts import MAX_ENTRIES
from ...states.values.value import MAX_QUOTED, Block, shortened
from ..requests import checked_id

_STATES = tuple(state.model_fields["type"].default for state in STATES)
_METADATA: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(Block)


class Selection(TypedDict):
    """What `Store.list` takes."""

    owner: str | None
    metadata: dict[str, JsonValue] | None
    state: str | None
    limit: int | None
    before: str | None
    role: Role | None
    parent: str | None
    works_for: str | None


def checked_selection(
    owner: str | None,
    metadata: Mapping[str, Any] | None,
    state: str | None,
    limit: int | None,
    before: str | None,
    role: Role | None = None,
    parent: str | None = None,
    works_for: str | None = None,
) -> Selection:
    """Return what `Store.list` takes. Raises `InvalidInput`, which says which argument is wrong."""
    return Selection(
        owner=checked_owner(owner),
        metadata=_checked_metadata(metadata),
        state=_checked_state(state),
        limit=_checked_limit(limit),
        before=None if before is None else _checked_before(before),
        role=_checked_role(role),
        parent=None if parent is None else checked_id(parent),
        works_for=None if works_for is None else checked_id(works_for),
    )


def checked_owner(owner: Any) -> str | None:
    """Return an owner that conversations may have, or None. Raises `InvalidInput`."""
    if owner is not None and not (isinstance(owner, str) and is_encodable(owner)):
        raise InvalidInput("The owner of conversations is a text.")
    return owner


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, JsonValue] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise InvalidInput("The metadata that a list selects by is a dict of JSON values.")
    if len(metadata) > MAX_ENTRIES:
        raise InvalidInput(f"A list selects by at most {MAX_ENTRIES} values of metadata.")
    return {name: _checked_value(name, value) for name, value in metadata.items()}


def _checked_value(name: Any, value: Any) -> JsonValue:
    try:
        return _METADATA.validate_python({name: value})[name]
    except (ValueError, RecursionError):
        where = shortened(f"metadata[{name!r}]", MAX_QUOTED)
        raise InvalidInput(f"A list cannot select by {where}: a name is a text, and a value is JSON.") from None


def _checked_state(state: Any) -> str | None:
    if state is None or (isinstance(state, str) and state in _STATES):
        return state
    raise InvalidInput(f"The state that a list selects by is one of {', '.join(_STATES)}.")


def _checked_before(before: Any) -> str:
    """Return the id of a conversation, or a cursor, which holds one. Raises `InvalidInput`."""
    if not isinstance(before, str) or not before.startswith("@"):
        return checked_id(before)
    place = place_of(before)
    if place is None:
        raise InvalidInput("The page of a list begins behind a conversation, or at its cursor.")
    checked_id(place.conversation_id)
    return before


def _checked_role(role: Role | None) -> Role | None:
    if role is None or role in get_args(Role):
        return role
    raise InvalidInput(f"The role that a list selects by is one of {', '.join(get_args(Role))}.")


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and not (type(limit) is int and 0 <= limit < 2**63):
        raise InvalidInput("The limit of a list is a whole number, not below 0.")
    return limit
