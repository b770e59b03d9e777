"""Turns the arguments of a call, JSON text written by a model, into the arguments of a function.

A model may write anything. So each function gets a pydantic model of its parameters, which describes them as JSON
schema and validates the arguments. Arguments that do not fit are described to the model in one sentence.
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
from .argument_errors import NOT_AN_OBJECT, InvalidArguments, describe_fault
from .context import ToolContext
from .schema import Schema, schema_of
from .signature import Parameter, parameters_of, plain_function_of

MAX_ARGUMENTS = 1_000_000
"""The most characters of one call's arguments: as many as a message of the user may have."""

_LOGGER = logging.getLogger("turnwise.tools")


class Arguments:
    """The arguments that a function takes. `schema` describes them to a model, without parameters of type ToolContext.

    `names` are local names that the function's types may use besides those of its module. Raises ConfigurationError,
    naming function and parameter, for a function that a model could not call.
    """

    def __init__(self, function: Callable[..., Any], names: Mapping[str, object] | None = None) -> None:
        parameters = parameters_of(function, names or {})
        self._context_names = [parameter.name for parameter in parameters if parameter.is_context]
        self._parameters = [parameter for parameter in parameters if not parameter.is_context]
        self._model, self.schema = _describe(plain_function_of(function).__name__, self._parameters)

    def under(self, policy: Policy) -> Arguments:
        """The arguments as read under this policy. Only those of speaking tools depend on it."""
        return self

    def check(self, text: str) -> None:
        """Raise InvalidArguments if a call with these arguments could not run."""
        self._validate(text)

    def read(self, text: str, context: ToolContext) -> dict[str, Any]:
        """The keyword arguments for the function, in its types, with the context. Raises InvalidArguments."""
        validated = self._validate(text)
        values = {parameter.name: getattr(validated, _field(i)) for i, parameter in enumerate(self._parameters)}
        return {**values, **dict.fromkeys(self._context_names, context)}

    def _validate(self, text: str) -> BaseModel:
        text = normalize(text)
        data = _parse_object(text)
        try:
            return self._model.model_validate_json(text)
        except ValidationError as error:
            raise InvalidArguments(describe_fault(error, data)) from None
        except Exception as error:
            _LOGGER.warning("A validator of a tool's arguments failed", exc_info=error)
            raise InvalidArguments("Invalid input: the arguments could not be checked") from None


def normalize(text: str) -> str:
    """The arguments as they are stored: encodable as UTF-8, and `{}` if blank, as some models write no arguments.

    Raises InvalidArguments if they are too long.
    """
    if len(text) > MAX_ARGUMENTS:
        raise InvalidArguments(f"Invalid input: the arguments are longer than {MAX_ARGUMENTS:,} characters")
    return encodable_json(text) if text.strip() else "{}"


def _parse_object(text: str) -> dict[str, Any]:
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError:
        raise InvalidArguments(NOT_AN_OBJECT) from None
    if not isinstance(data, dict):
        raise InvalidArguments(NOT_AN_OBJECT)
    return data


def _field(index: int) -> str:
    # Not the parameter's name, which may begin with an underscore or be a name that every pydantic model has.
    return f"turnwise_parameter_{index}"


def _describe(function: str, parameters: Sequence[Parameter]) -> tuple[type[BaseModel], Schema]:
    try:
        return _model_and_schema(parameters)
    except Exception as error:
        name = next((parameter.name for parameter in parameters if not _can_be_described(parameter)), None)
        about = f"The function {function}" if name is None else f"The parameter {name} of {function}"
        raise ConfigurationError(f"{about} has a type that cannot be described to a model as JSON.") from error


def _can_be_described(parameter: Parameter) -> bool:
    try:
        _model_and_schema([parameter])
    except Exception:
        return False
    return True


def _model_and_schema(parameters: Sequence[Parameter]) -> tuple[type[BaseModel], Schema]:
    names = {_field(i): parameter.name for i, parameter in enumerate(parameters)}
    # Dataclasses and typed dicts among the types inherit this configuration, so the generator gets their fields too.
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
    is_required = parameter.default is inspect.Parameter.empty
    return (parameter.annotation, ... if is_required else parameter.default)
