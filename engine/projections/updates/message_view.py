"""A message of the transcript as watchers see it."""

from __future__ import annotations

from typing import Any

from ....states.policy import Policy
from ....states.replies import text_of_delivery, text_of_reply
from ....states.values.messages import Message, ToolCall
from ....states.values.value import DEEPEST, is_nested_deeper, json_object

_OF_MODELS = {"opaque", "provider"}
"""What a provider wrote for its models only."""


def message_view(message: Message, policy: Policy) -> Message:
    """Return the message as people see it: what a model wrote, and what was delivered, without marked lines.
    `Pure.`"""
    if not policy.marker:
        return message
    is_mail = message.audience is not None
    deliveries = tuple(text_of_delivery(text, policy, relayed=is_mail) for text in message.deliveries)
    text = text_of_reply(message.text, policy) if message.role == "assistant" else message.text
    return message.replace(text=text, deliveries=deliveries)


def message_data(message: Message) -> dict[str, Any]:
    """Return a message as JSON; a field that has its default is left out, and so is what only models read. `Pure.`"""
    data = message.model_dump(mode="json", exclude=_OF_MODELS, exclude_defaults=True)
    return data | ({"tool_calls": [call_data(call) for call in message.tool_calls]} if message.tool_calls else {})


def call_data(call: ToolCall) -> dict[str, Any]:
    """Return a tool call as JSON: its arguments as an object, and the text that the model wrote where that is no JSON
    object. `Pure.`"""
    return call.model_dump(mode="json", exclude_defaults=True) | arguments_data(call)


def arguments_data(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as an object, and the text that the model wrote where that is no JSON object, or one that is
    nested too deeply to be shown. `Pure.`"""
    arguments = json_object(call.raw_arguments)
    if arguments is None or is_nested_deeper(arguments, DEEPEST):
        return {"arguments": {}, "raw_arguments": call.raw_arguments}
    return {"arguments": arguments}
