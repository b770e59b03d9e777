"""Generated states, made directly and not by a conversation: no trace leads to most of them.

Each is consistent in itself: the ids of effects differ and were given out before, what runs has no result yet, a claim
is there where one is checked, and a busy state has something to wait for. Its parts are generated here as well: its
turn, its round of calls, the questions that wait for a person.

The values are those of property tests: what is ordinary, and beside it what breaks programs. The plain values come
first, since Hypothesis shrinks a counterexample towards them: one model, no limits, a text that says "a". Beside them
stand a limit of one, no time at all, the last moment of the calendar, half a page of quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Literal, TypeVar, get_args

from pydantic import JsonValue

from ...states.context import Context, NextTools
from ...states.policy import (
    MIN_RESULT,
    Clearing,
    Empty,
    Limits,
    ModelSettings,
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
    models_of,
)
from ...states.presets import assistant, background, explicit_response, foreground, reply_flow, sub_agent, talk
from ...states.roles import Role
from ...states.states import (
    STATES,
    AwaitingApproval,
    AwaitingSubAgents,
    AwaitingUserResponse,
    Book,
    Cancelling,
    Compacting,
    Failed,
    InDoubt,
    InTurn,
    LlmRequesting,
    RetryWaiting,
    State,
    Summarizing,
    Timer,
    ToolExecuting,
    Verifying,
)
from ...states.values.acts import (
    LONGEST_INTERVAL,
    Act,
    ActKind,
    AgentMail,
    Audience,
    Schedule,
    Speech,
    SubAgents,
    SubAgentTask,
    Transfer,
    WorkComplete,
)
from ...states.values.messages import (
    Citation,
    CrashContract,
    Heard,
    HistoryMessage,
    Made,
    ProviderFields,
    ToolCall,
    ToolResult,
)
from ...states.values.questions import MAX_HEADER, Answers, QuestionOption, UserQuestion
from ...states.values.round import Child, ChildQuestion, Round, RoundCall, Running, Share, fingerprint
from ...states.values.turn import Delivered, EndedStatus, Failure, Owed, Spoken, TurnEnded, TurnRecord, Waiting
from ...states.values.value import Value
from .chance import FAILURE_KINDS, INSTANTS, SECONDS, TRICKY_TEXTS, USAGES, Chance, files_beside, from_type
from .vocabulary import (
    FORM,
    PLAIN_CHANGES,
    TOOLS,
    Attempt,
    Change,
    Response,
    Vocabulary,
    a_policy,
    an_attempt,
    one_of,
)

Fields = dict[str, Any]

TIMER = 19
"""The id of the effect that runs the timer of a generated state."""


def a_state(chance: Chance, *kinds: type[State]) -> State:
    """A state of one of these types, or of any.

    The fields that `GENERATORS` does not give are generated from the type.
    """
    kind = chance.pick(kinds or STATES)
    counters = book(chance)
    fields: Fields = {"book": counters}
    if issubclass(kind, InTurn):
        fields |= {"turn": turn(chance, counters), "inbox": inbox(chance, counters), "resumes": chance.below(3)}
        if "effect_id" in kind.model_fields:
            fields["effect_id"] = 1 + chance.below(TIMER)
    if kind in GENERATORS:
        return kind(**fields | GENERATORS[kind](chance, counters))
    return from_type(kind, chance, **fields)


def round_of(chance: Chance, book: Book, *, running: int, doubtful: int = 0) -> Round:
    """A round under way: at least so many calls run and are in doubt, some have ended, some wait."""
    size = max(chance.pick((1, 2, 2, 3, 3, 5)), running + doubtful)
    calls = numbered(EXTREME.tool(chance) for _ in range(size))
    asked = tuple(RoundCall.of(call, 2 + chance.below(book.seq - 2)) for call in calls)
    left = chance.shuffled(asked)
    run = _take(chance, left, running, len(left) - doubtful) if running else []
    doubt = _take(chance, left, doubtful, len(left)) if doubtful else []
    settled = _take(chance, left, 0, len(left))
    allowed = [call for call in left if call.approval and chance.often()]
    return Round(
        calls=asked,
        running=tuple(_running(chance, call, number) for number, call in enumerate(run, start=1)),
        settled=tuple(call.call_id for call in settled),
        allowed=tuple(call.call_id for call in (*run, *doubt, *settled, *allowed) if call.approval),
        doubtful=tuple(call.call_id for call in doubt),
        claim=chance.pick((None, None, Heard(seq=3, index=1))),
        failed=chance.often(),
    )


def question_set(chance: Chance) -> tuple[UserQuestion, ...]:
    """One to four questions that may be asked together. Some are open: they offer no answers."""
    asked = [_question(chance) for _ in range(chance.pick((1, 1, 2, 4)))]
    texts = _distinct([question.question for question in asked])
    return tuple(question.model_copy(update={"question": text}) for question, text in zip(asked, texts, strict=True))


def _question(chance: Chance) -> UserQuestion:
    multi_select = chance.often()
    labels = [_label(chance) for _ in range(chance.pick((2, 2, 3, 4)))]
    described = chance.rarely(4)
    header = chance.pick((None, "Time", "x" * MAX_HEADER))
    if chance.rarely(6):
        return UserQuestion(question=chance.words(), header=header)
    return UserQuestion(
        question=chance.words(),
        header=header,
        options=tuple(
            QuestionOption(
                label=label,
                description=chance.words() if described else None,
                preview=chance.words() if described and not multi_select else None,
            )
            for label in _distinct(labels)
        ),
        multi_select=multi_select,
    )


def _label(chance: Chance) -> str:
    label = chance.words()
    return f"{label}?" if label.strip().casefold() == "other" else label


def _distinct(texts: Iterable[str]) -> list[str]:
    """These texts, with a mark added to those that stand there already."""
    seen: list[str] = []
    for text in texts:
        while text in seen:
            text += "+"
        seen.append(text)
    return seen


def any_answers(chance: Chance) -> Answers:
    """Answers to whatever was asked: unknown questions, empty texts, lists where one label belongs."""
    return {chance.text(): _any_answer(chance) for _ in range(chance.below(4))}


def _any_answer(chance: Chance) -> str | tuple[str, ...]:
    return tuple(chance.text() for _ in range(chance.below(4))) if chance.rarely(3) else chance.text()


def any_answer_to(chance: Chance, question: UserQuestion) -> str | tuple[str, ...]:
    """An answer that this question takes: a label, several where that is allowed, or words of one's own."""
    labels = tuple(option.label for option in question.options) or (chance.words(),)
    match chance.below(4):
        case 1 if question.multi_select:
            return labels
        case 2:
            return chance.words()
        case 3:
            return labels[-1]
        case _:
            return labels[0]


