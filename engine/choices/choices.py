"""Checks what a conversation chooses against what its engine has."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ...effects.tools.registry import ToolRegistry
from ...states.policy.policy import Policy
from ..requests import checked_policy
from .models import Models
from .policy_warnings import policy_warnings

logger = logging.getLogger("turnwise.engine")


@dataclass(frozen=True)
class Choices:
    """The models and tools of an engine, against which the choices of a conversation are checked."""

    models: Models
    tools: ToolRegistry

    def rules(self, policy: Policy) -> Policy:
        """Return the policy with the models of this engine. Raises `InvalidInput` for what is not a policy."""
        policy = checked_policy(policy)
        for sentence in policy_warnings(policy, self.tools.acts):
            logger.warning(sentence)
        return policy.model_copy(update={"models": self.models.chain})
