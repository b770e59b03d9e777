"""The results that a model reads of acts: whether they are carried out, and why not."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ...states.policy import Policy
from ...states.values.acts import Act, AgentMail, Speech, SubAgents, Transfer, WorkComplete


def acts_in(value: object) -> tuple[Act, ...] | None:
    """The acts, if a tool returned one, or a list of them; None for any other value. `Pure.`"""
    items = value if isinstance(value, list | tuple) and value else (value,)
    are_acts = all(isinstance(item, Speech | WorkComplete | AgentMail | SubAgents | Transfer) for item in items)
    return tuple(items) if are_acts else None


def acknowledgement_of(acts: Sequence[Act], policy: Policy) -> str:
    """The result that the model reads of acts that are carried out.

    Of speech it says whether the user has it already, of a claim of completed work what the claim depends on. `Pure.`
    """
    texts, keeps_last = policy.texts, policy.speech.keep == "last"
    delivery_times = {act.when for act in acts if isinstance(act, Speech)}
    if "turn_end" in delivery_times:
        return success(texts.recorded_last if keeps_last else texts.recorded)
    if delivery_times:
        return success(texts.acknowledgement)
    return success(texts.claimed if any(isinstance(act, WorkComplete) for act in acts) else "")


def success(message: str) -> str:
    """The result of an act that succeeded, as JSON; an empty message is left out. `Pure.`"""
    return json.dumps({"success": True, **({"message": message} if message else {})}, ensure_ascii=False)


def refusal(sentence: str) -> str:
    """The result of an act that is not carried out, as JSON with the reason. `Pure.`"""
    return json.dumps({"success": False, "error": sentence}, ensure_ascii=False)