ROLES: tuple[Role, ...] = get_args(Role)

STATUSES: tuple[EndedStatus, ...] = get_args(EndedStatus)

PRESETS = (assistant(), reply_flow(), explicit_response(), talk(), foreground(), background(), sub_agent())


def any_policy(chance: Chance, **given: Any) -> Policy:
    """A policy of any kind with the rules given; sometimes one of the presets."""
    if chance.rarely():
        return chance.pick(PRESETS).model_copy(update=given)
    return a_policy(chance, CHANGES, (0.5, 0.2, 0.85), **given)


MARKER = "TOOL"
"""The word of a tool protocol that policies reserve, and that generated models write."""

V = TypeVar("V", bound=Value)


def _all(kind: type[V], **fields: Iterable[Any]) -> tuple[V, ...]:
    """A value for each combination of these fields."""
    return tuple(kind(**dict(zip(fields, values, strict=True))) for values in product(*fields.values()))


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
    Texts(cancelled="\u2028", not_run="{0}", child_late="", denied=""),
)

_SINGLE_LIMITS: Mapping[str, tuple[Any, ...]] = {
    "requests": (2, 1, 3, 8),
    "tool_calls": (3, 2, 1, 0),
    "tokens": (5_000, 100, 1),
    "cost": (1.0, 0.01),
    "seconds": (60.0, 5.0, 1.0, 1e-9, 1e308),
}

_LAST: tuple[Literal["answer_now", "plain"], ...] = ("answer_now", "plain")


