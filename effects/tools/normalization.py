"""Reads the arguments of a call as a model meant them, where there is only one way to mean them.

Models and servers write JSON that is nearly right: an object that is encoded twice, a list that is written as a text,
a line end within a text, `7.0` for an integer, null for what is not given, nothing at all for no arguments. A person
sees at once what is meant, and asking the model again costs a request. So the text of a call is normalised before
anything else reads it: the result is JSON, it is what is stored, approved and run, and normalising it once more changes
nothing.

Nothing is guessed. A text stays a text wherever the schema admits one, a value that an alternative of the schema
admits stays as it is, and nothing is converted that would lose a digit. What has two readings, such as text behind
the object or two objects, stays an error, which the model can act on. Of a name that is written twice the last value
counts, as for every JSON parser, and only that value is kept, so that everybody reads the same.

What is wrong with arguments is said in a sentence that a model can act on. It is stored, logged and shown, so it
names the fields and never repeats their values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from operator import is_not
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from ...states.errors import faults_of, path_of
from ...states.values.files import FILE_FAULTS
from ...states.values.questions import QUESTION_FAULT
from ...states.values.value import encodable, shortened
from ..schemas.check import MAX_FIELD
from ..schemas.subschemas import described_in, is_one_of, resolve, types_of
from ..text import encodable_json

Schema = dict[str, Any]
"""A JSON schema."""

MAX_ARGUMENTS = 1_000_000
"""The most characters of one call's arguments: as many as a message of the user may have."""

STRICT = "turnwise:strict"
"""The keyword of a schema whose values are never converted: the application has declared a type to be strict."""

_MAX_ENCODINGS = 5
"""How often an object may be encoded as a text: more than any model or server does by mistake."""

_EXACT = 2**53
"""Below this size every integer is a float, so a float of an integer's value is that integer."""

_MAX_DIGITS = 40
"""The most digits of an integer that is written with an exponent, as in 1e22."""

_MAX_WORK, _MAX_WORK_FOR_PART = 10_000, 20
"""How many schemas are looked at for a value, and how many more for each part of it. Chosen like the limits of the
check, since schemas may come from outside: parts that refer to each other double with each level."""

_MAX_DEPTH = 60
"""How deeply arrays and objects lie in each other that are fitted. Chosen so that Python's own limit is not reached."""

_NO_NUMBER = "true and false are no numbers"
_NO_BOOLEAN = "true or false is wanted in place of a number"

_TOO_MUCH = "it is nested too deeply, or holds a number that is too large"

_CONTROL = re.compile(r"[\x00-\x1f]")
_TEXT = re.compile(r'"(?:[^"\\]++|\\.)*+\\?"?', re.DOTALL)
"""A text in JSON, also one without an end. Such a match never goes back, so it takes time that grows as the text."""


class Normalized(NamedTuple):
    """The arguments of a call: the text of a JSON object, and the object."""

    text: str
    data: dict[str, Any]


def storable(text: str) -> str:
    """The text as it can be stored: encodable as UTF-8, and `{}` if it is blank, as some models write no arguments.
    Raises InvalidArguments if it is too long. `Pure.`"""
    if len(text) > MAX_ARGUMENTS:
        raise InvalidArguments(f"Invalid input: the arguments are longer than {MAX_ARGUMENTS:,} characters")
    return encodable_json(text) if text.strip() else "{}"


def normalized(text: str, schema: Schema, unmarked: Schema | None = None) -> Normalized:
    """The arguments as the schema wants them, as far as that is certain. `unmarked` is the schema without marks, if it
    has some. Raises InvalidArguments for a text that holds no JSON object. What does not fit the schema stays as it is;
    to find it is up to the check. `Pure.`"""
    written = read_object(text)
    if _is_plain(written.data, schema):
        return written
    plain = schema if unmarked is None else unmarked
    exact = _exact(written)
    given = _without_nulls(exact, plain)
    fitted = _Fitting(schema, given).fit(given)
    fitted = fitted if fitted is given else _without_nulls(fitted, plain)
    return written if fitted is exact else _rewritten(fitted)


def _without_nulls(value: Any, schema: Schema) -> Any:
    """The value without the members that are null because they are not given."""
    return _Omitting(schema, value).fit(value) if any(part is None for part in _parts(value)) else value


def check_booleans(data: dict[str, Any], schema: Schema) -> None:
    """Raise InvalidArguments for true or false where the schema admits only numbers, and the other way around. Python
    takes them for 1 and 0, so a function would run with what nobody wrote. `Pure.`"""
    if not _is_plain(data, schema):
        _Fitting(schema, data).check(data)


