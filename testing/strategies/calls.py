"""Made-up calls of tools, and what comes of them: tools that read, ask, speak, claim, write, spawn and misbehave."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import Any, get_args

from hypothesis.strategies import SearchStrategy

from ...states.values.acts import Act, ActKind, AgentMail, Speech, SubAgents, WorkComplete
from ...states.values.messages import CrashContract, ToolCall, ToolResult
from ...states.values.questions import MAX_HEADER, Answers, QuestionOption, UserQuestion
from ...states.values.round import RoundCall
from .chance import Chance, by_chance

ACTS: tuple[ActKind, ...] = get_args(ActKind)
CONTRACTS: tuple[CrashContract, ...] = get_args(CrashContract)


def _call(name: str, **facts: Any) -> ToolCall:
    return ToolCall(call_id="call", name=name, **facts)


_TOOLS = (
    *[_call("read", arguments='{"path": "a", "line": 1}', provider_id="call_0", crash="pure")] * 4,
    _call("read", arguments='{"line": 1, "path": "a"}', crash="idempotent"),
    _call("book", arguments='{"table": 4}', crash="reconcile"),
    _call("book", arguments='{"table": 4}'),
    *[_call("pay", arguments='{"sum": 5}', approval=True)] * 2,
    *[_call("ask", exclusive=True, acts=("question",), crash="pure")] * 3,
    _call("talk", exclusive=True, acts=("speech",)),
    *[_call("respond", acts=("speech",), crash="idempotent")] * 2,
    *[_call("complete", acts=("work_complete",), crash="pure")] * 3,
    _call("write", acts=("mail",), crash="reconcile"),
    *[_call("spawn", exclusive=True, acts=("children",), crash="pure")] * 3,
)
"""Ordinary tools, those that lead far more often."""

_ODD = tuple(
    _call(
        "odd",
        arguments="not JSON",
        exclusive=alone,
        acts=acts,
        fault=fault,
        crash=crash,
        approval=crash in ("at_most_once", "reconcile"),
    )
    for alone, acts, fault, crash in product(
        (False, True), ((), ("question",), ACTS), (None, "", "There is no such tool"), CONTRACTS
    )
)


def one_call(chance: Chance) -> ToolCall:
    """A call of any kind of tool; one in six is odd. All have the same id."""
    return chance.pick(_ODD) if chance.rarely(6) else chance.pick(_TOOLS)


def some_calls(chance: Chance, sizes: tuple[int, ...] = (0, 0, 0, 1, 1, 2, 2, 3, 3, 5)) -> tuple[ToolCall, ...]:
    """The calls of one response."""
    return numbered(one_call(chance) for _ in range(chance.pick(sizes)))


def numbered(calls: Iterable[ToolCall], prefix: str = "call") -> tuple[ToolCall, ...]:
    """These calls, their ids made from `prefix`: `call.0`, `call.1` and so on. `Pure.`"""
    return tuple(call.model_copy(update={"call_id": f"{prefix}.{n}"}) for n, call in enumerate(calls))


@cache
def tool_calls() -> SearchStrategy[tuple[ToolCall, ...]]:
    """The calls of one response: none, or up to five."""
    return by_chance(some_calls)()


# --- results


def one_act(chance: Chance, kind: ActKind) -> Act | None:
    """An act of this kind; None for a question, which is no act of a result but an event."""
    match kind:
        case "speech":
            return Speech(text=chance.text(), when=chance.pick(("turn_end", "now")))
        case "work_complete":
            return WorkComplete(summary=chance.words(), confidence=chance.pick((None, 1.0, 0.0)))
        case "mail":
            return AgentMail(
                target="another", text=chance.words(), audience=chance.pick(("agent", "user")), silent=chance.often()
            )
        case "children":
            return SubAgents(tasks=tuple(chance.text() for _ in range(chance.pick((1, 2, 3)))))
        case _:
            return None


def result_of(chance: Chance, call: RoundCall | None = None) -> ToolResult:
    """What a tool gives: mostly what it declares, sometimes an act that it does not, or an error."""
    declared = ACTS if call is None else call.acts
    kinds = ACTS if chance.rarely(12) else declared
    size = 0 if not kinds else chance.pick((1, 1, 1, 2, 0))
    acts = [one_act(chance, chance.pick(kinds)) for _ in range(size)]
    error = chance.rarely(8)
    return ToolResult(text=chance.text(), error=error, acts=tuple(act for act in acts if act is not None))


# --- questions and answers


def question_set(chance: Chance) -> tuple[UserQuestion, ...]:
    """One to four questions that may be asked together."""
    asked = [_question(chance) for _ in range(chance.pick((1, 1, 2, 4)))]
    texts = _unlike([question.question for question in asked])
    return tuple(question.model_copy(update={"question": text}) for question, text in zip(asked, texts, strict=True))


def _question(chance: Chance) -> UserQuestion:
    several = chance.often()
    labels = [_label(chance) for _ in range(chance.pick((2, 2, 3, 4)))]
    shown = chance.rarely(4)
    return UserQuestion(
        question=chance.words(),
        header=chance.pick((None, "Time", "x" * MAX_HEADER)),
        options=tuple(
            QuestionOption(
                label=label,
                description=chance.words() if shown else None,
                preview=chance.words() if shown and not several else None,
            )
            for label in _unlike(labels)
        ),
        multi_select=several,
    )


def _label(chance: Chance) -> str:
    label = chance.words()
    return f"{label}?" if label.strip().casefold() == "other" else label


def _unlike(texts: Iterable[str]) -> list[str]:
    """These texts, those told apart that are alike."""
    seen: list[str] = []
    for text in texts:
        while text in seen:
            text += "+"
        seen.append(text)
    return seen


def any_answer_map(chance: Chance) -> Answers:
    """Answers to whatever was asked: unknown texts, empty ones, lists where one label belongs."""
    return {chance.text(): _any_answer(chance) for _ in range(chance.below(4))}


def _any_answer(chance: Chance) -> str | tuple[str, ...]:
    return tuple(chance.text() for _ in range(chance.below(4))) if chance.rarely(3) else chance.text()


def answers_to(chance: Chance, questions: Iterable[UserQuestion]) -> Answers:
    """An answer to every question: a label, several where they are allowed, or words of one's own."""
    return {question.question: _answer_to(chance, question) for question in questions}


def _answer_to(chance: Chance, question: UserQuestion) -> str | tuple[str, ...]:
    labels = tuple(option.label for option in question.options)
    match chance.below(4):
        case 1 if question.multi_select:
            return labels
        case 2:
            return chance.words()
        case 3:
            return labels[-1]
        case _:
            return labels[0]


@cache
def questions() -> SearchStrategy[tuple[UserQuestion, ...]]:
    """One to four questions that may be asked together."""
    return by_chance(question_set)()


@cache
def any_answers() -> SearchStrategy[Answers]:
    """Answers to whatever was asked, of any shape."""
    return by_chance(any_answer_map)()
