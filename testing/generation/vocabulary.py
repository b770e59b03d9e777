"""What may be chosen: the values that generated events, answers and policies are made of.

Generators say which choices there are, a vocabulary says between what. `PLAIN` is small and ordinary, and its answers
fit what they answer; walks use it, and simulations with some changes. `states.EXTREME` holds what breaks programs.

Each generated policy differs from the default in some rules, so that together they reach every branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from pydantic import JsonValue

from ...states.policy import (
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
    Texts,
    WhenBusy,
)
from ...states.roles import Role
from ...states.values.acts import ActKind, AgentMail, Schedule, SubAgentTask
from ...states.values.messages import HistoryMessage, ToolCall, Usage
from ...states.values.output import ModelOutput, OutputSchema
from ...states.values.questions import Answers, QuestionOption, UserQuestion
from ...states.values.turn import EndedStatus
from ...states.values.value import FailureKind
from .chance import Chance

T = TypeVar("T")

Choice: TypeAlias = Callable[[Chance], T]
"""Chooses a value."""


@dataclass(frozen=True)
class Vocabulary:
    """For each thing that a generator chooses, how it is chosen."""

    odd: Choice[bool]
    """Whether something is as no honest participant would have it: an act that its tool did not declare, a report about
    a call that does not run."""

    text: Callable[[Chance, str], str]
    """A text, given the plain one."""
    words: Callable[[Chance, str], str]
    """A text that is not blank, given the plain one."""
    named: Names
    """What a request names, given the candidates."""

    # What models do.
    response: Choice[Response]
    call_count: Choice[int]
    """How many calls a response makes that makes some."""
    tool: Choice[ToolCall]
    """The tool that is called; the id of the call is not used."""
    model: Choice[str]
    provided: Callable[[Chance, str], Mapping[str, Any]]
    """What only some providers tell in a response whose calls have ids that begin like this: citations, probabilities,
    and what goes back to the family of the model."""
    usage: Choice[Usage]
    """What a request of the conversation itself costs."""
    cost: Choice[Usage]
    """What anything else costs."""
    attempt: Callable[[Chance, Sequence[ToolCall]], Attempt | None]
    """What a response is as a typed answer, given its calls; None if it is no attempt to give one."""
    model_failure: Choice[FailureKind]
    retry_after: Choice[float | None]

    # What tools and other performers do.
    failure: Choice[FailureKind]
    acts: Callable[[Chance, Sequence[ActKind]], Sequence[ActKind]]
    """The kinds of act in a result, given those that its tool declares."""
    speech: Choice[str]
    speaks_now: Callable[[Chance, bool], bool]
    """Whether a speech is for now, given whether its call runs alone."""
    mail: Choice[AgentMail]
    tasks: Choice[tuple[str | SubAgentTask, ...]]
    """The tasks of sub-agents."""
    status: Choice[EndedStatus]
    """How a sub-agent ended."""
    questions: Choice[tuple[UserQuestion, ...]]
    profile: Choice[str]
    recent_texts: Choice[int]
    """How many texts of the last minutes are recalled."""
    missing: Choice[int]
    """How many things a check finds missing."""

    # What people, hosts and other agents do.
    role: Choice[Role]
    policy: Choice[Policy]
    when_busy: Choice[WhenBusy | None]
    output: Choice[OutputSchema | None]
    """The form of its answer that a message wants."""
    settings: Choice[ModelSettings | None]
    """The parameters of model requests with which a message is sent."""
    answer: Callable[[Chance, UserQuestion], str | tuple[str, ...]]
    """The answer to a question."""
    any_answers: Choice[Answers]
    """Answers to whatever was asked."""
    arguments: Choice[dict[str, JsonValue] | None]
    """What a person puts in the place of a call's arguments."""
    tools: Choice[tuple[str, ...] | None]
    """The tools that a conversation may use."""
    title: Choice[str | None]
    metadata: Choice[dict[str, JsonValue] | None]
    history: Choice[tuple[HistoryMessage, ...]]
    """The messages that a conversation begins with."""
    schedule: Choice[Schedule | None]
    """When a conversation wakes up."""
    wait: Choice[float]
    """How many seconds it is until a conversation wakes up."""


@dataclass(frozen=True)
class Attempt:
    """What a response is as a typed answer, and its calls, those among them by which it is given."""

    output: ModelOutput
    calls: tuple[ToolCall, ...] = ()


class Names(Protocol):
    """Chooses whether a request names what it is about."""

    def __call__(self, chance: Chance, names: Sequence[T], /) -> T | None:
        """One of the names, or None."""
        ...


@dataclass(frozen=True)
class Response:
    """What a model responds, but for its calls: it makes some with the probability `calls`."""

    content: str = ""
    thinking: str = ""
    finish_reason: str = "stop"
    calls: float = 0.0
    opaque: tuple[dict[str, JsonValue], ...] = ()


