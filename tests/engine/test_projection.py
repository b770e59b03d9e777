"""A conversation takes its next event without its past being read; whoever asks for the past gets all of it, or an
error. What a performer looks at is found by few reads of the log, also where the transcript is not in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from turnwise import Engine
from turnwise.effects.context import EffectContext
from turnwise.engine.projection import ConversationHistory, ConversationProjection
from turnwise.persistence.errors import Damaged
from turnwise.states import (
    Context,
    Event,
    Failed,
    Idle,
    LogEntry,
    Opened,
    Step,
    ToolExecuting,
    UserMessage,
    begin,
    transition,
)
from turnwise.states.context import CHANGES_CONTEXT
from turnwise.states.effects import RequestLlm
from turnwise.states.states import Book
from turnwise.states.transcript import Transcript
from turnwise.states.values.round import RoundCall
from turnwise.testing import strategies
from turnwise.testing.doubles import NOON, FunctionLlm, ScriptedLlm, reply
from turnwise.testing.history import Trace

from ..support.conversation import Conversation
from ..support.conversation import call as made
from ..support.databases import change


def begin_conversation() -> tuple[Opened, Step]:
    """The first event of a conversation, and its step."""
    opened = Opened(event_id="opened", at=NOON)
    return opened, begin(opened)


def opened_log() -> list[LogEntry]:
    """A log of one step."""
    return [LogEntry.of(*begin_conversation())]


async def log_of(entries: Sequence[LogEntry], after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
    """Read entries from a list."""
    return list(entries)[after:up_to]


async def no_log(after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
    """Fail: nothing is to be read from the store."""
    raise AssertionError("the store was read")


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


class TestAContext:
    """The context of a conversation is known without its past."""

    @given(event=strategies.events())
    def test_is_changed_by_few_events(self, event: Event) -> None:
        """Only the events in CHANGES_CONTEXT change it; the others need not be read."""
        context = Context(system="You book tables.")

        assert isinstance(event, CHANGES_CONTEXT) or context.after(event) is context


class TestTheProjection:
    """What an engine holds of a conversation in memory."""

    @pytest.mark.slow
    @given(trace=strategies.traces(max_size=25))
    def test_has_the_same_contents_however_late_it_is_read(self, trace: Trace) -> None:
        """Transcript, turns and context are those of a projection that followed each step as it happened."""
        taken = [(one.event, one.step) for one in trace if one.step is not None and not one.step.ignored]
        if not taken:
            return
        entries = [LogEntry.of(event, step) for event, step in taken]
        (opened, begun), *following = taken
        seen = ConversationProjection(begun.state, Context().after(opened), no_log, entries[:1])
        for event, step in following:
            seen.advance(LogEntry.of(event, step), step.state)

        late = ConversationProjection(seen.state, seen.context, partial(log_of, entries))
        asyncio.run(late.read_contents())

        assert late.turns == seen.turns
        assert late.transcript == seen.transcript

    async def test_is_read_once_for_all_who_ask(self) -> None:
        """Callers that ask while it is being read wait for the same read."""
        reads: list[tuple[int, int | None]] = []
        entries = opened_log()

        async def read(after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
            reads.append((after, up_to))
            await asyncio.sleep(0)
            return await log_of(entries, after, up_to)

        projection = ConversationProjection(Idle(book=Book(seq=1)), Context(), read)
        await asyncio.gather(projection.read_contents(), projection.read_contents(), projection.read_contents())
        await projection.read_contents()

        assert reads == [(0, 1)]

    async def test_follows_the_steps_that_are_stored_while_it_is_read(self) -> None:
        """A read goes on until it has reached the newest step."""
        opened, step = begin_conversation()
        message = UserMessage(event_id="m1", at=NOON, text="Hi")
        taken = transition(step.state, message, Context())
        entries = [LogEntry.of(opened, step), LogEntry.of(message, taken)]
        reading, release = asyncio.Event(), asyncio.Event()

        async def read(after: int = 0, up_to: int | None = None) -> Sequence[LogEntry]:
            reading.set()
            await release.wait()
            return await log_of(entries, after, up_to)

        projection = ConversationProjection(step.state, Context(), read)
        asked = asyncio.ensure_future(projection.read_contents())
        await reading.wait()
        projection.advance(entries[1], taken.state)
        release.set()
        await asked

        assert [said.text for said in projection.transcript.messages] == ["Hi"]


class TestWhatPerformersSee:
    """The effect context: the conversation as of the step that asked for the effect."""

    async def test_a_transcript_does_not_change_when_the_conversation_moves_on(self) -> None:
        """Neither one that was handed out before the next step, nor one that is asked for after it."""
        opened, step = begin_conversation()
        entries = [LogEntry.of(opened, step)]
        projection = ConversationProjection(step.state, Context().after(opened), partial(log_of, entries), entries)
        early = await projection.transcript_at(1)

        message = UserMessage(event_id="m1", at=NOON, text="Hi")
        taken = transition(step.state, message, Context())
        entries.append(LogEntry.of(message, taken))
        projection.advance(entries[1], taken.state)
        late = await projection.transcript_at(1)

        assert early.messages == late.messages == []
        assert [said.text for said in (await projection.transcript_at(2)).messages] == ["Hi"]

    async def test_a_transcript_that_is_held_does_not_change_in_an_engine(self) -> None:
        """A performer that keeps its transcript finds in it what it found at first, whatever was said since."""
        seen: list[tuple[int, Transcript]] = []
        model = FunctionLlm(lambda request: reply("Here."))
        async with Engine.open("sqlite://", model=model) as plain:
            request_model = plain.performers[RequestLlm]

        async def perform(effect: RequestLlm, context: EffectContext) -> Any:
            transcript = await context.transcript()
            seen.append((len(transcript.messages), transcript))
            return await request_model(effect, context)

        async with Engine.open("sqlite://", model=model, performers={RequestLlm: perform}) as engine:
            conversation = await engine.create()
            await conversation.send("One.")
            await conversation.send("Two.")

        assert [(length, len(transcript.messages)) for length, transcript in seen] == [(1, 1), (3, 3)]

    async def test_a_transcript_that_nobody_holds_is_not_copied(self) -> None:
        """The next step costs the same whether or not a performer has looked before."""
        opened, step = begin_conversation()
        entries = [LogEntry.of(opened, step)]
        projection = ConversationProjection(step.state, Context().after(opened), no_log, entries)
        before = projection.transcript
        await projection.transcript_at(1)

        message = UserMessage(event_id="m1", at=NOON, text="Hi")
        taken = transition(step.state, message, Context())
        projection.advance(LogEntry.of(message, taken), taken.state)

        assert projection.transcript is before


class TestALogThatANewerTurnwiseWrote:
    """A step that this turnwise cannot read is reported to whoever looks, and no model is asked without it."""

    @pytest.fixture
    async def newer(self, database: Path) -> str:
        """A conversation whose third step holds something that this turnwise does not know."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
        change(database, "UPDATE events SET payload = json_set(payload, '$.mood', 'cheerful') WHERE seq = 3")
        return conversation.id

    async def test_is_reported_to_whoever_says_something(self, newer: str, database: Path) -> None:
        """It is reported each time that somebody asks."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            for _ in range(2):
                with pytest.raises(Damaged, match="Step 3 cannot be read"):
                    await (await engine.get(newer)).send("Are you there?")

    async def test_ends_the_turn_with_a_failure_that_says_so(self, newer: str, database: Path) -> None:
        """The request cannot be built, so the model is not asked, and the conversation does not wait for it."""
        change(database, "UPDATE events SET payload = json_set(payload, '$.mood', 'cheerful') WHERE seq = 2")
        change(database, "UPDATE events SET payload = json_remove(payload, '$.mood') WHERE seq = 3")
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.get(newer)
            await conversation.send("Are you there?", wait=False)
            while conversation.state.type != "failed":
                await asyncio.sleep(0.001)

            assert isinstance(conversation.state, Failed)
            assert "Step 2 cannot be read" in conversation.state.sentence


class TestCalls:
    """A call is in the answer of the model that asked for it, or in the approval of a person who changed it."""

    @pytest.mark.slow
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
        await projection.read_contents()
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
        await projection.read_contents()
        changed = state.round.calls[0]

        found = [await history.call(changed, seq) for seq in (changed.seq, changed.seq + 1)]

        assert [one.raw_arguments for one in found] == ["{}", '{"path": "b"}']

    async def test_one_of_an_earlier_round_is_in_the_log(self) -> None:
        """Only those of the newest round are kept by their ids."""
        log = CountedLog(calls=1, ended=1)
        earlier = RoundCall.of(made("c0"), log.conversation.transcript[1].seq)
        log.conversation.model_calls("c1")
        _, projection, history = projected(log)
        await projection.read_contents()
        read = log.read

        found = await history.call(earlier, projection.seq - 1)

        assert found.call_id == "c0"
        assert log.read > read
