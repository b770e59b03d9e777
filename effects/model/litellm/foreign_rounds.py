"""Requests with rounds of calls that the model did not write itself, in the form that its provider takes.

Some providers refuse a round of calls without what their models write into it: sealed thinking, a signature, the
reasoning that led to the calls. It is missing where another model made the calls, because the first one was not
available, for example. Each provider has a form in which it takes such a round; `Need` names them. What a model needs
is known of its maker, or learned from a refusal: a request that was refused has had no effect, so it is sent again in
the other form. A field that went back and that the provider refuses nevertheless is left out from then on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...logs import performer_logger
from ..answer_content import THOUGHTS
from ..families import Need, maker_of
from .error_kinds import kind_of
from .json_copy import copy_json
from .refusals import refusal_of

logger = performer_logger("turnwise.model")

NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The signature of a call that has none (Google, "Thought signatures", frequently asked questions)."""

_REASONING = "reasoning_content"

BLANK_REASONING = " "
"""The shortest reasoning that counts as one."""

_REFUSALS: tuple[tuple[Need, re.Pattern[str]], ...] = (
    (Need.SIGNATURE, re.compile(r"thought.?signature", re.IGNORECASE)),
    (Need.THINKING_OFF, re.compile(r"(?:expected|start with a) .?thinking\b", re.IGNORECASE)),
    (Need.REASONING, re.compile(r"\breasoning_content\b", re.IGNORECASE)),
)
"""What a refusal asks for, by what it says."""

_THINKING = ("thinking", "reasoning_effort")
"""The parameters by which a request asks for thinking."""

_KEPT_OUT = {"hosted_vllm": frozenset({"reasoning_content", "thinking_blocks"})}
"""What litellm keeps out of the requests over a protocol, by the name that it gives the protocol. Servers of vLLM put
the reasoning into their templates, so it is written into the body itself."""

_EVERYBODY_READS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "id", "type", "function"})


MAX_CHANGES = 6
"""The most forms that are tried for one request."""


@dataclass(frozen=True)
class _Known:
    """What a model needs, what of that a refusal has told, and the fields that it does not take."""

    needs: frozenset[Need]
    learned: frozenset[Need] = frozenset()
    refused: frozenset[str] = frozenset()

    def joined(self, other: _Known) -> _Known:
        """What both know."""
        return _Known(self.needs | other.needs, self.learned | other.learned, self.refused | other.refused)


class ForeignRounds:
    """What is known of the rounds that one model takes."""

    def __init__(self, model: str) -> None:
        self._model = model
        maker = maker_of(model)
        self._known = _Known(frozenset({Need.NOTHING if maker is None else maker.need}))
        self._kept_out = _KEPT_OUT.get(model.partition("/")[0], frozenset())

    async def send(self, arguments: Callable[[], dict[str, Any]], send: Callable[..., Awaitable[Any]]) -> Any:
        """Return what `send` returns for these arguments of litellm, which are made for each try, because litellm
        changes them. Raises what it raises, unless the request can be sent in a form that the model may take. A form
        is remembered once it was taken."""
        known, tries = self._known, 0
        while True:
            try:
                answer = await send(**self._fit(arguments(), known))
            except Exception as error:
                found = None if kind_of(error) != "invalid_request" else self._found(error, arguments(), known)
                tries += 1
                if found is None or tries > MAX_CHANGES:
                    raise
                known = found
            else:
                self._remember(known)
                return answer

    def _fit(self, arguments: dict[str, Any], known: _Known) -> dict[str, Any]:
        messages = arguments["messages"]
        for member in _members_with_fields(messages) if known.refused else ():
            for name in known.refused & member.keys():
                del member[name]
        if Need.REASONING in known.needs and _REASONING not in known.refused:
            _add_reasoning(messages, is_told_twice=Need.REASONING in known.learned)
        if Need.SIGNATURE in known.needs and "extra_content" not in known.refused:
            _add_signatures(messages)
        if Need.THINKING_OFF in known.needs and not _begins_with_thinking(messages):
            arguments = _without_thinking(arguments)
        if self._kept_out and self._kept_out & _fields_in(messages):
            body = {**(arguments.get("extra_body") or {}), "messages": copy_json(messages)}
            return {**arguments, "extra_body": body}
        return arguments

    def _found(self, error: Exception, arguments: dict[str, Any], known: _Known) -> _Known | None:
        """What is known with what this refusal of a request says; None if it says nothing new."""
        said, messages = refusal_of(error).text, self._fit(arguments, known)["messages"]
        for need, pattern in _REFUSALS:
            if need not in known.learned and pattern.search(said) and _may_lack(need, messages):
                return replace(known, needs=known.needs | {need}, learned=known.learned | {need})
        sent = _fields_in(messages) - known.refused
        named = {name for name in sent if re.search(rf"\b{re.escape(name.lower())}\b", said)}
        return replace(known, refused=known.refused | named) if named else None

    def _remember(self, known: _Known) -> None:
        """Remember what the model needs, now that it took a request in this form."""
        for need in known.learned - self._known.learned:
            logger.warning("The model %s refuses calls of others as they are (%s).", self._model, need.value)
        if fields := known.refused - self._known.refused:
            logger.warning("The model %s does not take back %s.", self._model, ", ".join(sorted(fields)))
        self._known = self._known.joined(known)


def _may_lack(need: Need, messages: Sequence[dict[str, Any]]) -> bool:
    """Whether a round among these messages has not what is needed."""
    if need is Need.REASONING:
        return not all(message.get(_REASONING) for message in _with_calls(messages))
    return any(True for _ in _with_calls(messages))


def _fields_in(messages: Sequence[dict[str, Any]]) -> frozenset[str]:
    """The names of what goes back besides what everybody reads."""
    return frozenset(name for member in _members_with_fields(messages) for name in member) - _EVERYBODY_READS


def _members_with_fields(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of the assistant and their calls."""
    for message in messages:
        if message["role"] == "assistant":
            yield message
            yield from message.get("tool_calls") or ()


def _with_calls(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (message for message in messages if message["role"] == "assistant" and message.get("tool_calls"))


def _add_reasoning(messages: Sequence[dict[str, Any]], is_told_twice: bool) -> None:
    """Add reasoning where there is none; `is_told_twice` says to repeat it where it stands under another name."""
    for message in _with_calls(messages):
        if message.get(_REASONING):
            continue
        told = [message[name] for name in THOUGHTS if isinstance(message.get(name), str) and message[name]]
        if is_told_twice or not told:
            message[_REASONING] = told[0] if told else BLANK_REASONING


def _add_signatures(messages: Sequence[dict[str, Any]]) -> None:
    """Sign the first call of each round of which nothing is signed."""
    for message in _with_calls(messages):
        first, *_ = message["tool_calls"]
        if not (message.keys() | first.keys()) - _EVERYBODY_READS - set(THOUGHTS) and "__thought__" not in first["id"]:
            first["extra_content"] = NO_SIGNATURE


def _begins_with_thinking(messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the round under way, which is what stands behind the user's last message, begins with sealed thinking, or
    has not begun."""
    first: dict[str, Any] | None = None
    for message in reversed(messages):
        if message["role"] == "user":
            break
        if message["role"] == "assistant":
            first = message
    return first is None or "thinking_blocks" in first or "reasoning_details" in first


def _without_thinking(arguments: dict[str, Any]) -> dict[str, Any]:
    if not any(name in arguments for name in _THINKING):
        return arguments
    for message in arguments["messages"]:
        message.pop("thinking_blocks", None)
    return {name: value for name, value in arguments.items() if name not in _THINKING}
