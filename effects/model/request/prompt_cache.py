"""Requests that go on from the one before.

Each request holds the whole history, and a history grows at its end alone. To write it anew for every request would
cost more the longer the conversation is, so what was said in turns that are over is written once and kept; a request
adds the turn under way. What is kept is only ever taken as a beginning of what is asked for: where the history turns
out to begin otherwise (it was condensed, or another model is asked), it is written from its first message.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import finalize

from ....states.effects import RequestLlm
from ....states.values.messages import Message
from ...context import EffectContext
from ..port import ModelRequest
from .call_ids import Ids
from .request_builder import Offer, Passage, put_together, write_passage, write_system
from .request_digest import Digest


class CachedPrompt:
    """The beginning of one conversation's requests, as far as it is written for good."""

    def __init__(self) -> None:
        self._begin("", "")

    def _begin(self, model: str, system: str) -> None:
        self._asked = (model, system)
        self._messages: tuple[Message, ...] = ()
        self._passage = Passage()
        self._ids = Ids()
        self._digest = Digest(model).add(write_system(system))

    def request(
        self,
        effect: RequestLlm,
        system: str,
        messages: tuple[Message, ...],
        offer: Offer,
        turn: int,
    ) -> tuple[ModelRequest, str]:
        """What `build_request` makes of the same arguments, the tools being those of the offer, and its
        `request_digest`."""
        if (effect.model, system) != self._asked or messages[: len(self._messages)] != self._messages:
            self._begin(effect.model, system)
        self._keep_turns_before(turn, messages)
        newest = messages[len(self._messages) :]
        passage = write_passage(newest, Ids(self._ids), effect.model, turn)
        if self._takes(newest, passage):
            digest = self._digest.add(passage.bodies)
            passage = self._passage + passage
        else:
            passage = write_passage(messages, Ids(), effect.model, turn)
            digest = Digest(effect.model).add((*write_system(system), *passage.bodies))
        request = put_together(effect, system, passage, offer)
        return request, digest.end(request, offer.canonical)

    def _keep_turns_before(self, turn: int, messages: tuple[Message, ...]) -> None:
        first = len(self._messages)
        count = next((n for n, message in enumerate(messages[first:]) if message.turn >= turn), len(messages) - first)
        if not count:
            return
        over = messages[first : first + count]
        ids = Ids(self._ids)
        passage = write_passage(over, ids, self._asked[0], turn)
        if passage.bodies and passage.bodies[-1]["role"] == "assistant" and self._takes(over, passage):
            self._messages += over
            self._passage += passage
            self._ids.keep(ids)
            self._digest = self._digest.add(passage.bodies)

    def _takes(self, messages: Sequence[Message], passage: Passage) -> bool:
        """Whether the passage, written of these messages, reads behind what is kept as if it was written with it.

        What is kept ends in words of the model. So it does where a person speaks next, and no result belongs further
        back.
        """
        if not self._messages:
            return True
        made = {call.call_id for message in messages for call in message.tool_calls}
        belong = all(message.role != "tool" or message.tool_call_id in made for message in messages)
        return belong and bool(passage.bodies) and passage.bodies[0]["role"] == "user"


class PromptCache:
    """The prefixes of the conversations that are in memory, each for as long as its history is."""

    def __init__(self) -> None:
        self._prefixes: dict[str, CachedPrompt] = {}

    def __len__(self) -> int:
        return len(self._prefixes)

    def of(self, context: EffectContext) -> CachedPrompt:
        """The prefix of this conversation's requests."""
        if context.conversation_id not in self._prefixes:
            self._prefixes[context.conversation_id] = CachedPrompt()
            finalize(context.history, self._prefixes.pop, context.conversation_id, None).atexit = False
        return self._prefixes[context.conversation_id]
