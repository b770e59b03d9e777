"""Where generators take their choices from: a seed, or Hypothesis.

A generator that is written against `Chance` serves both. Hypothesis can shrink what it draws; a seed gives the same
values in every process, and loads nothing.

The smallest parts of generated values (texts, moments, durations, costs) stand here, too. Beside the ordinary ones
stand the extremes that break programs: an empty text, quotes and line breaks, the last moment of the calendar, the
largest amount of money that a float can hold. A value of a type that has no generator of its own is made from what the
type declares.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import AwareDatetime, BaseModel, JsonValue, ValidationError

from ...states.values.files import FileReference
from ...states.values.messages import HistoryMessage, Usage
from ...states.values.value import TRANSIENT, FailureKind, Record, Value, adapter_of

T = TypeVar("T")


class Chance(ABC):
    """A source of choices. Wherever one value is plainer than the others it is the first, or False."""

    @abstractmethod
    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, all equally likely."""

    @abstractmethod
    def probably(self, probability: float) -> bool:
        """True with this probability."""

    @abstractmethod
    def text(self) -> str:
        """Any text that can be written as UTF-8."""

    def words(self) -> str:
        """A text that is not blank."""
        text = self.text()
        return text if text.strip() else f"{text}a"

    def number(self, low: int, high: int) -> int:
        """A whole number between these, both included."""
        return low + self.below(high - low + 1)

    def pick(self, values: Sequence[T]) -> T:
        """One of these, all equally likely."""
        return values[self.below(len(values))]

    def weighted(self, weights: Mapping[T, int]) -> T:
        """One of the keys, as likely as its weight says."""
        place = self.below(sum(weights.values()))
        for value, weight in weights.items():
            place -= weight
            if place < 0:
                return value
        raise ValueError("there is nothing to choose from")

    def often(self) -> bool:
        """True as often as False."""
        return self.below(2) == 1

    def rarely(self, one_in: int = 10) -> bool:
        """True once in so many times."""
        return self.below(one_in) == one_in - 1

    def flags(self, count: int) -> tuple[bool, ...]:
        """So many independent truth values, by a single choice."""
        chosen = self.below(2**count)
        return tuple(bool(chosen >> place & 1) for place in range(count))

    def sample(self, values: Sequence[T], count: int) -> list[T]:
        """So many of these, each at most once, in any order."""
        left, chosen = list(values), []
        for last in reversed(range(len(left) - count, len(left))):
            place = self.below(last + 1)
            chosen.append(left[place])
            left[place] = left[last]
        return chosen

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """All of these, in any order."""
        order = list(values)
        for place in reversed(range(1, len(order))):
            other = self.below(place + 1)
            order[place], order[other] = order[other], order[place]
        return order


TRICKY_TEXTS = (
    "a",
    "b",
    "",
    " ",
    "{0} {x} %s",
    'say "yes"',
    "one\ntwo\r\n\tthree",
    "back\\slash",
    "日本語 مرحبا 👩‍👩‍👧",
    "\u2028\u0000",
)
"""Texts that break programs, the plain ones first."""


class Seeded(Chance):
    """Choices that follow from a seed, the same in every process."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        return self._random.randrange(count)

    def probably(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def text(self) -> str:
        """One of the texts that break programs."""
        return self.pick(TRICKY_TEXTS)


Changed = TypeVar("Changed", bound=Value)


def changed(value: Changed, **changes: object) -> Changed:
    """A copy of the value with these fields changed; nothing is validated. `Pure.`"""
    return value.model_copy(update=changes)


V = TypeVar("V", bound=BaseModel | Record)

ATTEMPTS = 50
"""How often a value is generated anew that breaks a rule of its own type."""

OPTIONAL = 0.3
"""How often a field is given that has a default."""


def from_type(kind: type[V], chance: Chance, **given: object) -> V:
    """A value of this type: the fields given as they are, the others generated. Raises `CannotBeGenerated`."""
    fault: ValidationError | None = None
    for _ in range(ATTEMPTS):
        fields = {
            name: _value(annotation, chance)
            for name, (annotation, is_required) in _fields_of(cast(Any, kind)).items()
            if name not in (*given, "type") and (is_required or chance.probably(OPTIONAL))
        }
        try:
            value: V = adapter_of(kind).validate_python({**fields, **given})
            return value
        except ValidationError as error:
            fault = error
    raise CannotBeGenerated(f"a {kind.__name__} cannot be generated: {fault}")


@cache
def _fields_of(kind: Any) -> Mapping[str, tuple[Any, bool]]:
    """The type of each field, and whether it must be given."""
    if issubclass(kind, BaseModel):
        return {name: (field.annotation, field.is_required()) for name, field in kind.model_fields.items()}
    types = get_type_hints(kind, include_extras=True)
    return {field.name: (types[field.name], field.default is MISSING) for field in fields(kind)}


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
    if isinstance(annotation, type) and issubclass(annotation, BaseModel | Record):
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


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""The moment around which most generated events happen."""

_NEAR = (0, 0, 0.000_001, 1, 1, 60, 3_600, -1, -86_400)

INSTANTS = (
    *(NOON + timedelta(seconds=seconds) for seconds in _NEAR),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)
"""Moments around `NOON`, some of them the same, and the ends of the calendar."""

SECONDS = (1.0, 5.0, 600.0, 0.0, 0.25, 1e12, 1e308)
"""Durations, from none to longer than the calendar."""

FILES = (
    FileReference(sha256="a" * 64, media_type="image/png", size=68),
    FileReference(sha256="b" * 64, media_type="application/pdf", name="menu.pdf", size=4_000),
    FileReference(sha256="c" * 64, media_type="text/csv", name="<message_for_user>.csv", size=1),
    FileReference(sha256="d" * 64, media_type="audio/wav", size=20_000_000),
    FileReference(sha256="e" * 64, media_type="video/mp4", name="tour.mp4", size=1),
    FileReference(url="https://example.com/menu.png", media_type="image/png"),
    FileReference(url="https://example.com/menu.pdf", media_type="application/pdf", name="menu"),
)
"""Files of each kind, stored and on the web. Nobody has their bytes."""

ON_THE_WEB = tuple(file for file in FILES if file.url)


def files_beside(text: str) -> tuple[FileReference, ...]:
    """The files that come with this text: those of some texts, so that no choice is spent on them. They are on the web,
    so nothing of them must be stored. `Pure.`"""
    number = sum(map(ord, text))
    return () if number % 4 else ON_THE_WEB[: 1 + number // 4 % len(ON_THE_WEB)]


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
    FileReference: lambda chance: chance.pick(FILES),
    HistoryMessage: lambda chance: HistoryMessage(role="user", content=chance.text()),
}
"""Generators of types that are not made of others, and of those whose rules no random value would meet."""


class CannotBeGenerated(TypeError):
    """There is no way to generate a value of this type."""


USAGES = (
    *(
        Usage(input_tokens=sent, output_tokens=made, cost=cost)
        for cost in (None, None, 0.0, 0.004, 2.5, 1e308)
        for sent, made in ((0, 0), (1, 0), (40, 60), (4_000, 1))
    ),
    Usage(input_tokens=40, output_tokens=60, cached_tokens=40, reasoning_tokens=50),
    Usage(cached_tokens=1),
)
"""What requests cost, from nothing to the largest float."""

FAILURE_KINDS: tuple[FailureKind, ...] = (*sorted(TRANSIENT), *sorted(set(get_args(FailureKind)) - TRANSIENT))
"""Why something fails: first what is transient."""
