"""Immutable data, the base of every state, event, effect and policy.

A conversation is stored, read back years later and folded again, so its data is

- frozen: a value never changes, and a change is a new value;
- closed: an unknown field is an error where the value is made;
- exact: a value that is written as JSON and read back is equal to itself. Fields with their default are left out, so a
  log that was written before a field existed keeps its meaning.

Each step writes its event, its effects and its state, so a value is written without a call of Python for each field.

A log that is replayed must come out as it was stored, so each log names the revision of the machine under which it
began.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    TypeAdapter,
)
from pydantic_core import CoreSchema, PydanticCustomError, SchemaSerializer, core_schema

V = TypeVar("V", bound=BaseModel)

MAX_TEXT = 1_000_000
"""The longest text, in characters, that one request may bring. Chosen to be more than any model's window."""


MAX_SENTENCE = 500
"""The most characters of a sentence that explains an error to a model or a person."""

MAX_QUOTED = 200
"""The most characters of a text that such a sentence quotes, so that the explanation itself is not cut off."""


class Value(BaseModel):
    """Frozen, closed, exact data."""

    # A number that JSON does not have, such as NaN, is written by its name, and refused where it is read. Written as
    # null it would be read back as something else.
    #
    # What validates and writes a class is built when it is first used: to build them all takes longer than everything
    # else that an import does, and a program seldom uses all.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        serialize_by_alias=True,
        ser_json_inf_nan="constants",
        defer_build=True,
    )

    def __eq__(self, other: object) -> bool:
        """Whether the other value is of the same class and has equal fields: that some were given and others have their
        default makes no difference. pydantic asks this of every field that has a value as its default, to leave it
        out."""
        return self is other or (vars(self) == vars(other) if type(self) is type(other) else NotImplemented)

    def replace(self, /, **changes: Any) -> Self:
        """Return this value with these fields changed. The changes are not validated. `Pure.`"""
        return self.model_copy(update=changes)

    def to_json(self, exclude: set[str] | None = None) -> str:
        """Return this value as JSON, without the fields that have their default, and without the fields in `exclude`.
        `Pure.`"""
        return writer_of(type(self)).to_json(self, exclude=exclude, exclude_defaults=True).decode()


def _with_type(schema: CoreSchema, handler: GetCoreSchemaHandler) -> CoreSchema:
    """The schema of a tagged value, whose type is written although it is the default of its field.

    A field whose schema names a serializer of its own has no default where it is written. So pydantic-core writes the
    value without a call of Python.
    """
    inner: Any = handler.resolve_ref_schema(schema)
    while inner["type"] not in ("model-fields", "dataclass-args"):
        inner = inner["schema"]
    fields = inner["fields"]
    tag = fields["type"] if isinstance(fields, dict) else next(field for field in fields if field["name"] == "type")
    tag["schema"]["serialization"] = core_schema.simple_ser_schema("str")
    return schema


class Tagged(Value):
    """A value of a family whose members are told apart by their literal `type`, which is always written."""

    type: str

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of this value, in which the type is written although it is the default of its field."""
        return _with_type(handler(source), handler)


@dataclass(frozen=True)
class Record:
    """Frozen, closed, exact data that the machine makes out of values that were validated when they came in: the base
    of its dataclasses.

    A record that is made is not validated again, and its fields are read as those of any other object, which takes a
    fraction of the time that a model of pydantic takes. One that is read back from JSON is validated like everything
    from outside.
    """

    __pydantic_config__: ClassVar[ConfigDict] = Value.model_config

    def replace(self, /, **changes: Any) -> Self:
        """Return this record with these fields changed. The changes are not validated. `Pure.`"""
        other = object.__new__(type(self))
        vars(other).update(vars(self), **changes)
        return other

    def to_json(self) -> str:
        """Return this record as JSON, without the fields that have their default. `Pure.`"""
        return writer_of(type(self)).to_json(self, exclude_defaults=True).decode()


@dataclass(frozen=True, kw_only=True)
class TaggedRecord(Record):
    """A record of a family whose members are told apart by their literal `type`, which is always written."""

    type: str

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of this record, in which the type is written although it is the default of its field."""
        return _with_type(handler(source), handler)


def _built(kind: Any) -> TypeAdapter[Any]:
    adapter = TypeAdapter(kind)
    adapter.rebuild()  # one of a class that is built on first use would look for what it needs at each use
    return adapter


adapter_of: Callable[[Any], TypeAdapter[Any]] = cache(_built)
"""What validates, writes and describes values of a type. It is made when it is first asked for, as it takes some
time."""

