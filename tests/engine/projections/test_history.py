"""What a performer looks at is found by few reads of the log, also where the transcript is not in memory."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.engine.projections.history import ConversationHistory
from turnwise.engine.projections.projection import ConversationProjection
from turnwise.states import LogEntry, ToolExecuting

from ...support.conversation import Conversation


class CountedLog:
    """The log of a conversation in which the model has called tools and so many of them have ended."""

    def __init__(self, calls: int, ended: int) -> None:
        names = [f"c{number}" for number in range(calls)]
        self.conversation = Conversation()
        self.conversation.says()
        self.conversation.model_calls(*names)
        for name in names[:ended]:
            self.conversation.tool_ends(name)
        self.read = 0

    async def read_entries(self, after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
        """Return these entries, and count them."""
        entries = [LogEntry.of(one.event, one.step) for one in self.conversation.history.observations if one.step]
        found = [entry for entry in entries if after < entry.seq and (up_to is None or entry.seq <= up_to)]
        self.read += len(found)
        return found


async def look_at_calls(log: CountedLog) -> ConversationProjection:
    """Ask for each call that has not ended."""
    state = log.conversation.rests_in(ToolExecuting)
    projection = ConversationProjection(state, log.conversation.history.context, log.read_entries)
    history = ConversationHistory(projection, log.read_entries)
    for call in state.round.calls[len(state.round.settled) :]:
        assert (await history.call(call, state.book.seq)).call_id == call.call_id
    return projection


class TestCalls:
    """A call is in the answer of the model that asked for it, or in the approval of a person who changed it."""

    async def test_those_of_a_long_round_are_kept_in_memory(self) -> None:
        """The log is read once, not for each of them."""
        log = CountedLog(calls=100, ended=90)

        projection = await look_at_calls(log)

        assert projection.is_read
        assert log.read == projection.seq

    async def test_for_those_of_a_short_round_the_log_is_not_read_as_a_whole(self) -> None:
        """It may be long, and what was said before the round does not matter."""
        log = CountedLog(calls=3, ended=1)

        projection = await look_at_calls(log)

        assert not projection.is_read