def tight_limits(chance: Chance) -> Limits:
    """Limits of one kind, most often of requests, or of all kinds, that a conversation soon meets."""
    kind = chance.below(len(_ONE_LIMIT) + 2)
    if kind <= len(_ONE_LIMIT):
        return chance.pick(_ONE_LIMIT[kind % len(_ONE_LIMIT)])
    every = {name: chance.pick(values) for name, values in _SINGLE_LIMITS.items()}
    return Limits(last=chance.pick(_LAST), **every)


_ONE_LIMIT = tuple(_all(Limits, **{kind: values, "last": _LAST}) for kind, values in _SINGLE_LIMITS.items())


def models(chance: Chance, at_least: int = 1) -> tuple[ModelSpec, ...]:
    """One to three models, with windows that are unknown, or soon full."""
    count = at_least + chance.below(4 - at_least)
    windows = (None, None, 5_000, 100, 1)
    return tuple(ModelSpec(name=f"model-{n}", window=chance.pick(windows)) for n in range(count))


def _profiles(chance: Chance) -> tuple[Profile, ...]:
    names = ("one", "two", "three")[: chance.pick((0, 2, 1, 3))]
    own = (None, None, ModelSpec(name="model-1", window=100), ModelSpec(name="own"))
    return tuple(
        Profile(
            name=name,
            prompt=name,
            recall=not chance.often(),
            model=chance.pick(own),
            settings=chance.pick(SETTINGS),
        )
        for name in names
    )


SETTINGS = (
    ModelSettings(),
    *_all(ModelSettings, tool_choice=("auto", "none", "required", "look", "unknown"), temperature=(None, 0.0)),
    *_all(ModelSettings, stop=((), ("END",), ("\n", "\u2028")), top_logprobs=(None, 0, 20)),
    *_all(ModelSettings, parallel_tool_calls=(True, False), logprobs=(True, False)),
    *_all(ModelSettings, strict=(True, False), cache=("auto", "off")),
    *_all(
        ModelSettings, server_tools=((), ("web_search", "code_execution"), ({"type": "own", "deep": [{"a": None}]},))
    ),
)
"""Parameters of model requests, of every kind."""


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
    _picked("settings", *SETTINGS),
    _picked("output_retries", 0, 1, 2),
    _picked("keep_thinking", "conversation", 1, 2, 5),
    _picked("clear_results", None, Clearing(share=1.0, rounds=1), Clearing(share=0.5)),
    _picked("max_result", MIN_RESULT, 1_000_000),
)
"""Ordinary changes, and extreme ones."""

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

_CITATIONS = (
    Citation(url="https://example.org/menu", title="Menu", quote="Sushi", start=0, end=4, given={"type": "url"}),
    Citation(),
    *(Citation(title=text, quote=text) for text in TRICKY_TEXTS[:3]),
)

_LOGPROBS: dict[str, JsonValue] = {"content": [{"token": "Here", "logprob": -0.25, "top_logprobs": []}]}

_OF_PROVIDERS: tuple[dict[str, JsonValue], ...] = (
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
    {"reasoning_items": [{"id": "rs_1", "type": "reasoning", "encrypted_content": "x", "summary": []}]},
    {"provider_specific_fields": {"thought_signatures": ["x"]}},
    {"content": [{"type": "text", "text": "Here"}, {"type": "server_tool_use", "id": "srvtoolu_1", "input": {}}]},
)


def _provided(chance: Chance, calls: str) -> dict[str, Any]:
    """Sometimes citations, probabilities, or what goes back to a family of models."""
    if not chance.rarely(3):
        return {}
    provider = ProviderFields(
        family=chance.pick(("", "", "openai/gpt", "family")),
        thinking=chance.pick(("", "reasoning", "<think>…</think>\n")),
        message=chance.pick(({}, *_OF_PROVIDERS)),
        calls={f"{calls}-0": {"extra_content": {"google": {"thought_signature": "x"}}}} if chance.often() else {},
    )
    return {
        "citations": tuple(chance.pick(_CITATIONS) for _ in range(chance.below(3))),
        "logprobs": chance.pick((None, _LOGPROBS)),
        "provider": chance.pick((None, provider, provider)),
    }


