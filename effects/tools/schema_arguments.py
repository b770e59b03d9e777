"""The arguments of a tool that an application describes by a JSON schema.

The schema may come from elsewhere: a server of tools, a web API, another program. So it goes to the model as it is,
and the function gets what the model wrote, by name; no default is filled in. What the function itself cannot take is
a fault of the call, too: a name that it does not have, or one that it needs and the schema does not require. The
sentence about a fault is stored, logged and shown. So it names the fields and what the schema wants, and never
repeats a value.

The schema is checked when a tool is made of it. Its dialect is the one that it names at its top; without it, 2020-12.
A schema may refer to parts of itself. Nothing is ever fetched: a schema that refers to another document is refused.
The validator is `jsonschema`, which is loaded with the first tool that has a schema.

A schema of a few lines can make that library work for hours: parts that refer to each other double with each level, a
list of ten thousand values is compared with each of ten thousand names, and the sentence about each fault repeats all
of them. Nothing could interrupt it, and both the schema and the arguments may come from outside. So each keyword that
is applied is counted, a value is looked up in a list instead of being compared with all of it, and a check that takes
more than it may is given up.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from copy import deepcopy
from functools import cache, partial
from itertools import islice
from typing import Any, Protocol

from ...states.errors import ConfigurationError
from ...states.values.value import MAX_QUOTED, encodable, shortened
from ..logs import performer_logger
from .arguments import Arguments
from .callables import declared_parameters, definition_of, is_context, name_of, resolved
from .normalization import MAX_FIELD, InvalidArguments, Normalized, Schema

_COMPOSED = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas"}
"""Keywords by which a schema may have properties that do not stand in its `properties`."""

_LOGGER = performer_logger("turnwise.tools")


class SchemaArguments(Arguments):
    """The arguments that a JSON schema describes. `schema` is equal to the one given, and in the same order.

    `names` are local names that the function's types may use besides those of its module: a parameter of the type
    ToolContext is filled by the engine. With `checks_patterns=False` no regular expression of the schema is applied.
    Raises ConfigurationError for a schema that is invalid, does not describe an object or refers to another document,
    and for a function that cannot take what it describes.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        schema: Mapping[str, Any],
        names: Mapping[str, object] | None = None,
        *,
        checks_patterns: bool = True,
    ) -> None:
        name = name_of(function)
        own = _own_copy(schema, name)
        self._validator: _Validator = _validator_of(own, name, checks_patterns=checks_patterns)
        self._taken = _Taken(function, names or {})
        declared = own.get("properties", {})
        self._taken.check(declared, is_complete=not _COMPOSED & own.keys())
        super().__init__(own, declared, self._taken.context_names)

    def _values(self, written: Normalized) -> dict[str, Any]:
        data = written.data
        try:
            sentence = _describe_schema_faults(self._validator, data) or self._taken.fault_of(data)
        except Exception as error:  # a pattern or a reference of the schema that cannot be followed for this value
            _LOGGER.warning("The arguments of a tool could not be checked against its schema", exc_info=error)
            sentence = "Invalid input: the arguments could not be checked"
        if sentence is not None:
            raise InvalidArguments(sentence)
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
        """Why the function cannot be called with this, as a sentence for the model; None if it can."""
        missing = [f"{name}: Field required" for name in self._needed if name not in data]
        extra = [
            f"{shortened(name, MAX_FIELD)}: Extra inputs are not permitted" for name in data if not self._takes(name)
        ]
        faults = [*missing, *extra]
        return shortened(f"Invalid input: {'; '.join(faults)}") if faults else None

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


_MAX_FAULTS = 5
"""How many faults a sentence tells. Chosen so that a model reads all of them."""

_MAX_ERRORS = 50
"""How many errors are looked at: each of ten thousand names may have the same fault."""

_WANTED = {
    "type": "Input should be of the type {}",
    "enum": "Input should be one of {}",
    "const": "Input should be {}",
    "minLength": "Input should have at least {} characters",
    "maxLength": "Input should have at most {} characters",
    "pattern": "Input should match the pattern {}",
    "minimum": "Input should be at least {}",
    "maximum": "Input should be at most {}",
    "exclusiveMinimum": "Input should be greater than {}",
    "exclusiveMaximum": "Input should be less than {}",
    "multipleOf": "Input should be a multiple of {}",
    "minItems": "Input should have at least {} items",
    "maxItems": "Input should have at most {} items",
    "minProperties": "Input should have at least {} fields",
    "maxProperties": "Input should have at most {} fields",
}
"""What each keyword wants, with its value."""

