"""What the simulated world says: answers of every kind that a model, a tool or anything else can give.

`ANSWERS` says how an answer of each type is made; one that is not in it is made up from what its type declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias, get_args

from ...states.events import (
    Answer,
    AskUserQuestionPending,
    EffectFailed,
    LlmFailed,
    LlmResponse,
    ToolComplete,
)
from ...states.values.acts import Act, ActKind, AgentMail, Speech, SubAgents, WorkComplete
from ...states.values.failures import TRANSIENT, FailureKind
from ...states.values.messages import ToolCall, ToolResult, Usage
from ...states.values.questions import QuestionOption, UserQuestion
from ...states.values.round import RoundCall
from .generated_values import made_up
from .random_source import RandomSource

Maker: TypeAlias = Callable[[RandomSource, int, datetime], Answer]
"""Makes an answer to the effect with this id, at this moment."""

TOOLS: Mapping[str, Mapping[str, Any]] = {
    "read": {},
    "write": {"crash": "idempotent"},
    "ask": {"exclusive": True, "acts": ("question",)},
    "chat": {"acts": ("question",)},
    "pay": {"approval": True},
    "lock": {"exclusive": True},
    "say": {"acts": ("speech",)},
    "call out": {"acts": ("speech",), "exclusive": True},
    "claim": {"acts": ("work_complete",)},
    "mail": {"acts": ("mail",)},
    "spawn": {"acts": ("children",), "exclusive": True},
    "typo": {"fault": "There is no tool called typo."},
}
"""The tools of the simulated world, each with what is known of its calls."""

_LIKELY = {name: {"read": 5, "ask": 3, "pay": 3}.get(name, 1) for name in TOOLS}
_TRANSIENT: tuple[FailureKind, ...] = tuple(sorted(TRANSIENT))
_FAILURES: tuple[FailureKind, ...] = (*_TRANSIENT, *_TRANSIENT, *get_args(FailureKind))

WORDS = ("Table 4 is free.", "Sure.", "日本語 مرحبا 👩‍👩‍👧", 'He said "yes",\n{0} %s \\', " ")
"""What is said. The last says nothing."""


def respond(dice: RandomSource, effect_id: int, at: datetime) -> LlmResponse:
    """A model's response: text, thoughts, one call or many, nothing, or less than it wanted to say."""
    kind = dice.weighted({"text": 4, "calls": 14, "both": 2, "thought": 1, "nothing": 1})
    calls = _calls(dice, f"call_{effect_id}") if kind in ("calls", "both") else ()
    return LlmResponse(
        effect_id=effect_id,
        at=at,
        content=dice.pick(WORDS) if kind in ("text", "both") else "",
        thinking="Let me see." if kind == "thought" or dice.chance(0.1) else "",
        opaque=({"signature": "x", "parts": [1, None]},) if dice.chance(0.05) else (),
        tool_calls=calls,
        finish_reason="length" if dice.chance(0.05) else "tool_calls" if calls else "stop",
        usage=dice.pick((Usage(), Usage(input_tokens=40, output_tokens=3), Usage(input_tokens=400, cost=0.006))),
        model="first",
    )


def _calls(dice: RandomSource, prefix: str) -> tuple[ToolCall, ...]:
    names = [dice.weighted(_LIKELY) for _ in range(dice.pick((1, 1, 1, 2, 3, 4)))]
    return tuple(
        ToolCall(call_id=f"{prefix}_{place}", name=name, arguments='{"path": "a"}', provider_id="call_0", **TOOLS[name])
        for place, name in enumerate(names)
    )


def fail_model(dice: RandomSource, effect_id: int, at: datetime) -> LlmFailed:
    """A model request fails, most often for a reason that passes; some providers say how long to wait."""
    kind = dice.pick(_FAILURES)
    retry_after = dice.pick((None, None, None, 0.0, 3.0, 1_000.0))
    return LlmFailed(effect_id=effect_id, at=at, kind=kind, sentence="The model failed.", retry_after=retry_after)


def fail(dice: RandomSource, effect_id: int, at: datetime) -> EffectFailed:
    """Something broke."""
    return EffectFailed(effect_id=effect_id, at=at, kind=dice.pick(_FAILURES), sentence="It broke.")


def complete(dice: RandomSource, effect_id: int, at: datetime) -> ToolComplete:
    """A tool ended, mostly well."""
    result = ToolResult(text=dice.pick((*WORDS, "")), error=dice.chance(0.1))
    return ToolComplete(effect_id=effect_id, at=at, result=result)


def acts(dice: RandomSource, call: RoundCall) -> tuple[Act, ...]:
    """What this call may do beside its result: mostly what its tool declares."""
    made: dict[ActKind, Act] = {
        "speech": Speech(text=dice.pick(("Done.", "")), when="now" if call.exclusive else "turn_end"),
        "work_complete": WorkComplete(summary="All of it is done."),
        "mail": AgentMail(target="agent-1", text="Have a look.", silent=dice.chance(0.3)),
        "children": SubAgents(tasks=("Find a table.", "Find a cook.")[: dice.number(1, 2)]),
    }
    kinds = [kind for kind in made if kind in call.acts or dice.chance(0.01)]
    return tuple(made[kind] for kind in kinds if dice.chance(0.9))


def ask(dice: RandomSource, effect_id: int, at: datetime) -> AskUserQuestionPending:
    """A tool wants to ask a person one thing, or several."""
    options = (QuestionOption(label="6:30 PM"), QuestionOption(label="8:15 PM"))
    when = UserQuestion(question="When?", header="Time", options=options)
    what = UserQuestion(question="What {x}, 何?", options=options, multi_select=True)
    return AskUserQuestionPending(effect_id=effect_id, at=at, questions=dice.pick(((when,), (what,), (when, what))))


ANSWERS: dict[type[Answer], Maker] = {
    LlmResponse: respond,
    LlmFailed: fail_model,
    ToolComplete: complete,
    AskUserQuestionPending: ask,
    EffectFailed: fail,
}
"""How each type of answer is made."""


def answer(kind: type[Answer], dice: RandomSource, effect_id: int, at: datetime) -> Answer:
    """An answer of this type. Raises `CannotBeMade` for one that `ANSWERS` should know."""
    maker = ANSWERS.get(kind)
    return maker(dice, effect_id, at) if maker is not None else made_up(kind, dice, effect_id=effect_id, at=at)
