"""Values of any type, made up from what the type declares, for what nobody has said how to make yet."""

from __future__ import annotations

from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, JsonValue, ValidationError

from ...states.values.images import Image
from ..clock import NOON
from .random_source import RandomSource

V = TypeVar("V", bound=BaseModel)

TRIES = 50
"""How often a value is made anew that breaks a rule of its own. Ours."""

EXAMPLES: dict[Any, tuple[Any, ...]] = {
    str: ("word", "two words", "日本語 👩‍👩‍👧", '{"a": "\\n"}'),
    int: (1, 2, 0),
    float: (1.0, 0.5),
    bool: (False, True),
    datetime: (NOON,),
    NoneType: (None,),
    Any: ("anything",),
    JsonValue: ("anything", 1, None),
    Image: (Image(url="https://example.com/menu.png"),),
}
"""Values of types that are not made of others, and of types whose rules no dice would ever meet."""


class CannotBeMade(TypeError):
    """Nobody knows how to make up a value of this type."""


def made_up(kind: type[V], dice: RandomSource, **given: object) -> V:
    """A value of this type: the fields given as they are, the others by dice. Raises `CannotBeMade`."""
    fault: ValidationError | None = None
    for _ in range(TRIES):
        fields = {
            name: _value(field.annotation, dice)
            for name, field in kind.model_fields.items()
            if name not in given and (field.is_required() or dice.chance(0.3))
        }
        try:
            return kind(**fields, **given)
        except ValidationError as error:
            fault = error
    raise CannotBeMade(f"a {kind.__name__} cannot be made up: {fault}")


def _value(annotation: Any, dice: RandomSource) -> Any:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _value(inner[0], dice)
    if origin in (Union, UnionType):
        return _value(dice.pick(inner), dice)
    if origin is not None:
        return _collection(annotation, origin, inner, dice)
    if annotation in EXAMPLES:
        return dice.pick(EXAMPLES[annotation])
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return made_up(annotation, dice)
    raise CannotBeMade(f"nobody knows how to make up a value of the type {annotation}")


def _collection(annotation: Any, origin: Any, inner: tuple[Any, ...], dice: RandomSource) -> Any:
    if origin is Literal:
        return dice.pick(inner)
    if origin in (list, set, frozenset) or (origin is tuple and inner[1:] == (...,)):
        return tuple(_value(inner[0], dice) for _ in range(dice.number(0, 3)))
    if origin is tuple:
        return tuple(_value(each, dice) for each in inner)
    if origin is dict:
        return {_value(inner[0], dice): _value(inner[1], dice) for _ in range(dice.number(0, 1))}
    raise CannotBeMade(f"nobody knows how to make up a value of the type {annotation}")
