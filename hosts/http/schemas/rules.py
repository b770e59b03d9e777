"""The rules of a conversation, as a client chooses them: the name of a preset, or a policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from ....states import presets
from ....states.errors import faults_of
from ....states.policy import Policy

Preset: TypeAlias = Literal[
    "assistant", "reply_flow", "explicit_response", "talk", "foreground", "background", "sub_agent"
]
"""The name of a ready-made policy."""

PRESETS: Mapping[Preset, Callable[[], Policy]] = {
    "assistant": presets.assistant,
    "reply_flow": presets.reply_flow,
    "explicit_response": presets.explicit_response,
    "talk": presets.talk,
    "foreground": presets.foreground,
    "background": presets.background,
    "sub_agent": presets.sub_agent,
}
"""The function that makes each of them."""


def policy_of(given: Any) -> Policy:
    """Return the policy that is given as JSON, in which a text is not taken for a number. Raises
    `PydanticCustomError`, which names the first invalid field. `Pure.`"""
    try:
        return Policy.model_validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        fault = faults_of(error)[0]
        place = ".".join(map(str, fault["loc"]))
        where = f"{place}: " if place else ""
        raise PydanticCustomError("policy", "{where}{fault}", {"where": where, "fault": fault["msg"]}) from None


GivenPolicy = Annotated[Policy, PlainValidator(policy_of, json_schema_input_type=Policy)]
"""A policy in a body."""
