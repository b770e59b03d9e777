"""The form of a typed answer, and what came of a model's attempt to give one.

An application asks for an object in place of a text: by a JSON schema with a name. The model is asked for it in one of
three ways, by what it can do. Its answer is checked where it enters, because the checks are the application's as well
as the schema's; what came of that stands in the event, so a replay needs neither the model nor the application.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, Self, Union

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, TypeAdapter
from pydantic_core import PydanticCustomError

from .value import MAX_QUOTED, Block, Text, Value, is_nested_deeper, shortened

OutputWay = Literal["native", "tool", "prompted"]
"""How a model is asked for a typed answer.

native: by the provider's own means, which hold the answer to the schema while it is written. tool: by a tool whose
arguments have the schema, and whose call ends the turn. prompted: by instructions, and the JSON is read out of the
text.
"""

MAX_SCHEMA = 100_000
"""The most characters of a schema, as JSON. Several times what a provider takes."""

DEEPEST_SCHEMA = 60
"""How deeply the parts of a schema may lie inside each other."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")

DEFAULT_NAME = "output"
"""The name of a schema whose type has none, such as a union."""


def _bounded(schema: dict[str, Any]) -> dict[str, Any]:
    if is_nested_deeper(schema, DEEPEST_SCHEMA):
        raise PydanticCustomError("schema_deep", "a schema may not be nested that deeply")
    if len(json.dumps(schema, ensure_ascii=False)) > MAX_SCHEMA:
        raise PydanticCustomError("schema_long", f"a schema may be at most {MAX_SCHEMA:,} characters of JSON long")
    return schema


class OutputSchema(Value):
    """The form that an answer must have: a JSON schema, the `name` by which a model knows it, and what it is for.

    `strict` lets a provider hold the answer to the schema, where it can and the schema is of a kind that it takes.
    `way` is how the model is asked, and None leaves that to what it can do.

    `OutputSchema.of` makes it from a type. It remembers the type for the program that made it: the type is no part of
    the value, is never stored, and nothing here looks into it.
    """

    name: Annotated[Text, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")] = DEFAULT_NAME
    json_schema: Annotated[Block, AfterValidator(_bounded)]
    description: Annotated[Text, Field(max_length=1_000)] = ""
    strict: bool = True
    way: OutputWay | None = None

    _kind: Any = PrivateAttr(default=None)

    @property
    def kind(self) -> Any:
        """The type that the schema was made from in this program; None for any other schema."""
        return self._kind

    @classmethod
    def of(
        cls,
        kind: Any,
        *,
        name: str | None = None,
        description: str = "",
        strict: bool = True,
        way: OutputWay | None = None,
        read_as: Any = None,
    ) -> Self:
        """Return the schema of a type: a pydantic model, a dataclass, a TypedDict, a union, or any other that pydantic
        can describe. `read_as` is the same type as pydantic reads it, where that is another one. Raises `ValueError`
        for one that it cannot describe."""
        try:
            described = TypeAdapter(kind if read_as is None else read_as).json_schema()
        except Exception as error:
            told = shortened(str(getattr(kind, "__name__", kind)), MAX_QUOTED)
            why = shortened(str(error).split("\n", 1)[0].removesuffix("."), MAX_QUOTED)
            raise ValueError(f"The type {told} cannot be described by a JSON schema: {why}.") from error
        named = _ILLEGAL.sub("_", name or str(getattr(kind, "__name__", DEFAULT_NAME))).strip("_")[:64]
        made = cls(name=named or DEFAULT_NAME, json_schema=described, description=description, strict=strict, way=way)
        made._kind = kind
        return made


def _as_schema(given: Any) -> Any:
    """What an application gives for a schema: a type, the schema itself as a dict, or an `OutputSchema`."""
    if given is None or isinstance(given, OutputSchema):
        return given
    if isinstance(given, dict):
        return given if "json_schema" in given else {"json_schema": given, "name": _title_of(given)}
    if isinstance(schema := getattr(given, "output_schema", None), OutputSchema):
        return schema
    if isinstance(given, tuple) and given:
        given = Union[given]  # noqa: UP007  (as many as there are)
    try:
        return OutputSchema.of(given)
    except ValueError as error:
        raise PydanticCustomError("output_type", "{told}", {"told": str(error).removesuffix(".")}) from None


def _title_of(schema: dict[str, Any]) -> str:
    title = schema.get("title")
    return (_ILLEGAL.sub("_", title).strip("_")[:64] if isinstance(title, str) else "") or DEFAULT_NAME


GivenOutput = Annotated[OutputSchema, BeforeValidator(_as_schema)]
"""A schema of an answer, as an application writes it: a type, a JSON schema, or an `OutputSchema`."""


class WantedOutput(Value):
    """Which schema an answer must have: the one that the message of the step `seq` brought, or, without one, that of
    the turn's profile, else that of the conversation."""

    seq: int | None = None


class ModelOutput(Value):
    """What came of the attempt of a model to give a typed answer, as it was found when the answer entered.

    `errors` says what is wrong with it; a valid answer has none. `calls` are the places of the calls by which it was
    given, the one that counts first, and `way` how it was asked for. `value` is the answer as JSON, where that is
    not just what the model wrote: the arguments of the call, or its text. `reply` is what the user receives in place of
    the JSON. `form` tells the schema from others.
    """

    way: OutputWay
    calls: tuple[int, ...] = ()
    value: Text = ""
    reply: Text = ""
    errors: Text = ""
    form: Text = ""

    @property
    def is_valid(self) -> bool:
        """Whether the answer has the form that was asked for. `Pure.`"""
        return not self.errors
