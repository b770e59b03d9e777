"""Puts labels in the places of secrets: `[EMAIL]`, `[CARD]`, `[API_KEY]`.

What was replaced is counted, never kept. Redaction is deterministic, so that a request which is sent again equals the
one that was stored, and idempotent, so that a text which passes through it twice is the same as after once.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate
from threading import Lock
from types import MappingProxyType
from typing import Any

from ...states.errors import ConfigurationError
from .folded_text import LABEL_MARK, FoldedText
from .json_texts import JsonTexts
from .rule import SecretRule, declared_labels
from .spans import secrets_in

logger = logging.getLogger("turnwise.redaction")

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
        texts = JsonTexts(value, self._loaded_rules())
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
            from .rules.built_in import BUILT_IN_RULES

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
