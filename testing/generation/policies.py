"""Generated policies: each differs from the default in some rules, so that together they reach every branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from ...states.policy import (
    Empty,
    Limits,
    ModelSpec,
    Policy,
    Profile,
    Questions,
    Recent,
    Recovery,
    Repeats,
    Retry,
    SpeechRules,
    Texts,
)
from .chance import Chance

Rules: TypeAlias = Mapping[str, Any]
"""Some fields of a policy."""

Change: TypeAlias = Callable[[Chance], Rules]
"""Rules that may differ from their defaults, and how."""

WINDOW = 1_000
"""Tokens that the models of plain policies take in."""


def some_of(*ways: Rules) -> Change:
    """One of these ways to differ."""
    return lambda chance: chance.pick(ways)


PLAIN_CHANGES: tuple[Change, ...] = (
    some_of(
        {"models": (ModelSpec(name="a", window=WINDOW), ModelSpec(name="b"))},
        {"models": (ModelSpec(name="a", window=WINDOW),)},
    ),
    some_of({"route": True, "profiles": (Profile(name="one"), Profile(name="two", recall=False))}),
    some_of({"recall": True}, {"dialogue": Recent()}, {"documents": True}),
    some_of({"text": "fallback"}, {"text": "thought"}),
    some_of({"silent": "nudge"}, {"silent": "fallback"}),
    some_of({"speech": SpeechRules(keep="each", empty="deliver")}),
    some_of({"ends_on": "work_complete"}),
    some_of({"verify": 1}, {"verify": 3}),
    some_of({"summarize": True}),
    some_of({"parallel": 3}),
    some_of({"parallel": 3}),
    some_of({"repeats": Repeats(window=2)}),
    some_of(
        {"limits": Limits(requests=2)},
        {"limits": Limits(requests=3, last="plain")},
        {"limits": Limits(tool_calls=1)},
        {"limits": Limits(tokens=40)},
    ),
    some_of(
        {"empty": Empty(in_a_row=2)},
        {"plain_retry": 1},
        {"texts": Texts(ending="", limit="")},
    ),
    some_of({"when_busy": "queue"}, {"when_busy": "steer"}),
    some_of({"retry": Retry(attempts=1)}, {"retry": Retry(attempts=2)}),
    some_of({"on_failure": "reply"}),
    some_of(
        {"questions": Questions(alongside="alone", deadline=9.0)},
        {"questions": Questions(cancel="resume", deadline=9.0)},
    ),
    some_of({"approval_deadline": 9.0}),
    some_of({"recovery": Recovery(resumes=0)}, {"recovery": Recovery(resumes=1)}),
    some_of({"nudges": 0}, {"nudges": 1}),
    some_of({"marker": "TOOL"}),
)
"""Ordinary changes, by which every branch of every junction can be reached."""


def a_policy(chance: Chance, changes: Iterable[Change], often: tuple[float, ...], **given: Any) -> Policy:
    """A policy with some of these changes, all made with the same one of the probabilities `often`, and with the rules
    given."""
    probability = chance.pick(often)
    rules: dict[str, Any] = {}
    for change in changes:
        if chance.probably(probability):
            rules |= change(chance)
    return Policy(**{**rules, **given})


def plain_policy(chance: Chance, **given: Any) -> Policy:
    """A policy with a few ordinary changes, and with the rules given."""
    return a_policy(chance, PLAIN_CHANGES, (0.1, 0.35), **given)
