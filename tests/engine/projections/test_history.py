"""What a performer looks at is found by few reads of the log, also where the transcript is not in memory."""

from __future__ import annotations

from collections.abc import Sequence

from turnwise.engine.projection import ConversationHistory, ConversationProjection
from turnwise.states import LogEntry, ToolExecuting
from turnwise.states.values.round import RoundCall

from ...support.conversation import Conversation
from ...support.conversation import call as made


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


def projected(log: CountedLog) -> tuple[ToolExecuting, ConversationProjection, ConversationHistory]:
    """The state in which the conversation rests, what is known of it, and its history."""
    state = log.conversation.rests_in(ToolExecuting)
    projection = ConversationProjection(state, log.conversation.history.context, log.read_entries)
    return state, projection, ConversationHistory(projection, log.read_entries)


async def look_at_calls(log: CountedLog) -> ConversationProjection:
    """Ask for each call that has not ended."""
    state, projection, history = projected(log)
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

    async def test_those_of_an_earlier_step_are_in_memory_too(self) -> None:
        """Calls run at once, so the conversation has moved on when the second one asks."""
        log = CountedLog(calls=3, ended=1)
        state, projection, history = projected(log)
        await projection.read()
        read = log.read

        call = await history.call(state.round.calls[2], state.book.seq - 1)

        assert (call.call_id, log.read) == ("c2", read)

    async def test_one_that_a_person_changed_is_as_it_was_at_the_step(self) -> None:
        """So the log is read, for what it was before and after."""
        log = CountedLog(calls=1, ended=1)
        log.conversation.model_calls(made("pay", approval=True), "c1")
        log.conversation.allows("pay", arguments={"path": "b"})
        log.conversation.tool_ends("pay")
        state, projection, history = projected(log)
        await projection.read()
        changed = state.round.calls[0]

        found = [await history.call(changed, seq) for seq in (changed.seq, changed.seq + 1)]

        assert [one.raw_arguments for one in found] == ["{}", '{"path": "b"}']

    async def test_one_of_an_earlier_round_is_in_the_log(self) -> None:
        """Only those of the newest round are kept by their ids."""
        log = CountedLog(calls=1, ended=1)
        earlier = RoundCall.of(made("c0"), log.conversation.transcript[1].seq)
        log.conversation.model_calls("c1")
        _, projection, history = projected(log)
        await projection.read()
        read = log.read

        found = await history.call(earlier, projection.seq - 1)

        assert found.call_id == "c0"
        assert log.read > read