def read_object(text: str) -> Normalized:
    """The JSON object that the text holds; an empty one if it holds nothing, or null. Raises InvalidArguments.
    `Pure.`"""
    text, fault = storable(text), ""
    for _ in range(_MAX_ENCODINGS):
        try:
            text, data = _parse(text)
        except ValueError as error:
            raise InvalidArguments(fault or f"{_NOT_AN_OBJECT}: {_explain(error)}") from None
        if isinstance(data, dict):
            return _with_names_once(text, data)
        if data is None:
            return Normalized("{}", {})
        if not isinstance(data, str):
            break
        text, fault = storable(data), _NOT_AN_OBJECT
    raise InvalidArguments(_NOT_AN_OBJECT)


def _parse(text: str) -> tuple[str, Any]:
    """The text as JSON has it, and its value. Line ends and other control characters within texts are read as they are
    meant, although JSON wants them to be written as escapes. Raises ValueError."""
    try:
        return text, from_json(text, allow_inf_nan=False)
    except ValueError:
        text = text.removeprefix("\ufeff").strip()
        if _CONTROL.search(text):
            text = _TEXT.sub(lambda written: _CONTROL.sub(_escape, written[0]), text)
        return text, from_json(text, allow_inf_nan=False)


def _escape(character: re.Match[str]) -> str:
    return json.dumps(character[0])[1:-1]


def _explain(error: ValueError) -> str:
    """What the parser says, which repeats nothing of the text."""
    return "it is nested too deeply" if "recursion" in str(error) else str(error)


def _rewritten(data: dict[str, Any]) -> Normalized:
    """The object written anew. Raises InvalidArguments if it cannot be read again."""
    try:
        text = json.dumps(data, ensure_ascii=False)
        return Normalized(text, from_json(text, allow_inf_nan=False))
    except (ValueError, RecursionError):  # a number of thousands of digits, or texts that were nested in each other
        raise InvalidArguments(f"{_NOT_AN_OBJECT}: {_TOO_MUCH}") from None


def _parts(value: Any) -> Iterator[Any]:
    """Yield the value and every value in it."""
    rest = [value]
    while rest:
        part = rest.pop()
        yield part
        if isinstance(part, dict):
            rest += part.values()
        elif isinstance(part, list):
            rest += part


def _with_names_once(text: str, data: dict[str, Any]) -> Normalized:
    """The object in the text, written anew if an object in it has two members of one name. Each member has a colon, so
    the text is only read again where it has more of them than members."""
    colons = text.count(":")
    if colons == len(data):
        return Normalized(text, data)
    members = sum(len(part) for part in _parts(data) if isinstance(part, dict))
    is_rewritten = colons > members and _count_members(text) > members
    return _rewritten(data) if is_rewritten else Normalized(text, data)


def _count_members(text: str) -> int:
    written: list[int] = []
    _loads(text, object_pairs_hook=lambda pairs: written.append(len(pairs)))
    return sum(written)


def _loads(text: str, **hooks: Any) -> Any:
    """What the JSON text holds, read once more by Python, which calls these hooks. Raises InvalidArguments for what
    Python does not read."""
    try:
        return json.loads(text, **hooks)
    except (ValueError, RecursionError):
        raise InvalidArguments(f"{_NOT_AN_OBJECT}: {_TOO_MUCH}") from None


# --- numbers


class _Integral(float):
    """A float that is too large to be exact, and that was written as the integer `exact`."""

    exact: int


def _exact(written: Normalized) -> Any:
    """The same object, in which the floats know the integers as which they were written. Raises InvalidArguments for a
    number that no float can hold."""
    if any(type(part) is float and abs(part) >= _EXACT for part in _parts(written.data)):
        return _loads(written.text, parse_float=_read_float)
    return written.data


