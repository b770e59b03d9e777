"""Rounds of calls that a model did not write itself, in the form that its provider takes.

Some providers refuse a round of calls without what their models write into it: sealed thinking, a signature, the
reasoning that led to the calls. It is missing where another model made the calls, because the first one was not
available, for example. Each provider has a form in which it takes such a round; `Need` names them. What a model needs
is known of its maker, or learned from a refusal, like every other form of requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..answer_content import THOUGHTS
from ..families import STRIPPED, Need
from .json_copy import copy_json
from .request_traits import Arguments, Message, Trait, each_message, further_fields, without

NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The signature of a call that has none (Google, "Thought signatures", frequently asked questions)."""

REASONING = "reasoning_content"

BLANK_REASONING = " "
"""The shortest reasoning that counts as one."""

_THINKING = ("thinking", "reasoning_effort")
"""The parameters by which a request asks for thinking."""


def _has_calls(message: Message) -> bool:
    return message["role"] == "assistant" and bool(message.get("tool_calls"))


def _told(message: Message) -> str:
    """The reasoning of a message, under whatever name it stands."""
    return next((text for name in THOUGHTS if isinstance(text := message.get(name), str) and text), "")


def _with_some_reasoning(message: Message) -> Message:
    return message if not _has_calls(message) or _told(message) else {**message, REASONING: BLANK_REASONING}


def _with_named_reasoning(message: Message) -> Message:
    if not _has_calls(message) or message.get(REASONING):
        return message
    return {**message, REASONING: _told(message) or BLANK_REASONING}


def _signed(message: Message) -> Message:
    """The message with a signature on its first call, if nothing is signed in it."""
    if not _has_calls(message):
        return message
    first, *others = message["tool_calls"]
    seals = set(further_fields([{**message, "tool_calls": [first]}])) - set(THOUGHTS)
    if seals or "__thought__" in first["id"]:
        return message
    return {**message, "tool_calls": [{**first, "extra_content": NO_SIGNATURE}, *others]}


def _without_thinking(arguments: Arguments) -> Arguments:
    """The request asks for no thinking if the round under way does not begin with sealed thinking."""
    if not any(name in arguments for name in _THINKING) or _begins_with_thinking(arguments["messages"]):
        return arguments
    return without(each_message(lambda message: without(message, "thinking_blocks"))(arguments), *_THINKING)


def _begins_with_thinking(messages: Sequence[Message]) -> bool:
    """Whether the round under way, which is what stands behind the user's last message, begins with sealed thinking, or
    has not begun."""
    first: Message | None = None
    for message in reversed(messages):
        if message["role"] == "user":
            break
        if message["role"] == "assistant":
            first = message
    return first is None or "thinking_blocks" in first or "reasoning_details" in first


NEEDED: Mapping[Need, Trait] = {
    Need.SIGNATURE: Trait("unsigned", "calls without a signature", r"thought.?signature", each_message(_signed)),
    Need.THINKING_OFF: Trait(
        "unsealed",
        "thinking in rounds that do not begin with it",
        r"(?:expected|start with a) .?thinking\b",
        _without_thinking,
    ),
    Need.REASONING: Trait(
        "unreasoned", "calls without reasoning", rf"\b{REASONING}\b", each_message(_with_some_reasoning)
    ),
}
"""The form of a round that each need refuses."""

ROUNDS: tuple[Trait, ...] = (
    NEEDED[Need.SIGNATURE],
    NEEDED[Need.THINKING_OFF],
    Trait(
        "reasoning elsewhere",
        f"calls without {REASONING}",
        NEEDED[Need.REASONING].says,
        each_message(_with_named_reasoning),
    ),
)
"""What a refusal may say of rounds. It tells the name under which the reasoning is wanted, where a maker tells only
that it is."""


def with_stripped_fields(arguments: Arguments, protocol: str) -> Arguments:
    """The request with all its messages in its body, if litellm keeps some of their fields out of requests over this
    protocol. `Pure.`"""
    stripped = STRIPPED.get(protocol)
    if stripped is None or stripped.isdisjoint(further_fields(arguments["messages"])):
        return arguments
    return {
        **arguments,
        "extra_body": {**(arguments.get("extra_body") or {}), "messages": copy_json(arguments["messages"])},
    }
