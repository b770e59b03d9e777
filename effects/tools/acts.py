"""Acts: what a tool may do beside returning a text.

The machine knows no tool by its name. A tool that returns an act asks for what only the machine can do, such as waiting
for the user's answer or speaking to the user. A tool may return only acts of the kinds that it declares. A tool that
asks, spawns or speaks at once must be exclusive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from ...states.policy.policy import Policy
from ...states.values.acts import Act, ActKind, AgentMail, Speech, SubAgents, WorkComplete
from ...states.values.questions import QuestionSet

EXCLUSIVE_ACTS: frozenset[ActKind] = frozenset({"question", "children"})
"""Kinds of act that only an exclusive tool may declare."""


@dataclass(frozen=True, config=ConfigDict(hide_input_in_errors=True))
class Question:
    """Ask the user and wait. The answers become the result of the call.

    Raises `pydantic.ValidationError` for questions that do not follow the rules for questions.
    """

    kind: ClassVar[ActKind] = "question"

    questions: QuestionSet


def acts_in(value: object) -> tuple[Act, ...] | None:
    """The acts, if a tool returned one, or a list of them; None for any other value. `Pure.`"""
    items = value if isinstance(value, list | tuple) and value else (value,)
    are_acts = all(isinstance(item, Speech | WorkComplete | AgentMail | SubAgents) for item in items)
    return tuple(items) if are_acts else None


def acknowledgement_of(acts: Sequence[Act], policy: Policy) -> str:
    """The result that the model reads of acts that are carried out.

    Of speech it says whether the user has it already, of a claim of completed work what the claim depends on. `Pure.`
    """
    texts, keeps_last = policy.texts, policy.speech.keep == "last"
    moments = {act.when for act in acts if isinstance(act, Speech)}
    if "turn_end" in moments:
        return success(texts.recorded_last if keeps_last else texts.recorded)
    if moments:
        return success(texts.acknowledgement)
    return success(texts.claimed if any(isinstance(act, WorkComplete) for act in acts) else "")


def success(message: str) -> str:
    """The result of an act that succeeded, as JSON; an empty message is left out. `Pure.`"""
    return json.dumps({"success": True, **({"message": message} if message else {})}, ensure_ascii=False)


def refusal(sentence: str) -> str:
    """The result of an act that is not carried out, as JSON with the reason. `Pure.`"""
    return json.dumps({"success": False, "error": sentence}, ensure_ascii=False)
