"""Checks a JSON schema when a tool is made of it, and checks the arguments of calls against it in bounded work.

The dialect is the one that the schema names at its top; without it, 2020-12. A schema may refer to parts of itself.
Nothing is ever fetched: a schema that refers to another document is refused. The validator is `jsonschema`, which is
loaded with the first tool that has a schema.

A schema of a few lines can make that library work for hours: parts that refer to each other double with each level, a
list of ten thousand values is compared with each of ten thousand names, and the sentence about each fault repeats all
of them. Nothing could interrupt it, and both the schema and the arguments may come from outside. So each keyword that
is applied is counted, a value is looked up in a list instead of being compared with all of it, and a check that takes
more than it may is given up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import ContextVar
from copy import deepcopy
from functools import cache, partial
from typing import Any, Protocol

from ....states.errors import ConfigurationError
from ....states.values.value import MAX_QUOTED, shortened
from .normalization import Schema

MAX_WORK = 10_000
"""How many keywords are applied at most, for an empty value: a third of a second."""

MAX_WORK_FOR_PART = 20
"""How many more are applied for each part of the value. Chosen to be more than the alternatives of honest schemas."""

_CHARACTERS_OF_WORK = 100
"""How many characters of a sentence about a fault cost as much as a keyword."""

_DEFAULT = "https://json-schema.org/draft/2020-12/schema"
_ROOT = "urn:turnwise:schema"
"""The address of a schema that names none."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaError(Protocol):
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

    context: list[SchemaError] | None
    """What does not fit the alternatives, if there are any."""


class Validator(Protocol):
    """What checks a value against a schema."""

    def iter_errors(self, instance: Any) -> Iterable[SchemaError]:
        """Yield what does not fit, in the order of the schema."""
        ...


class TooMuchWork(Exception):
    """A check would apply more keywords than it may."""


def validator_of(schema: Schema, name: str, *, checks_patterns: bool = True) -> Validator:
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
    except TooMuchWork as error:
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
    except TooMuchWork as error:
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
        """Count work. Raises `TooMuchWork` if none is left."""
        self._left -= work
        if self._left < 0:
            raise TooMuchWork

    def identities(self, values: list[Any]) -> frozenset[Hashable]:
        """The identities of a list that stands in the schema. They are kept, like the schema."""
        if id(values) not in self._lists:
            self._lists[id(values)] = frozenset(map(_identity, values))
        return self._lists[id(values)]


_running: ContextVar[_Check] = ContextVar("turnwise-schema-check")


class _BoundedValidator:
    """The same validator, which raises `TooMuchWork` while the errors are read. Its class must be one of `_bounded`."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator
        self._lists: dict[int, frozenset[Hashable]] = {}

    def iter_errors(self, instance: Any) -> Iterator[Any]:
        """Yield what does not fit, in the order of the schema."""
        work = MAX_WORK + MAX_WORK_FOR_PART * _parts_of(instance)
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
    from jsonschema.exceptions import ValidationError  # type: ignore[import-untyped]

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