def _read_float(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise InvalidArguments(f"{_NOT_AN_OBJECT}: it holds a number that is too large")
    if abs(value) < _EXACT:
        return value
    exact = Decimal(literal)
    if exact.adjusted() >= _MAX_DIGITS or exact != exact.to_integral_value():
        return value
    integral = _Integral(value)
    integral.exact = int(exact)
    return integral


def _number_in(text: str) -> Any:
    """The number that a text holds in JSON's notation. Raises ValueError for one that would lose digits."""
    value = from_json(text, allow_inf_nan=False)
    if type(value) is not float:
        return value
    read = _read_float(text)
    exact = Decimal(read.exact) if isinstance(read, _Integral) else Decimal(repr(read))
    if Decimal(text) != exact:
        raise ValueError("The number has more digits than a float.")
    return read


# --- fitting a value to a schema


def _is_plain(data: dict[str, Any], schema: Schema) -> bool:
    """Whether each member is of the one type that its schema names, so that there is nothing to convert, as in most
    calls. False where that takes a closer look: for arrays, objects and floats."""
    known = schema.get("properties")
    if not isinstance(known, dict) or not _COMBINING.isdisjoint(schema):
        return False
    for name, value in data.items():
        described = known.get(name)
        named = described.get("type") if isinstance(described, dict) else None
        if not isinstance(named, str) or type(value) is not _PLAIN.get(named):
            return False
    return True


_PLAIN: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "null": type(None)}
_COMBINING = frozenset(("$ref", "allOf", "anyOf", "oneOf"))

_ALL = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_TYPES = {name: frozenset((name,)) for name in _ALL} | {"number": frozenset(("number", "integer"))}
"""What each type of a schema admits: every integer is a number, too."""
_VALUES: Mapping[type, frozenset[str]] = {
    str: _TYPES["string"],
    bool: _TYPES["boolean"],
    int: _TYPES["integer"],
    float: frozenset(("number",)),
    dict: _TYPES["object"],
    list: _TYPES["array"],
    type(None): _TYPES["null"],
}
"""The types of JSON of which values of Python are."""
_WORDS = {"True": True, "False": False, "None": None}
"""What Python programs write as text for values that JSON has, too."""
_ALTERNATIVES = ("anyOf", "oneOf")


class _TooMuchWork(Exception):
    """The schema has more parts than may be looked at."""


