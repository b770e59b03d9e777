"""The rules by which secrets are found.

A rule is any function that looks at a text and tells where in it the secrets are. Most are a pattern, some with a check
of what the pattern found: the checksum of a card number, for example.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from ...states.errors import ConfigurationError

LABEL = re.compile(r"[A-Z][A-Z0-9_]{1,31}")
"""What a label looks like. In a text it stands in square brackets."""

LONGEST_WORD = 16
"""Characters of a label that is known by its form. Chosen to be longer than any label of the built-in rules, and
shorter than keys and numbers that are written in capitals."""

SECRET = "secret"
"""The group of a pattern that is the secret. Without such a group it is all that the pattern matches."""


class SecretSpan(NamedTuple):
    """A secret in a text: it goes from `start` up to `end`, and the label says of which kind it is."""

    start: int
    end: int
    label: str


SecretRule: TypeAlias = Callable[[str], Iterable[SecretSpan]]
"""Finds secrets in a text. The same text must always have the same findings."""


@dataclass(frozen=True)
class RedactionRule:
    """A rule made of a pattern: `RedactionRule("BADGE", r"B-[0-9]{6}")` puts `[BADGE]` in the place of a badge number.

    If the pattern has a group with the name `secret`, only what this group matches is replaced. `check`, if given, gets
    the secret and tells whether it is one. The pattern sees a text without invisible characters, in which letters and
    digits that look like those of ASCII have become these. Keep it linear: it is applied to texts of up to a megabyte.

    Raises `ConfigurationError` for a label other than capitals, digits and underscores, and for an invalid pattern.
    """

    label: str
    pattern: str | re.Pattern[str]
    check: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        label: object = self.label
        if not isinstance(label, str) or not LABEL.fullmatch(label):
            raise ConfigurationError("The label of a rule is 2 to 32 capitals, digits and underscores.")
        try:
            compiled = re.compile(self.pattern)
        except (re.error, TypeError, RecursionError):
            raise ConfigurationError(f"The pattern of the rule {self.label} is no regular expression.") from None
        if not isinstance(compiled.pattern, str):
            raise ConfigurationError(f"The pattern of the rule {self.label} must be one for texts, not for bytes.")
        object.__setattr__(self, "pattern", compiled)

    def __call__(self, text: str) -> Iterator[SecretSpan]:
        """Yield the secrets in a text."""
        pattern: re.Pattern[str] = self.pattern  # type: ignore[assignment]
        group: str | int = SECRET if SECRET in pattern.groupindex else 0
        for match in pattern.finditer(text):
            start, end = match.span(group)
            if start < end and (self.check is None or self.check(match[group])):
                yield SecretSpan(start, end, self.label)


def declared_labels(rules: Iterable[SecretRule]) -> frozenset[str]:
    """Return the labels that rules made of a pattern use. `Pure.`"""
    return frozenset(rule.label for rule in rules if isinstance(rule, RedactionRule))


def is_label(name: str, declared: Set[str]) -> bool:
    """Whether what stands in brackets, and looks like a label, is one. A key in capitals may stand there as well:
    `[AKIAIOSFODNN7EXAMPLE]`. So a label is one of those `declared`, or a short word without digits. `Pure.`"""
    return name in declared or (len(name) <= LONGEST_WORD and not any(map(str.isdigit, name)))
