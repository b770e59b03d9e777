"""Chooses the model that checks, summarizes or condenses the work of a turn."""

from __future__ import annotations

from ....states.dialogue import of_turn
from ....states.policy import ModelSpec, Policy, named_models
from ....states.transcript import Transcript


def model_for(turn: int | None, policy: Policy, transcript: Transcript) -> ModelSpec:
    """The model that answered last in this turn, if the policy still names it, otherwise the policy's first model.
    `Pure.`"""
    models = {spec.name: spec for spec in named_models(policy)}
    messages = () if turn is None else of_turn(transcript.messages, turn)
    names = (message.model for message in reversed(messages) if message.turn == turn)
    return next((models[name] for name in names if name in models), policy.models[0])
