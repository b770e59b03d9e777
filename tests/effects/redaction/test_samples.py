"""How many secrets the built-in rules find, and how often they are wrong, on texts that nobody tuned them on."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from turnwise import Redaction

from ...support.secrets import load_sample

DOCS = Path(__file__).parents[3] / "docs" / "redaction.md"


@dataclass(frozen=True)
class Figures:
    """What came of one half of the sample."""

    secrets: int
    found: int
    innocents: int
    taken: int


def measured(name: str) -> Figures:
    """Apply the rules to one half of the sample."""
    redaction, sample = Redaction(), load_sample(name)
    found = [one for one in sample["secrets"] if one["secret"] not in redaction.redact(one["text"])]
    taken = [one for one in sample["innocents"] if redaction.redact(one["text"]) != one["text"]]
    return Figures(len(sample["secrets"]), len(found), len(sample["innocents"]), len(taken))


def documented(name: str) -> Figures:
    """Return what docs/redaction.md says of one half of the sample."""
    row = re.search(rf"\| {name} \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", DOCS.read_text(encoding="utf-8"))
    assert row is not None
    return Figures(*map(int, row.groups()))


@pytest.mark.parametrize(("half", "called"), [("tuning", "tuning"), ("held_out", "held out")])
def test_the_documentation_states_what_is_measured(half: str, called: str) -> None:
    """J1: hits and false alarms of both halves."""
    assert documented(called) == measured(half)


@pytest.mark.parametrize("half", ["tuning", "held_out"])
def test_a_half_is_large_enough(half: str) -> None:
    """J1: at least 50 secrets of all kinds, and as many innocent texts, no text twice."""
    sample = load_sample(half)
    texts = Counter(one["text"] for one in (*sample["secrets"], *sample["innocents"]))

    assert min(map(len, sample.values())) >= 50
    assert len({one["kind"] for one in sample["secrets"]}) >= 11
    assert max(texts.values()) == 1
    assert all(one["secret"] in one["text"] for one in sample["secrets"])


def test_the_halves_have_nothing_in_common() -> None:
    """What the rules were tuned on says nothing about them."""
    tuning, held_out = (
        {one["text"] for one in (*load_sample(half)["secrets"], *load_sample(half)["innocents"])}
        for half in ("tuning", "held_out")
    )

    assert not tuning & held_out
