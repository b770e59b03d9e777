"""The models of a policy: those that a turn may ask, and all that the policy names."""

from __future__ import annotations

from .model_settings import DEFAULT_SETTINGS, ModelSettings
from .policy import ModelSpec, Policy


def models_of(policy: Policy, profile: str) -> tuple[ModelSpec, ...]:
    """Return the models that a turn with this profile asks, in order: the profile's own model, if it has one, then the
    policy's others. `Pure.`"""
    chosen = policy.find_profile(profile) if profile else None
    if chosen is None or chosen.model is None:
        return policy.models
    own = chosen.model
    same = next((model for model in policy.models if model.name == own.name), own)
    first = same if own.window is None else own
    return (first, *(model for model in policy.models if model.name != own.name))


def settings_of(policy: Policy, profile: str) -> ModelSettings:
    """Return the parameters of model requests in turns with this profile. `Pure.`"""
    chosen = policy.find_profile(profile)
    return DEFAULT_SETTINGS if chosen is None else chosen.settings


def named_models(policy: Policy) -> tuple[ModelSpec, ...]:
    """Return all models that the policy names: its own, then those of its profiles, each name once. `Pure.`"""
    named: dict[str, ModelSpec] = {}
    for model in (*policy.models, *(profile.model for profile in policy.profiles)):
        if model is not None:
            named.setdefault(model.name, model)
    return tuple(named.values())
