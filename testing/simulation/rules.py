"""The rules of a simulated conversation: each rule as often one way as the other, and times that people can wait."""

from __future__ import annotations

from ...states.policy import Limits, ModelSpec, Policy, Questions, Retry
from .dice import Dice


def models(dice: Dice) -> tuple[ModelSpec, ...]:
    """One model, or two."""
    return tuple(ModelSpec(name=name) for name in ("first", "second")[: dice.number(1, 2)])


def rules(dice: Dice) -> Policy:
    """Rules of any kind."""
    return Policy(
        questions=_questions(dice),
        approval_deadline=dice.pick((None, 60.0, 2.0)),
        parallel=dice.pick((1, 2, 3)),
        limits=_limits(dice),
        when_busy=dice.pick(("refuse", "queue", "steer")),
        retry=Retry(attempts=dice.number(1, 3), base=dice.pick((0.0, 1.0, 4.0)), cap=dice.pick((2.0, 60.0))),
        cancel_deadline=dice.pick((0.0, 1.0, 5.0)),
    )


def _questions(dice: Dice) -> Questions:
    return Questions(
        alongside=dice.pick(("in_order", "alone")),
        answer=dice.pick(("json", "readable")),
        cancel=dice.pick(("idle", "resume")),
        partial=dice.chance(0.2),
        deadline=dice.pick((None, 60.0, 2.0)),
    )


def _limits(dice: Dice) -> Limits:
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