ACTS: tuple[ActKind, ...] = get_args(ActKind)

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


def _tool(chance: Chance) -> ToolCall:
    return chance.pick(_ODD_TOOLS) if chance.rarely(6) else chance.pick(_LIKELY_TOOLS)


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


T = TypeVar("T")


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


def _attempt(chance: Chance, calls: Sequence[ToolCall]) -> Attempt | None:
    """Any typed answer, also one that says nothing to people."""
    if chance.often():
        return None
    return an_attempt(chance, calls, valid=chance.pick(('{"a": 1}', "null", '""', "TOOL")), reply=chance.text())


EXTREME = Vocabulary(
    odd=lambda chance: chance.rarely(8),
    text=lambda chance, plain: chance.text(),
    words=lambda chance, plain: chance.words(),
    named=_named,
    response=one_of(*_RESPONSES),
    call_count=one_of(0, 0, 0, 1, 1, 2, 2, 3, 3, 5),
    tool=_tool,
    model=one_of("", "model-0"),
    provided=_provided,
    usage=one_of(*USAGES),
    cost=one_of(*USAGES),
    attempt=_attempt,
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
    output=lambda chance: chance.pick((None, None, FORM)),
    settings=lambda chance: chance.pick(SETTINGS) if chance.rarely(4) else None,
    answer=any_answer_to,
    any_answers=any_answers,
    arguments=_arguments,
    tools=one_of(None, (), ("look",), ("look", "pay", "respond"), ("unknown",), TRICKY_TEXTS),
    title=lambda chance: chance.pick((None, chance.text())),
    metadata=_metadata,
    history=_history,
    schedule=one_of(None, *_SCHEDULES),
    wait=one_of(1.0, 60.0, 1e12),
)
"""Ordinary values beside those that break programs."""


def _take(chance: Chance, calls: list[RoundCall], least: int, most: int) -> list[RoundCall]:
    """Take some of these calls away, from the front."""
    count = chance.number(least, most)
    taken = calls[:count]
    del calls[:count]
    return taken


RECONCILING, CHILD = 7, 12
"""Where the ids begin of effects that ask about a call, and of sub-agents; the tools that run come before them."""

FIRST = 0
"""The effect as which a call was first started that has asked a person since."""


def _running(chance: Chance, call: RoundCall, number: int) -> Running:
    is_reconciled = call.crash == "reconcile" and chance.often()
    has_asked = call.exclusive and chance.often()
    return Running(
        effect_id=number,
        call_id=call.call_id,
        reconciling=RECONCILING + number if is_reconciled else None,
        started_as=FIRST if has_asked else None,
        asked=has_asked,
    )


def timer(chance: Chance) -> Timer:
    """A timer that runs."""
    return Timer(effect_id=TIMER, due=chance.pick(INSTANTS))


def turn(chance: Chance, book: Book) -> TurnRecord:
    """A turn under way: what it has used up, what was tried in it, what was said."""
    spent = chance.pick(USAGES)
    return TurnRecord(
        number=book.turn,
        since=chance.pick(INSTANTS),
        model=chance.pick((0, 0, 1, 2)),
        requests=chance.pick((1, 2, 3, 8, 9, 50)),
        tool_calls=chance.below(5),
        spent=spent,
        usage=spent + chance.pick(USAGES),
        profile=chance.pick(("", "one", "two")),
        memory=chance.pick((None, None, Heard(seq=2))),
        **_attempts(chance),
        **_said(chance),
    )


_SEEN = tuple(fingerprint(call) for call in TOOLS)


def _attempts(chance: Chance) -> Fields:
    names = ("plain", "only_thought", "worked", "fell_back", "condensed", "asked_to_speak")
    return {
        **dict(zip(names, chance.flags(len(names)), strict=True)),
        "nudge": chance.pick((None, Made(text="Go on"))),
        "nudges": chance.below(3),
        "empties": chance.below(3),
        "plain_retries": chance.below(3),
        "rejections": chance.below(3),
        "rejection": chance.pick((None, Heard(seq=3))),
        "earlier_calls": chance.pick(((), (_SEEN,), ((), _SEEN[:1]))),
    }


