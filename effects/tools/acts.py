"""What a tool may do beside returning a text: the acts, as a tool returns them.

The machine knows no tool by name: a tool that returns an act does what only the machine can do, such as waiting for a
person or speaking to one. A tool may return only acts of the kinds that it declares. One that asks or spawns, and one
that speaks at once, must be exclusive.
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

NEEDS_TO_BE_ALONE: frozenset[ActKind] = frozenset({"question", "children"})
"""Kinds of act that only an exclusive tool may declare."""


@dataclass(frozen=True, config=ConfigDict(hide_input_in_errors=True))
class Question:
    """Ask a person and wait; the answers become the result of the call.

    Raises `pydantic.ValidationError` for questions that cannot be asked (case P16).
    """

    kind: ClassVar[ActKind] = "question"

    questions: QuestionSet


def acts_in(value: object) -> tuple[Act, ...] | None:
    """The acts, if a tool returned one, or several in a list; None for anything else. `Pure.`"""
    several = value if isinstance(value, list | tuple) and value else (value,)
    are_acts = all(isinstance(one, Speech | WorkComplete | AgentMail | SubAgents) for one in several)
    return tuple(several) if are_acts else None


def acknowledge(acts: Sequence[Act], policy: Policy) -> str:
    """What the model reads of acts that are carried out: of speech, whether it is out already (cases S1, B11); of a
    claim, what it depends on (case S9). `Pure.`"""
    texts, keeps_last = policy.texts, policy.speech.keep == "last"
    moments = {act.when for act in acts if isinstance(act, Speech)}
    if "turn_end" in moments:
        return success(texts.recorded_last if keeps_last else texts.recorded)
    if moments:
        return success(texts.acknowledgement)
    return success(texts.claimed if any(isinstance(act, WorkComplete) for act in acts) else "")


def success(message: str) -> str:
    """What the model reads where all is well, with a message unless it is empty. `Pure.`"""
    return json.dumps({"success": True, **({"message": message} if message else {})}, ensure_ascii=False)


def refusal(sentence: str) -> str:
    """What the model reads of an act that is not carried out (case S7). `Pure.`"""
    return json.dumps({"success": False, "error": sentence}, ensure_ascii=False)
