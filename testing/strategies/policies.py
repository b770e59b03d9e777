"""Made-up rules: each field one way as well as the other, so that every branch of every junction can be reached.

Rules that belong together are chosen together, from a list of all their combinations that begins with the plain one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from typing import Any, Literal, TypeVar, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from ...states.context import Context
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
    WhenBusy,
)
from ...states.policy.presets import assistant, background, explicit_response, foreground, reply_flow, sub_agent, talk
from ...states.policy.roles import Role
from ...states.policy.texts import Texts
from ...states.states import Compacting, InTurn, State
from ...states.values.value import Value
from .chance import Chance, Drawn, by_chance
from .values import SECONDS

V = TypeVar("V", bound=Value)

PRESETS = (assistant(), reply_flow(), explicit_response(), talk(), foreground(), background(), sub_agent())
MARKER = "TOOL"
"""The word of a tool protocol that made-up rules reserve, and made-up models use."""

WINDOWS = (None, None, 5_000, 100, 1)
ROLES: tuple[Role, ...] = get_args(Role)
WHEN_BUSY: tuple[WhenBusy, ...] = get_args(WhenBusy)


def _all(kind: type[V], **fields: Iterable[Any]) -> tuple[V, ...]:
    """A value for each combination of these fields."""
    return tuple(kind(**dict(zip(fields, values, strict=True))) for values in product(*fields.values()))


_QUESTIONS = _all(
    Questions,
    alongside=("in_order", "alone"),
    answer=("json", "readable"),
    cancel=("idle", "resume"),
    partial=(False, True),
)
_RETRIES = _all(Retry, attempts=(1, 2, 3), base=(1.0, 0.0, 1e308), factor=(2.0, 1.0, 1e200), cap=(60.0, 0.0, 1e308))
_SPEECH = _all(SpeechRules, keep=("last", "each"), empty=("error", "deliver"), never_fail=(False, True))
_TEXTS = (
    *[Texts()] * 6,
    Texts(ending="", limit=" "),
    Texts(error="", full="", nudge="", fallback=""),
    Texts(cancelled="\u2028", not_run="{0}", child="", child_late="", denied=""),
)
_SINGLE_LIMITS: Mapping[str, tuple[Any, ...]] = {
    "requests": (2, 1, 3, 8),
    "tool_calls": (3, 2, 1, 0),
    "tokens": (5_000, 100, 1),
    "cost": (1.0, 0.01),
    "seconds": (60.0, 5.0, 1.0, 1e-9, 1e308),
}
_LAST: tuple[Literal["answer_now", "plain"], ...] = ("answer_now", "plain")
_ONE_LIMIT = tuple(_all(Limits, **{kind: values, "last": _LAST}) for kind, values in _SINGLE_LIMITS.items())


def tight(chance: Chance) -> Limits:
    """Limits of one kind, most often of requests, or of all kinds, that a conversation soon meets."""
    kind = chance.below(len(_ONE_LIMIT) + 2)
    if kind <= len(_ONE_LIMIT):
        return chance.pick(_ONE_LIMIT[kind % len(_ONE_LIMIT)])
    every = {name: chance.pick(values) for name, values in _SINGLE_LIMITS.items()}
    return Limits(last=chance.pick(_LAST), **every)


def models(chance: Chance, at_least: int = 1) -> tuple[ModelSpec, ...]:
    """One to three models, with windows that are not known, or soon full."""
    count = at_least + chance.below(4 - at_least)
    return tuple(ModelSpec(name=f"model-{n}", window=chance.pick(WINDOWS)) for n in range(count))


def profiles(chance: Chance) -> tuple[Profile, ...]:
    """Up to three profiles."""
    recalls = chance.flags(chance.pick((0, 2, 1, 3)))
    return tuple(Profile(name=f"profile-{n}", prompt="p" * n, recall=not bare) for n, bare in enumerate(recalls))


def _questions(chance: Chance) -> Questions:
    asked = chance.pick(_QUESTIONS)
    return asked if chance.often() else asked.model_copy(update={"deadline": chance.pick(SECONDS)})


def _what_reaches_people(chance: Chance) -> dict[str, Any]:
    return {
        "text": chance.pick(("reply", "fallback", "thought")),
        "speech": chance.pick(_SPEECH),
        "ends_on": chance.pick(("text", "text", "work_complete")),
        "silent": chance.pick(("allow", "nudge", "fallback")),
        "nudges": chance.pick((2, 0, 1)),
        "relay": chance.pick(("nudge_then_deliver", "prompt_only")),
        "marker": chance.pick((None, None, MARKER, "")),
        "verify": chance.pick((0, 2, 1)),
        "summarize": chance.often(),
    }


def _what_a_request_holds(chance: Chance) -> dict[str, Any]:
    told = dict(zip(("fresh_context", "transcription_note", "redact"), chance.flags(3), strict=True))
    return {
        **told,
        "models": models(chance),
        "profiles": profiles(chance),
        "route": chance.often(),
        "recall": chance.pick((False, False, True)),
        "dialogue": chance.pick(("transcript", "transcript", "transcript", Recent(), Recent(seconds=1.0))),
        "window": chance.pick((0.9, 0.9, 0.5, 1.0)),
    }


def _what_is_enough(chance: Chance) -> dict[str, Any]:
    return {
        "limits": tight(chance) if chance.often() else Limits(),
        "repeats": Repeats(window=chance.pick((0, 0, 1, 3))),
        "empty": Empty(in_a_row=chance.pick((1, 2))),
        "plain_retry": chance.pick((0, 1, 2)),
        "retry": chance.pick(_RETRIES),
        "on_failure": chance.pick(("fail", "reply")),
        "recovery": Recovery(resumes=chance.pick((2, 1, 0))),
    }


def _who_waits(chance: Chance) -> dict[str, Any]:
    return {
        "questions": _questions(chance),
        "approval_deadline": chance.pick((None, None, *SECONDS)),
        "sub_agent_deadline": chance.pick((1800.0, None, *SECONDS)),
        "cancel_deadline": chance.pick((5.0, *SECONDS)),
        "parallel": chance.pick((1, 2, 3, 4)),
        "when_busy": chance.pick(WHEN_BUSY),
    }


def policy(chance: Chance, **rules: Any) -> Policy:
    """Rules of every kind, but for those given; sometimes one of the presets."""
    if chance.rarely():
        return chance.pick(PRESETS).model_copy(update=rules)
    made: dict[str, Any] = {
        **_what_is_enough(chance),
        **_who_waits(chance),
        **_what_reaches_people(chance),
        **_what_a_request_holds(chance),
        "texts": chance.pick(_TEXTS),
    }
    return Policy(**{**made, **rules})


@cache
def policies(**rules: SearchStrategy[Any]) -> SearchStrategy[Policy]:
    """Rules of every kind, but for those given: 1 to 3 models, up to 4 tools at once, limits down to nothing."""
    return _policies(rules)


@st.composite
def _policies(draw: st.DrawFn, rules: Mapping[str, SearchStrategy[Any]]) -> Policy:
    return policy(Drawn(draw), **{name: draw(rule) for name, rule in rules.items()})


@cache
def limits() -> SearchStrategy[Limits]:
    """No limits, or tight ones."""
    return st.just(Limits()) | tight_limits()


tight_limits = cache(by_chance(tight))


# --- contexts


def context_for(chance: Chance, state: State) -> Context:
    """A context in which this state can rest: the model of its turn is one of the policy's."""
    turn = state.turn if isinstance(state, InTurn | Compacting) else None
    rules = policy(chance)
    if turn is not None and turn.model >= len(rules.models):
        rules = rules.model_copy(update={"models": models(chance, turn.model + 1)})
    return Context(role=chance.pick(ROLES), system=chance.text(), policy=rules)


contexts_for = by_chance(context_for)
