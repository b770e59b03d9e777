"""What was said in a conversation, as performers ask for it.

The projection holds one transcript, which grows with every step. A performer gets the transcript as of the step that
asked for its effect: the projection's own one where no step has followed, which is then copied before the next step
changes it, if the performer still holds it; otherwise one that is read from the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..states.log import LogEntry
from ..states.projections.transcript import Transcript
from ..states.values.messages import Said, ToolCall
from ..states.values.round import RoundCall
from .projection import ConversationProjection


class ConversationHistory:
    """Fills the port `effects.context.History` for one conversation. `read` returns the stored log."""

    def __init__(self, projection: ConversationProjection, read: Callable[[], Awaitable[Sequence[LogEntry]]]) -> None:
        self._projection = projection
        self._read = read

    async def transcript(self, up_to: int) -> Transcript:
        """Return the transcript as of the step `up_to`."""
        shared = self._projection.shared_transcript(up_to)
        if shared is not None:
            return shared
        transcript = Transcript()
        for entry in await self._read():
            if entry.seq <= up_to:
                transcript.add(entry)
        return transcript

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call with its arguments as of the step `up_to`."""
        return (await self.transcript(up_to)).call(call.call_id)

    async def words(self, said: Said) -> str:
        """Return the text that `said` stands for."""
        return (await self._any()).words(said)

    async def origin(self, said: Said) -> str:
        """Return the agent that wrote this."""
        return (await self._any()).origin(said)

    async def _any(self) -> Transcript:
        """Return a transcript that holds all that was said so far."""
        return await self.transcript(self._projection.state.book.seq)
