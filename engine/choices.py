"""What conversations may choose in an engine, checked against what it has; what they leave out is filled in.

A conversation chooses rules, models and tools. Whatever is wrong with a choice is said in one sentence, where it is
made, and nothing has happened then.

A rule that an engine cannot carry out needs a tool, a model, a price or a performer that it does not have. It would do
nothing, or never let a turn end, and look like a model that misbehaves. So it is refused where a conversation chooses
it. In a conversation that is already stored it is logged instead, because that conversation goes on as well as it can.

The engine of a stored conversation may have been opened with other models and profiles than before. They change at rest
only, so that a turn ends with the models and profiles with which it began.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from ..effects.clock import Clock
from ..effects.model.outputs import OutputForms
from ..effects.tools.catalogue import RECALL_CONVERSATION, names_of
from ..effects.tools.registry import ToolRegistry
from ..states.context import Context
from ..states.errors import ConfigurationError
from ..states.events import (
    AgentMessage,
    CompactionRequested,
    PolicyChanged,
    Request,
    RetryRequested,
    Rewound,
    UserMessage,
    WakeUp,
)
from ..states.policy import ModelSpec, Policy, Profile, Recent, models_of, named_models
from ..states.replies import may_show_text
from ..states.roles import Caller, Role
from ..states.states import Failed, Idle, InTurn, State
from .models import Models
from .requests import checked_policy

logger: logging.Logger = logging.getLogger("turnwise.engine")

ToolNames = tuple[str, ...] | None
"""The names of the tools that a conversation may use; None stands for all that the engine has."""

GivenTools = Iterable[str | Callable[..., Any]]
"""Tools that a conversation chooses: by name, or as the functions and tools that the engine was opened with."""


class Choices:
    """What the conversations of an engine may choose, and what those get that choose nothing.

    All methods raise `ConfigurationError` for a model or a tool that the engine does not have, and for a rule that it
    cannot carry out.
    """

    def __init__(
        self, checks: RuleChecks, profiles: tuple[Profile, ...] = (), forms: OutputForms | None = None
    ) -> None:
        """`profiles` are those of conversations that choose none, and `forms` those of typed answers."""
        self._checks = checks
        self.models: Models = checks.models
        """The models of the engine."""
        self.tool_registry: ToolRegistry = checks.tools
        """The tools of the engine."""
        self.profiles = profiles
        self.forms: OutputForms = OutputForms() if forms is None else forms
        """The forms of typed answers that the engine knows."""
        self._logged: set[str] = set()
        """What was logged about conversations that were read, each sentence once."""

    async def find_model_fault(self, state: State, context: Context) -> str | None:
        """Return why a turn of a conversation in this state would fail for good: the model that it asks first cannot be
        asked at all, for which no other one is asked. None if it can, or may have a profile whose model can, and where
        the application asks the models itself."""
        is_at_rest = isinstance(state, Idle | Failed) and not self._keeps_models(context)
        return await self._find_fault_of(self.models.chain if is_at_rest else context.policy.models, context)

    async def find_fault_in_turn(self, context: Context, state: State | None = None) -> str | None:
        """Return the same of the turn that is under way, and whose state this is: one that has its profile asks the
        model of that profile, and no other one if that cannot be asked."""
        if isinstance(state, InTurn) and state.turn.profile and self._checks.offers_tools:
            turn = state.turn
            return await self.models.find_fault(models_of(context.policy, turn.profile)[turn.model :][:1])
        return await self._find_fault_of(context.policy.models, context)

    async def _find_fault_of(self, models: tuple[ModelSpec, ...], context: Context) -> str | None:
        if not self._checks.offers_tools:
            return None
        if profiles := context.policy.profiles:
            models = (*models[:1], *[profile.model for profile in profiles if profile.model is not None])
        return await self.models.find_fault(models if profiles else models[:1])

    def rules(
        self, policy: Policy, tools: ToolNames, model: str | None = None, role: Role = "foreground"
    ) -> _ChosenRules:
        """Return the rules of a new conversation with these tools and this role. `model` is asked first, in place of
        the models of the policy. Raises `InvalidInput` for what is not a policy."""
        self._admit_outputs(policy)
        policy = checked_policy(policy)
        names_models = model is not None or "models" in policy.model_fields_set
        names_profiles = "profiles" in policy.model_fields_set
        if model is not None:
            policy = policy.replace(models=self.models.beginning_with(model))
        elif not names_models:
            policy = policy.replace(models=self.models.chain)
        if not names_profiles:
            policy = policy.replace(profiles=self.profiles)
        rules = _ChosenRules(policy, names_models, names_profiles, not names_models, not names_profiles)
        return self._checked(rules, tools, role)

    def rules_after(self, context: Context, policy: Policy) -> _ChosenRules:
        """Return the rules to which a conversation changes. Without other models than it has, it keeps those that it
        chose, or follows those of the engine; the same holds for its profiles. Raises `InvalidInput` for what is not a
        policy."""
        self._admit_outputs(policy)
        policy, present = checked_policy(policy), context.policy
        names_models = "models" in policy.model_fields_set and policy.models != present.models
        names_profiles = "profiles" in policy.model_fields_set and policy.profiles != present.profiles
        keeps_models = not names_models and self._keeps_models(context)
        keeps_profiles = not names_profiles and context.chose_profiles
        if not names_models:
            policy = policy.replace(models=present.models if keeps_models else self.models.chain)
        if not names_profiles:
            policy = policy.replace(profiles=present.profiles if keeps_profiles else self.profiles)
        rules = _ChosenRules(
            policy,
            chose_models=names_models or keeps_models,
            chose_profiles=names_profiles or keeps_profiles,
            filled_models=not names_models,
            filled_profiles=not names_profiles,
        )
        return self._checked(rules, _tools_of_next_turn(context), context.role)

    def _admit_outputs(self, policy: Policy) -> None:
        """Learn the types of the answers that these rules want, as far as they are rules, and check their schemas."""
        if isinstance(policy, Policy):
            self.forms.admit_rules(policy)
            if self._checks.offers_tools:
                _raise_first(self.forms.faults_of(policy))

    def _checked(self, rules: _ChosenRules, tools: ToolNames, role: Role) -> _ChosenRules:
        _raise_first(self._checks.faults(rules.policy, tools, role))
        return replace(rules, policy=self.models.with_windows(rules.policy))

    def log_faults(self, conversation_id: str, context: Context) -> None:
        """Log which rules of a stored conversation cannot be carried out. One that follows its engine has the engine's
        models and profiles from its next turn on."""
        policy = context.policy
        if not context.chose_models:
            policy = policy.model_copy(update={"models": self.models.chain})
        if not context.chose_profiles:
            policy = policy.model_copy(update={"profiles": self.profiles})
        for sentence in self._checks.faults(policy, _tools_of_next_turn(context), context.role):
            if sentence not in self._logged:
                self._logged.add(sentence)
                logger.warning("In the conversation %s: %s", conversation_id, sentence)

    def change_before(self, request: Request, state: State, context: Context, clock: Clock) -> PolicyChanged | None:
        """Return the event by which a conversation in this state changes its rules before the request; None if the
        request does not make it begin to work, or if it goes on under the rules that it has.

        One that follows its engine has the engine's models and profiles. One that chose its models keeps them as long
        as the engine has all of them; otherwise it follows the engine from then on. Chosen profiles are kept, but a
        profile loses a model that the engine lacks.
        """
        if not isinstance(request, _BEGINNINGS.get(type(state), ())):
            return None
        policy = context.policy
        keeps_models = self._keeps_models(context)
        models = policy.models if keeps_models else self.models.chain
        profiles = tuple(map(self._with_known_model, policy.profiles if context.chose_profiles else self.profiles))
        if (models, profiles) == (policy.models, policy.profiles):
            return None
        return PolicyChanged(
            event_id=str(uuid.uuid4()),
            at=clock.now(),
            policy=policy.model_copy(update={"models": models, "profiles": profiles}),
            chose_models=keeps_models,
            chose_profiles=context.chose_profiles,
        )

    def _with_known_model(self, profile: Profile) -> Profile:
        lacks = profile.model is not None and not self.models.know([profile.model])
        return profile.replace(model=None) if lacks else profile

    def _keeps_models(self, context: Context) -> bool:
        """Whether a conversation goes on with the models that it has. It follows the engine if it chose none, or if the
        engine lacks one of them."""
        return context.chose_models and self.models.know(context.policy.models)

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
        _raise_first(self._checks.faults_of_tools(context.policy, tools, context.role))
        return tools

    def names_meant(self, given: GivenTools | None) -> ToolNames:
        """Return the names of these tools, also of those that the engine does not have. What is no list has none."""
        if given is None:
            return None
        if isinstance(given, str | dict) or not isinstance(given, Iterable):
            return ()
        return tuple(dict.fromkeys(map(self._name_meant, given)))

    def _name_of(self, given: str | Callable[..., Any]) -> str:
        tools = self.tool_registry
        tool = tools.find_given(given)
        if tool is not None:
            return tool.name
        if isinstance(given, str) and tools.comes_from_source(given):
            return given
        raise ConfigurationError(tools.describe_unknown(self._name_meant(given)))

    def _name_meant(self, given: str | Callable[..., Any]) -> str:
        tool = self.tool_registry.find_given(given)
        if tool is not None:
            return tool.name
        return given if isinstance(given, str) else str(getattr(given, "name", getattr(given, "__name__", given)))


def _raise_first(faults: Iterator[str]) -> None:
    for sentence in faults:
        raise ConfigurationError(sentence)


@dataclass(frozen=True)
class _ChosenRules:
    """Rules as the log will hold them. `chose_models`: the application chose the models, so the conversation does not
    follow those of its engine. `filled_models`: the models were filled in, because the application named none now.
    `chose_profiles` and `filled_profiles` say the same of the profiles."""

    policy: Policy
    chose_models: bool
    chose_profiles: bool
    filled_models: bool
    filled_profiles: bool


RECALL = "This engine cannot search older conversations (`recall`): it needs a store that can search."

RECENT = "This engine cannot look up the last minutes (`dialogue=Recent(…)`): it needs a store that can search."

SILENT = (
    "Under this policy the user hears only what is said by a tool, and none of the tools{of} speaks: add `talk`, or "
    "one of your own."
)

ENDLESS = (
    "Under this policy a turn ends when a tool claims that the work is complete, and none of the tools{of} does: add "
    "`mark_work_complete`."
)


@dataclass(frozen=True)
class RuleChecks:
    """Checks rules against what an engine has.

    `offers_tools` is true if the engine itself asks the models and offers them its tools. Otherwise nothing is known of
    tools and prices, so the rules about these are not checked. `can_recall` tells whether older texts can be found,
    which depends on the store; it is called once the engine is open. `redact_fault` tells why secrets cannot be
    removed, or None.
    """

    models: Models
    tools: ToolRegistry
    offers_tools: bool
    can_recall: Callable[[], bool]
    redact_fault: Callable[[], str | None]

    def faults(self, policy: Policy, tools: ToolNames, role: Role) -> Iterator[str]:
        """Yield a sentence for each rule that cannot be carried out in a conversation with these tools and this
        role."""
        yield from self._faults_of_features(policy)
        yield from self._faults_of_models(policy)
        if self.offers_tools:
            yield from self._faults_of_costs(policy)
        yield from self.faults_of_tools(policy, tools, role)

    def faults_of_tools(self, policy: Policy, tools: ToolNames, role: Role) -> Iterator[str]:
        """Yield a sentence for each rule that needs another tool than these."""
        if self.offers_tools:
            profiles = policy.profiles or (None,)
            found = (self._faults_of_profile(policy, tools, role, profile) for profile in profiles)
            yield from chain.from_iterable(found)

    def _faults_of_features(self, policy: Policy) -> Iterator[str]:
        redact_fault = self.redact_fault() if policy.redact else None
        if redact_fault is not None:
            yield redact_fault
        is_recent = isinstance(policy.dialogue, Recent)
        conditions = (
            (policy.recall and not self.can_recall(), RECALL),
            (is_recent and not self.can_recall(), RECENT),
        )
        yield from (sentence for is_fault, sentence in conditions if is_fault)

    def _faults_of_models(self, policy: Policy) -> Iterator[str]:
        for spec in named_models(policy):
            if not self.models.know([spec]):
                yield self.models.describe_unknown(spec.name)

    def _faults_of_costs(self, policy: Policy) -> Iterator[str]:
        for name in (spec.name for spec in named_models(policy)):
            if policy.limits.cost is not None and not self.models.is_priced(name):
                yield f"The cost of a turn cannot be limited, because the price of the model {name} is not known."

    def _faults_of_profile(
        self, policy: Policy, tools: ToolNames, role: Role, profile: Profile | None
    ) -> Iterator[str]:
        """Yield the faults of turns with this profile, or of a policy without profiles. An agent without a user need
        not speak."""
        chosen, of = (None, "") if profile is None else (profile.tools, f" of the profile {profile.name}")
        for name in chosen or ():
            searches = RECALL_CONVERSATION in names_of(name)  # also the search of each turn, which needs no tool
            if self.tools.find(name) is None and not self.tools.comes_from_source(name) and not searches:
                yield f"{self.tools.describe_unknown(name)} The list of tools{of} names it."
        caller = Caller(role, rules=policy.sub_agents)
        acts = self.tools.acts_of(self.tools.allowed(tools, chosen, caller))
        if role == "foreground" and not may_show_text(policy) and "speech" not in acts:
            yield SILENT.format(of=of)
        if policy.ends_on == "work_complete" and "work_complete" not in acts:
            yield ENDLESS.format(of=of)


_BEGINNINGS: Mapping[type[State], tuple[type[Request], ...]] = {
    Idle: (UserMessage, AgentMessage, WakeUp, CompactionRequested, Rewound),
    Failed: (UserMessage, AgentMessage, WakeUp, CompactionRequested, RetryRequested, Rewound),
}
"""The requests with which a conversation that rests in these states begins to work."""


@dataclass(frozen=True)
class OfferedTool:
    """A tool that conversations may choose by its `name`. `description` is written for the model, and `parameters` is
    the JSON schema of the arguments."""

    name: str
    description: str
    parameters: dict[str, Any]

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def offered_tools(registry: ToolRegistry) -> tuple[OfferedTool, ...]:
    """Return all tools of this registry, in the order in which they were given."""
    functions = (definition["function"] for definition in registry.definitions())
    return tuple(OfferedTool(one["name"], one.get("description", ""), one["parameters"]) for one in functions)


def _tools_of_next_turn(context: Context) -> ToolNames:
    """The names of the tools that a conversation may use in its next turn. `Pure.`"""
    return context.tools if context.next_tools is None else context.next_tools.tools