def _said(chance: Chance) -> Fields:
    flags = chance.flags(7)
    said = tuple(Spoken(said=Heard(seq=3, index=n + 1), place=(2, 0, n), now=now) for n, now in enumerate(flags[:2]))
    delivered = tuple(Delivered(effect_id=1, said=one.said) for one in said if one.now)
    return {
        "said": said if flags[2] else (),
        "deliveries": delivered if flags[2] else (),
        "relay": (Heard(seq=1),) if flags[3] and flags[4] else (),
        "overdue": (Heard(seq=1),) if flags[3] and flags[4] and flags[5] else (),
        "internal": flags[5],
        "speaks": flags[6],
        "final": chance.pick((None, Heard(seq=4))),
        "claim": chance.pick((None, None, Heard(seq=3, index=1))),
        "output_from": chance.pick((None, None, 1)),
        "output": chance.pick((None, None, Heard(seq=4, index=1))),
        "output_failures": chance.below(3),
        "output_errors": chance.pick((None, None, Heard(seq=4, index=1))),
    }


def ending(chance: Chance, book: Book) -> TurnEnded:
    """How a turn ended that is summarized."""
    failure = Failure(kind=chance.pick(FAILURE_KINDS), sentence=chance.text()) if chance.rarely() else None
    return TurnEnded(
        turn=book.turn,
        status="completed",
        final_content=chance.pick((Heard(seq=4), Made(text="Done"), None)),
        truncated=chance.often(),
        failure=failure,
        limit=chance.pick((None, None, "requests", "cost")),
    )


def _awaiting_user_response(chance: Chance, counters: Book) -> Fields:
    fields = _asked(chance, counters)
    call = fields["round"].queued[0]
    if chance.rarely(3):
        open_round = with_a_waiting_call(fields["round"], call)
        call = open_round.named(call.call_id)
    else:
        open_round = fields["round"].settle(call.call_id)
    return {**fields, "round": open_round, "questions": question_set(chance), "call": call}


def _asked(chance: Chance, counters: Book) -> Fields:
    """A wait for a person that holds up a round in which nothing runs."""
    return {
        "round": with_a_queue(round_of(chance, counters, running=0)),
        "since": chance.pick(INSTANTS),
        "deadline": timer(chance) if chance.often() else None,
    }


def _awaiting_approval(chance: Chance, counters: Book) -> Fields:
    fields = _asked(chance, counters)
    call = fields["round"].queued[0].replace(approval=True)
    allowed = tuple(one for one in fields["round"].allowed if one != call.call_id)
    return {**fields, "round": with_call(fields["round"], call).replace(allowed=allowed), "call": call}


def _awaiting_sub_agents(chance: Chance, counters: Book) -> Fields:
    open_round, call = with_children(chance, counters)
    asked = tuple(_asked_by(chance, child) for child in open_round.unfinished if chance.rarely(3))
    waits = not all(question.settled for question in asked)
    return {
        "round": open_round,
        "call": call,
        "deadline": timer(chance) if chance.often() else None,
        "asked": asked,
        "waits_since": chance.pick(INSTANTS) if waits else None,
    }


def _asked_by(chance: Chance, child: Child) -> ChildQuestion:
    """What a sub-agent asks, or has asked."""
    return ChildQuestion(
        effect_id=child.effect_id,
        call_id=f"call-{chance.below(3)}",
        questions=question_set(chance),
        seq=5,
        since=chance.pick((None, *INSTANTS)),
        settled=chance.rarely(3),
    )


def _in_doubt(chance: Chance, counters: Book) -> Fields:
    open_round = round_of(chance, counters, running=chance.below(2), doubtful=1)
    return {"round": open_round, "since": chance.pick(INSTANTS)}


def _cancelling(chance: Chance, counters: Book) -> Fields:
    answering = None
    match chance.below(4):
        case 0:
            open_round = round_of(chance, counters, running=1)
        case 3:
            open_round, answering = Round(calls=()), 1 + chance.below(TIMER)
        case 1:
            open_round = round_of(chance, counters, running=1, doubtful=1)
        case _:
            open_round, _ = with_children(chance, counters)
    closing = chance.often()
    return {"round": open_round, "deadline": timer(chance), "closing": closing, "answering": answering}


