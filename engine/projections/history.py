"""What was said in a conversation, as performers ask for it: always as of the step that asked for their effect.

Words and calls are found without the transcript where it is not in memory: the log says at which step they stand.
"""

from __future__ import annotations

from ...effects.context import History
from ...states.events import AgentMessage, Event, LlmResponse, ToolApproval, WakeUp
from ...states.transcript import Transcript
from ...states.values.messages import Heard, Joined, Made, Outcomes, Said, ToolCall
from ...states.values.round import RoundCall
from .projection import ConversationProjection, ReadEntries

_SHORT = 50
"""The most steps of a round that are read from the log for each of its calls; of a longer one the transcript is kept in
memory."""


class ConversationHistory:
    """Fills the port `effects.context.History` for one conversation."""

    __slots__ = ("__weakref__", "_projection", "_read_entries")

    def __init__(self, projection: ConversationProjection, read_entries: ReadEntries) -> None:
        self._projection = projection
        self._read_entries = read_entries

    async def transcript(self, up_to: int) -> Transcript:
        """Return the transcript as of the step `up_to`."""
        return await self._projection.transcript_at(up_to)

    async def call(self, call: RoundCall, up_to: int) -> ToolCall:
        """Return the call with its arguments as of the step `up_to`, as a person may have edited them."""
        if not self._projection.is_read and up_to - call.seq > _SHORT:
            await self._projection.read()
        if self._projection.is_read:
            transcript = self._projection.transcript
            if self._projection.seq == up_to:
                return transcript.call(call.call_id)
            if (unedited := transcript.unedited(call)) is not None:
                return unedited
        return await read_call(self._read_entries, call, up_to)

    async def words(self, said: Said) -> str:
        """Return the text that `said` stands for."""
        if self._projection.is_read:
            return self._projection.transcript.words(said)
        match said:
            case Made(text=text):
                return text
            case Heard(seq=seq, index=index):
                return (await self._event(seq)).texts[index]
            case Joined() | Outcomes():
                return said.text_of([await self.words(part) for part in said.parts])

    async def origin(self, said: Said) -> str:
        """Return the agent that wrote this; empty for everybody else."""
        if self._projection.is_read:
            return self._projection.transcript.origin(said)
        event = await self._event(said.seq) if isinstance(said, Heard) else None
        return event.origin if isinstance(event, AgentMessage | WakeUp) else ""

    async def _event(self, seq: int) -> Event:
        (entry,) = await self._read_entries(seq - 1, seq)
        return entry.event


async def read_call(read_entries: ReadEntries, call: RoundCall, up_to: int | None = None) -> ToolCall:
    """Return a call of the newest round from the log, with its arguments as of the step `up_to`, or of the newest."""
    response, *later = await read_entries(call.seq - 1, up_to)
    assert isinstance(response.event, LlmResponse), "a call refers to the response that asked for it"
    found = next(one for one in response.event.tool_calls if one.call_id == call.call_id)
    for entry in later:
        match entry.event:
            case ToolApproval(allowed=True, call_id=call_id, raw_arguments=str(edited)) if call_id == call.call_id:
                found = found.replace(raw_arguments=edited)
            case _:
                pass
    return found


_FILLS: type[History] = ConversationHistory
