"""Turns the arguments of a call, JSON text written by a model, into the arguments of a function.

A model may write anything. So each function gets a pydantic model of its parameters, which describes them as JSON
schema and validates the arguments. Arguments that do not fit are described to the model in one sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, core_schema

from ....states.errors import ConfigurationError
from ...logs import performer_logger
from .argument_errors import InvalidArguments, describe_fault
from .arguments import Arguments
from .callables import docstring_of, name_of
from .docstrings import Docstring, read_docstring
from .normalization import Normalized, Schema, check_booleans, normalized
from .signature import Parameter, parameters_of
from .typed_schema import schema_of, without_marks

_LOGGER = performer_logger("turnwise.tools")


class TypedArguments(Arguments):
    """The arguments that follow from the types of a function. `docstring` has its description and those of its
    parameters.

    `names` are local names that the function's types may use besides those of its module. Raises ConfigurationError,
    naming function and parameter, for a function that a model could not call.
    """

    def __init__(self, function: Callable[..., Any], names: Mapping[str, object] | None = None) -> None:
        parameters = parameters_of(function, names or {})
        given = [parameter for parameter in parameters if not parameter.is_context]
        context_names = [parameter.name for parameter in parameters if parameter.is_context]
        self.docstring: Docstring = read_docstring(docstring_of(function), [parameter.name for parameter in given])
        self._model, self._marked = _describe(name_of(function), given, self.docstring.parameters)
        super().__init__(without_marks(self._marked), [parameter.name for parameter in given], context_names)
        self._fields = tuple((name, _field(place)) for place, name in enumerate(self.names))

    def _normalized(self, text: str) -> Normalized:
        return normalized(text, self._marked)

    def _values(self, written: Normalized) -> dict[str, Any]:
        """The keyword arguments in the types of the function, with its defaults."""
        check_booleans(written.data, self._marked)
        validated = vars(self._validate(written))
        return {name: validated[field] for name, field in self._fields}

    def _validate(self, written: Normalized) -> BaseModel:
        try:
            return self._model.model_validate_json(written.text)
        except ValidationError as error:
            raise InvalidArguments(describe_fault(error, written.data)) from None
        except Exception as error:
            _LOGGER.warning("A validator of a tool's arguments failed", exc_info=error)
            raise InvalidArguments("Invalid input: the arguments could not be checked") from None


class _TakesNull:
    """The metadata of a type that takes null besides: a parameter may be of a type that its default, None, is not."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return core_schema.nullable_schema(handler(source))


def _field(index: int) -> str:
    # Not the parameter's name, which may begin with an underscore or be a name that every pydantic model has.
    return f"turnwise_parameter_{index}"


def _describe(
    function: str, parameters: Sequence[Parameter], described: Mapping[str, str]
) -> tuple[type[BaseModel], Schema]:
    try:
        return _model_and_schema(parameters, described)
    except Exception as error:
        name = next((parameter.name for parameter in parameters if not _can_be_described(parameter)), None)
        about = f"The function {function}" if name is None else f"The parameter {name} of {function}"
        raise ConfigurationError(f"{about} {_cause(error)}") from error


def _cause(error: Exception) -> str:
    if getattr(error, "code", None) == "typed-dict-version":
        return "uses typing.TypedDict, which can be read from Python 3.12 on: use typing_extensions.TypedDict."
    return "has a type that cannot be described to a model as JSON."


def _can_be_described(parameter: Parameter) -> bool:
    try:
        _model_and_schema([parameter], {})
    except Exception:
        return False
    return True


def _model_and_schema(
    parameters: Collection[Parameter], described: Mapping[str, str]
) -> tuple[type[BaseModel], Schema]:
    names = {_field(i): parameter.name for i, parameter in enumerate(parameters)}
    # Dataclasses and typed dicts among the types inherit this configuration, so the generator gets their fields too.
    config = ConfigDict(
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        alias_generator=lambda field: names.get(field, field),
    )
    fields: dict[str, Any] = {
        _field(i): _definition(parameter, described.get(parameter.name)) for i, parameter in enumerate(parameters)
    }
    model = create_model("Arguments", __config__=config, **fields)
    return model, schema_of(model)


def _definition(parameter: Parameter, description: str | None) -> tuple[Any, Any]:
    is_required = parameter.default is inspect.Parameter.empty
    annotation, default = parameter.annotation, ... if is_required else parameter.default
    if description and _description_in(annotation, default) is None:
        annotation = Annotated[annotation, Field(description=description)]
    if _is_null(default) and annotation is not Any and NoneType not in get_args(annotation):
        annotation = Annotated[annotation, _TakesNull()]
    return annotation, default


def _description_in(annotation: Any, default: Any) -> str | None:
    """The description that the application gave by `Field`."""
    if isinstance(default, FieldInfo) and default.description is not None:
        return default.description
    return FieldInfo.from_annotation(annotation).description


def _is_null(default: object) -> bool:
    return default is None or (isinstance(default, FieldInfo) and default.default is None)
