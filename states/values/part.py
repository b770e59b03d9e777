"""Values that the machine makes, out of values that were validated when they came in.

Validating them again would be most of the cost of a transition. So a part is made and changed without validation, and
only its fields are written. What pydantic keeps beside the fields of a model is the same for all such parts, so it is
returned when somebody asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from pydantic import BaseModel

from .value import Tagged, Value

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

P = TypeVar("P", bound="Part")

_new = object.__new__
_put_fields = BaseModel.__dict__["__dict__"].__set__  # takes half the time of `object.__setattr__`


_Layout: TypeAlias = tuple[dict[str, Any], tuple[str, ...], int, set[str]]
"""The fields of a class of parts: all of them with their defaults, in the declared order, in which a part that is read
back has them too; those that must be given; how many there are; and the names of all. It is a plain tuple because one
is unpacked for each part that is made."""

_LAYOUTS: dict[type, _Layout] = {}
"""The layout of each class of parts. It is no attribute of the class, because the metaclass of pydantic's models finds
an attribute of a class many times as slowly as a dictionary does."""


def make_part(cls: type[P], fields: dict[str, Any]) -> P:
    """Return a part with these fields, as they are, and with the defaults of the others. `Pure.`

    The fields must be valid: they come out of values that were validated. The part is always written in the declared
    order of its fields. Raises TypeError if a required field is missing, or one is unknown.

    Call this for parts that are made in every step: a call of the class passes its arguments through two dictionaries
    more, which takes as long again.
    """
    defaults, required, size, _ = _LAYOUTS[cls]
    values = {**defaults, **fields}
    if len(values) != size:
        raise TypeError(f"{cls.__name__} was made with a field that it does not have")
    for name in required:
        if name not in fields:
            raise TypeError(f"{cls.__name__} was made with too few fields: {name} is missing")
    part = _new(cls)
    _put_fields(part, values)
    return part


def changed(part: P, changes: dict[str, Any]) -> P:
    """Return the part with these fields changed, as `Part.replace` does. `Pure.`"""
    other = _new(type(part))
    _put_fields(other, {**part.__dict__, **changes})
    return other


if TYPE_CHECKING:
    _MadeUnchecked = ModelMetaclass  # to a type checker, a part is made like any other value
else:

    class _MadeUnchecked(ModelMetaclass):
        """The metaclass of parts: calling a class does not validate the arguments."""

        def __call__(cls, /, **fields: Any) -> Any:
            return make_part(cls, fields)


class Part(Value, metaclass=_MadeUnchecked):
    """A value that the machine makes. Its constructor takes the fields by keyword, as they are.

    A part that is read back from JSON is validated like everything from outside.
    """

    def replace(self, /, **changes: Any) -> Self:
        """Return this part with these fields changed. The changes are not validated. `Pure.`"""
        return changed(self, changes)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in ("__pydantic_extra__", "__pydantic_private__"):
                return None
            return _LAYOUTS[type(self)][3] if name == "__pydantic_fields_set__" else super().__getattr__(name)

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Note the layout of the class."""
        fields = cls.__pydantic_fields__
        _LAYOUTS[cls] = (
            {name: None if field.is_required() else field.default for name, field in fields.items()},
            tuple(name for name, field in fields.items() if field.is_required()),
            len(fields),
            set(fields),
        )


class TaggedPart(Part, Tagged):
    """A part of a family whose members are told apart by their `type`."""
