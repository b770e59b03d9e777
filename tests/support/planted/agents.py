"""Engines of agents with one fault each, for simulations that must find it.

A faulty performer or store takes the place of the real one by the public ports; a faulty part of the engine takes the
place of a public name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest

from turnwise import Engine
from turnwise.effects import sub_agents
from turnwise.effects.dispatcher import with_abort_of
from turnwise.engine.agents import agents, wake_ups
from turnwise.engine.composition import PortWrappers, wrapped_ports
from turnwise.engine.schedules import next_moment
from turnwise.states import Limits, Policy, SendToAgent, SpawnSubAgent
from turnwise.states.effects import Effect
from turnwise.states.events import SubAgentFinished
from turnwise.states.roles import sub_agent_policy

from .engines import Fault, Open
from .stores import ForgetsTheOutbox, WrappedStore


def _in_performer(kind: type[Effect], faulty: Callable[[Any], Any]) -> Fault:
    """An engine that carries out effects of this type by a faulty performer around the real one."""

    def open_engine(**options: Any) -> Engine:
        wrappers = PortWrappers(performers=lambda performers: {**performers, kind: faulty(performers[kind])})
        with wrapped_ports(wrappers):
            return Engine.open(**options)

    return Fault(faulty.__name__, lambda monkeypatch: open_engine)


def _in_store(kind: Callable[[Any], Any]) -> Fault:
    """An engine whose store has a fault."""

    def open_engine(*, store: Any, **options: Any) -> Engine:
        return Engine.open(store=kind(store), **options)

    return Fault(kind.__name__, lambda monkeypatch: open_engine)


def _in_part(module: Any, part: str, faulty: Any) -> Fault:
    """An engine with a faulty part, in the place of one that a module knows by this public name."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> Open:
        monkeypatch.setattr(module, part, faulty)
        return Engine.open

    return Fault(faulty.__name__, plant)


# --- mail


class PostsTwice:
    """It posts each message once more under another key."""

    def __init__(self, mail: Any) -> None:
        self.mail = mail

    def targets_of(self, effect: SendToAgent) -> Sequence[str]:
        """The target of the message."""
        targets: Sequence[str] = self.mail.targets_of(effect)
        return targets

    async def __call__(self, effect: SendToAgent, context: Any) -> None:
        """Post the message."""
        await self.mail(effect, context)
        await self.mail(effect.replace(effect_id=effect.effect_id + 1_000), context)


class ForgetsMail(PostsTwice):
    """It notes the arrival of each message and does not post it."""

    async def __call__(self, effect: SendToAgent, context: Any) -> None:
        """Note the arrival."""
        context.receipts.acknowledge(effect.effect_id, effect.target)


class MakesMailSilent(PostsTwice):
    """It posts each message as a silent one."""

    async def __call__(self, effect: SendToAgent, context: Any) -> None:
        """Post the message."""
        await self.mail(effect.replace(silent=True), context)


class ReachesEverybody(agents.Directory):
    """Its agents may write to agents of other owners."""

    async def reachable(self, from_id: str, agent_id: str) -> Any:
        """The agent with this id, whoever asks."""
        return await self.find(agent_id)


# --- sub-agents


def acknowledges_too_soon(performer: Any) -> Any:
    """It says that a sub-agent was stopped, and does not stop it."""

    async def perform(effect: SpawnSubAgent, context: Any) -> Any:
        return await performer(effect, context)

    return perform  # without `abort`, so the dispatcher itself acknowledges


def gives_its_own_outcome(performer: Any) -> Any:
    """It tells the parent another outcome than the one that the sub-agent had."""

    async def perform(effect: SpawnSubAgent, context: Any) -> Any:
        answer = await performer(effect, context)
        return answer.replace(outcome="All is well.") if isinstance(answer, SubAgentFinished) else answer

    return with_abort_of(performer, perform)


def divides_no_budget(policy: Policy, limits: Limits, *others: Any) -> Policy:
    """Each sub-agent may spend as much as it likes."""
    return sub_agent_policy(policy, limits.replace(tokens=None, cost=None), *others)


# --- wake-ups


class ForgetsWakeUps(WrappedStore):
    """It lists no scheduled wake-up."""

    async def scheduled(self, limit: int) -> tuple[tuple[str, datetime], ...]:
        """Nothing."""
        return ()


def makes_up_for_each(schedule: Any, due: datetime, now: datetime) -> datetime:
    """It fires once for each moment that was missed."""
    return next_moment(schedule, due, due)


FAULTS = (
    _in_performer(SendToAgent, PostsTwice),
    _in_performer(SendToAgent, ForgetsMail),
    _in_performer(SendToAgent, MakesMailSilent),
    _in_part(agents, "Directory", ReachesEverybody),
    _in_performer(SpawnSubAgent, gives_its_own_outcome),
    _in_part(wake_ups, "next_moment", makes_up_for_each),
    _in_part(sub_agents, "sub_agent_policy", divides_no_budget),
    _in_performer(SpawnSubAgent, acknowledges_too_soon),
    _in_store(ForgetsTheOutbox),
    _in_store(ForgetsWakeUps),
)
"""Faults that a simulation of agents finds."""

QUICK = 5
"""How many of them are found by the first few seeds."""