class _Fitting:
    """Fits the parts of one value to the parts of one schema."""

    def __init__(self, root: Schema, value: Any) -> None:
        self._root = root
        self._left = _MAX_WORK + _MAX_WORK_FOR_PART * sum(1 for _ in _parts(value))
        self._depth = 0
        self._types: dict[int, frozenset[str]] = {}

    def fit(self, value: Any) -> Any:
        """The value as the schema wants it; the same object if it is to stay as it is. What one part of the schema has
        changed may concern another part, so this goes on until nothing changes."""
        fitted, before = value, None
        try:
            while fitted is not before:
                fitted, before = self._fit(fitted, self._root), fitted
        except (_TooMuchWork, RecursionError):
            return value
        return fitted

    def check(self, value: Any) -> None:
        """Raise InvalidArguments for a boolean in place of a number, or a number in place of a boolean."""
        with suppress(_TooMuchWork, RecursionError):
            self._check(value, self._root)

    def _check(self, value: Any, schema: Any) -> None:
        if not isinstance(schema, dict) or STRICT in schema or isinstance(value, str | None):
            return
        if isinstance(value, dict | list):
            for part in self._parts_of(schema):
                for inner, described in described_in(value, part):
                    self._check(inner, described)
        elif _is_confused(value, self._types_of(schema)):
            raise InvalidArguments(f"Invalid input: {_NO_NUMBER if isinstance(value, bool) else _NO_BOOLEAN}")

    def _fit(self, value: Any, schema: Any) -> Any:
        if not isinstance(schema, dict) or STRICT in schema:
            return value
        match value:
            case str():
                types = self._types_of(schema)
                return value if "string" in types else self._decoded(value, schema, types)
            case float():
                return _as_integer(value) if self._takes_integers_only(schema) else value
            case dict() | list() if self._depth < _MAX_DEPTH:
                self._depth += 1
                fitted = self._fit_container(value, schema)
                self._depth -= 1
                return fitted
            case _:
                return value

    def _decoded(self, text: str, schema: Schema, types: frozenset[str]) -> Any:
        """What the text stands for, if that is a value of one of these types; else the text."""
        try:
            value = _value_in(text)
        except (ValueError, InvalidOperation, InvalidArguments):
            return text
        value = self._fit(value, schema)
        return value if types.intersection(_types_of_value(value)) else text

    def _takes_integers_only(self, schema: Schema) -> bool:
        types = self._types_of(schema)
        return "integer" in types and "number" not in types

    # --- objects and arrays

    def _fit_container(self, value: Any, schema: Schema) -> Any:
        for part in self._parts_of(schema):
            value = self._fit_object(value, part) if isinstance(value, dict) else self._fit_array(value, part)
            for keyword in _ALTERNATIVES:
                value = self._fit_one_of(value, part.get(keyword))
        return value

    def _fit_object(self, value: dict[str, Any], schema: Schema) -> dict[str, Any]:
        described = described_in(value, schema)
        fitted = {name: self._fit(member, one) for name, (member, one) in zip(value, described, strict=True)}
        return fitted if _differ(value.values(), fitted.values()) else value

    def _fit_array(self, value: list[Any], schema: Schema) -> list[Any]:
        fitted = [self._fit(item, one) for item, one in described_in(value, schema)]
        return fitted if _differ(value, fitted) else value

    def _fit_one_of(self, value: Any, alternatives: Any) -> Any:
        """The value as the one alternative wants it that admits it. It stays as it is if one admits it so, or if
        several want different values."""
        if not isinstance(alternatives, list):
            return value
        kind = _types_of_value(value)
        possible = [schema for schema in alternatives if self._types_of(schema) & kind]
        if len(possible) < 2:
            return self._fit(value, possible[0]) if possible else value
        if any(self._admits(value, schema) for schema in possible):
            return value
        fitted = [(self._fit(value, schema), schema) for schema in possible]
        admitted = [found for found, schema in fitted if self._admits(found, schema)]
        is_certain = bool(admitted) and all(found == admitted[0] for found in admitted)
        return admitted[0] if is_certain else value

    def _parts_of(self, schema: Any, parents: tuple[int, ...] = ()) -> Iterator[Schema]:
        """Yield this schema, those that it refers to and those that must hold besides."""
        self._spend()
        if not isinstance(schema, dict) or STRICT in schema or id(schema) in parents:
            return
        yield schema
        further = [resolve(self._root, schema.get("$ref")), *_listed(schema.get("allOf"))]
        for part in further:
            yield from self._parts_of(part, (*parents, id(schema)))

    # --- what a schema admits

    def _types_of(self, schema: Any) -> frozenset[str]:
        """The types of JSON that the schema admits; all of them where it does not say so, or is strict."""
        if schema is False:
            return frozenset()
        if not isinstance(schema, dict) or STRICT in schema:
            return _ALL
        known = self._types.get(id(schema))
        if known is None:
            self._types[id(schema)] = _ALL  # a schema that refers to itself says nothing more by that
            known = self._types[id(schema)] = self._find_types(schema)
        return known

    def _find_types(self, schema: Schema) -> frozenset[str]:
        self._spend()
        found = _own_types(schema)
        if "$ref" in schema:
            found &= self._types_of(resolve(self._root, schema.get("$ref")))
        for part in _listed(schema.get("allOf")):
            found &= self._types_of(part)
        for keyword in _ALTERNATIVES:
            if alternatives := _listed(schema.get(keyword)):
                found &= frozenset().union(*map(self._types_of, alternatives))
        return found

    def _admits(self, value: Any, schema: Any) -> bool:
        """Whether the value fits what the schema says of types, names and constants. The rest is up to the check."""
        if isinstance(schema, bool):
            return schema
        parts = list(self._parts_of(schema))
        return all(self._admits_in(value, part) for part in parts)

    def _admits_in(self, value: Any, schema: Schema) -> bool:
        if not _own_types(schema) & _types_of_value(value):
            return False
        if not all(is_one_of(value, constants) for constants in _constants(schema)):
            return False
        for keyword in _ALTERNATIVES:
            if (choices := _listed(schema.get(keyword))) and not any(self._admits(value, one) for one in choices):
                return False
        if isinstance(value, dict):
            return self._admits_members(value, schema)
        return not isinstance(value, list) or all(self._admits(item, one) for item, one in described_in(value, schema))

    def _admits_members(self, value: dict[str, Any], schema: Schema) -> bool:
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        others = True if "patternProperties" in schema else others
        if any(name not in value for name in _listed(schema.get("required"))):
            return False
        return all(self._admits(member, known.get(name, others)) for name, member in value.items())

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _TooMuchWork


class _Omitting(_Fitting):
    """Leaves out members that are null where the schema admits no null and does not require them. A strict schema has
    all members, so that is how a model says that it gives none. Nothing else changes."""

    def _fit(self, value: Any, schema: Any) -> Any:
        return super()._fit(value, schema) if isinstance(value, dict | list) else value

    def _fit_container(self, value: Any, schema: Schema) -> Any:
        if isinstance(value, dict) and any(member is None for member in value.values()):
            parts = [*self._parts_of(schema)]
            omitted = {name for name, member in value.items() if member is None and self._may_omit(name, parts)}
            value = {name: member for name, member in value.items() if name not in omitted} if omitted else value
        return super()._fit_container(value, schema)

    def _may_omit(self, name: str, parts: Iterable[Schema]) -> bool:
        """Whether null is no value of this member of an object that these schemas describe, and none requires it."""
        if any(name in _listed(part.get("required")) for part in parts):
            return False
        described = [
            known[name] for part in parts if isinstance(known := part.get("properties"), dict) and name in known
        ]
        return any("null" not in self._types_of(one) for one in described)