_MEANT: dict[str | None, str] = {
    "uniqueItems": "Input should not have the same item twice",
    "oneOf": "Input should fit exactly one of the alternatives",
    "anyOf": "Input should fit one of the alternatives",
    "not": "Input is not allowed",
    "contains": "Input should contain an item of another kind",
    "unevaluatedProperties": "Input has fields that are not permitted",
    None: "Input is not permitted",
}
"""What the keywords mean whose values are schemas."""


def _describe_schema_faults(validator: _Validator, data: dict[str, Any]) -> str | None:
    """What is wrong with these arguments, in one sentence of bounded length; None if they fit. `Pure.`"""
    faults = list(islice(_faults(validator, data), _MAX_FAULTS))
    return shortened(encodable(f"Invalid input: {'; '.join(faults)}")) if faults else None


def _faults(validator: _Validator, data: dict[str, Any]) -> Iterator[str]:
    """Yield each fault once, in the order of the schema."""
    told: set[str] = set()
    for error in islice(validator.iter_errors(data), _MAX_ERRORS):
        for fault in _describe(_deepest(error)):
            if fault not in told:
                told.add(fault)
                yield fault


def _deepest(error: _SchemaError) -> _SchemaError:
    """The error that says most: of several alternatives the fault in the one that fits best."""
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    deepest: _SchemaError = best_match([error])
    return deepest


def _describe(error: _SchemaError) -> Iterator[str]:
    path = [shortened(str(part), MAX_FIELD) for part in error.absolute_path]
    for field, sentence in _messages(error):
        place = ".".join([*path, shortened(field, MAX_FIELD)] if field else path)
        yield f"{place}: {sentence}" if place else sentence


def _messages(error: _SchemaError) -> Iterator[tuple[str, str]]:
    """The messages, each with the field of the value that it is about, or none."""
    keyword, wanted = error.validator, error.validator_value
    if keyword == "required" and isinstance(wanted, list):
        yield from ((name, "Field required") for name in wanted if name not in error.instance)
    elif keyword == "additionalProperties" and wanted is False:
        yield from ((name, "Extra inputs are not permitted") for name in _extra(error))
    elif keyword is not None and keyword in _WANTED:
        yield "", _WANTED[keyword].format(_written(wanted))
    else:
        yield "", _MEANT.get(keyword, f"Input does not satisfy the schema ({keyword})")


def _extra(error: _SchemaError) -> list[str]:
    """The fields that the schema knows neither by name nor by a pattern."""
    known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
    unknown = [name for name in error.instance if name not in known]
    return [name for name in unknown if not any(re.search(pattern, name) for pattern in patterns)]


def _written(wanted: Any) -> str:
    values = wanted[:MAX_QUOTED] if isinstance(wanted, list) else [wanted]  # each has at least one character
    return shortened(", ".join(json.dumps(value, ensure_ascii=False) for value in values), MAX_QUOTED)


_MAX_WORK = 10_000
"""How many keywords are applied at most, for an empty value: a third of a second."""

_MAX_WORK_FOR_PART = 20
"""How many more are applied for each part of the value. Chosen to be more than the alternatives of honest schemas."""

_CHARACTERS_OF_WORK = 100
"""How many characters of a sentence about a fault cost as much as a keyword."""

