"""How a walk begins: its theme, its policy, and the generator of its events, all of which follow from its seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...states.events import Opened
from ...states.policy import Questions, Recovery, SubAgentRules
from ...states.values.value import CURRENT_REVISION, NAMES_WHAT_WAS_LEFT, FailureKind
from ..generation.chance import Chance, Seeded
from ..generation.policies import plain_policy
from ..generation.requests import request
from ..generation.values import NOON
from ..generation.vocabulary import PLAIN, TOOLS, Vocabulary, always, one_of


@dataclass(frozen=True)
class Theme:
    """What a walk is about, where rare things must coincide: the rules that it always has, its tools, and the revision
    under which it begins."""

    rules: dict[str, Any]
    tools: tuple[str, ...]
    revision: int = CURRENT_REVISION


_ASK_USER = SubAgentRules(depth=2, questions="ask_user")

_THEMES = (
    Theme({}, ()),
    Theme({}, (), NAMES_WHAT_WAS_LEFT),
    Theme({"parallel": 3, "recovery": Recovery(resumes=2)}, ("pay", "book", "look", "ask_beside")),
    Theme({"verify": 3, "text": "fallback"}, ("finish", "respond", "look")),
    Theme({"sub_agents": _ASK_USER}, ("spawn", "look")),
    Theme({"sub_agents": _ASK_USER, "questions": Questions(cancel="resume")}, ("spawn", "ask")),
)

_FAILURES: tuple[FailureKind, ...] = ("timeout", "timeout", "content_filter", "context_window")


def generator_of(seed: int) -> tuple[Chance, Vocabulary]:
    """What the events of the walk of this seed are generated from. The same seed gives the same events for the same
    states."""
    chance, theme = Seeded(seed), _THEMES[seed % len(_THEMES)]
    few = chance.sample(TOOLS, chance.pick((1, 2, 3, 6)))  # so that the same tools meet again
    tools = [tool for tool in TOOLS if tool.name in theme.tools] or few
    policy = partial(plain_policy, **theme.rules)
    words = replace(PLAIN, tool=one_of(*tools), policy=policy, revision=always(theme.revision))
    return chance, replace(words, model_failure=one_of(*_FAILURES))


def opening_of(seed: int) -> Opened:
    """How the walk of this seed begins."""
    _, vocabulary = generator_of(seed)
    return request(Seeded(seed), vocabulary, Opened, "opened", NOON)
