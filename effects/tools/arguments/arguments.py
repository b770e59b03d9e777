"""The arguments of a call: JSON text written by a model, which may be anything.

What a tool takes is either read from the types of its function or given as JSON schema. Both describe the arguments to
a model, read the text of a call as it was meant, check it, and turn it into keyword arguments of the function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ....states.policy import Policy
from ..context import ToolContext
from .normalization import Normalized, Schema, normalized


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
        self.accepted(text)

    def accepted(self, text: str) -> str:
        """The arguments as a call runs with them, the text of a JSON object. Raises InvalidArguments if no call could
        run with them."""
        written = self._normalized(text)
        self._values(written)
        return written.text

    def values(self, text: str) -> dict[str, Any]:
        """The keyword arguments that a model gave, as the function takes them. Raises InvalidArguments."""
        return self._values(self._normalized(text))

    def read(self, text: str, context: ToolContext) -> dict[str, Any]:
        """The keyword arguments for the function, with the context. Raises InvalidArguments."""
        values = self.values(text)
        return {**values, **dict.fromkeys(self._context_names, context)} if self._context_names else values

    def _normalized(self, text: str) -> Normalized:
        """What the model meant by this text. Raises InvalidArguments."""
        return normalized(text, self.schema)

    @abstractmethod
    def _values(self, written: Normalized) -> dict[str, Any]:
        """The keyword arguments. Raises InvalidArguments for what does not fit the function."""
