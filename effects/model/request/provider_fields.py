"""What a provider wrote on a message besides what everybody reads: how it is stored, and what of it goes back.

It goes back to the family of models that wrote it, unchanged, by this rule:

- What belongs to calls goes with them in every request: their ids and their fields, such as a thought signature, and
  also the fields and the thinking of their message, because a provider may keep the seals of calls there.
- Sealed thinking goes back within its turn, and so do the fields and the thinking of a message without calls. A turn
  that is tried again continues the one before.

Other models get none of it. What cannot be stored exactly is left out as a whole, since a part of it would be refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ....states.openai_writing import WireMessage
from ....states.values.messages import LONGEST_ID, Message, ProviderFields, ToolCall
from ....states.values.value import encodable
from ...logs import performer_logger
from ..families import family_named
from ..port import ModelAnswer, ModelCall

logger = performer_logger("turnwise.model")

LARGEST = 1_000_000
"""The most characters of JSON that the fields of one message or one call may have. Chosen to be more than any model's
window, as `MAX_TEXT` is."""

DEEPEST = 50
"""The most levels of such JSON. Databases and parsers end at 100 or more."""

THINKING = "reasoning_content"
"""The usual name of the field that holds thinking."""


# --- storing


def provider_fields_of(
    answer: ModelAnswer, calls: Sequence[ToolCall], family: str, model: str
) -> ProviderFields | None:
    """Return what is stored of an answer whose calls became these; None if nothing of it goes back, neither thinking
    nor an id. `family` is that of the `model`."""
    message = _storable(answer.opaque_fields, model)
    of_calls = {
        stored.call_id: fields
        for made, stored in zip(answer.tool_calls, calls, strict=True)
        if (fields := _storable(_fields_of_call(made), model))
    }
    name: Any = answer.thinking_field
    is_named = bool(answer.thinking) and name != THINKING and isinstance(name, str) and len(name) <= LONGEST_ID
    thinking = encodable(name) if is_named else ""
    declared = family if family != family_named(model) else ""
    has_seal = bool(answer.thinking or answer.opaque or any(call.provider_id for call in calls))
    if not (message or of_calls or thinking or declared or has_seal):
        return None
    return ProviderFields(family=encodable(declared), thinking=thinking, message=message, calls=of_calls)


def storable_blocks(blocks: Any, model: str) -> Any:
    """Return these blocks of sealed thinking, or none of them if one cannot be stored exactly."""
    return blocks if not blocks or _is_storable(blocks, model) else ()


def _fields_of_call(call: ModelCall) -> Mapping[str, Any]:
    """The fields of a call, with its id if that is too long to be carried along."""
    given: Any = call.opaque
    fields = given if isinstance(given, Mapping) else {}
    return {**fields, "id": call.id} if len(call.id) > LONGEST_ID else fields


def _storable(fields: object, model: str) -> dict[str, Any]:
    return dict(fields) if isinstance(fields, Mapping) and fields and _is_storable(fields, model) else {}


def _is_storable(value: Any, model: str) -> bool:
    """Whether JSON holds this value exactly, and it is neither too large nor too deep. If not, that is logged."""
    try:
        is_storable = _is_shallow(value, DEEPEST) and len(_encoded(value)) <= LARGEST
    except (ValueError, TypeError, RecursionError):
        is_storable = False
    if not is_storable:
        logger.warning("What %s wrote for itself cannot be stored, so it does not go back.", model)
    return is_storable


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, Mapping):
        return levels > 0 and all(type(name) is str and _is_shallow(each, levels - 1) for name, each in value.items())
    if isinstance(value, list | tuple):
        return levels > 0 and all(_is_shallow(each, levels - 1) for each in value)
    return value is None or isinstance(value, str | int | float)


# --- sending


def is_of_family(message: Message, model: str, family: str) -> bool:
    """Whether a model of this name and family can read what the provider of this message wrote. `Pure.`"""
    provider = message.provider
    if provider is not None and provider.family:
        return provider.family == family
    return bool(message.model) and (message.model == model or family_named(message.model) == family)


def own_id(message: Message, call: ToolCall) -> str:
    """The id that the provider gave this call of the message, if it goes back; empty if not. `Pure.`"""
    if message.provider is None:
        return ""
    return call.provider_id or str(message.provider.calls.get(call.call_id, {}).get("id", ""))


def is_sent_in_its_turn_only(message: Message) -> bool:
    """Whether some of what goes back to the family of this message does so within its turn only. `Pure.`"""
    return bool(message.opaque) or (message.provider is not None and not message.tool_calls)


def add_provider_fields(sent: WireMessage, message: Message, turn: int, first_turn: int) -> None:
    """Add to a message of the assistant, as it is sent, what goes back to its family. `turn` is the one under way, and
    `first_turn` the one that it tries again, or the same.

    Of a message of an older log, which does not say what goes back, that is the sealed thinking of the turn itself.
    """
    provider = message.provider
    is_under_way = (turn if provider is None else first_turn) <= message.turn <= turn
    if is_under_way and message.opaque:
        sent["thinking_blocks"] = list(message.opaque)
    is_told = is_under_way and (message.opaque or provider is not None)
    if message.thinking and (is_told or (provider is not None and message.tool_calls and not message.opaque)):
        sent[(provider.thinking if provider else "") or THINKING] = message.thinking
    if provider is not None and (is_under_way or message.tool_calls):
        _add_fields(sent, message, provider)


def _add_fields(sent: WireMessage, message: Message, provider: ProviderFields) -> None:
    sent.update((name, field) for name, field in provider.message.items() if name not in sent)
    for call, written in zip(message.tool_calls, sent.get("tool_calls", ()), strict=True):
        if fields := provider.calls.get(call.call_id):
            _add_to_call(written, fields)


def _add_to_call(written: dict[str, Any], fields: Mapping[str, Any]) -> None:
    function = fields.get("function")
    if isinstance(function, Mapping):
        written["function"] = {**function, **written["function"]}
    written.update((name, field) for name, field in fields.items() if name not in written)
