"""The rules of a simulated conversation: each rule as often one way as the other, and times that people can wait."""

from __future__ import annotations

from typing import Any

from ...states.policy.policy import (
    Empty,
    Limits,
    ModelSpec,
    Policy,
    Profile,
    Questions,
    Recent,
    Repeats,
    Retry,
    SpeechRules,
)
from .random_source import RandomSource

PROFILES = (Profile(name="host"), Profile(name="cook", tools=("read", "say"), recall=False))


def models(dice: RandomSource) -> tuple[ModelSpec, ...]:
    """One model, or two; some take in no more than a few messages."""
    window = dice.pick((None, None, 400))
    return tuple(ModelSpec(name=name, window=window) for name in ("first", "second")[: dice.number(1, 2)])


def rules(dice: RandomSource) -> Policy:
    """Rules of any kind."""
    waits: dict[str, Any] = {
        "approval_deadline": dice.pick((None, 60.0, 2.0)),
        "sub_agent_deadline": dice.pick((None, 60.0, 2.0)),
        "cancel_deadline": dice.pick((0.0, 1.0, 5.0)),
        "retry": Retry(attempts=dice.number(1, 3), base=dice.pick((0.0, 1.0, 4.0)), cap=dice.pick((2.0, 60.0))),
    }
    return Policy(
        questions=_questions(dice),
        parallel=dice.pick((1, 2, 3)),
        limits=_limits(dice),
        when_busy=dice.pick(("refuse", "queue", "steer")),
        **waits,
        **_ways(dice),
    )


def _questions(dice: RandomSource) -> Questions:
    return Questions(
        alongside=dice.pick(("in_order", "alone")),
        answer=dice.pick(("json", "readable")),
        cancel=dice.pick(("idle", "resume")),
        partial=dice.chance(0.2),
        deadline=dice.pick((None, 60.0, 2.0)),
    )


def _limits(dice: RandomSource) -> Limits:
    if dice.chance(0.6):
        return Limits()
    return Limits(
        requests=dice.pick((1, 2, 4, 50)),
        last=dice.pick(("answer_now", "plain")),
        tool_calls=dice.pick((None, None, 0, 1, 3)),
        tokens=dice.pick((None, None, 50, 500)),
        cost=dice.pick((None, None, 0.01)),
        seconds=dice.pick((None, None, 3.0, 60.0)),
    )


def _ways(dice: RandomSource) -> dict[str, Any]:
    """Ways to converse; each conversation has a few that are not the usual ones."""
    ways: dict[str, tuple[Any, ...]] = {
        "profiles": (PROFILES,),
        "route": (True,),
        "recall": (True,),
        "dialogue": (Recent(seconds=10.0),),
        "text": ("fallback", "thought"),
        "speech": (SpeechRules(keep="each", empty="deliver"), SpeechRules(never_fail=True)),
        "silent": ("nudge", "fallback"),
        "ends_on": ("work_complete",),
        "nudges": (0, 1),
        "verify": (1, 3),
        "summarize": (True,),
        "repeats": (Repeats(window=3),),
        "empty": (Empty(in_a_row=2),),
        "plain_retry": (1,),
        "on_failure": ("reply",),
        "fresh_context": (True,),
        "marker": ("TOOL",),
        "relay": ("prompt_only",),
    }
    often = dice.pick((0.0, 0.2, 0.5))
    return {way: dice.pick(others) for way, others in ways.items() if dice.chance(often)}