_DEFAULT = "https://json-schema.org/draft/2020-12/schema"
_ROOT = "urn:turnwise:schema"
"""The address of a schema that names none."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class _SchemaError(Protocol):
    """What does not fit a schema: a `jsonschema.ValidationError`."""

    validator: str | None
    """The keyword that is not satisfied; None where the schema allows no value at all."""

    validator_value: Any
    """The value of that keyword."""

    schema: Any
    """The schema in which that keyword stands."""

    instance: Any
    """The part of the value that does not fit."""

    absolute_path: Iterable[str | int]
    """Where that part is."""

    context: list[_SchemaError] | None
    """What does not fit the alternatives, if there are any."""


class _Validator(Protocol):
    """What checks a value against a schema."""

    def iter_errors(self, instance: Any) -> Iterable[_SchemaError]:
        """Yield what does not fit, in the order of the schema."""
        ...


class _TooMuchWork(Exception):
    """A check would apply more keywords than it may."""


def _validator_of(schema: Schema, name: str, *, checks_patterns: bool = True) -> _Validator:
    """The validator for the arguments of the tool `name`; it applies no regular expression of the schema unless it
    `checks_patterns`. Raises ConfigurationError for a schema that is invalid, that does not describe an object, or that
    refers to something outside of it."""
    dialect = _dialect_of(schema, name)
    _check_valid(dialect, schema, name)
    if schema.get("type") != "object":
        raise ConfigurationError(f'The schema of {name} must describe an object: its "type" must be "object".')
    left_out = () if checks_patterns else _unchecked(json.dumps(schema))
    checking = _bounded(dialect, left_out)
    # The schema is reached by a reference: the parts of what stands in the registry have been looked up. Those of a
    # schema that is given are looked up again for each reference to one of them.
    try:
        address, registry = _registered(dialect, deepcopy(schema), name)
    except ValueError as error:  # an address that is none
        raise ConfigurationError(f"The parts of the schema of {name} cannot be looked up.") from error
    validator = _BoundedValidator(checking({"$ref": address}, registry=registry))
    try:
        list(validator.iter_errors({}))
    except RecursionError as error:
        raise ConfigurationError(f"The schema of {name} refers to itself without an end.") from error
    except _TooMuchWork as error:
        raise ConfigurationError(f"The schema of {name} takes too long to check.") from error
    return validator


def _dialect_of(schema: Schema, name: str) -> Any:
    """The class of validators for the dialect of the schema."""
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]

    named = schema.get("$schema", _DEFAULT)
    address = str(named).partition(":")[2]
    dialects = (validator_for({"$schema": f"{scheme}:{address}"}, default=None) for scheme in ("https", "http"))
    dialect = next((dialect for dialect in dialects if dialect is not None), None)
    if dialect is None:
        raise ConfigurationError(f"The schema of {name} is of an unknown dialect: {shortened(str(named), MAX_QUOTED)}.")
    return dialect


def _check_valid(dialect: Any, schema: Schema, name: str) -> None:
    try:
        fault = next(_checks_of_schemas(dialect).iter_errors(schema), None)
    except RecursionError as error:
        raise ConfigurationError(f"The schema of {name} is nested too deeply.") from error
    except _TooMuchWork as error:
        raise ConfigurationError(f"The schema of {name} takes too long to check.") from error
    if fault is not None:
        place = ".".join(str(part) for part in fault.absolute_path)
        at = f" at {shortened(place, MAX_QUOTED)}" if place else ""
        raise ConfigurationError(f"The schema of {name} is not valid{at}: {shortened(fault.message, MAX_QUOTED)}.")


@cache
def _checks_of_schemas(dialect: Any) -> _BoundedValidator:
    """The validator for schemas of this dialect, which is described by a schema itself."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    checking = _bounded(dialect, ())
    described = {keyword: value for keyword, value in dialect.META_SCHEMA.items() if keyword != "$schema"}
    return _BoundedValidator(checking(described, registry=REGISTRY, format_checker=dialect.FORMAT_CHECKER))


def _registered(dialect: Any, schema: Schema, name: str) -> tuple[str, Any]:
    """The address of this schema in a registry, and the registry. It holds the schema and its parts, and nothing else:
    the one that is used without it downloads what a schema refers to. Each reference was looked up, also those in the
    parts that are referred to.

    All parts become part of the dialect of the whole: one that names a dialect would be checked by a validator that
    counts nothing.
    """
    from referencing import Registry  # like jsonschema, which needs it: only for tools with a schema
    from referencing.jsonschema import specification_with

    specification = specification_with(dialect.META_SCHEMA.get("$id") or dialect.META_SCHEMA["id"])
    root = specification.create_resource(schema)
    address = root.id() or _ROOT
    registry: Registry[Any] = Registry().with_resource(address, root).crawl()
    left, seen = [(root, registry.resolver(address))], set[int]()
    while left:
        resource, resolver = left.pop()
        contents = resource.contents
        if id(contents) in seen or not isinstance(contents, dict):
            continue
        seen.add(id(contents))
        contents.pop("$schema", None)
        left += [(part, resolver.in_subresource(part)) for part in resource.subresources()]
        for reference in (contents[keyword] for keyword in _REFERENCES if keyword in contents):
            try:
                found = resolver.lookup(reference)
            except Exception as error:
                raise ConfigurationError(
                    f"The schema of {name} refers to {shortened(str(reference), MAX_QUOTED)}, which is not in it."
                ) from error
            left.append((specification.create_resource(found.contents), found.resolver))
    return address, registry


# --- checks in bounded work


