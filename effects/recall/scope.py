"""Decides whose texts may be found, and which of them a request does not hold anyway."""

from __future__ import annotations

from ...states.policy import Recent
from ...states.transcript import Transcript
from ...states.values.acts import MemoryScope
from ..context import EffectContext


def scope_of(context: EffectContext, transcript: Transcript) -> MemoryScope:
    """The texts of the owner, without those of this conversation that a request of this turn holds: under `Recent` only
    the turn itself, otherwise every turn whose messages were not condensed. `Pure.`"""
    turn = transcript.first_try(context.turn)
    if not isinstance(context.policy.dialogue, Recent):
        turn = min([turn, *(oldest.turn for oldest in transcript.current[:1])])
    return MemoryScope(context.conversation_id, context.context.owner, turn)


def is_empty(scope: MemoryScope, transcript: Transcript) -> bool:
    """Whether nothing can be found: without an owner only this conversation is searched, and a request holds all of it.
    `Pure.`"""
    return scope.owner is None and all(oldest.turn >= scope.turn for oldest in transcript.messages[:1])