def _is_confused(value: Any, types: frozenset[str]) -> bool:
    """Whether a boolean stands where only a number fits, or a number where only a boolean does."""
    takes_numbers, takes_booleans = not types.isdisjoint(_TYPES["number"]), "boolean" in types
    return takes_numbers and not takes_booleans if isinstance(value, bool) else takes_booleans and not takes_numbers


def _differ(before: Iterable[Any], after: Iterable[Any]) -> bool:
    """Whether a part was changed. What stays as it is is the same object, so that it can be told by its identity."""
    return any(map(is_not, before, after))


def _as_integer(value: float) -> Any:
    if isinstance(value, _Integral):
        return value.exact
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def _value_in(text: str) -> Any:
    """The value that a text stands for where a schema admits no text. Raises ValueError."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if text[:1] in "-0123456789":
        return _number_in(text)
    read, data = _parse(encodable_json(text))
    return _exact(Normalized(read, data))


def _types_of_value(value: Any) -> frozenset[str]:
    """The types of JSON that this value is of. A float of an integer's value is an integer, too."""
    if isinstance(value, float) and value.is_integer():
        return _TYPES["number"]
    return _VALUES.get(type(value), _ALL)


def _own_types(schema: Schema) -> frozenset[str]:
    """The types that a schema names itself, or that its constants have."""
    found = frozenset[str]().union(*(_TYPES.get(name, _ALL) for name in types_of(schema))) or _ALL
    for constants in _constants(schema):
        found &= frozenset[str]().union(*map(_types_of_value, constants))
    return found


def _constants(schema: Schema) -> Iterator[list[Any]]:
    """Yield each list of values of which one is wanted."""
    if isinstance(schema.get("enum"), list):
        yield schema["enum"]
    if "const" in schema:
        yield [schema["const"]]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_NOT_AN_OBJECT = "Invalid input: the arguments are not a JSON object"

_ACT_FAULTS = {QUESTION_FAULT, "text_blank", "string_unicode", "summary_blank", "message_empty", *FILE_FAULTS}
"""The types of the errors of questions, acts and files."""


class InvalidArguments(Exception):
    """The arguments of a call do not fit its tool. `sentence` tells the model why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence

    @property
    def reason(self) -> str:
        """What is wrong, without the words with which most sentences begin."""
        return self.sentence.removeprefix("Invalid input: ")


class NothingToSay(Exception):
    """A call of a speaking tool holds no words, and the policy wants it acknowledged all the same."""


def describe_fault(error: ValidationError, data: object = None) -> str:
    """Everything that is wrong, in one sentence of bounded length; of very many faults their number.

    `data` is the JSON that was validated; without it no field is named. The sentences of the rules for questions stand
    alone; any other sentence begins with "Invalid input: ". `Pure.`
    """
    sentences = "; ".join(_describe_error(details, data) for details in faults_of(error))
    return shortened(encodable(sentences if _is_about_questions(error) else f"Invalid input: {sentences}"))


def _is_about_questions(error: ValidationError) -> bool:
    """Whether all that is wrong is told by the rules for questions. `Pure.`"""
    return all(details["type"] == QUESTION_FAULT for details in faults_of(error))


def is_about_acts(error: ValidationError) -> bool:
    """Whether all that is wrong is told by the rules for what a tool returns besides text: questions, speech, files.
    These sentences hold nothing that is secret. `Pure.`"""
    return all(details["type"] in _ACT_FAULTS for details in faults_of(error))


def _describe_error(error: ErrorDetails, data: object) -> str:
    if error["type"] == QUESTION_FAULT:
        return error["msg"]
    path = ".".join(shortened(str(part), MAX_FIELD) for part in path_of(error, data))
    return f"{path}: {_message(error)}" if path else _message(error)


def _message(error: ErrorDetails) -> str:
    context: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "value_error" | "assertion_error":  # raised by a validator of the application; its class says nothing
            return _first_line(str(context["error"])) or "Input is not valid"
        case "union_tag_invalid":  # pydantic's own sentences for these two repeat the input
            return f"Input should be tagged as one of {context['expected_tags']}"
        case "uuid_parsing":
            return "Input should be a valid UUID"
        case _:
            return error["msg"]


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
