"""Values of any type, generated from what the type declares: for types that have no generator of their own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, JsonValue, ValidationError

from ...states.values.messages import HistoryMessage, Image
from .chance import Chance
from .values import INSTANTS, SECONDS

V = TypeVar("V", bound=BaseModel)

ATTEMPTS = 50
"""How often a value is generated anew that breaks a rule of its own type."""

OPTIONAL = 0.3
"""How often a field is given that has a default."""

LEAVES: dict[Any, Callable[[Chance], Any]] = {
    str: lambda chance: chance.text(),
    int: lambda chance: chance.pick((1, 2, 0)),
    float: lambda chance: chance.pick(SECONDS),
    bool: lambda chance: chance.often(),
    datetime: lambda chance: chance.pick(INSTANTS),
    AwareDatetime: lambda chance: chance.pick(INSTANTS),
    NoneType: lambda chance: None,
    Any: lambda chance: "anything",
    JsonValue: lambda chance: chance.pick(("anything", 1, None)),
    Image: lambda chance: Image(url="https://example.com/menu.png"),
    HistoryMessage: lambda chance: HistoryMessage(role="user", content=chance.text()),
}
"""Generators of types that are not made of others, and of those whose rules no random value would meet."""


class CannotBeGenerated(TypeError):
    """There is no way to generate a value of this type."""


def from_type(kind: type[V], chance: Chance, **given: object) -> V:
    """A value of this type: the fields given as they are, the others generated. Raises `CannotBeGenerated`."""
    fault: ValidationError | None = None
    for _ in range(ATTEMPTS):
        fields = {
            name: _value(field.annotation, chance)
            for name, field in kind.model_fields.items()
            if name not in (*given, "type") and (field.is_required() or chance.probably(OPTIONAL))
        }
        try:
            return kind.model_validate({**fields, **given})
        except ValidationError as error:
            fault = error
    raise CannotBeGenerated(f"a {kind.__name__} cannot be generated: {fault}")


def _value(annotation: Any, chance: Chance) -> Any:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _value(inner[0], chance)
    if origin in (Union, UnionType):
        return _value(chance.pick(inner), chance)
    if origin is not None:
        return _collection(annotation, origin, inner, chance)
    if annotation in LEAVES:
        return LEAVES[annotation](chance)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return from_type(annotation, chance)
    raise CannotBeGenerated(f"there is no generator for the type {annotation}")


def _collection(annotation: Any, origin: Any, inner: tuple[Any, ...], chance: Chance) -> Any:
    if origin is Literal:
        return chance.pick(inner)
    if origin in (list, set, frozenset) or (origin is tuple and inner[1:] == (...,)):
        return tuple(_value(inner[0], chance) for _ in range(chance.below(4)))
    if origin is tuple:
        return tuple(_value(each, chance) for each in inner)
    if origin is dict:
        return {_value(inner[0], chance): _value(inner[1], chance) for _ in range(chance.below(2))}
    raise CannotBeGenerated(f"there is no generator for the type {annotation}")
