"""Secrets in a text, as the rules found them, made into parts that do not overlap."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .folded_text import LABEL_MARK
from .rule import LABEL, SecretRule, SecretSpan

_MARKS = re.compile(f"{LABEL_MARK}+")


def secrets_in(text: str, rules: Iterable[SecretRule]) -> list[SecretSpan]:
    """Return the secrets that the rules find in a folded text, in order and apart from each other. Where secrets
    overlap they are one, with the label of the rule that comes first. Labels that stand in the text already are left
    out of them. Raises what a rule raises, and ValueError for a secret outside the text."""
    found = [
        (start, end, priority, label)
        for priority, rule in enumerate(rules)
        for start, end, label in rule(text)
        if _is_inside(start, end, label, text)
    ]
    if not found:
        return []
    found.sort()
    merged = [found[0]]
    for start, end, priority, label in found[1:]:
        last_start, last_end, last_priority, last_label = merged[-1]
        if start >= last_end:
            merged.append((start, end, priority, label))
        else:
            first = min((last_priority, last_label), (priority, label))
            merged[-1] = (last_start, max(end, last_end), *first)
    return [one for start, end, _, label in merged for one in _without_labels(text, SecretSpan(start, end, label))]


def _is_inside(start: int, end: int, label: str, text: str) -> bool:
    if not 0 <= start <= end <= len(text) or not LABEL.fullmatch(label):
        raise ValueError("a rule has found something outside the text, or under an invalid label")
    return start < end


def _without_labels(text: str, found: SecretSpan) -> Iterator[SecretSpan]:
    """Yield the parts of a secret that stand between labels, without the space around them."""
    start = found.start
    for mark in (*_MARKS.finditer(text, found.start, found.end), None):
        end = found.end if mark is None else mark.start()
        part = text[start:end]
        if part.strip():
            yield SecretSpan(start + len(part) - len(part.lstrip()), start + len(part.rstrip()), found.label)
        if mark is not None:
            start = mark.end()
