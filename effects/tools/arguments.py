"""Turns the arguments of a call, JSON text written by a model, into what the function takes.

A model may write anything. So each function gets a pydantic model of its parameters, which describes them as JSON
schema and checks what comes back; whatever does not fit becomes one sentence for the model, never an exception.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import from_json

from ...states.errors import ConfigurationError
from ...states.policy.policy import Policy
from ..text import encodable_json
from .argument_errors import NOT_AN_OBJECT, InvalidArguments, fault
from .context import ToolContext
from .schema import Schema, schema_of
from .signature import Parameter, parameters_of, underlying

MAX_ARGUMENTS = 1_000_000
"""The most characters of one call's arguments. Ours: as much as a message of a person may bring."""

_LOGGER = logging.getLogger("turnwise.tools")


class Arguments:
    """What a function can be called with. `schema` describes it to a model, parameters of type ToolContext left out.

    `names` are local names that the types of the function may use besides its module's.
    Raises ConfigurationError, naming function and parameter, for a function that a model could not call.
    """

    def __init__(self, function: Callable[..., Any], names: Mapping[str, object] | None = None) -> None:
        parameters = parameters_of(function, names or {})
        self._context_names = [parameter.name for parameter in parameters if parameter.is_context]
        self._parameters = [parameter for parameter in parameters if not parameter.is_context]
        self._model, self.schema = _described(underlying(function).__name__, self._parameters)

    def under(self, policy: Policy) -> Arguments:
        """What reads arguments under these rules. Only those of tools that speak depend on them."""
        return self

    def check(self, text: str) -> None:
        """Raises InvalidArguments if a call with these arguments could not run."""
        self._validated(text)

    def read(self, text: str, context: ToolContext) -> dict[str, Any]:
        """The keyword arguments for the function, in its types, the context among them. Raises InvalidArguments."""
        validated = self._validated(text)
        given = {parameter.name: getattr(validated, _field(i)) for i, parameter in enumerate(self._parameters)}
        return {**given, **dict.fromkeys(self._context_names, context)}

    def _validated(self, text: str) -> BaseModel:
        text = normalized(text)
        data = _json_object(text)
        try:
            return self._model.model_validate_json(text)
        except ValidationError as error:
            raise InvalidArguments(fault(error, data)) from None
        except Exception as error:
            _LOGGER.warning("A validator of a tool's arguments failed", exc_info=error)
            raise InvalidArguments("Invalid input: the arguments could not be checked") from None


def normalized(text: str) -> str:
    """The arguments as they are kept: encodable as UTF-8, and `{}` if blank (some models write nothing for none).

    Raises InvalidArguments if there are too many of them.
    """
    if len(text) > MAX_ARGUMENTS:
        raise InvalidArguments(f"Invalid input: the arguments are longer than {MAX_ARGUMENTS:,} characters")
    return encodable_json(text) if text.strip() else "{}"


def _json_object(text: str) -> dict[str, Any]:
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError:
        raise InvalidArguments(NOT_AN_OBJECT) from None
    if not isinstance(data, dict):
        raise InvalidArguments(NOT_AN_OBJECT)
    return data


def _field(place: int) -> str:
    # Not the parameter's name: that may begin with an underscore or be a name that every pydantic model has.
    return f"turnwise_parameter_{place}"


def _described(function: str, parameters: Sequence[Parameter]) -> tuple[type[BaseModel], Schema]:
    try:
        return _model_and_schema(parameters)
    except Exception as error:
        name = next((each.name for each in parameters if not _fits(each)), None)
        about = f"The function {function}" if name is None else f"The parameter {name} of {function}"
        raise ConfigurationError(f"{about} has a type that cannot be described to a model as JSON.") from error


def _fits(parameter: Parameter) -> bool:
    try:
        _model_and_schema([parameter])
    except Exception:
        return False
    return True


def _model_and_schema(parameters: Sequence[Parameter]) -> tuple[type[BaseModel], Schema]:
    names = {_field(i): parameter.name for i, parameter in enumerate(parameters)}
    # Dataclasses and typed dicts among the types inherit these settings, so the generator meets their fields too.
    config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        alias_generator=lambda field: names.get(field, field),
    )
    fields: dict[str, Any] = {_field(i): _definition(parameter) for i, parameter in enumerate(parameters)}
    model = create_model("Arguments", __config__=config, **fields)
    return model, schema_of(model)


def _definition(parameter: Parameter) -> tuple[Any, Any]:
    required = parameter.default is inspect.Parameter.empty
    return (parameter.annotation, ... if required else parameter.default)
