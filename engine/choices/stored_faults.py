"""Tells the application which rules of its stored conversations the engine cannot carry out."""

from __future__ import annotations

import logging

from ...states.context import Context
from .choices import Choices, tools_of_next_turn

logger = logging.getLogger("turnwise.engine")


class StoredFaults:
    """Logs what `RuleChecks` finds in conversations that are loaded, each sentence once."""

    def __init__(self, choices: Choices) -> None:
        self._checks = choices.checks
        self._defaults = choices.defaults
        self._logged: set[str] = set()

    def log(self, conversation_id: str, context: Context) -> None:
        """Log which rules of a conversation cannot be carried out. A conversation that follows its engine has the
        engine's models and profiles from its next turn on."""
        policy = context.policy
        if not context.chose_models:
            policy = policy.model_copy(update={"models": self._defaults.models.chain})
        if not self._defaults.keeps_profiles(context):
            policy = policy.model_copy(update={"profiles": self._defaults.profiles})
        for sentence in self._checks.faults(policy, tools_of_next_turn(context), context.role):
            if sentence not in self._logged:
                self._logged.add(sentence)
                logger.warning("In the conversation %s: %s", conversation_id, sentence)
