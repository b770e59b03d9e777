"""The arguments of a tool that an application describes by a JSON schema.

The schema may come from elsewhere: a server of tools, a web API, another program. So it goes to the model as it is,
and the function gets what the model wrote, by name; no default is filled in. What the function itself cannot take is
a fault of the call, too: a name that it does not have, or one that it needs and the schema does not require. The
sentence about a fault is stored, logged and shown. So it names the fields and what the schema wants, and never
repeats a value.

The schema is checked when a tool is made of it. Its dialect is the one that it names at its top; without it, 2020-12.
A schema may refer to parts of itself. Nothing is ever fetched: a schema that refers to another document is refused.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from ...states.errors import ConfigurationError
from ...states.values.value import encodable, shortened
from ..schemas.check import MAX_FIELD, SchemaCheck
from .arguments import Arguments
from .callables import declared_parameters, definition_of, is_context, name_of, resolved
from .normalization import InvalidArguments, Normalized, Schema

_COMPOSED = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}
"""Keywords by which a schema may have properties that do not stand in its `properties`."""


class SchemaArguments(Arguments):
    """The arguments that a JSON schema describes. `schema` is equal to the one given, and in the same order.

    `names` are local names that the function's types may use besides those of its module: a parameter of the type
    ToolContext is filled by the engine.
    Raises ConfigurationError for a schema that is invalid, does not describe an object or refers to another document,
    and for a function that cannot take what it describes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: Mapping[str, Any],
        names: Mapping[str, object] | None = None,
    ) -> None:
        name = name_of(function)
        own = _own_copy(schema, name)
        self._check = SchemaCheck(own, name)
        self._taken = _Taken(function, names or {})
        declared = own.get("properties", {})
        self._taken.check(declared, is_complete=not _COMPOSED & own.keys())
        super().__init__(own, declared, self._taken.context_names)

    def _values(self, written: Normalized) -> dict[str, Any]:
        data = written.data
        fault = self._check.fault_of(data) or self._taken.fault_of(data)
        if fault is not None:
            raise InvalidArguments(shortened(f"Invalid input: {fault}"))
        return data


class _Taken:
    """Which names a function takes."""

    def __init__(self, function: Callable[..., Any], names: Mapping[str, object]) -> None:
        self._name = name_of(function)
        definition = definition_of(function)
        parameters = declared_parameters(function)
        self._filled = set(function.keywords) if isinstance(function, functools.partial) else set[str]()
        self._takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        unnamed = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        rest = [parameter for parameter in parameters if parameter.kind not in unnamed]
        self.context_names = [p.name for p in rest if _is_context(p.annotation, definition, names)]
        given = [parameter for parameter in rest if parameter.name not in self.context_names]
        self._known = {p.name for p in given if p.kind is not p.POSITIONAL_ONLY}
        self._needed = [parameter.name for parameter in given if parameter.default is inspect.Parameter.empty]

    def check(self, declared: Mapping[str, Any], *, is_complete: bool) -> None:
        """Raise ConfigurationError if the function cannot take the `declared` properties, or needs others although
        these are all that there are."""
        for name in declared:
            if name in self.context_names:
                raise ConfigurationError(
                    f"The parameter {name} of {self._name} is filled by the engine, so the schema cannot describe it."
                )
            if name in self._filled:
                raise ConfigurationError(
                    f"The parameter {name} of {self._name} has been filled, so the schema cannot describe it."
                )
            if not self._takes(name):
                raise ConfigurationError(
                    f"The function {self._name} does not take {shortened(name, MAX_FIELD)}, which its schema describes."
                )
        missing = [name for name in self._needed if name not in declared or name not in self._known]
        if missing and is_complete:
            raise ConfigurationError(
                f"The parameter {missing[0]} of {self._name} has no default, and its schema does not describe it."
            )

    def fault_of(self, data: Mapping[str, Any]) -> str | None:
        """Why the function cannot be called with this; None if it can."""
        missing = [f"{name}: Field required" for name in self._needed if name not in data]
        extra = [
            f"{shortened(name, MAX_FIELD)}: Extra inputs are not permitted" for name in data if not self._takes(name)
        ]
        faults = [*missing, *extra]
        return encodable("; ".join(faults)) or None

    def _takes(self, name: str) -> bool:
        return name in self._known or (self._takes_any and name not in {*self.context_names, *self._filled})


def _own_copy(schema: object, name: str) -> Schema:
    """A copy that the application cannot change afterwards. Raises ConfigurationError for what JSON cannot express."""
    if not isinstance(schema, Mapping):
        raise ConfigurationError(f"The schema of {name} must be a dict.")
    try:
        text = json.dumps(schema := dict(schema), allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"The schema of {name} cannot be written as JSON.") from error
    if json.loads(text) != schema:  # a name that is a number, or a tuple
        raise ConfigurationError(f"The schema of {name} is not JSON: names are texts, and arrays are lists.")
    return deepcopy(schema)


def _is_context(annotation: object, definition: object, names: Mapping[str, object]) -> bool:
    """Whether the engine fills a parameter of this type. The types of all others do not matter."""
    if annotation is inspect.Parameter.empty:
        return False
    try:
        return is_context(resolved(annotation, definition, names))
    except Exception as error:
        if "ToolContext" not in str(annotation):
            return False
        raise ConfigurationError(
            f"A parameter of {name_of(definition)} has a type that is not known when the program runs."
        ) from error
