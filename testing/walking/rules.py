"""Rules for walks: each leaves some of the defaults behind, so that together they reach every branch."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from ...states.events import Opened
from ...states.policy.policy import (
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
)
from ...states.policy.roles import Role
from ...states.policy.texts import Texts
from ..strategies import NOON

WINDOW = 1_000
"""Tokens that the models of walks take in."""

_CHANGES: tuple[tuple[dict[str, Any], ...], ...] = (
    (
        {"models": (ModelSpec(name="a", window=WINDOW), ModelSpec(name="b"))},
        {"models": (ModelSpec(name="a", window=WINDOW),)},
    ),
    ({"route": True, "profiles": (Profile(name="one"), Profile(name="two", recall=False))},),
    ({"recall": True}, {"dialogue": Recent()}),
    ({"text": "fallback"}, {"text": "thought"}),
    ({"silent": "nudge"}, {"silent": "fallback"}),
    ({"speech": SpeechRules(keep="each", empty="deliver")},),
    ({"ends_on": "work_complete"},),
    ({"verify": 1}, {"verify": 3}),
    ({"summarize": True},),
    ({"parallel": 3},),
    ({"parallel": 3},),
    ({"repeats": Repeats(window=2)},),
    (
        {"limits": Limits(requests=2)},
        {"limits": Limits(requests=3, last="plain")},
        {"limits": Limits(tool_calls=1)},
        {"limits": Limits(tokens=40)},
    ),
    ({"empty": Empty(in_a_row=2)}, {"plain_retry": 1}, {"texts": Texts(ending="", limit="")}),
    ({"when_busy": "queue"}, {"when_busy": "steer"}),
    ({"retry": Retry(attempts=1)}, {"retry": Retry(attempts=2)}),
    ({"on_failure": "reply"},),
    (
        {"questions": Questions(alongside="alone", deadline=9.0)},
        {"questions": Questions(cancel="resume", deadline=9.0)},
    ),
    ({"approval_deadline": 9.0},),
    ({"recovery": Recovery(resumes=0)}, {"recovery": Recovery(resumes=1)}),
    ({"nudges": 0}, {"nudges": 1}),
    ({"marker": "TOOL"},),
)
"""Each line is a rule that may differ from its default, with the ways in which it may."""

_ROLES: tuple[Role, ...] = ("foreground", "foreground", "background", "sub_agent")


@dataclass(frozen=True)
class Theme:
    """What a walk is about, where rare things must come together: the rules that it always has, and its tools."""

    rules: dict[str, Any]
    tools: tuple[str, ...]


_THEMES = (
    Theme({}, ()),
    Theme({}, ()),
    Theme({"parallel": 3, "recovery": Recovery(resumes=2)}, ("pay", "book", "look", "ask_beside")),
    Theme({"verify": 3, "text": "fallback"}, ("finish", "respond", "look")),
)


def theme_of(seed: int) -> Theme:
    """The theme of the walk of this seed. `Pure.`"""
    return _THEMES[seed % len(_THEMES)]


def some_policy(chance: Random, theme: Theme) -> Policy:
    """The rules of the theme, and others of which some differ from their defaults."""
    often = chance.choice((0.1, 0.35))
    rules: dict[str, Any] = {}
    for ways in _CHANGES:
        if chance.random() < often:
            rules |= chance.choice(ways)
    return Policy(**{**rules, **theme.rules})


def some_opening(seed: int) -> Opened:
    """How the walk of this seed begins."""
    chance = Random(seed)
    return Opened(event_id="opened", at=NOON, role=chance.choice(_ROLES), policy=some_policy(chance, theme_of(seed)))