def _compacting(chance: Chance, counters: Book) -> Fields:
    return {
        "effect_id": 1 + chance.below(TIMER),
        "up_to": 1 + chance.below(5),
        "attempt": 1 + chance.below(3),
        "turn": turn(chance, counters) if chance.often() else None,
        "inbox": inbox(chance, counters),
        "resumes": chance.below(3),
    }


def _failed(chance: Chance, counters: Book) -> Fields:
    return {
        "turn": counters.turn,
        "inbox": inbox(chance, counters),
        "kind": chance.pick(FAILURE_KINDS),
        "sentence": chance.text(),
    }


GENERATORS: Mapping[type[State], Callable[[Chance, Book], Fields]] = {
    LlmRequesting: lambda chance, counters: {"attempt": 1 + chance.below(4)},
    RetryWaiting: lambda chance, counters: {"timer": timer(chance), "attempt": 2 + chance.below(3)},
    ToolExecuting: lambda chance, counters: {"round": round_of(chance, counters, running=1)},
    AwaitingUserResponse: _awaiting_user_response,
    AwaitingApproval: _awaiting_approval,
    AwaitingSubAgents: _awaiting_sub_agents,
    Verifying: lambda chance, counters: {"turn": turn(chance, counters).replace(claim=Heard(seq=3, index=1))},
    Summarizing: lambda chance, counters: {"ending": ending(chance, counters)},
    Compacting: _compacting,
    Cancelling: _cancelling,
    InDoubt: _in_doubt,
    Failed: _failed,
}
"""What states of each type hold beside what all states of a turn hold."""


def context_for(chance: Chance, state: State) -> Context:
    """A context in which this state can rest: its turn asks one of the models that it may ask."""
    record = state.turn if isinstance(state, InTurn | Compacting) else None
    policy = any_policy(chance)
    if record is not None and record.model >= len(models_of(policy, record.profile)):
        policy = policy.model_copy(update={"models": models(chance, record.model + 1)})
    return Context(
        role=chance.pick(ROLES),
        system=chance.text(),
        policy=policy,
        tools=EXTREME.tools(chance),
        next_tools=_next_tools(chance, state.book.turn),
    )


def _next_tools(chance: Chance, turn: int) -> NextTools | None:
    """Tools that were changed before this turn, or in it."""
    from_turn = turn + chance.pick((1, 0))
    return NextTools(tools=EXTREME.tools(chance), from_turn=from_turn) if chance.rarely(3) else None


NEXT_EFFECT = 20
"""The id that the next effect of a generated state gets."""


