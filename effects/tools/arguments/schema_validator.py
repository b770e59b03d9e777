"""Checks a JSON schema when a tool is made of it, and makes the validator of its arguments.

The dialect is the one that `$schema` names; without it, 2020-12. A schema may refer to parts of itself. Nothing is ever
fetched: a schema that refers to another document is refused. The validator is `jsonschema`, which is loaded with the
first tool that has a schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from ....states.errors import ConfigurationError
from ....states.values.value import MAX_QUOTED, shortened
from .arguments import Schema
from .patterns import without_patterns
from .references import BoundedValidator, TooManyReferences, with_bounded_references
from .unique_items import with_fast_unique_items

_DEFAULT = "https://json-schema.org/draft/2020-12/schema"
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


def validator_of(schema: Schema, name: str, *, checks_patterns: bool = True) -> Validator:
    """The validator for the arguments of the tool `name`; it applies no regular expression of the schema unless it
    `checks_patterns`. Raises ConfigurationError for a schema that is invalid, that does not describe an object, or that
    refers to something outside of it."""
    from referencing import Registry  # like jsonschema, which needs it: only for tools with a schema

    dialect = _dialect_of(schema, name)
    _check_valid(dialect, schema, name)
    if schema.get("type") != "object":
        raise ConfigurationError(f'The schema of {name} must describe an object: its "type" must be "object".')
    _check_references(dialect, schema, name)
    nothing_else: Registry[Any] = Registry()  # the registry that is used without it downloads what a schema refers to
    checking = with_bounded_references(with_fast_unique_items(dialect))
    if not checks_patterns:
        checking = without_patterns(checking, json.dumps(schema))
    validator = BoundedValidator(checking(schema, registry=nothing_else))
    try:
        list(validator.iter_errors({}))
    except (RecursionError, TooManyReferences) as error:
        raise ConfigurationError(f"The schema of {name} refers to itself without an end.") from error
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
    from jsonschema.exceptions import SchemaError as InvalidSchema  # type: ignore[import-untyped]

    try:
        dialect.check_schema(schema)
    except InvalidSchema as error:
        place = ".".join(str(part) for part in error.absolute_path)
        at = f" at {shortened(place, MAX_QUOTED)}" if place else ""
        reason = shortened(error.message, MAX_QUOTED)
        raise ConfigurationError(f"The schema of {name} is not valid{at}: {reason}.") from error
    except RecursionError as error:
        raise ConfigurationError(f"The schema of {name} is nested too deeply.") from error


def _check_references(dialect: Any, schema: Schema, name: str) -> None:
    """Look every reference up, also those in the parts that are referred to."""
    from referencing.jsonschema import EMPTY_REGISTRY, specification_with

    specification = specification_with(dialect.META_SCHEMA.get("$id") or dialect.META_SCHEMA["id"])
    root = specification.create_resource(schema)
    left, seen = [(root, EMPTY_REGISTRY.resolver_with_root(root))], set[int]()
    while left:
        resource, resolver = left.pop()
        contents = resource.contents
        if id(contents) in seen or not isinstance(contents, dict):
            continue
        seen.add(id(contents))
        left += [(part, resolver.in_subresource(part)) for part in resource.subresources()]
        for reference in (contents[keyword] for keyword in _REFERENCES if keyword in contents):
            try:
                found = resolver.lookup(reference)
            except Exception as error:
                raise ConfigurationError(
                    f"The schema of {name} refers to {shortened(str(reference), MAX_QUOTED)}, which is not in it."
                ) from error
            left.append((specification.create_resource(found.contents), found.resolver))