writer_of: Callable[[Any], SchemaSerializer] = cache(lambda kind: adapter_of(kind).serializer)
"""What writes values of a type. What `TypeAdapter.dump_json` does around it takes as long again."""

_ANY = writer_of(Any)


def json_array(values: tuple[Value, ...]) -> str:
    """Return these values as a JSON array, each as `Value.to_json` writes it. `Pure.`"""
    return _ANY.to_json(values, exclude_defaults=True).decode()


def members(union: Any, base: type[V]) -> tuple[type[V], ...]:
    """The classes of the annotated union (`Annotated[A | B, …]`) that are subclasses of `base`, in the order of the
    union. `Pure.`"""
    return tuple(kind for kind in get_args(get_args(union)[0]) if issubclass(kind, base))


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


class _Encodable:
    """Marks a `str` that can be written as UTF-8, without a call of Python: pydantic reads a text that has a pattern as
    UTF-8, and so refuses half a character (a lone surrogate). The empty pattern fits every text."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        inner: Any = schema
        while inner["type"] != "str":  # validators stand around it
            inner = inner["schema"]
        inner["pattern"] = ""
        return schema

    @staticmethod
    def __get_pydantic_json_schema__(schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(schema).items() if name != "pattern"}


Text = Annotated[str, _Encodable]
"""Any text that can be written as UTF-8."""

RequestText = Annotated[str, Field(max_length=MAX_TEXT)]
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


# Why something failed, in a few kinds that decide what can be done about it. Providers and their libraries know dozens
# of errors; a conversation only asks whether another attempt is worthwhile, and whether another model could succeed. A
# performer maps each error to one kind. The last five do not come from a provider: nothing here can carry the effect
# out, the work was checked and found incomplete, no answer had the form that was asked for, the program died too often,
# or something broke inside the program.
# docs/guides/model-failures.md says what follows from each kind in which a model request can fail.
FailureKind = Literal[
    "rate_limit",
    "server_error",
    "timeout",
    "network",
    "malformed_response",
    "authentication",
    "no_credit",
    "unknown_model",
    "invalid_request",
    "context_window",
    "content_filter",
    "unsupported_content",
    "unreadable_content",
    "unavailable",
    "unverified",
    "output",
    "interrupted",
    "internal",
]

NO_FAULT_OF_A_MODEL: frozenset[FailureKind] = frozenset({"unavailable", "unverified", "output", "interrupted"})
"""Kinds in which no model request ends."""

REFUSED_CONTENT: frozenset[FailureKind] = frozenset({"content_filter", "unsupported_content", "unreadable_content"})
"""Kinds in which something that the request holds was refused: a text or an image that a filter does not let pass,
content of a kind that the model does not take, such as an image for a model without eyes, and content of a kind that it
takes but that cannot be read, such as an image that was cut off."""

UNEXPLAINED: frozenset[FailureKind] = frozenset({"invalid_request", "server_error"})
"""Kinds in which a provider may refuse content without saying so, in words that nobody has listed."""

TRANSIENT: frozenset[FailureKind] = frozenset(
    {"rate_limit", "server_error", "timeout", "network", "malformed_response"}
)
"""Kinds that can pass by themselves: worth another attempt, then another model. All others fail at once."""


DEEPEST = 100
"""How deeply a JSON value from a client or a model is shown or taken over HTTP. Chosen so that it can be written with
everything that is around it: pydantic writes values of up to 255 levels."""


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether more than `levels` lists and objects lie inside each other. It does not recurse. `Pure.`"""
    layer = [value]
    for _ in range(levels + 1):
        layer = [one for one in layer if isinstance(one, list | dict)]
        if not layer:
            return False
        layer = [inner for one in layer for inner in (one.values() if isinstance(one, dict) else one)]
    return True


CURRENT_REVISION = 1
"""The revision of the machine under which new conversations begin."""

Revision = Annotated[int, Field(ge=1, le=CURRENT_REVISION)]
"""A revision that this version knows.

A log is replayed years after it was written and must come out as it was stored. So a behaviour that changes a stored
state, effect or end of a turn comes with a new revision and has a name here with its number. A handler asks
`context.revision` for it first, and logs that began before keep the old behaviour.
"""


def encodable(text: str) -> str:
    """Return the text with each lone surrogate replaced by U+FFFD.

    A model that stops in the middle of an emoji leaves half a character behind (a lone surrogate). Neither a database
    nor a provider accepts such a text. `Pure.`
    """
    if text.isascii():  # most texts are short names and identifiers
        return str.__str__(text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