def book(chance: Chance) -> Book:
    """The counters of a conversation that has had some turns."""
    used = chance.pick((0, 1, 90, 100, 5_000))
    return Book(
        seq=5 + chance.below(40),
        turn=1 + chance.below(9),
        next_effect=NEXT_EFFECT,
        window_used=used,
        clearable=chance.pick((0, used // 2, used)),
        wake=chance.pick((None, *INSTANTS)),
        profile=chance.pick(("", "", "one", "two", "unknown")),
        owed=(Owed(said=Heard(seq=1), since=chance.pick(INSTANTS), origin="agent"),) if chance.rarely(4) else (),
    )


def inbox(chance: Chance, book: Book) -> tuple[Waiting, ...]:
    """Messages that wait, most often none."""
    size = chance.pick((0, 0, 0, 1, 2, 3))
    return tuple(_waiting(chance, n, book.seq - size + 1 + n) for n in range(size))


def _waiting(chance: Chance, number: int, seq: int) -> Waiting:
    event_id = f"request-{number}"
    match chance.below(7):
        case 0 | 1:
            return Waiting(event_id=event_id, seq=seq)
        case 2:
            return Waiting(event_id=event_id, seq=seq, steer=True)
        case 3:
            return Waiting(event_id=event_id, seq=seq, audience="user", origin="agent")
        case 4:
            return Waiting(event_id=event_id, seq=seq, audience="agent", silent=True, origin="agent")
        case 5:
            return Waiting(event_id=event_id, seq=seq, audience="agent", scheduled=True)
        case _:
            return Waiting(event_id=event_id, seq=seq, audience="user", silent=True)


def with_children(chance: Chance, book: Book) -> tuple[Round, RoundCall]:
    """A round whose sub-agents work, and the call that started them."""
    idle = with_a_queue(round_of(chance, book, running=0))
    call = chance.pick(idle.queued).replace(exclusive=True, acts=("children",))
    begun = with_call(idle, call)
    return begun.spawn(call.call_id, _children(chance, call)), call


def _children(chance: Chance, call: RoundCall) -> tuple[Child, ...]:
    """The sub-agents of this call: one to three, of which the first still works."""
    statuses: list[EndedStatus | str] = ["", *(chance.pick(("", *STATUSES)) for _ in range(chance.below(3)))]
    return tuple(
        Child(
            effect_id=CHILD + number,
            call_id=call.call_id,
            task=Heard(seq=call.seq + 1, index=number + 1),
            status=status,
            outcome=Heard(seq=call.seq + 2 + number) if status else None,
            profile=chance.pick(("", "", "one")),
            tools=chance.pick((None, None, ("look",))),
            share=chance.pick((None, Share(requests=20), Share(requests=1, tokens=50, cost=0.5, seconds=9.0))),
            due=chance.pick((None, None, *INSTANTS)),
            seconds=chance.pick((None, 60.0)),
        )
        for number, status in enumerate(statuses)
    )


def with_a_queue(round_: Round) -> Round:
    """This round, in which at least one call waits; none may run. `Pure.`"""
    return round_ if round_.queued else round_.replace(settled=())


def with_call(round_: Round, call: RoundCall) -> Round:
    """This round with the call in the place of the one of its id. `Pure.`"""
    calls = tuple(call if one.call_id == call.call_id else one for one in round_.calls)
    return round_.replace(calls=calls)


def with_a_waiting_call(round_: Round, call: RoundCall) -> Round:
    """This round, in which the queued call has asked a person, and waits. `Pure.`"""
    return with_call(round_, call.replace(exclusive=True)).start(call, 1).suspend(call.call_id)


def some_calls(chance: Chance, vocabulary: Vocabulary, prefix: str = "call") -> tuple[ToolCall, ...]:
    """The calls of one response."""
    return numbered((vocabulary.tool(chance) for _ in range(vocabulary.call_count(chance))), prefix)


def numbered(calls: Iterable[ToolCall], prefix: str = "call") -> tuple[ToolCall, ...]:
    """These calls with ids that differ: the prefix and a number. `Pure.`"""
    return tuple(call.model_copy(update={"call_id": f"{prefix}-{number}"}) for number, call in enumerate(calls))


_LONG = f"{{}}{' and more' * 100}"
"""A result of hundreds of characters, which is cleared when it is old."""


def result_of(chance: Chance, vocabulary: Vocabulary, call: RoundCall | None = None) -> ToolResult:
    """What a tool returns for this call, or for any: a result with the acts that it declares, or an error."""
    if chance.probably(0.1):
        return ToolResult(text=vocabulary.text(chance, "Error"), error=True)
    kinds = vocabulary.acts(chance, ACTS if call is None else call.acts)
    acts = tuple(_act(chance, vocabulary, kind, call) for kind in kinds if kind != "question")
    text = vocabulary.text(chance, "Done")
    is_long = call is not None and call.seq % 3 == 0
    return ToolResult(text=_LONG.format(text) if is_long else text, files=files_beside(text), acts=acts)


def _act(chance: Chance, vocabulary: Vocabulary, kind: ActKind, call: RoundCall | None) -> Act:
    match kind:
        case "speech":
            text = vocabulary.speech(chance)
            now = vocabulary.speaks_now(chance, call is not None and call.exclusive)
            return Speech(text=text, when="now" if now else "turn_end")
        case "work_complete":
            return WorkComplete(summary=vocabulary.words(chance, "It is done."))
        case "mail":
            return vocabulary.mail(chance)
        case "transfer":
            return Transfer(profile=vocabulary.profile(chance))
        case _:
            return SubAgents(tasks=vocabulary.tasks(chance))
