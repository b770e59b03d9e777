"""Which rules an engine cannot carry out: they need a tool, a model, a price or a performer that it does not have.

Such a rule would do nothing, or never let a turn end, and look like a model that misbehaves. So it is refused where a
conversation chooses it. In a conversation that is already stored it is logged instead, because that conversation goes
on as well as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from ...effects.tools.catalogue import RECALL_CONVERSATION, names_of
from ...effects.tools.registry import ToolRegistry
from ...states.policy import Policy, Profile, Recent, named_models
from ...states.replies import may_show_text
from ...states.roles import Caller, Role
from .models import Models

ToolNames = tuple[str, ...] | None
"""The names of the tools that a conversation may use; None stands for all that the engine has."""

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
