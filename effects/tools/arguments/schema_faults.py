"""Describes which arguments of a call do not fit a JSON schema, in a sentence that a model can act on.

The sentence is stored, logged and shown. So it names the fields and what the schema wants, and never repeats a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ....states.values.value import MAX_QUOTED, encodable, shortened
from .argument_errors import MAX_FIELD
from .schema_validator import SchemaError, Validator

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


def describe_schema_faults(validator: Validator, data: dict[str, Any]) -> str | None:
    """What is wrong with these arguments, in one sentence of bounded length; None if they fit. `Pure.`"""
    faults = list(islice(_faults(validator, data), _MAX_FAULTS))
    return shortened(encodable(f"Invalid input: {'; '.join(faults)}")) if faults else None


def _faults(validator: Validator, data: dict[str, Any]) -> Iterator[str]:
    """Yield each fault once, in the order of the schema."""
    told: set[str] = set()
    for error in islice(validator.iter_errors(data), _MAX_ERRORS):
        for fault in _describe(_deepest(error)):
            if fault not in told:
                told.add(fault)
                yield fault


def _deepest(error: SchemaError) -> SchemaError:
    """The error that says most: of several alternatives the fault in the one that fits best."""
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    deepest: SchemaError = best_match([error])
    return deepest


def _describe(error: SchemaError) -> Iterator[str]:
    path = [shortened(str(part), MAX_FIELD) for part in error.absolute_path]
    for field, sentence in _messages(error):
        place = ".".join([*path, shortened(field, MAX_FIELD)] if field else path)
        yield f"{place}: {sentence}" if place else sentence


def _messages(error: SchemaError) -> Iterator[tuple[str, str]]:
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


def _extra(error: SchemaError) -> list[str]:
    """The fields that the schema knows neither by name nor by a pattern."""
    known, patterns = error.schema.get("properties", {}), error.schema.get("patternProperties", {})
    unknown = [name for name in error.instance if name not in known]
    return [name for name in unknown if not any(re.search(pattern, name) for pattern in patterns)]


def _written(wanted: Any) -> str:
    values = wanted[:MAX_QUOTED] if isinstance(wanted, list) else [wanted]  # each has at least one character
    return shortened(", ".join(json.dumps(value, ensure_ascii=False) for value in values), MAX_QUOTED)
