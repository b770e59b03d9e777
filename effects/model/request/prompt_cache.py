"""Keeps the written requests of conversations, so that each request is built on top of the one before.

`WrittenMessages` writes the messages that are new, and compares the others with those that it has written. All messages
are written anew where that does not help: because the history was condensed, only the last minutes are sent, another
model is asked, or messages have to be worded for the model for the first time. The system message may change with each
turn, since it holds what was found for the turn; only the digest is computed anew then.

So a request costs what is new in it, not what is stored: nothing here looks at a message that is not part of the
request.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Any
from weakref import finalize

from ....states.effects import RequestLlm
from ....states.policy import DEFAULT_SETTINGS, ModelSettings
from ....states.values.messages import Message
from ...context import EffectContext
from ..port import ModelRequest
from .kept import Kept
from .request_builder import OfferedTools, compose_request, write_system
from .system_message import SystemSource, write_system_message
from .tool_offer import OfferSource, ToolOffer
from .wording import Wording
from .written_messages import WrittenMessages

MAX_PROMPTS = 128
"""How many conversations keep their requests written: more than ask a model at the same time. Another one writes its
request anew, from the transcript in memory."""


class CachedPrompt:
    """The written requests of one conversation. `offer` keeps what the last one offered of the tools."""

    def __init__(self, conversation_id: str = "") -> None:
        self.conversation_id = conversation_id
        self.offer: Kept[OfferSource, ToolOffer] = Kept()
        self._system_message: Kept[SystemSource, str] = Kept()
        self._model = self._family = ""
        self._system = ""
        self._wording: Wording | None = None
        self._written = WrittenMessages("")

    def write_system(self, source: SystemSource) -> str:
        """Return what `write_system_message` returns: the last system message, while nothing has changed that it was
        written from, which is mostly so within a turn."""
        return self._system_message.made_from(source, write_system_message)

    def request(
        self,
        effect: RequestLlm,
        system: str,
        messages: Sequence[Message],
        tools: OfferedTools,
        turn: int,
        settings: ModelSettings = DEFAULT_SETTINGS,
        *,
        closing: Sequence[Message] = (),
        wording: Wording | None = None,
        family: str = "",
        first_turn: int | None = None,
    ) -> tuple[ModelRequest, str]:
        """The request that `build_request` would build from the same arguments, with these settings, and its
        `request_digest`.

        The `closing` messages stand behind the others, in this request only. `wording` words the messages for the
        model; None leaves them as they are. `family` is that of the model, by default that of its name. `first_turn` is
        the turn that this one tries again, by default none.
        """
        self._prepare(effect.model, system, wording, family)
        history = messages if isinstance(messages, list) else list(messages)
        self._written.follow(history, turn, first_turn)
        written = self._written.request(history, closing)
        request = compose_request(effect, written, tools, self.conversation_id, settings)
        return request, written.digest.finish(request, tools.canonical)

    def _prepare(self, model: str, system: str, wording: Wording | None, family: str) -> None:
        """Keep what was written, unless the messages would be written differently now."""
        is_same_dialogue = model == self._model and family == self._family and wording == self._wording
        if is_same_dialogue and system == self._system:
            return
        before, now = write_system(self._system), write_system(system)
        if is_same_dialogue and len(now) == len(before):
            self._written.replace_system(now)
        else:
            self._written = WrittenMessages(model, now, None if wording is None else wording.read, family)
        self._model, self._family, self._wording = model, family, wording
        self._system = intern(system)  # most conversations of an engine have one of a few


class PromptCache:
    """The cached prompts of the conversations that asked a model last, at most `capacity`. Each is dropped together
    with the history of its conversation."""

    def __init__(self, capacity: int = MAX_PROMPTS) -> None:
        self._capacity = capacity
        self._prompts: dict[str, tuple[CachedPrompt, finalize[Any, Any]]] = {}

    def __len__(self) -> int:
        return len(self._prompts)

    def prompt_of(self, context: EffectContext) -> CachedPrompt:
        """Return the cached prompt of this conversation, an empty one if it is not cached."""
        cached = self._prompts.pop(context.conversation_id, None)
        if cached is None:
            end = finalize(context.history, self._prompts.pop, context.conversation_id, None)
            end.atexit = False
            cached = CachedPrompt(context.conversation_id), end
        self._prompts[context.conversation_id] = cached  # behind all others, which are dropped before it
        if len(self._prompts) > self._capacity:
            _, end = self._prompts.pop(next(iter(self._prompts)))
            end.detach()
        return cached[0]
