"""Effect contexts for tests of performers, without an engine and a store."""

from __future__ import annotations

from datetime import datetime

from turnwise.effects.context import EffectContext
from turnwise.states import Context
from turnwise.states.transcript import Transcript
from turnwise.states.values.messages import Said, ToolCall
from turnwise.states.values.round import RoundCall


class FixedHistory:
    """A history that is a given transcript at every step."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript

    async def transcript(self, up_to: int) -> Transcript:
        """Return the transcript, whatever the step is."""
        return self._transcript

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call from the transcript."""
        return self._transcript.call(call.call_id)

    async def words(self, said: Said) -> str:
        """Return the words from the transcript."""
        return self._transcript.words(said)

    async def origin(self, said: Said) -> str:
        """Return the origin from the transcript."""
        return self._transcript.origin(said)


class NoReceipts:
    """An outbox in which nothing is ever recorded."""

    def acknowledge(self, effect_id: int, target: str) -> None:
        """Record nothing."""

    def postpone(self, effect_id: int, target: str, attempts: int, next_attempt: datetime) -> None:
        """Record nothing."""

    async def begin(self, effect_id: int, target: str, begun: int) -> None:
        """Record nothing."""


def effect_context(
    conversation_id: str, transcript: Transcript | None = None, turn: int = 1, context: Context | None = None
) -> EffectContext:
    """Return the context of an effect of the first step in a conversation where this was said."""
    return EffectContext(
        conversation_id=conversation_id,
        seq=1,
        turn=turn,
        context=Context() if context is None else context,
        history=FixedHistory(Transcript() if transcript is None else transcript),
        progress=lambda effect_id, kind, data: None,
        receipts=NoReceipts(),
    )
