"""Tells the application which rules of its stored conversations the engine cannot carry out."""

from __future__ import annotations

import logging

from ...states.context import Context
from .choices import tools_of_next_turn
from .rule_checks import RuleChecks

logger = logging.getLogger("turnwise.engine")


class StoredFaults:
    """Logs what `RuleChecks` finds in conversations that are loaded, each sentence once."""

    def __init__(self, checks: RuleChecks) -> None:
        self._checks = checks
        self._logged: set[str] = set()

    def log(self, conversation_id: str, context: Context) -> None:
        """Log which rules of a conversation cannot be carried out. A conversation that follows its engine's models asks
        these from its next turn on."""
        models = context.policy.models if context.chose_models else self._checks.models.chain
        policy = context.policy.model_copy(update={"models": models})
        for sentence in self._checks.faults(policy, tools_of_next_turn(context)):
            if sentence not in self._logged:
                self._logged.add(sentence)
                logger.warning("In the conversation %s: %s", conversation_id, sentence)
