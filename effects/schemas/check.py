"""Checks values against a JSON schema that may come from anywhere.

The library `jsonschema-rs` checks: it knows all dialects from draft 4 on, it never fetches what a schema refers to, and
a regular expression of it ends after a bounded number of steps. It is loaded with the first schema that is checked.

Two things are beyond it. A check cannot be interrupted, and a schema of a few lines can make one that takes days:
parts that refer to each other double with each level, and a list of ten thousand objects is compared with each of ten
thousand values. And it makes all errors at once, each with a copy of what it is about, so that a long value can fill
the memory. So the work is counted before it is done: each look of a part of the schema at a part of the value. What is
too much is not checked, and is told as a fault.

A fault is said in a sentence that is stored, logged and shown. So it names the fields and what the schema wants, and
never repeats a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...states.errors import ConfigurationError
from ...states.values.value import MAX_QUOTED, encodable, shortened
from ..logs import performer_logger
from .subschemas import BY_NAME, IN_LIST, ONE, REFERENCES, References, Schema, described_in, mapped

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

_LOGGER = performer_logger("turnwise.tools")

MAX_FIELD = 60
"""The most characters of a field's name. A model may make up names of any length."""

UNCHECKED = "the arguments could not be checked"

_MAX_FAULTS = 5
"""How many faults a sentence tells. Chosen so that a model reads all of them."""

_MAX_ERRORS = 50
"""How many errors are looked at: each of ten thousand names may have the same fault."""

_MAX_BACKTRACKS = 10_000
"""How many steps back a regular expression with a lookaround or a backreference may take: a third of a millisecond."""

_MAX_PATTERN = 1 << 20
"""The most bytes of a regular expression, compiled."""

_OF_ADDRESSES = "#/%:?&=@!$'()*+,;~"
"""Characters that addresses have besides letters, digits and `_.-`."""

_DIALECT = re.compile(r"https?://json-schema\.org/(?:draft-0[467]|draft/20(?:19-09|20-12))/schema#?")


def has_known_dialect(schema: Schema) -> bool:
    """Whether the schema names a dialect that can be checked, or none, which is 2020-12. `Pure.`"""
    return "$schema" not in schema or _DIALECT.fullmatch(str(schema["$schema"])) is not None


@cache
def is_pattern(text: object) -> bool:
    """Whether a check can apply this regular expression. `Pure.`"""
    return isinstance(text, str) and not isinstance(_compiled({"pattern": text}), Exception)


def _compiled(schema: Schema) -> Validator | Exception:
    from jsonschema_rs import FancyRegexOptions, validator_for  # only for what has a schema: it takes milliseconds

    limits = FancyRegexOptions(_MAX_BACKTRACKS, size_limit=_MAX_PATTERN, dfa_size_limit=_MAX_PATTERN)
    try:
        schema = mapped(schema, _with_escaped_reference)
        return validator_for(schema, retriever=_refuse, validate_formats=False, pattern_options=limits)
    except Exception as error:
        return error


def _refuse(address: str) -> Any:
    """Fetch nothing that a schema refers to."""
    raise LookupError(address)


def _with_escaped_reference(schema: Schema) -> Schema:
    """References as the library wants them: that to `Page[int]` of pydantic is none before."""
    escaped = {keyword: quote(schema[keyword], safe=_OF_ADDRESSES) for keyword in _references_in(schema)}
    return {**schema, **escaped} if any(schema[keyword] != escaped[keyword] for keyword in escaped) else schema


