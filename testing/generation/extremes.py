"""The vocabulary of property tests: what is ordinary, and beside it what breaks programs.

The plain values come first, since Hypothesis shrinks a counterexample towards them: one model, no limits, a text that
says "a". Beside them stand a limit of one, no time at all, the last moment of the calendar, half a page of quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal, TypeVar, get_args

from pydantic import JsonValue

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
    SubAgentRules,
    Texts,
    WhenBusy,
)
from ...states.presets import assistant, background, explicit_response, foreground, reply_flow, sub_agent, talk
from ...states.roles import Role
from ...states.values.acts import LONGEST_INTERVAL, ActKind, AgentMail, Audience, Schedule, SubAgentTask
from ...states.values.messages import CrashContract, HistoryMessage, ToolCall
from ...states.values.turn import EndedStatus
from ...states.values.value import CURRENT_REVISION, FIRST_REVISION, Value
from .calls import ACTS
from .chance import Chance
from .policies import PLAIN_CHANGES, Change, a_policy
from .questions import any_answer_to, any_answers, question_set
from .values import FAILURE_KINDS, SECONDS, TRICKY_TEXTS, USAGES
from .vocabulary import TOOLS, Response, Vocabulary, one_of

T = TypeVar("T")
V = TypeVar("V", bound=Value)

MARKER = "TOOL"
"""The word of a tool protocol that policies reserve, and that generated models write."""

ROLES: tuple[Role, ...] = get_args(Role)
STATUSES: tuple[EndedStatus, ...] = get_args(EndedStatus)
PRESETS = (assistant(), reply_flow(), explicit_response(), talk(), foreground(), background(), sub_agent())


def _all(kind: type[V], **fields: Iterable[Any]) -> tuple[V, ...]:
    """A value for each combination of these fields."""
    return tuple(kind(**dict(zip(fields, values, strict=True))) for values in product(*fields.values()))


# --- policies

_QUESTIONS = _all(
    Questions,
    alongside=("in_order", "alone"),
    answer=("json", "readable"),
    cancel=("idle", "resume"),
    partial=(False, True),
    deadline=(None, *SECONDS),
)
_RETRIES = _all(Retry, attempts=(1, 2, 3), base=(1.0, 0.0, 1e308), factor=(2.0, 1.0, 1e200), cap=(60.0, 0.0, 1e308))
_SPEECH = _all(SpeechRules, keep=("last", "each"), empty=("error", "deliver"), never_fail=(False, True))
_SUB_AGENTS = _all(
    SubAgentRules, depth=(1, 0, 2), number=(10, 1, 2), requests=(20, 1), questions=("refuse", "ask_user", "ask_user")
)
_TEXTS = (
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


def tight_limits(chance: Chance) -> Limits:
    """Limits of one kind, most often of requests, or of all kinds, that a conversation soon meets."""
    kind = chance.below(len(_ONE_LIMIT) + 2)
    if kind <= len(_ONE_LIMIT):
        return chance.pick(_ONE_LIMIT[kind % len(_ONE_LIMIT)])
    every = {name: chance.pick(values) for name, values in _SINGLE_LIMITS.items()}
    return Limits(last=chance.pick(_LAST), **every)


def models(chance: Chance, at_least: int = 1) -> tuple[ModelSpec, ...]:
    """One to three models, with windows that are unknown, or soon full."""
    count = at_least + chance.below(4 - at_least)
    windows = (None, None, 5_000, 100, 1)
    return tuple(ModelSpec(name=f"model-{n}", window=chance.pick(windows)) for n in range(count))


def _profiles(chance: Chance) -> tuple[Profile, ...]:
    names = ("one", "two", "three")[: chance.pick((0, 2, 1, 3))]
    own = (None, None, ModelSpec(name="model-1", window=100), ModelSpec(name="own"))
    return tuple(Profile(name=name, prompt=name, recall=not chance.often(), model=chance.pick(own)) for name in names)


def _made(field: str, make: Callable[[Chance], Any]) -> Change:
    return lambda chance: {field: make(chance)}


def _picked(field: str, *values: Any) -> Change:
    return lambda chance: {field: chance.pick(values)}


CHANGES: tuple[Change, ...] = (
    *PLAIN_CHANGES,
    _made("models", models),
    _made("profiles", _profiles),
    _picked("dialogue", Recent(), Recent(seconds=1.0)),
    _picked("window", 0.5, 1.0),
    _picked("fresh_context", True),
    _picked("transcription_note", True),
    _picked("redact", True),
    _made("limits", tight_limits),
    _picked("repeats", Repeats(window=1), Repeats(window=3)),
    _picked("text", "reply", "fallback", "thought"),
    _picked("plain_retry", 1, 2),
    _picked("empty", Empty(in_a_row=2), Empty(until_limit=True)),
    _picked("retry", *_RETRIES),
    _picked("recovery", Recovery(resumes=1), Recovery(resumes=0)),
    _picked("questions", *_QUESTIONS),
    _picked("approval_deadline", *SECONDS),
    _picked("sub_agent_deadline", None, *SECONDS),
    _picked("sub_agents", *_SUB_AGENTS),
    _picked("cancel_deadline", *SECONDS),
    _picked("parallel", 2, 3, 4),
    _picked("speech", *_SPEECH),
    _picked("relay", "prompt_only"),
    _picked("relay_deadline", None, *SECONDS),
    _picked("marker", MARKER, ""),
    _picked("verify", 2, 1),
    _picked("texts", *_TEXTS),
)
"""Ordinary changes, and extreme ones."""


def any_policy(chance: Chance, **given: Any) -> Policy:
    """A policy of any kind with the rules given; sometimes one of the presets."""
    if chance.rarely():
        return chance.pick(PRESETS).model_copy(update=given)
    return a_policy(chance, CHANGES, (0.5, 0.2, 0.85), **given)


# --- what models, tools and people do


def _variant(name: str, **facts: Any) -> ToolCall:
    return next(tool for tool in TOOLS if tool.name == name).model_copy(update=facts)


_LIKELY_TOOLS = (
    *[_variant("look", raw_arguments='{"path": "a", "line": 1}', provider_id="call_0")] * 4,
    _variant("look", raw_arguments='{"line": 1, "path": "a"}', crash="idempotent"),
    _variant("book", raw_arguments='{"table": 4}'),
    _variant("book", raw_arguments='{"table": 4}', crash="at_most_once"),
    *[_variant("order", raw_arguments='{"sum": 5}')] * 2,
    *[_variant("ask")] * 3,
    *TOOLS,
    *[_variant("respond", crash="idempotent")] * 2,
    *[_variant("finish", crash="pure")] * 3,
    *[_variant("spawn")] * 3,
)
_ODD_TOOLS = tuple(
    ToolCall(
        call_id="call",
        name="odd",
        raw_arguments="not JSON",
        exclusive=alone,
        acts=acts,
        fault=fault,
        crash=crash,
        approval=crash in ("at_most_once", "reconcile"),
        approval_by="operator" if crash == "reconcile" else "user",
    )
    for alone, acts, fault, crash in product(
        (False, True), ((), ("question",), ACTS), (None, "", "There is no such tool"), get_args(CrashContract)
    )
)
_OPAQUE: tuple[tuple[dict[str, JsonValue], ...], ...] = ((), ({"signature": "x", "parts": [1, 2.5, None, {"a": "…"}]},))
_RESPONSES = tuple(
    Response(content, thinking, finish_reason, 1.0, opaque)
    for content, thinking, finish_reason, opaque in product(
        ("Here you are", "", "", " \n", f"{MARKER} x", f"Yes.\n {MARKER} y", *TRICKY_TEXTS),
        ("", "", "Hm", " "),
        ("stop", "stop", "tool_calls", "", "length"),
        _OPAQUE,
    )
)


def _tool(chance: Chance) -> ToolCall:
    return chance.pick(_ODD_TOOLS) if chance.rarely(6) else chance.pick(_LIKELY_TOOLS)


def _acts(chance: Chance, declared: Sequence[ActKind]) -> Sequence[ActKind]:
    kinds = ACTS if chance.rarely(12) else declared
    return [chance.pick(kinds) for _ in range(chance.pick((1, 1, 1, 2, 0)))] if kinds else ()


def _mail(chance: Chance) -> AgentMail:
    audience, silent = chance.pick(get_args(Audience)), chance.often()
    return AgentMail(target="other", text=chance.words(), audience=audience, silent=silent)


def _tasks(chance: Chance) -> tuple[str | SubAgentTask, ...]:
    return tuple(_task(chance) for _ in range(chance.pick((1, 2, 3))))


def _task(chance: Chance) -> str | SubAgentTask:
    if chance.often():
        return chance.text()
    return SubAgentTask(
        text=chance.words(),
        profile=chance.pick(("", "", "one", "two", "unknown")),
        tools=chance.pick((None, (), ("look",))),
        requests=chance.pick((None, 1, 100)),
        tokens=chance.pick((None, 1, 1_000)),
        cost=chance.pick((None, 0.01, 1e308)),
        seconds=chance.pick((None, 1.0, 1e308)),
    )


def _named(chance: Chance, names: Sequence[T], /) -> T | None:
    return chance.pick((None, None, *names))


def _arguments(chance: Chance) -> dict[str, JsonValue] | None:
    values: tuple[JsonValue, ...] = (1, None, "x", [True])
    return {chance.text(): chance.pick(values)} if chance.rarely(4) else None


def _metadata(chance: Chance) -> dict[str, JsonValue] | None:
    values: tuple[JsonValue, ...] = ("Ada", 1, None, {"nested": [True]})
    return chance.pick((None, {}, {chance.text(): chance.pick(values)}))


def _history(chance: Chance) -> tuple[HistoryMessage, ...]:
    roles: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
    return tuple(HistoryMessage(role=role, content=chance.text()) for role in roles[: chance.pick((0, 0, 1, 2))])


_SCHEDULES = (
    Schedule(every=1.0, task="a"),
    Schedule(every=LONGEST_INTERVAL, task='say "yes"'),
    Schedule(cron="*/5 * * * *", task="日本語 مرحبا"),
    Schedule(cron="not an expression", zone="Nowhere/At all", task="one\ntwo"),
)

EXTREME = Vocabulary(
    odd=lambda chance: chance.rarely(8),
    text=lambda chance, plain: chance.text(),
    words=lambda chance, plain: chance.words(),
    named=_named,
    response=one_of(*_RESPONSES),
    call_count=one_of(0, 0, 0, 1, 1, 2, 2, 3, 3, 5),
    tool=_tool,
    model=one_of("", "model-0"),
    usage=one_of(*USAGES),
    cost=one_of(*USAGES),
    model_failure=one_of(*FAILURE_KINDS),
    retry_after=lambda chance: chance.pick(SECONDS) if chance.rarely(4) else None,
    failure=one_of(*FAILURE_KINDS),
    acts=_acts,
    speech=lambda chance: chance.text(),
    speaks_now=lambda chance, alone: chance.often(),
    mail=_mail,
    tasks=_tasks,
    status=one_of(*STATUSES),
    questions=question_set,
    profile=one_of("one", "two", "three", "unknown"),
    recent_texts=lambda chance: chance.below(3),
    missing=lambda chance: chance.below(3),
    role=one_of(*ROLES),
    policy=any_policy,
    when_busy=one_of(None, None, *get_args(WhenBusy)),
    answer=any_answer_to,
    any_answers=any_answers,
    arguments=_arguments,
    tools=one_of(None, (), ("look",), ("look", "pay", "respond"), ("unknown",), TRICKY_TEXTS),
    title=lambda chance: chance.pick((None, chance.text())),
    metadata=_metadata,
    history=_history,
    schedule=one_of(None, *_SCHEDULES),
    wait=one_of(1.0, 60.0, 1e12),
    revision=one_of(CURRENT_REVISION, CURRENT_REVISION, FIRST_REVISION),
)
"""Ordinary values beside those that break programs."""
