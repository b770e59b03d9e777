"""Values that fit a JSON schema, for the arguments of calls of real tools.

It covers what tools use: types, bounds, enumerations, alternatives, references within the schema. What it does not know
is left to the check of the tool, which filters the values.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

Schema = Mapping[str, Any]

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_NUMBERS = st.floats(-1e6, 1e6, allow_nan=False) | st.integers(-1_000, 1_000)
_ANYTHING: SearchStrategy[Any] = st.none() | st.booleans() | st.integers(-1_000, 1_000) | _TEXTS

_FORMATS: dict[str, SearchStrategy[str]] = {
    "date": st.dates().map(str),
    "date-time": st.datetimes(timezones=st.just(datetime.UTC)).map(lambda moment: moment.isoformat()),
    "time": st.times().map(str),
    "duration": st.integers(0, 10_000).map(lambda seconds: f"PT{seconds}S"),
    "uuid": st.uuids().map(str),
    "email": st.emails(),
    "ipv4": st.ip_addresses(v=4).map(str),
    "ipv6": st.ip_addresses(v=6).map(str),
    "uri": st.just("https://example.com/"),
}
"""Texts of the formats that pydantic writes into schemas."""


def values_of(schema: Schema | bool, root: Schema | None = None) -> SearchStrategy[Any]:
    """Values that fit this schema, a part of `root`."""
    root = schema if root is None and isinstance(schema, Mapping) else root or {}
    if isinstance(schema, bool) or not schema:
        return _ANYTHING
    if "$ref" in schema:
        return st.deferred(lambda: values_of(_part(root, schema["$ref"]), root))
    if "const" in schema or "enum" in schema:
        return st.sampled_from([schema["const"]] if "const" in schema else schema["enum"])
    composed = next((keyword for keyword in ("anyOf", "oneOf", "allOf") if keyword in schema), None)
    return _of_type(schema, root) if composed is None else _composed(composed, schema, root)


def _composed(keyword: str, schema: Schema, root: Schema) -> SearchStrategy[Any]:
    """Values of one of the alternatives, or of all parts together."""
    rest = {key: value for key, value in schema.items() if key != keyword}
    if keyword == "allOf":
        return values_of({**rest, **{key: value for part in schema[keyword] for key, value in part.items()}}, root)
    return st.one_of([values_of({**rest, **choice}, root) for choice in schema[keyword]])


def _of_type(schema: Schema, root: Schema) -> SearchStrategy[Any]:
    types = schema.get("type", "object" if "properties" in schema else None)
    kinds = types if isinstance(types, list) else [types]
    return st.one_of([_KINDS[kind](schema, root) if kind in _KINDS else _ANYTHING for kind in kinds])


def _part(root: Schema, reference: str) -> Any:
    """The part of the schema to which a pointer refers; anything for a reference of another kind."""
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        found = found.get(key, True) if isinstance(found, Mapping) else True
    return found if reference.startswith("#/") else True


def _texts(schema: Schema, root: Schema) -> SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"]).map(str).filter(str.isprintable)
    if schema.get("format") in _FORMATS:
        return _FORMATS[schema["format"]]
    least = schema.get("minLength", 0)
    most = min(schema.get("maxLength", least + 20), least + 20)
    return st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=most)


def _integers(schema: Schema, root: Schema) -> SearchStrategy[int]:
    step = schema.get("multipleOf", 1)
    least, most = _bounds(schema)
    numbers = st.integers(None if least is None else -int(-least // step), None if most is None else int(most // step))
    return numbers.map(lambda number: int(number * step))


def _numbers(schema: Schema, root: Schema) -> SearchStrategy[float]:
    least, most = _bounds(schema)
    if "multipleOf" in schema or (least is None and most is None):
        return _integers(schema, root) if "multipleOf" in schema else _NUMBERS
    return st.floats(least, most, allow_nan=False, allow_infinity=False)


def _bounds(schema: Schema) -> tuple[float | None, float | None]:
    least = [schema[key] for key in ("minimum", "exclusiveMinimum") if _is_number(schema.get(key))]
    most = [schema[key] for key in ("maximum", "exclusiveMaximum") if _is_number(schema.get(key))]
    return max(least, default=None), min(most, default=None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _arrays(schema: Schema, root: Schema) -> SearchStrategy[list[Any]]:
    first = [values_of(part, root) for part in schema.get("prefixItems", ())]
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", least + 3), least + 3)
    unique: Callable[[Any], str] | None = repr if schema.get("uniqueItems") else None
    items = schema.get("items", True)
    rest = st.lists(
        values_of(items, root) if items is not False else st.nothing(),
        min_size=max(least - len(first), 0),
        max_size=0 if items is False else max(most - len(first), 0),
        unique_by=unique,
    )
    return st.tuples(st.tuples(*first), rest).map(lambda parts: [*parts[0], *parts[1]])


def _objects(schema: Schema, root: Schema) -> SearchStrategy[dict[str, Any]]:
    properties = {name: values_of(part, root) for name, part in schema.get("properties", {}).items()}
    needed = [name for name in schema.get("required", ()) if name not in properties]
    required = {name: values for name, values in properties.items() if name in schema.get("required", ())}
    optional = {name: values for name, values in properties.items() if name not in required}
    return st.fixed_dictionaries({**required, **dict.fromkeys(needed, _ANYTHING)}, optional=optional)


_KINDS: dict[Any, Callable[[Schema, Schema], SearchStrategy[Any]]] = {
    "string": _texts,
    "integer": _integers,
    "number": _numbers,
    "boolean": lambda schema, root: st.booleans(),
    "null": lambda schema, root: st.none(),
    "array": _arrays,
    "object": _objects,
}
