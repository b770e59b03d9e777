"""Puts labels in the places of secrets: `[EMAIL]`, `[CARD]`, `[API_KEY]`.

What was replaced is counted, never kept. Redaction is deterministic, so that a request which is sent again equals the
one that was stored, and idempotent, so that a text which passes through it twice is the same as after once.

The texts in a JSON value are looked at together and put back where they were. A secret in JSON is known by its own
form or by the name of the member that holds it: `{"password": "swordfish"}`.
"""

from __future__ import annotations

import json
import logging
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from threading import Lock
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from ...states.errors import ConfigurationError
from .rule import LABEL_MARK, FoldedText, SecretRule, declared_labels, is_label, secrets_in

logger: logging.Logger = logging.getLogger("turnwise.redaction")

_LIBRARIES = ("detect_secrets", "phonenumbers", "stdnum")

NOT_INSTALLED = 'The built-in rules for secrets need packages that are not installed: pip install "turnwise[redact]".'

_MAX_PASSES = 6
"""How often a text is looked at. What a label replaces can bring to light what stood beside it, so a text in which
something was found is looked at again. Chosen so that only a text made for it needs more."""

_BETWEEN = f"\n{LABEL_MARK}\n"
"""Stands between texts that are looked at together; no rule looks beyond it."""

_UNREADABLE = "[REDACTED]"
"""Stands for a text that the rules cannot be applied to: a rule raises, or finds something each time."""


class Redaction:
    """Removes secrets from texts.

        redaction = Redaction(extra_rules=[RedactionRule("BADGE", r"B-[0-9]{6}")])

    `rules` replace the built-in rules, and `extra_rules` go before them: `RedactionRule` objects, or functions that
    yield a `SecretSpan` for each secret in a text. The built-in rules need the extra `redact`. A text for which a rule
    raises is replaced as a whole by `[REDACTED]`.

    Raises `ConfigurationError` for rules that are not callable.
    """

    def __init__(self, rules: Iterable[SecretRule] | None = None, extra_rules: Iterable[SecretRule] = ()) -> None:
        self._extra_rules = _checked(extra_rules)
        self._rules = None if rules is None else (*self._extra_rules, *_checked(rules))
        self._counts: Counter[str] = Counter()
        self._counting = Lock()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many secrets were replaced so far, by label."""
        return MappingProxyType(self._counts)

    @property
    def fault(self) -> str | None:
        """Why this redaction cannot be used, or None: the built-in rules need packages that may not be installed."""
        return None if self._rules is not None or all(map(find_spec, _LIBRARIES)) else NOT_INSTALLED

    def redact(self, text: str) -> str:
        """Return the text with a label in the place of each secret. JSON stays JSON. Raises `ConfigurationError` if the
        packages for the built-in rules are not installed."""
        try:
            redacted: str = self.redact_json(text)
        except RecursionError:
            return self._redact_texts([text])[0]
        return redacted

    def redact_json(self, value: Any) -> Any:
        """Return a JSON value with a label in the place of each secret in its texts, the names of its members included.
        A number that is a secret becomes its label. Returns the same object if there are none. Raises
        `ConfigurationError` as `redact` does, and RecursionError for a value too deep to be looked at."""
        texts = _JsonTexts(value, self._loaded_rules())
        redacted = self._redact_texts(texts.texts)
        self._count(texts.labels)
        is_unchanged = redacted == texts.texts and not texts.labels and texts.is_exact
        return value if is_unchanged else texts.filled(redacted)

    def _count(self, labels: Iterable[str]) -> None:
        with self._counting:  # histories are redacted in threads
            self._counts.update(labels)

    def _loaded_rules(self) -> tuple[SecretRule, ...]:
        if self._rules is None:
            if self.fault is not None:
                raise ConfigurationError(self.fault)
            from .rules import BUILT_IN_RULES

            self._rules = (*self._extra_rules, *BUILT_IN_RULES)
        return self._rules

    def _redact_texts(self, texts: Sequence[str]) -> list[str]:
        """Return texts that belong together, redacted. What is found in one does not depend on the others."""
        rules = self._loaded_rules()
        redacted = list(texts)
        for _ in range(_MAX_PASSES):
            try:
                after = self._pass(redacted, rules)
            except Exception as error:
                # The message of the error may quote the text.
                logger.error(
                    "A rule for secrets failed with %s; the text is replaced as a whole.", type(error).__name__
                )
                return [_UNREADABLE] if len(texts) == 1 else [self._redact_texts([text])[0] for text in texts]
            if after == redacted:
                return redacted
            redacted = after
        return [_UNREADABLE] if len(texts) == 1 else [self._redact_texts([text])[0] for text in redacted]

    def _pass(self, texts: Sequence[str], rules: Sequence[SecretRule]) -> list[str]:
        labels = declared_labels(rules)
        folded = [FoldedText(text, labels) for text in texts]
        starts = list(accumulate((len(one.text) + len(_BETWEEN) for one in folded), initial=0))
        found: dict[int, list[tuple[int, int, str]]] = {}
        for start, end, label in secrets_in(_BETWEEN.join(one.text for one in folded), rules):
            index = bisect_right(starts, start) - 1
            place = folded[index].original_span(start - starts[index], end - starts[index])
            found.setdefault(index, []).append((*place, label))
        self._count(label for found_there in found.values() for *_, label in found_there)
        return [_replaced(text, found[index]) if index in found else text for index, text in enumerate(texts)]


def _checked(rules: Iterable[SecretRule]) -> tuple[SecretRule, ...]:
    given: object = rules
    if not isinstance(given, Iterable) or not all(map(callable, checked := tuple(given))):
        raise ConfigurationError("The rules for secrets are given as a list of rules, each of which can be called.")
    return checked


def _replaced(text: str, found: Iterable[tuple[int, int, str]]) -> str:
    return "".join(_parts(text, found))


def _parts(text: str, found: Iterable[tuple[int, int, str]]) -> Iterator[str]:
    done = 0
    for start, end, label in found:
        yield text[done:start]
        yield f"[{label}]"
        done = end
    yield text[done:]


_MAY_BE_JSON = re.compile(r"\s*[\[{]")

_ONLY_LABELS = re.compile(r"(?:\s*\[[A-Z][A-Z0-9_]{1,31}\])+\s*")
_LABEL = re.compile(r"[A-Z0-9_]+")


@runtime_checkable
class _NamesSecrets(Protocol):
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


class _JsonTexts:
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
        self._naming = [rule for rule in given if isinstance(rule, _NamesSecrets)]
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
