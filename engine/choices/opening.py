"""What a new conversation is made of: its first event, from what the application has chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...states.events import Opened
from ...states.policy import Policy
from ...states.roles import Role
from ...states.values.acts import MARK
from ..recent_requests import MODELS, PROFILES, RULES, Filled
from ..requests import checked_metadata, make
from .choices import Choices, GivenTools
from .given_history import GivenMessages, read_history
from .roles import GivenConversation, checked_role, default_policy, id_of
from .schedule_moments import first_moment
from .schedules import GivenInterval, schedule_of


@dataclass(frozen=True, kw_only=True)
class ChosenOpening:
    """What an application chooses for a new conversation. `Engine.create` says what each choice means."""

    role: Role
    works_for: GivenConversation | None
    policy: Policy | None
    system: str
    model: str | None
    tools: GivenTools | None
    messages: GivenMessages | None
    owner: str | None
    title: str | None
    metadata: Mapping[str, Any] | None
    marks: Mapping[str, str] | None = None
    every: GivenInterval | None = None
    cron: str | None = None
    zone: str = "UTC"
    task: str | None = None

    @property
    def filled(self) -> Filled:
        """The fields of the first event that the application leaves to the engine. They do not count where a
        conversation is asked for again under its id."""
        named = frozenset() if self.policy is None else self.policy.model_fields_set
        is_without = {
            RULES: self.policy is None,
            MODELS: self.model is None and "models" not in named,
            "chose_models": self.model is None and "models" not in named,
            PROFILES: "profiles" not in named,
            "chose_profiles": "profiles" not in named,
            "owner": self.owner is None and self.works_for is not None,
        }
        return frozenset(
            {"revision", "next_wake", "nonce", *(name for name, left_out in is_without.items() if left_out)}
        )


async def opening_of(
    conversation_id: str, at: datetime, choices: Choices, default: Policy, chosen: ChosenOpening
) -> Opened:
    """Return the first event of a conversation in an engine whose policy is `default`. Raises `ConfigurationError` for
    what the engine does not have or cannot carry out, and `InvalidInput` for what such an event cannot hold."""
    role = checked_role(chosen.role, chosen.works_for)
    history = await read_history(chosen.messages, chosen.system)
    names = choices.tools(chosen.tools)
    policy = default_policy(role, default) if chosen.policy is None else chosen.policy
    rules = choices.rules(policy, names, chosen.model, role)
    schedule = schedule_of(chosen.every, chosen.cron, chosen.zone, chosen.task, rules.policy.texts.wake_up)
    return make(
        Opened,
        event_id=f"opened-{conversation_id}",
        at=at,
        role=role,
        works_for=None if chosen.works_for is None else id_of(chosen.works_for),
        system=history.system,
        policy=rules.policy,
        chose_models=rules.chose_models,
        chose_profiles=rules.chose_profiles,
        tools=names,
        owner=chosen.owner,
        title=chosen.title,
        metadata=_metadata(chosen),
        messages=history.messages,
        repairs=history.repairs,
        schedule=schedule,
        next_wake=None if schedule is None else first_moment(schedule, at),
    )


def _metadata(chosen: ChosenOpening) -> Any:
    """The metadata that the application gives, with the marks of a host."""
    marks = {f"{MARK}{name}": value for name, value in (chosen.marks or {}).items()}
    return checked_metadata({} if chosen.metadata is None else chosen.metadata, marks)
