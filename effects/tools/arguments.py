"""The arguments of a call: JSON text written by a model, which may be anything.

What a tool takes is either read from the types of its function or given as JSON schema. Both describe the arguments
to a model, read the text of a call as it was meant, check it, and turn it into keyword arguments of the function.
Arguments that do not fit are described to the model in one sentence.

Where the types decide, the function gets a pydantic model of its parameters, which describes them as JSON schema and
validates the arguments. Pydantic writes schemas with references to shared definitions. Models read a schema more
reliably without them, and some providers do not follow a `$ref`; so definitions are put where they are used. Titles
and defaults of null are left out.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import CoreSchema, core_schema

from ...states.errors import ConfigurationError
from ...states.policy import Policy
from ..logs import performer_logger
from .callables import Docstring, Parameter, docstring_of, name_of, parameters_of, read_docstring
from .context import ToolContext
from .normalization import STRICT, InvalidArguments, Normalized, Schema, check_booleans, describe_fault, normalized


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
        self._model, self._marked = _describe_fault(name_of(function), given, self.docstring.parameters)
        super().__init__(_without_marks(self._marked), [parameter.name for parameter in given], context_names)
        self._fields = tuple((name, _field(place)) for place, name in enumerate(self.names))

    def _normalized(self, text: str) -> Normalized:
        return normalized(text, self._marked, self.schema)

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


def _describe_fault(
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


_REFERENCE = "#/$defs/"
_NULL = {"type": "null"}


def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON schema of a model's fields. What is declared as strict is marked: `_without_marks` is the schema that a
    model reads. `Pure.`"""
    schema = _without_title(model.model_json_schema(schema_generator=_SchemaGenerator))
    definitions = schema.pop("$defs", {})
    try:
        inlined: Schema = _inline(schema, definitions, ())
    except RecursionError:  # a type that contains itself needs the reference
        return {**schema, "$defs": definitions}
    return inlined


def _without_marks(node: Any) -> Any:
    """The schema without the marks of what is strict. `Pure.`"""
    if isinstance(node, dict):
        return {key: _without_marks(value) for key, value in node.items() if key != STRICT}
    return [_without_marks(item) for item in node] if isinstance(node, list) else node


class _SchemaGenerator(GenerateJsonSchema):
    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """The schema of a type, marked if the type is strict."""
        return _marked(super().generate_inner(schema), schema)

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """The schema of a model, marked if its configuration is strict."""
        return _marked(super().model_schema(schema), schema.get("config", {}))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """The schema of a dataclass, marked if its configuration is strict."""
        return _marked(super().dataclass_schema(schema), schema.get("config", {}))

    def render_warning_message(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Return no warning: a default that JSON cannot express is still the function's default."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """The schema of a field with a default. A field whose default is null is described as optional, without the
        null; null is still accepted."""
        described = super().default_schema(schema)
        if not _is_json(described.get("default")):
            del described["default"]
        if described.get("default", ...) is not None:
            return described
        rest = {key: value for key, value in described.items() if key not in {"default", "anyOf"}}
        choices = [choice for choice in described.get("anyOf", ()) if choice != _NULL]
        if len(choices) == 1:
            return {**choices[0], **rest}
        return {"anyOf": choices, **rest} if choices else rest


def _marked(described: JsonSchemaValue, declared: Mapping[str, Any]) -> JsonSchemaValue:
    return {**described, STRICT: True} if declared.get("strict") else described


def _is_json(default: object) -> bool:
    """Whether JSON can express it. Python's encoder would write infinities, which JSON does not have."""
    try:
        json.dumps(default, allow_nan=False)
    except ValueError:
        return False
    return True


def _without_title(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "title"}


def _inline(node: Any, definitions: Schema, parents: tuple[str, ...]) -> Any:
    """The node with its references resolved. Raises RecursionError if one of the `parents` contains itself."""
    if isinstance(node, list):
        return [_inline(item, definitions, parents) for item in node]
    if not isinstance(node, dict):
        return node
    inlined = {key: _inline(value, definitions, parents) for key, value in node.items() if not _is_mapping(key, value)}
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return inlined
    name = reference.removeprefix(_REFERENCE)
    if name in parents:
        raise RecursionError(name)
    del inlined["$ref"]
    return {**_inline(_without_title(definitions[name]), definitions, (*parents, name)), **inlined}


def _is_mapping(key: str, value: Any) -> bool:
    """Whether this maps the tags of a union to definitions, which is useless once the definitions are inlined."""
    return key == "discriminator" and isinstance(value, dict) and "propertyName" in value
