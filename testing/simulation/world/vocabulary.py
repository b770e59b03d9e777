"""What is generated in simulations: plain values, texts in several scripts, and waits that end in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar, get_args

from ....states.policy import Empty, Limits, ModelSpec, Policy, Repeats, Retry, SpeechRules
from ....states.values.acts import ActKind
from ....states.values.messages import CrashContract, ToolCall
from ....states.values.questions import QuestionOption, UserQuestion
from ...generation.chance import Chance
from ...generation.policies import PLAIN_CHANGES, Change, a_policy, some_of
from ...generation.questions import any_answer_to
from ...generation.vocabulary import PLAIN, TOOLS, Response, always, one_of

T = TypeVar("T")

_CHANGES: tuple[Change, ...] = (
    *PLAIN_CHANGES,
    some_of({"approval_deadline": 60.0}, {"approval_deadline": 2.0}),
    some_of({"sub_agent_deadline": 60.0}, {"sub_agent_deadline": 2.0}, {"sub_agent_deadline": None}),
    some_of({"cancel_deadline": 0.0}, {"cancel_deadline": 1.0}),
    some_of({"retry": Retry(base=0.0)}, {"retry": Retry(base=4.0, cap=60.0)}),
    some_of({"limits": Limits(cost=0.01)}, {"limits": Limits(seconds=3.0)}, {"limits": Limits(requests=1)}),
    some_of({"speech": SpeechRules(never_fail=True)}),
    some_of({"repeats": Repeats(window=3)}),
    some_of({"empty": Empty(in_a_row=2)}),
    some_of({}, {"relay": "prompt_only"}),
)

_OPTIONS = (QuestionOption(label="6:30 PM"), QuestionOption(label="8:15 PM"))
_WHEN = UserQuestion(question="When?", header="Time", options=_OPTIONS)
_WHAT = UserQuestion(question="What {x}, 何?", options=_OPTIONS, multi_select=True)


_DELETIONS = tuple(
    ToolCall(call_id="delete", name=f"delete_{crash}", exclusive=True, acts=("question",), crash=crash)
    for crash in get_args(CrashContract)
)
"""Calls of tools that ask before they act, with each crash contract."""


def _text(chance: Chance, plain: str) -> str:
    return chance.pick((plain, plain, "日本語 مرحبا 👩‍👩‍👧", 'He said "yes",\n{0} %s \\', " "))


def _named(chance: Chance, names: Sequence[T], /) -> T | None:
    return chance.pick((None, None, *names))


def _acts(chance: Chance, declared: Sequence[ActKind]) -> Sequence[ActKind]:
    return [kind for kind in declared if chance.probably(0.9)]


def simulated_policy(chance: Chance) -> Policy:
    """The policy of a simulated conversation, which leaves the models to the engine."""
    return a_policy(chance, _CHANGES, (0.0, 0.1, 0.35)).replace(models=Policy().models)


MODEL_NAMES = ("first", "second")
"""The models of a simulation. A process may ask the first one alone by default."""


def simulated_models(chance: Chance) -> tuple[ModelSpec, ...]:
    """One model, or two; some take in no more than a few messages."""
    window = chance.pick((None, None, 400))
    return tuple(ModelSpec(name=name, window=window) for name in MODEL_NAMES[: chance.number(1, 2)])


SIMULATED = replace(
    PLAIN,
    odd=lambda chance: chance.rarely(100),
    text=_text,
    named=_named,
    response=one_of(
        *[Response("Well.")] * 4,
        Response('He said "yes",\n{0} %s \\'),
        Response(" "),
        *[Response(calls=1.0)] * 14,
        Response("日本語 مرحبا 👩‍👩‍👧", calls=1.0),
        Response(thinking="Let me see."),
        Response("Well.", thinking="Let me see.", opaque=({"signature": "x", "parts": [1, None]},)),
        Response(),
        Response("Well.", finish_reason="length", calls=0.5),
    ),
    call_count=one_of(1, 1, 1, 2, 3, 4),
    tool=one_of(*TOOLS, *_DELETIONS),
    retry_after=one_of(None, None, None, 0.0, 3.0, 1_000.0),
    acts=_acts,
    questions=one_of((_WHEN,), (_WHAT,), (_WHEN, _WHAT)),
    policy=simulated_policy,
    when_busy=one_of(None, None, "refuse", "queue", "steer"),
    answer=any_answer_to,
)
"""What performers answer and users want."""

CALM = replace(SIMULATED, response=always(Response("That is all.")), acts=lambda chance, declared: ())
"""What performers answer once everything is to come to its end."""
