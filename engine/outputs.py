"""The types of answers, as an application names them, and turns that are read as these types.

A type checker knows what `turn.output` is from what was given to `send`: a class is one, several classes in a tuple are
their union, and `Output[…]` says it for whatever has no class, such as a list or a union.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import UnionType
from typing import Any, Generic, TypeAlias

from pydantic import TypeAdapter
from typing_extensions import TypeVar

from ..effects.model.outputs import OutputForms, digest_of, readable
from ..states.errors import ConfigurationError, InvalidInput, NoOutput
from ..states.values.output import OutputSchema, OutputWay

T = TypeVar("T", default=Any)


class Output(Generic[T]):
    """The type of an answer, and how a model is asked for it.

        await conversation.send(text, output=Output[Ticket | Complaint](Ticket | Complaint))

    `kind` is a pydantic model, a dataclass, a TypedDict, a union, or any other type that pydantic can describe. `name`
    and `description` are for the model; the default name is that of the type. `strict` lets a provider hold the answer
    to the schema. `way` is how the model is asked: by the provider's own means ("native"), by a call ("tool") or by
    instructions ("prompted"); None leaves that to what the model can do.

    Raises `ConfigurationError` for a type that no JSON schema can describe.
    """

    def __init__(
        self,
        kind: type[T] | Any,
        *,
        name: str | None = None,
        description: str = "",
        strict: bool = True,
        way: OutputWay | None = None,
    ) -> None:
        self.kind = kind
        try:
            self.output_schema: OutputSchema = OutputSchema.of(
                kind, name=name, description=description, strict=strict, way=way, read_as=readable(kind)
            )
        except ValueError as error:
            told = error.args[0] if type(error) is ValueError else f"The output {name} is not valid."
            raise ConfigurationError(str(told)) from None

    def __repr__(self) -> str:
        return f"<Output {self.output_schema.name}>"


AnyOutput: TypeAlias = type[Any] | UnionType | Output[Any] | OutputSchema | dict[str, Any] | tuple[Any, ...]
"""The form of an answer as an application may give it: a type, several of them in a tuple, an `Output`, or a JSON
schema."""


def named_output(given: AnyOutput | None) -> Any:
    """What an event can be made of: a type is named as an `Output`, so that it is read as pydantic reads it."""
    return Output(given) if isinstance(given, type) and readable(given) is not given else given


def admitted(forms: OutputForms, schema: OutputSchema | None) -> None:
    """Let an engine with these forms know the schema that a request brings. Raises `InvalidInput` for one with which no
    answer can be checked."""
    try:
        forms.admit(schema)
    except ConfigurationError as error:
        raise InvalidInput(f"output: {error.sentence}", "output") from None


@dataclass(frozen=True)
class OutputReading:
    """How the typed answer of a turn is read: as one of the types that the engine knows; or as that of the schema that
    the caller of the turn `wanted`. `is_wanted`: an answer must be there, by what the caller or the rules say."""

    forms: OutputForms
    wanted: OutputSchema | None = None
    is_wanted: bool = False

    def read(self, value_json: str, form: str) -> Any:
        """The answer, which has the form with this digest. Raises `NoOutput` if its type does not take it any more, or
        if the turn has answered in another form than was wanted."""
        if self.wanted is not None and digest_of(self.wanted) != form:
            raise NoOutput("The turn gave its answer in another form: another message of the turn has asked for it.")
        kind = self.forms.kind_of(form) if self.wanted is None else self.wanted.kind
        if kind is None:
            return json.loads(value_json)
        try:
            return TypeAdapter(readable(kind)).validate_json(value_json)
        except Exception:
            raise NoOutput("The stored answer is not valid for its type any more.") from None

    def missing(self, status: str, failure: str | None) -> NoOutput | None:
        """Why a turn that wanted a typed answer has none; None if nobody has asked for one."""
        if self.wanted is None and not self.is_wanted:
            return None
        return NoOutput(failure or f"The turn has no typed answer: it is {status.replace('_', ' ')}.")
