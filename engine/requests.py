"""Requests made from what a host hands over, with one sentence where it does not fit."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from ..states.errors import InvalidInput
from ..states.value import Value

V = TypeVar("V", bound=Value)


def make(kind: type[V], **fields: object) -> V:
    """A value of this kind. Raises `InvalidInput`, which names the first field at fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise InvalidInput(f"{where}: {fault['msg']}.") from None