class SchemaCheck:
    """Checks the arguments of `name` against a schema of objects, which must not be changed afterwards.

    Raises ConfigurationError for a schema that is invalid, of an unknown dialect, or too much work to check, for one
    that does not describe an object, and for one that refers to something outside of it.
    """

    def __init__(self, schema: Schema, name: str) -> None:
        if not has_known_dialect(schema):
            named = shortened(str(schema["$schema"]), MAX_QUOTED)
            raise ConfigurationError(f"The schema of {name} is of an unknown dialect: {named}.")
        self._work = _Work(schema, name)
        self._validator = _validator(schema, name)
        if schema.get("type") != "object":
            raise ConfigurationError(f'The schema of {name} must describe an object: its "type" must be "object".')
        if self._work.of({}) is None:
            raise ConfigurationError(f"The schema of {name} takes too long to check.")

    def fault_of(self, data: dict[str, Any]) -> str | None:
        """What is wrong with these arguments, of bounded length; None if they fit. Never raises. `Pure.`"""
        try:
            work = self._work.of(data)
            if work is None:
                return UNCHECKED
            if self._validator.is_valid(data):
                return None
            faults = list(islice(_faults(self._errors(data, work), data), _MAX_FAULTS))
        except Exception as error:
            _LOGGER.warning("The arguments of a tool could not be checked against its schema", exc_info=error)
            return UNCHECKED
        return encodable("; ".join(faults))

    def _errors(self, data: dict[str, Any], work: int) -> Iterable[ValidationError]:
        """The errors; only the first where all of them are too many, and none where even that holds too many others."""
        if work <= min(_MAX_ERROR_WORK, _MAX_LISTED // (1 + self._work.longest_list)):
            return self._validator.iter_errors(data)
        return () if self._work.has_alternatives else _first_error(self._validator, data)


def _validator(schema: Schema, name: str) -> Validator:
    from jsonschema_rs import ValidationError

    made = _compiled(schema)
    if not isinstance(made, Exception):
        return made
    if not isinstance(made, ValidationError):
        raise ConfigurationError(f"The schema of {name} is nested too deeply.") from made
    place = ".".join(map(str, made.instance_path))
    at = f" at {shortened(place, MAX_QUOTED)}" if place else ""
    told = shortened(made.message, MAX_QUOTED).removesuffix(".")
    raise ConfigurationError(f"The schema of {name} is not valid{at}: {told}.") from made


def _first_error(validator: Validator, data: object) -> Iterator[ValidationError]:
    from jsonschema_rs import ValidationError

    try:
        validator.validate(data)
    except ValidationError as error:
        yield error


# --- what a fault is called

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

_MEANT = {
    "uniqueItems": "Input should not have the same item twice",
    "oneOf": "Input should fit exactly one of the alternatives",
    "anyOf": "Input should fit one of the alternatives",
    "not": "Input is not allowed",
    "contains": "Input should contain an item of another kind",
    "falseSchema": "Input is not permitted",
}
"""What the keywords mean whose values are schemas."""

_MISSING = "Field required"
_EXTRA = "Extra inputs are not permitted"


def _faults(errors: Iterable[ValidationError], data: object) -> Iterator[str]:
    """Yield each fault once, in the order of the schema, or one that says nothing more than that there are some."""
    told: set[str] = set()
    for error in islice(errors, _MAX_ERRORS):
        for fault in _describe(error, data):
            if fault not in told:
                told.add(fault)
                yield fault
    if not told:
        yield "Input does not satisfy the schema"


def _describe(error: ValidationError, data: object) -> Iterator[str]:
    if fitting := _fitting_alternative(error):
        for inner in fitting:
            yield from _describe(inner, data)
        return
    path = [shortened(str(part), MAX_FIELD) for part in error.instance_path]
    for field, sentence in _messages(error, data):
        place = ".".join([*path, shortened(field, MAX_FIELD)] if field else path)
        yield f"{place}: {sentence}" if place else sentence


def _fitting_alternative(error: ValidationError) -> list[ValidationError]:
    """The errors of the one alternative whose kind the value is of; none if there is no such alternative, or several.

    A value is of another kind if its type is another one, or a constant that it wants at the value or at one of its
    members.
    """
    alternatives: list[list[ValidationError]] = getattr(error.kind, "context", [])
    depth = len(error.instance_path)
    fitting = [
        errors
        for errors in alternatives
        if not any(
            (one.kind.name in ("type", "enum") and len(one.instance_path) == depth)
            or (one.kind.name == "const" and len(one.instance_path) <= depth + 1)
            for one in errors
        )
    ]
    return fitting[0] if len(fitting) == 1 else []


def _messages(error: ValidationError, data: object) -> Iterator[tuple[str, str]]:
    """The messages, each with the field of the value that it is about, or none."""
    from jsonschema_rs import ValidationErrorKind

    kind: Any = error.kind
    keyword: str = kind.name
    if keyword == "required":
        yield kind.property, _MISSING
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        yield from ((name, _EXTRA) for name in kind.unexpected)
    elif keyword == "falseSchema" and error.schema_path[-1:] == ["additionalProperties"]:  # beside no `properties`
        yield from ((name, _EXTRA) for name in _value_at(data, error.instance_path))
    elif keyword == "propertyNames":
        yield from _messages(kind.error, data)
    elif isinstance(kind, ValidationErrorKind.BacktrackLimitExceeded):
        yield "", "Input takes too long to match with the pattern"
    elif keyword in _WANTED:
        wanted = sorted(kind.value) if keyword == "type" else kind.value
        yield "", _WANTED[keyword].format(_written(wanted))
    else:
        yield "", _MEANT.get(keyword, f"Input does not satisfy the schema ({keyword})")


def _value_at(data: Any, path: Iterable[str | int]) -> Any:
    for part in path:
        data = data[part]
    return data


def _written(wanted: Any) -> str:
    values = wanted[:MAX_QUOTED] if isinstance(wanted, list) else [wanted]  # each has at least one character
    return shortened(", ".join(json.dumps(value, ensure_ascii=False) for value in values), MAX_QUOTED)


# --- how much work a check is

_MAX_WORK, _MAX_WORK_FOR_PART = 2_000_000, 10
"""How much work a check may be, for an empty value and for each part of a value: about a second for most values. One
look at one number takes a tenth of a microsecond, and one step of a pattern ten times as long."""

_MAX_ERROR_WORK = 20_000
"""How much work a check may be whose errors are all made: each takes 50 microseconds."""

_MAX_LISTED = 2_000_000
"""How many permitted values may be copied for the errors of a check: each that misses a list holds all of it."""

_MAX_PAIRS, _MAX_PAIRS_FOR_PART = 100_000, 5
"""How many pairs of a part of the schema and a part of the value are counted: it takes a fifth of a second for most
values."""

_MAX_DEPTH = 300
"""How deeply parts of the schema are applied within each other. Chosen so that Python's own limit is not reached."""

_CHARACTERS = 32
"""How many characters of a text are as much work as a number."""

_BACKTRACKING = 300
"""How much work a regular expression is that can take steps back."""

_CAN_BACKTRACK = re.compile(r"\(\?<?[=!]|\\[1-9k]")

_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords that look at all parts beside them a second and a third time."""

_OF_MEMBERS = frozenset(("properties", "items", "prefixItems", "additionalItems", "additionalProperties"))
"""Keywords that `described_in` follows."""

_OF_EACH_MEMBER = frozenset(("patternProperties", "propertyNames", "contains", *_UNEVALUATED))
"""Keywords that are applied to any part of the value."""

_DEFINING = frozenset(("$defs", "definitions"))


class _Work:
    """How much work it is at most to check a value against the schema of the tool `name`.

    Raises ConfigurationError for a schema that refers to something that is not in it.
    """

    def __init__(self, schema: Schema, name: str) -> None:
        self._schema = schema
        targets: dict[str, list[Any]] = {}
        parts = list(_applied_parts(schema, name, targets))
        self.longest_list = max((len(one["enum"]) for one in parts if isinstance(one.get("enum"), list)), default=0)
        self.has_alternatives = any("anyOf" in one or "oneOf" in one for one in parts)
        self._parts = {id(one): _part_of(one, targets) for one in parts}
        # Without these keywords, each part of the schema looks at each part of a value once, at most.
        self._can_multiply = bool(targets) or any(one.times > 1 for one in self._parts.values())
        self._weight = sum(one.weight for one in self._parts.values())

    def of(self, value: dict[str, Any]) -> int | None:
        """The work, as a count of looks at a part of the value; None if it is too much."""
        sizes: dict[int, int] = {}
        try:
            size = _measure(value, sizes)
            if not self._can_multiply and (most := self._weight * size) <= _MAX_ERROR_WORK:
                return most
            pairs = _MAX_PAIRS + _MAX_PAIRS_FOR_PART * size
            work = _Count(self._parts, sizes, pairs).looks(self._schema, value)
        except (_TooMuchWork, RecursionError):
            return None
        return work if work <= _MAX_WORK + _MAX_WORK_FOR_PART * size else None


@dataclass(frozen=True)
class _Part:
    """What a check does with one part of a schema: how much work a look is, which other parts look at the same value,
    which at any of its members, and how often all of that is done."""

    weight: int
    in_place: tuple[Any, ...]
    of_each: tuple[Any, ...]
    times: int


class _TooMuchWork(Exception):
    """There are too many pairs to count them."""


class _Count:
    """Counts the looks of one check. What two parts say of each other is counted once, however many ways lead there."""

    def __init__(self, parts: Mapping[int, _Part], sizes: Mapping[int, int], pairs: int) -> None:
        self._parts = parts
        self._sizes = sizes
        self._pairs = pairs
        self._known: dict[tuple[int, int], int] = {}

    def looks(self, schema: Any, value: Any, depth: int = 0) -> int:
        """How many looks at the value and its parts this schema and its parts take."""
        part = self._parts.get(id(schema))
        if part is None:  # true, false, or nothing
            return 1
        count = self._sizes.get(id(value), 1) * part.weight
        is_container = isinstance(value, dict | list)
        if not part.in_place and not is_container:
            return count
        pair = id(schema), id(value)
        if pair in self._known:
            return self._known[pair]
        if depth == _MAX_DEPTH or len(self._known) == self._pairs:
            raise _TooMuchWork
        self._known[pair] = 1  # a circle ends where it comes back to the same value
        for other in part.in_place:
            count += self.looks(other, value, depth + 1)
        if is_container:
            count += self._looks_at_members(schema, part, value, depth + 1)
        self._known[pair] = count * part.times
        return self._known[pair]

    def _looks_at_members(self, schema: Schema, part: _Part, value: Any, depth: int) -> int:
        count = 0
        for member, described in described_in(value, schema):
            count += self.looks(described, member, depth)
        for other in part.of_each:
            for member in value.values() if isinstance(value, dict) else value:
                count += self.looks(other, member, depth)
        return count


def _applied_parts(schema: Schema, name: str, targets: dict[str, list[Any]]) -> Iterator[Schema]:
    """Yield the schema and each part of it that can be applied. `targets` is given what its references may mean."""
    references = References(schema)
    waiting: list[Any] = [schema]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        for _, parts in _parts_of(one):
            waiting += parts
        for reference in map(one.__getitem__, _references_in(one)):
            if reference not in targets:
                targets[reference] = list(references.meant_by(reference))
                waiting += targets[reference]
            if not targets[reference]:
                told = shortened(reference, MAX_QUOTED)
                raise ConfigurationError(f"The schema of {name} refers to {told}, which is not in it.")


def _part_of(schema: Schema, targets: dict[str, list[Any]]) -> _Part:
    in_place = [target for keyword in _references_in(schema) for target in targets[schema[keyword]]]
    of_each: list[Any] = []
    is_open_to_patterns = "patternProperties" in schema
    for keyword, parts in _parts_of(schema):
        if keyword in _OF_EACH_MEMBER or (is_open_to_patterns and keyword == "additionalProperties"):
            of_each += parts
        elif keyword not in _OF_MEMBERS and keyword not in _DEFINING:
            in_place += parts
    times = 3 if any(keyword in schema for keyword in _UNEVALUATED) else 1
    return _Part(_weight_of(schema), tuple(in_place), tuple(of_each), times)


def _parts_of(schema: Schema) -> Iterator[tuple[str, Iterable[Any]]]:
    for keyword, value in schema.items():
        # In old drafts, what has a name in `dependencies` may be a list of names.
        if keyword in BY_NAME or keyword == "dependencies":
            yield keyword, value.values() if isinstance(value, dict) else ()
        elif keyword in IN_LIST or keyword in ONE:
            yield keyword, value if isinstance(value, list) else [value]


def _weight_of(schema: Schema) -> int:
    """How much work one look of this schema is, without its parts."""
    permitted = schema.get("enum")
    compared = len(permitted) if isinstance(permitted, list) and not all(isinstance(p, str) for p in permitted) else 0
    by_pattern = schema.get("patternProperties")
    patterns = [str(schema.get("pattern", "")), *(by_pattern if isinstance(by_pattern, dict) else ())]
    return 1 + compared + len(patterns) - 1 + _BACKTRACKING * sum(1 for p in patterns if _CAN_BACKTRACK.search(p))


def _measure(value: Any, sizes: dict[int, int]) -> int:
    """How many numbers the value is worth, written down for each of its parts that is worth more than one."""
    if isinstance(value, str):
        size = 1 + len(value) // _CHARACTERS
    elif isinstance(value, dict):
        size = 1 + sum(_measure(one, sizes) + len(name) // _CHARACTERS for name, one in value.items())
    elif isinstance(value, list):
        size = 1 + sum(_measure(one, sizes) for one in value)
    else:
        return 1
    sizes[id(value)] = size
    return size


def _references_in(schema: Schema) -> Iterator[str]:
    return (keyword for keyword in REFERENCES if isinstance(schema.get(keyword), str))
