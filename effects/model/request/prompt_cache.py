"""Builds requests on top of the written beginning of the previous one.

Each request holds the whole history, and a history grows only at its end. Writing all of it for every request would
cost more the longer the conversation is. So the messages of finished turns are written once and kept, and a request
adds those of the turn under way. The kept beginning is used only if the new request begins in the same way. If it does
not, because the history was condensed, only the last minutes are sent or another model is asked, all messages are
written anew. The system message may change with each turn, since it holds what was found for the turn; only the digest
is computed anew then.

So a request costs what it sends, not what is stored: nothing here looks at a message that is not part of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Any
from weakref import finalize

from ....states.effects import RequestLlm
from ....states.policy.model_settings import DEFAULT_SETTINGS, ModelSettings
from ....states.values.messages import Message
from ...context import EffectContext
from ..port import ModelRequest
from .call_ids import CallIds
from .request_builder import OfferedTools, Segment, compose_request, write_segment, write_system
from .request_digest import RequestDigest

MAX_PROMPTS = 128
"""How many conversations keep the beginning of their requests written: more than ask a model at the same time. Another
one writes it anew, from the transcript in memory."""


class CachedPrompt:
    """The written beginning of one conversation's requests."""

    def __init__(self, conversation_id: str = "") -> None:
        self._conversation_id = conversation_id
        self._reset("", "")

    def _reset(self, model: str, system: str) -> None:
        self._model = model
        self._messages: tuple[Message, ...] = ()
        self._segment = Segment()
        self._call_ids = CallIds()
        self._take_system(system)

    def _take_system(self, system: str) -> None:
        """Put this system message in front of the written messages, which stay as they are."""
        self._system = intern(system)  # most conversations of an engine have one of a few
        self._digest = RequestDigest(self._model).add(write_system(system)).add(self._segment.messages)

    def request(
        self,
        effect: RequestLlm,
        system: str,
        messages: tuple[Message, ...],
        tools: OfferedTools,
        turn: int,
        settings: ModelSettings = DEFAULT_SETTINGS,
    ) -> tuple[ModelRequest, str]:
        """The request that `build_request` would build from the same arguments, with these settings, and its
        `request_digest`."""
        if effect.model != self._model or not self._is_beginning_of(messages):
            self._reset(effect.model, system)
        elif system != self._system:
            self._take_system(system)
        self._keep_turns_before(turn, messages)
        rest = messages[len(self._messages) :]
        segment = write_segment(rest, CallIds(self._call_ids), effect.model, turn, are_first=not self._messages)
        if self._can_append(rest, segment):
            digest = self._digest.add(segment.messages)
            segment = self._segment + segment
        else:
            segment = write_segment(messages, CallIds(), effect.model, turn)
            digest = RequestDigest(effect.model).add((*write_system(system), *segment.messages))
        request = compose_request(effect, system, segment, tools, self._conversation_id, settings)
        return request, digest.finish(request, tools.canonical)

    def _is_beginning_of(self, messages: tuple[Message, ...]) -> bool:
        """Whether these messages begin with those that are kept. The newest one is compared first, since it differs
        wherever a request holds only the last minutes."""
        count = len(self._messages)
        if not count:
            return True
        is_possible = len(messages) >= count and messages[count - 1] == self._messages[-1]
        return is_possible and messages[:count] == self._messages

    def _keep_turns_before(self, turn: int, messages: tuple[Message, ...]) -> None:
        """Keep what was said in the turns before this one, up to a place at which the rest can be appended. That is
        behind the last message of the model, or in front of it where a given history goes on behind it."""
        first = len(self._messages)
        count = next((n for n, message in enumerate(messages[first:]) if message.turn >= turn), len(messages) - first)
        while count and not _can_divide(messages, first + count):
            count -= 1
        if not count:
            return
        finished = messages[first : first + count]
        call_ids = CallIds(self._call_ids)
        segment = write_segment(finished, call_ids, self._model, turn, are_first=not first)
        if segment.messages and self._can_append(finished, segment):
            self._messages += finished
            self._segment += segment
            self._call_ids.absorb(call_ids)
            self._digest = self._digest.add(segment.messages)

    def _can_append(self, messages: Sequence[Message], segment: Segment) -> bool:
        """Whether the segment, written from these messages alone, is the same as if it had been written together with
        the kept beginning: nothing is merged or inserted between them, and no result belongs to an earlier call."""
        if not self._messages:
            return True
        calls = {call.call_id for message in messages for call in message.tool_calls}
        has_all_calls = all(message.role != "tool" or message.tool_call_id in calls for message in messages)
        roles = [self._segment.messages[-1]["role"], *(message["role"] for message in segment.messages[:1])]
        return has_all_calls and roles in (["assistant", "user"], ["user", "assistant"], ["tool", "assistant"])


def _can_divide(messages: Sequence[Message], place: int) -> bool:
    """Whether a request can be divided in front of this place: a turn ends there, or the model goes on there."""
    last = messages[place - 1]
    ends_turn = _speaks(last) and not last.tool_calls
    return ends_turn or (place < len(messages) and _speaks(messages[place]))


def _speaks(message: Message) -> bool:
    return message.role == "assistant" and (bool(message.tool_calls) or bool(message.text.strip()))


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
