"""The texts in a JSON value, which are looked at together and put back where they were.

A secret in JSON is known by its own form or by the name of the member that holds it: `{"password": "swordfish"}`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from .rule import SecretRule, declared_labels, is_label

_MAY_BE_JSON = re.compile(r"\s*[\[{]")

_ONLY_LABELS = re.compile(r"(?:\s*\[[A-Z][A-Z0-9_]{1,31}\])+\s*")
_LABEL = re.compile(r"[A-Z0-9_]+")


@runtime_checkable
class NamesSecrets(Protocol):
    """A rule that also knows secrets by the names of the members of JSON objects that hold them."""

    def label_of(self, name: str, value: str) -> str | None:
        """Return the label for the value of the member `name`, or None if it is no secret."""
        ...


def parsed(text: str) -> tuple[Any, bool]:
    """Return the object or list that a text holds as JSON, and whether the value says all that the text says: of two
    members with the same name it has only one. Raises ValueError for any other text, and RecursionError. `Pure.`"""
    if not _MAY_BE_JSON.match(text) or text.rstrip()[-1:] not in ("]", "}"):
        raise ValueError("this is no JSON object or list")
    names = Counter[bool]()

    def read(members: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(members)
        names[len(value) == len(members)] += 1
        return value

    return json.loads(text, object_pairs_hook=read, parse_constant=_refuse), not names[False]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


@dataclass(frozen=True)
class _Place:
    """Where a text belongs: the `index`-th text, and what stands there while it is unchanged."""

    index: int
    unchanged: Any


@dataclass(frozen=True)
class _Written:
    """A value that is written as JSON in a text: the text, and the value if it says all that the text says."""

    text: str
    tree: Any
    value: Any


class JsonTexts:
    """The `texts` of a JSON value, and the `labels` of the members that are secret by their names.

    Unless it `is_exact`, a text in it is JSON that says more than was read of it, and has to be written anew.

    Raises RecursionError for a value too deep to be looked at.
    """

    def __init__(self, value: Any, rules: Iterable[SecretRule]) -> None:
        self.texts: list[str] = []
        self.labels: list[str] = []
        self.is_exact = True
        given: Sequence[Any] = tuple(rules)
        self._labels = declared_labels(given)
        self._naming = [rule for rule in given if isinstance(rule, NamesSecrets)]
        self._tree = self._read(value, None)

    def filled(self, texts: Sequence[str]) -> Any:
        """Return the value with these texts in place of its own."""
        return self._fill(self._tree, texts)

    def _read(self, value: Any, name: str | None) -> Any:
        match value:
            case dict():
                names = {"value": _named_by(value)}
                return [
                    (self._place(key, key), self._read(member, names.get(key) or key)) for key, member in value.items()
                ]
            case list() | tuple():
                return tuple(self._read(member, name) for member in value)
            case str():
                return self._label_of(name, value) or self._read_text(value)
            case int() if not isinstance(value, bool):
                return self._label_of(name, str(value)) or self._place(str(value), value)
            case _:
                return _Place(-1, value)

    def _read_text(self, text: str) -> Any:
        """Return where a text belongs. One that is JSON itself stays JSON: its own texts are looked at."""
        try:
            value, is_exact = parsed(text)
            self.is_exact = self.is_exact and is_exact
            return _Written(text, self._read(value, None), value if is_exact else None)
        except ValueError:
            return self._place(text, text)

    def _label_of(self, name: str | None, value: str) -> str | None:
        if name is None or not self._naming or self._has_only_labels(value):
            return None
        for rule in self._naming:
            if (label := rule.label_of(name, value)) is not None:
                self.labels.append(label)
                return f"[{label}]"
        return None

    def _has_only_labels(self, value: str) -> bool:
        is_like = _ONLY_LABELS.fullmatch(value) is not None
        return is_like and all(is_label(found, self._labels) for found in _LABEL.findall(value))

    def _place(self, text: str, unchanged: Any) -> _Place:
        self.texts.append(text)
        return _Place(len(self.texts) - 1, unchanged)

    def _fill(self, tree: Any, texts: Sequence[str]) -> Any:
        match tree:
            case list():
                members: dict[str, Any] = {}
                for name, member in tree:
                    members[_unused(self._fill(name, texts), members)] = self._fill(member, texts)
                return members
            case tuple():
                return [self._fill(member, texts) for member in tree]
            case str():
                return tree
            case _Written(text, inner, unchanged):
                value = self._fill(inner, texts)
                return text if value == unchanged else json.dumps(value, ensure_ascii=False)
            case _Place(-1, unchanged):
                return unchanged
            case _:
                text = texts[tree.index]
                return tree.unchanged if text == self.texts[tree.index] else text


def _named_by(members: dict[str, Any]) -> str | None:
    """Return the name that another member gives to `value`, as in lists of variables, headers and fields of forms:
    `{"name": "DB_PASSWORD", "value": "swordfish"}`."""
    names = (members.get(key) for key in ("name", "key"))
    return next((name for name in names if isinstance(name, str)), None)


def _unused(name: str, members: dict[str, Any]) -> str:
    """Return the name, with a number behind it if another member got the same label."""
    number = 2
    unused = name
    while unused in members:
        unused = f"{name} {number}"
        number += 1
    return unused
