"""Checks what a conversation chooses against what its engine has, and fills in what it leaves to the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...effects.tools.registry import ToolRegistry
from ...states.context import Context
from ...states.errors import ConfigurationError
from ...states.policy import ModelSpec, Policy, models_of
from ...states.roles import Role
from ...states.states import Failed, Idle, InTurn, State
from ..requests import checked_policy
from .chosen_rules import ChosenRules
from .defaults import Defaults
from .models import Models
from .rule_checks import RuleChecks, ToolNames

GivenTools = Iterable[str | Callable[..., Any]]
"""Tools that a conversation chooses: by name, or as the functions and tools that the engine was opened with."""


@dataclass(frozen=True)
class Choices:
    """What the conversations of an engine may choose.

    All methods raise `ConfigurationError` for a model or a tool that the engine does not have, and for a rule that it
    cannot carry out.
    """

    checks: RuleChecks
    defaults: Defaults

    @property
    def models(self) -> Models:
        """The models of the engine."""
        return self.checks.models

    @property
    def registry(self) -> ToolRegistry:
        """The tools of the engine."""
        return self.checks.tools

    async def find_model_fault(self, state: State, context: Context) -> str | None:
        """Return why a turn of a conversation in this state would fail for good: the model that it asks first cannot be
        asked at all, for which no other one is asked. None if it can, or may have a profile whose model can, and where
        the application asks the models itself."""
        is_at_rest = isinstance(state, Idle | Failed) and not self.defaults.keeps_models(context)
        return await self._find_fault_of(self.models.chain if is_at_rest else context.policy.models, context)

    async def find_fault_in_turn(self, context: Context, state: State | None = None) -> str | None:
        """Return the same of the turn that is under way, and whose state this is: one that has its profile asks the
        model of that profile, and no other one if that cannot be asked."""
        if isinstance(state, InTurn) and state.turn.profile and self.checks.offers_tools:
            turn = state.turn
            return await self.models.find_fault(models_of(context.policy, turn.profile)[turn.model :][:1])
        return await self._find_fault_of(context.policy.models, context)

    async def _find_fault_of(self, models: tuple[ModelSpec, ...], context: Context) -> str | None:
        if not self.checks.offers_tools:
            return None
        own = (profile.model for profile in context.policy.profiles if profile.model is not None)
        return await self.models.find_fault((*models[:1], *own))

    def rules(
        self, policy: Policy, tools: ToolNames, model: str | None = None, role: Role = "foreground"
    ) -> ChosenRules:
        """Return the rules of a new conversation with these tools and this role. `model` is asked first, in place of
        the models of the policy. Raises `InvalidInput` for what is not a policy."""
        policy = checked_policy(policy)
        names_models = model is not None or "models" in policy.model_fields_set
        names_profiles = "profiles" in policy.model_fields_set
        if model is not None:
            policy = policy.replace(models=self.models.beginning_with(model))
        elif not names_models:
            policy = policy.replace(models=self.models.chain)
        if not names_profiles:
            policy = policy.replace(profiles=self.defaults.profiles)
        rules = ChosenRules(policy, names_models, names_profiles, not names_models, not names_profiles)
        return self._checked(rules, tools, role)

    def rules_after(self, context: Context, policy: Policy) -> ChosenRules:
        """Return the rules to which a conversation changes. Without other models than it has, it keeps those that it
        chose, or follows those of the engine; the same holds for its profiles. Raises `InvalidInput` for what is not a
        policy."""
        policy, present = checked_policy(policy), context.policy
        names_models = "models" in policy.model_fields_set and policy.models != present.models
        names_profiles = "profiles" in policy.model_fields_set and policy.profiles != present.profiles
        keeps_models = not names_models and self.defaults.keeps_models(context)
        keeps_profiles = not names_profiles and self.defaults.keeps_profiles(context)
        if not names_models:
            policy = policy.replace(models=present.models if keeps_models else self.models.chain)
        if not names_profiles:
            policy = policy.replace(profiles=present.profiles if keeps_profiles else self.defaults.profiles)
        rules = ChosenRules(
            policy,
            chose_models=names_models or keeps_models,
            chose_profiles=names_profiles or keeps_profiles,
            filled_models=not names_models,
            filled_profiles=not names_profiles,
        )
        return self._checked(rules, tools_of_next_turn(context), context.role)

    def _checked(self, rules: ChosenRules, tools: ToolNames, role: Role) -> ChosenRules:
        _raise_first(self.checks.faults(rules.policy, tools, role))
        return replace(rules, policy=self.models.with_windows(rules.policy))

    def tools(self, given: GivenTools | None) -> ToolNames:
        """Return the names of the tools that a conversation chooses; None stands for all that the engine has."""
        if given is None:
            return None
        if isinstance(given, str | dict) or not isinstance(given, Iterable):
            raise ConfigurationError("The tools of a conversation are given as a list of names.")
        return tuple(dict.fromkeys(map(self._name_of, given)))

    def tools_after(self, context: Context, given: GivenTools | None) -> ToolNames:
        """Return the names of the tools to which a conversation changes. Its rules must be able to do with them."""
        tools = self.tools(given)
        _raise_first(self.checks.faults_of_tools(context.policy, tools, context.role))
        return tools

    def names_meant(self, given: GivenTools | None) -> ToolNames:
        """Return the names of these tools, also of those that the engine does not have. What is no list has none."""
        if given is None:
            return None
        if isinstance(given, str | dict) or not isinstance(given, Iterable):
            return ()
        return tuple(dict.fromkeys(map(self._name_meant, given)))

    def _name_of(self, given: str | Callable[..., Any]) -> str:
        tools = self.checks.tools
        tool = tools.find_given(given)
        if tool is not None:
            return tool.name
        if isinstance(given, str) and tools.comes_from_source(given):
            return given
        raise ConfigurationError(tools.describe_unknown(self._name_meant(given)))

    def _name_meant(self, given: str | Callable[..., Any]) -> str:
        tool = self.checks.tools.find_given(given)
        if tool is not None:
            return tool.name
        return given if isinstance(given, str) else str(getattr(given, "name", getattr(given, "__name__", given)))


def tools_of_next_turn(context: Context) -> ToolNames:
    """The names of the tools that a conversation may use in its next turn. `Pure.`"""
    return context.tools if context.next_tools is None else context.next_tools.tools


def _raise_first(faults: Iterator[str]) -> None:
    for sentence in faults:
        raise ConfigurationError(sentence)