def always(value: T) -> Choice[T]:
    """The same value each time, without a choice."""
    return lambda chance: value


def one_of(*values: T) -> Choice[T]:
    """One of these, all equally likely."""
    return lambda chance: chance.pick(values)


Rules: TypeAlias = Mapping[str, Any]
"""Some fields of a policy."""

Change: TypeAlias = Callable[[Chance], Rules]
"""Rules that may differ from their defaults, and how."""


def some_of(*ways: Rules) -> Change:
    """One of these ways to differ."""
    return lambda chance: chance.pick(ways)


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


WINDOW = 1_000
"""Tokens that the models of plain policies take in."""

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


def _tool(name: str, **facts: Any) -> ToolCall:
    return ToolCall(call_id="call", name=name, **facts)


TOOLS: tuple[ToolCall, ...] = (
    _tool("look", crash="pure"),
    _tool("pay"),
    _tool("book", crash="reconcile"),
    _tool("save", crash="idempotent"),
    _tool("break", fault="There is no such tool."),
    _tool("order", approval=True, crash="reconcile"),
    _tool("ask", exclusive=True, acts=("question",), crash="pure"),
    _tool("ask_beside", acts=("question",)),
    _tool("talk", exclusive=True, acts=("speech",)),
    _tool("respond", acts=("speech", "mail")),
    _tool("finish", acts=("work_complete",)),
    _tool("hand_over", exclusive=True, acts=("transfer",), crash="pure"),
    _tool("spawn", exclusive=True, acts=("children",), crash="pure"),
)
"""A tool of every kind."""

QUESTION = UserQuestion(question="Which?", options=(QuestionOption(label="This"), QuestionOption(label="That")))

FORM = OutputSchema(name="report", json_schema={"type": "object", "required": ["a"]})
"""The form that answers have where they have one."""


def an_attempt(
    chance: Chance, calls: Sequence[ToolCall], *, valid: str = '{"a": 1}', reply: str = ""
) -> Attempt | None:
    """A typed answer, valid or not: by one of the calls, in front of the others, or, where there are none, by the text.
    Seldom the response is none although it could be."""
    kind, by_call = chance.below(7), chance.often()
    if kind == 0 or (calls and not by_call):
        return None
    errors = "" if kind < 4 else "a: Field required"
    told: dict[str, Any] = {"value": "" if errors else valid, "reply": "" if errors else reply, "errors": errors}
    if not by_call:
        return Attempt(ModelOutput(way="native", **told))
    call_id = calls[0].call_id if calls else "call-output"
    first = ToolCall(call_id=call_id, name="final_result", fault=errors or None, crash="pure")
    return Attempt(ModelOutput(way="tool", calls=(0,), **told), (first, *calls[1:]))


_CALLS = Response(calls=1.0)

_SMALL, _LARGE = Usage(input_tokens=8, output_tokens=2), Usage(input_tokens=WINDOW)


def _no_name(chance: Chance, names: Sequence[T], /) -> T | None:
    return None


PLAIN = Vocabulary(
    odd=always(False),
    text=lambda chance, plain: plain,
    words=lambda chance, plain: plain,
    named=_no_name,
    response=one_of(
        Response("Well."),
        *[_CALLS] * 3,
        Response(),
        Response(thinking="Hm."),
        Response("Well.", finish_reason="length", calls=0.5),
    ),
    call_count=one_of(1, 1, 2, 3),
    tool=one_of(*TOOLS),
    model=always(""),
    provided=lambda chance, calls: {},
    usage=lambda chance: _LARGE if chance.probably(0.2) else _SMALL,
    cost=always(Usage()),
    attempt=lambda chance, calls: None,
    model_failure=one_of("timeout", "timeout", "authentication", "context_window"),
    retry_after=always(None),
    failure=one_of("timeout", "timeout", "internal", "context_window"),
    acts=lambda chance, declared: declared,
    speech=one_of("Hello", "Hello", ""),
    speaks_now=lambda chance, alone: alone,
    mail=always(AgentMail(target="other", text="Listen.")),
    tasks=one_of(("one",), ("one", "two")),
    status=always("completed"),
    questions=always((QUESTION,)),
    profile=always("two"),
    recent_texts=always(0),
    missing=always(0),
    role=one_of("foreground", "foreground", "background", "sub_agent"),
    policy=plain_policy,
    when_busy=one_of(None, "queue", "steer", "interrupt"),
    output=always(None),
    settings=always(None),
    answer=lambda chance, question: question.options[0].label if question.options else "Soon",
    any_answers=always({}),
    arguments=always(None),
    tools=always(("look", "pay")),
    title=always("Dinner"),
    metadata=always(None),
    history=always(()),
    schedule=one_of(Schedule(every=60.0, task="Look around."), None),
    wait=always(60.0),
)
"""Small and ordinary values, which fit what they answer."""
