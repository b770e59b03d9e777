"""The arguments of a call: JSON text written by a model, which may be anything.

What a tool takes is either read from the types of its function or given as JSON schema. Both describe the arguments to
a model, check the text of a call, and turn it into keyword arguments of the function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from ....states.policy.policy import Policy
from ...text import encodable_json
from ..context import ToolContext
from .argument_errors import NOT_AN_OBJECT, InvalidArguments

MAX_ARGUMENTS = 1_000_000
"""The most characters of one call's arguments: as many as a message of the user may have."""

Schema = dict[str, Any]
"""A JSON schema."""


class Arguments(ABC):
    """The arguments that a function takes. `schema` describes them to a model, without parameters of type ToolContext.

    `names` are the parameters that a model can give, as the function calls them.
    """

    schema: Schema
    names: tuple[str, ...]

    def __init__(self, schema: Schema, names: Iterable[str], context_names: Iterable[str]) -> None:
        self.schema = schema
        self.names = tuple(names)
        self._context_names = tuple(context_names)

    @property
    def takes_context(self) -> bool:
        """Whether `read` uses the context of the call. Making one takes time, and most functions take none."""
        return bool(self._context_names)

    def under(self, policy: Policy) -> Arguments:
        """The arguments as read under this policy. Only those of speaking tools depend on it."""
        return self

    def check(self, text: str) -> None:
        """Raise InvalidArguments if a call with these arguments could not run."""
        self.values(text)

    @abstractmethod
    def values(self, text: str) -> dict[str, Any]:
        """The keyword arguments that a model gave, as the function takes them. Raises InvalidArguments."""

    def read(self, text: str, context: ToolContext) -> dict[str, Any]:
        """The keyword arguments for the function, with the context. Raises InvalidArguments."""
        values = self.values(text)
        return {**values, **dict.fromkeys(self._context_names, context)} if self._context_names else values


def normalize(text: str) -> str:
    """The arguments as they are stored: encodable as UTF-8, and `{}` if blank, as some models write no arguments.

    Raises InvalidArguments if they are too long.
    """
    if len(text) > MAX_ARGUMENTS:
        raise InvalidArguments(f"Invalid input: the arguments are longer than {MAX_ARGUMENTS:,} characters")
    return encodable_json(text) if text.strip() else "{}"


def parse_object(text: str) -> dict[str, Any]:
    """The JSON object in the text. Raises InvalidArguments if the text is anything else."""
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError:
        raise InvalidArguments(NOT_AN_OBJECT) from None
    if not isinstance(data, dict):
        raise InvalidArguments(NOT_AN_OBJECT)
    return data
