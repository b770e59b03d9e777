"""Immutable data, the base of every state, event, effect and policy.

A conversation is stored, read back years later and folded again, so its data is

- frozen: a value never changes, and a change is a new value;
- closed: an unknown field is an error where the value is made;
- exact: a value that is written as JSON and read back is equal to itself. Fields with their default are left out, so a
  log that was written before a field existed keeps its meaning.

Each step writes its event, its effects and its state, so a value is written by one call of pydantic-core which calls no
Python for a field. What `BaseModel.model_dump_json` and a serializer in Python add costs more than the writing itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, ParamSpec, Self, TypeVar, cast, get_args

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema, PydanticCustomError, SchemaSerializer, core_schema

V = TypeVar("V", bound=BaseModel)
F = ParamSpec("F")

MAX_TEXT = 1_000_000
"""The longest text, in characters, that one request may bring. Chosen to be more than any model's window."""


MAX_SENTENCE = 500
"""The most characters of a sentence that explains an error to a model or a person."""

MAX_QUOTED = 200
"""The most characters of a text that such a sentence quotes, so that the explanation itself is not cut off."""


# The slots of a model. To write them by their descriptors takes half the time of `object.__setattr__`.
_put_fields, _put_fields_set, _put_extra, _put_private = (
    BaseModel.__dict__[slot].__set__
    for slot in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


class Value(BaseModel):
    """Frozen, closed, exact data."""

    # A number that JSON does not have, such as NaN, is written by its name, and refused where it is read. Written as
    # null it would be read back as something else.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True, ser_json_inf_nan="constants"
    )

    def replace(self, /, **changes: Any) -> Self:
        """Return this value with these fields changed. The changes are not validated. `Pure.`"""
        return _made(type(self), {**self.__dict__, **changes}, self.__pydantic_fields_set__)

    def __eq__(self, other: object) -> bool:
        """Whether the other value is of the same class and has equal fields. A value has nothing else to compare: that
        it may be made by validation or by the machine makes no difference.

        pydantic-core calls this for every field that has a value as its default, to leave the default out.
        """
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return self.__dict__ == other.__dict__

    def to_json(self, exclude: set[str] | None = None) -> str:
        """Return this value as JSON, without the fields that have their default, and without the fields in `exclude`.
        `Pure.`"""
        return self.__pydantic_serializer__.to_json(self, exclude=exclude, exclude_defaults=True).decode()


def unvalidated(kind: Callable[F, V], /, *_: F.args, **fields: F.kwargs) -> V:
    """Return a value with these fields as they are, and with the defaults of the others. `Pure.`

    For fields that are known to be valid: some follow from others, or from what was validated. Never for what foreign
    code has made.
    """
    return _made(cast(type[V], kind), {**_defaults(kind), **fields}, _given(tuple(fields)))


def _made(kind: type[V], fields: dict[str, Any], given: set[str]) -> V:
    value = object.__new__(kind)
    _put_fields(value, fields)
    _put_fields_set(value, given)
    _put_extra(value, None)
    _put_private(value, None)
    return value


@cache
def _given(fields: tuple[str, ...]) -> set[str]:
    """One set shared by all values that are made with these fields. pydantic copies it before a change; nobody else may
    change it."""
    return set(fields)


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """The fields of a class in the declared order, in which a value that is read back has them too, with their
    defaults."""
    return {name: None if field.is_required() else field.default for name, field in kind.model_fields.items()}


class Tagged(Value):
    """A value of a family whose members are told apart by their literal `type`, which is always written."""

    type: str

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of this value, in which the type is written although it is the default of its field.

        A field whose schema names a serializer of its own has no default where it is written. So pydantic-core writes
        the value without a call of Python.
        """
        schema = handler(source)
        inner: Any = handler.resolve_ref_schema(schema)
        while inner["type"] != "model-fields":
            inner = inner["schema"]
        inner["fields"]["type"]["schema"]["serialization"] = core_schema.simple_ser_schema("str")
        return schema


_ANY_VALUES = SchemaSerializer(core_schema.tuple_variable_schema(core_schema.any_schema()))


def json_array(values: tuple[Value, ...]) -> str:
    """Return these values as a JSON array, each as `Value.to_json` writes it. `Pure.`"""
    return _ANY_VALUES.to_json(values, exclude_defaults=True).decode()


def members(union: Any, base: type[V]) -> tuple[type[V], ...]:
    """The classes of the annotated union (`Annotated[A | B, …]`) that are subclasses of `base`, in the order of the
    union. `Pure.`"""
    return tuple(kind for kind in get_args(get_args(union)[0]) if issubclass(kind, base))


def check_encodable(text: str) -> str:
    """Return the text if it can be written as UTF-8: the validator of every text. `Pure.`"""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("text_broken", "the text holds half a character (a lone surrogate)") from None
    return text


def check_not_blank(text: str) -> str:
    """Return the text if it is more than white space: the validator of texts that must say something. `Pure.`"""
    if not text.strip():
        raise PydanticCustomError("text_blank", "Input should not be empty")
    return text


def _exact(block: dict[str, Any]) -> Any:
    return json.loads(json.dumps(block, ensure_ascii=False, allow_nan=False).encode())


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise PydanticCustomError("moment_out_of_range", "the moment is outside the calendar") from None


Text = Annotated[str, AfterValidator(check_encodable)]
"""Any text that can be written as UTF-8."""

RequestText = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(check_encodable)]
"""A text from outside, at most `MAX_TEXT` characters long."""

FilledText = Annotated[RequestText, AfterValidator(check_not_blank)]
"""A text from outside that says something."""

Block = Annotated[dict[str, JsonValue], AfterValidator(_exact)]
"""A JSON object of any content. What JSON cannot hold exactly (NaN, a lone surrogate) is refused."""

Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""A moment in time, always in UTC."""

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A length of time, in seconds."""


def json_object(text: str) -> dict[str, Any] | None:
    """The object that this text holds as JSON, or None if it holds anything else, or something that JSON cannot hold
    exactly. `Pure.`"""
    try:
        value = json.loads(text)
        return _exact(value) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def shortened(text: str, limit: int = MAX_SENTENCE) -> str:
    """The text, cut to `limit` characters, with an ellipsis as the last one if it was cut. `Pure.`"""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def sooner(due: datetime, at: datetime, seconds: float | None) -> datetime:
    """The moment `due`, or the one `seconds` after `at` if that comes first; None stands for any length. `Pure.`

    So a moment that a clock has set which ran ahead is not waited for any longer than was agreed.
    """
    return due if seconds is None else min(due, later(at, seconds))


def later(at: datetime, seconds: float) -> datetime:
    """The moment `seconds` after `at`, or the last moment that a datetime can hold if that comes first. `Pure.`"""
    try:
        return at + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
