"""Removes secrets from what happens to conversations, before the machine sees it.

This is the one place where it is done: each event passes through it on its way from the mailbox to the machine, and the
first event of a conversation where it is made. So nothing that was stored, shown, sent to a model or delivered can hold
a secret that the rules find, and the log has none that a replay could bring back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from ..effects.context import LiveKind, Redact, unchanged
from ..effects.redaction.events import GivenKind, SecretInAddress, redacted_event
from ..effects.redaction.redaction import Redaction
from ..effects.text import LONG, in_thread_if_long
from ..effects.tools.registry import ToolRegistry
from ..states.errors import InvalidInput
from ..states.events import Answer, EffectFailed, Event, Opened, Request
from ..states.policy import Policy

R = TypeVar("R", bound=Request)

_SHOWN = "text"
"""The member of a live update's data that holds what a tool shows of its progress."""

INVALID = "What is left without its secrets cannot be used"


class EventRedactor:
    """Redacts events with the redaction of one engine, where the policy of the conversation asks for it. The names that
    the application gave to its `tools`, and to the profiles and models of the policy, are left alone."""

    def __init__(self, redaction: Redaction | None, tools: ToolRegistry | None = None) -> None:
        self._redaction = Redaction() if redaction is None else redaction
        self._tools = ToolRegistry() if tools is None else tools

    @property
    def fault(self) -> str | None:
        """Why this engine cannot remove secrets, or None."""
        return self._redaction.fault

    def redact_of(self, policy: Policy) -> Redact:
        """Return what replaces secrets in a text under this policy."""
        return self._redaction.redact if policy.redact else unchanged

    async def redacted(self, event: Event, policy: Policy) -> Event:
        """Return the event without secrets. An answer that cannot be used without them becomes a failure. A long text
        takes a second, in which other conversations go on.

        Raises `InvalidInput` for such a request, and `ConfigurationError` if the rules for secrets are not installed.
        """
        if not policy.redact:
            return event
        characters = LONG + 1 if isinstance(event, Opened) and event.messages else sum(map(len, event.texts))
        return await in_thread_if_long(characters, lambda: self._redacted(event, policy))

    def _redacted(self, event: Event, policy: Policy) -> Event:
        def is_given(kind: GivenKind, name: str) -> bool:
            return self._has_tool(name) if kind == "tool" else _is_in(policy, kind, name)

        try:
            return redacted_event(event, self._redaction, is_given)
        except (ValueError, RecursionError) as error:
            if isinstance(event, Answer):
                return EffectFailed(effect_id=event.effect_id, at=event.at, kind="internal", sentence=_sentence(error))
            raise InvalidInput(_sentence(error)) from None

    def _has_tool(self, name: str) -> bool:
        """Whether the application gave a tool of this name. A server chooses the names of its tools itself."""
        tool = self._tools.find(name)
        return tool is not None and tool.name == name and not self._tools.comes_from_source(name)

    async def redacted_opening(self, opened: Opened, *, wrote_system: bool) -> Opened:
        """Return the first event of a conversation without secrets. The system prompt is left alone if the application
        `wrote_system`, but not if it comes from the messages that the conversation begins with. Raises what
        `redacted` raises."""
        redacted = await self.redacted(opened, opened.policy)
        assert isinstance(redacted, Opened), "a request stays what it is"
        redact = self.redact_of(opened.policy)
        return redacted if wrote_system else redacted.replace(system=redact(opened.system))

    def shown(self, kind: LiveKind, data: dict[str, Any], policy: Policy) -> dict[str, Any]:
        """Return the data of a live update; the text of a tool's progress has no secrets."""
        if not policy.redact or kind != "tool_progress" or _SHOWN not in data:
            return data
        return {**data, _SHOWN: self._redaction.redact(str(data[_SHOWN]))}  # a tool may report anything

    def variants(self, request: Request, handled: Request, policy: Policy) -> Iterator[tuple[Request, Request]]:
        """Yield the forms in which a request is to be compared with the one that was handled under its id: each of them
        as it is, or redacted. The rule `redact` may have been switched on or off between the two."""
        yield request, handled
        if self.fault is None:
            redacted = self._redacted_request(request, policy)
            yield redacted, handled
            if policy.redact:
                yield redacted, self._redacted_request(handled, policy)

    def _redacted_request(self, request: R, policy: Policy) -> R:
        try:
            redacted = self._redacted(request, policy)
        except InvalidInput:
            return request
        assert isinstance(redacted, type(request)), "a request stays what it is"
        return redacted


def _is_in(policy: Policy, kind: GivenKind, name: str) -> bool:
    """Whether the policy has a profile, or a model, of this name."""
    if kind == "profile":
        return policy.has_profile(name)
    models = (*policy.models, *(profile.model for profile in policy.profiles if profile.model is not None))
    return any(model.name == name for model in models)


def _sentence(error: Exception) -> str:
    """Return what people read. The message of a validation error may hold what was redacted."""
    return f"{INVALID}: {error}." if isinstance(error, SecretInAddress) else f"{INVALID}."