class _Check:
    """A check that runs: how much work is `left` for it, and the lists of values that its schema has."""

    def __init__(self, left: int, lists: dict[int, frozenset[Hashable]]) -> None:
        self._left = left
        self._lists = lists

    def spend(self, work: int) -> None:
        """Count work. Raises `_TooMuchWork` if none is left."""
        self._left -= work
        if self._left < 0:
            raise _TooMuchWork

    def identities(self, values: list[Any]) -> frozenset[Hashable]:
        """The identities of a list that stands in the schema. They are kept, like the schema."""
        if id(values) not in self._lists:
            self._lists[id(values)] = frozenset(map(_identity, values))
        return self._lists[id(values)]


_running: ContextVar[_Check] = ContextVar("turnwise-schema-check")


class _BoundedValidator:
    """The same validator, which raises `_TooMuchWork` while errors are read. Its class must be one of `_bounded`."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator
        self._lists: dict[int, frozenset[Hashable]] = {}

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Yield what does not fit, in the order of the schema."""
        work = _MAX_WORK + _MAX_WORK_FOR_PART * _parts_of(instance)
        _running.set(_Check(work, self._lists))
        yield from self._validator.iter_errors(instance)


@cache
def _bounded(dialect: Any, left_out: tuple[str, ...]) -> Any:
    """The class of validators for the same dialect that counts its work, and does not apply the keywords `left_out`."""
    from jsonschema.validators import extend  # only for tools with a schema

    fast = {"uniqueItems": _unique_items, "enum": _enum}
    applied = {**dialect.VALIDATORS, **{keyword: fast[keyword] for keyword in fast.keys() & dialect.VALIDATORS.keys()}}
    counted = {keyword: partial(_counted, function) for keyword, function in applied.items()}
    return extend(dialect, {**counted, **dict.fromkeys(left_out, _accept)})


def _counted(function: Callable[..., Any], validator: Any, wanted: object, instance: object, schema: object) -> Any:
    """Count, and apply the keyword: the function of a keyword, as `jsonschema` calls it."""
    check = _running.get()
    check.spend(1)
    for error in function(validator, wanted, instance, schema) or ():
        check.spend(len(error.message) // _CHARACTERS_OF_WORK)
        yield error


def _unique_items(validator: Any, wanted: object, instance: object, schema: object) -> Iterator[Exception]:
    """Yield an error if items are wanted to be unique and two of them are equal."""
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(instance, list) and len({_identity(item) for item in instance}) < len(instance):
        yield ValidationError("The array has equal items.")


def _enum(validator: Any, values: list[Any], instance: object, schema: object) -> Iterator[Exception]:
    """Yield an error if the value is none of these."""
    from jsonschema.exceptions import ValidationError

    if _identity(instance) not in _running.get().identities(values):
        yield ValidationError("The value is none of those that are permitted.")


def _identity(value: Any) -> Hashable:
    """What two JSON values share if, and only if, they are equal: 1 is 1.0, but not true. `Pure.`"""
    if isinstance(value, dict):
        return dict, frozenset((name, _identity(part)) for name, part in value.items())
    if isinstance(value, list):
        return list, tuple(map(_identity, value))
    return isinstance(value, bool), value


def _parts_of(value: object) -> int:
    """How many values a JSON value is made of. `Pure.`"""
    count, rest = 0, [value]
    while rest:
        count += 1
        part = rest.pop()
        if isinstance(part, dict):
            rest += part.values()
        elif isinstance(part, list):
            rest += part
    return count


# --- keywords that nobody vouches for

_APPLY_A_PATTERN = ("pattern", "patternProperties")
_LOOK_AT_OTHER_PATTERNS = ("additionalProperties", "unevaluatedProperties")
"""Keywords about the properties that no pattern beside them matches."""

_FOLLOW_REFERENCES = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords that follow references by themselves, uncounted."""


def _unchecked(schema: str) -> tuple[str, ...]:
    """The keywords that are not applied, so that no regular expression of this schema, JSON text, is.

    Python's regular expressions can take time that grows exponentially with the text, and nothing can interrupt them.
    So can a look for unevaluated parts that follows references.
    """
    has_patterns, has_references = '"patternProperties"' in schema, 'Ref"' in schema or '"$ref"' in schema
    return (*_APPLY_A_PATTERN, *_LOOK_AT_OTHER_PATTERNS * has_patterns, *_FOLLOW_REFERENCES * has_references)


def _accept(validator: Any, wanted: object, instance: object, schema: object) -> tuple[()]:
    """Yield no error: the function of a keyword that is not applied."""
    return ()
