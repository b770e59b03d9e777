"""A long conversation takes its next message without its past being read; whoever asks for the past gets all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from turnwise import Engine
from turnwise.engine.projection import ConversationProjection
from turnwise.persistence.errors import Damaged
from turnwise.persistence.records.codec import decode, encode
from turnwise.persistence.records.digests import GENESIS
from turnwise.states import Context, Event, LogEntry
from turnwise.states.context import CHANGES_CONTEXT
from turnwise.testing import strategies
from turnwise.testing.history import Trace
from turnwise.testing.scripted import ScriptedLlm, reply

from ..persistence.maintenance.test_doctor import change


class TestAContext:
    """The rules of a conversation are known without its past."""

    @given(event=strategies.events())
    def test_is_changed_by_few_events(self, event: Event) -> None:
        """Those that are said to; the others need not be read."""
        context = Context(system="You book tables.")

        assert isinstance(event, CHANGES_CONTEXT) or context.after(event) is context


class TestMemory:
    """What an engine holds of a conversation that it has just loaded."""

    @given(trace=strategies.traces(max_size=25))
    def test_comes_to_the_same_however_late_it_is_read(self, trace: Trace) -> None:
        """Transcript, turns and context are those of a memory that saw each step as it happened."""
        taken = [(one.event, one.step) for one in trace if one.step is not None and not one.step.ignored]
        if not taken:
            return
        (opened, begun), *following = taken
        seen = ConversationProjection(begun.state, [LogEntry.of(opened, begun)])
        for event, step in following:
            seen.advance(event, step)

        late = ConversationProjection(seen.state, [decode(encode(event, step, GENESIS)[0]) for event, step in taken])

        assert late.context == seen.context
        assert late.turns == seen.turns
        assert late.transcript == seen.transcript


class TestALogThatANewerTurnwiseWrote:
    """A step that this turnwise cannot read is reported, and the conversation does not go on without it."""

    @pytest.fixture
    async def newer(self, database: Path) -> str:
        """A conversation whose third step holds something that this turnwise does not know."""
        async with Engine.open(database, model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
        change(database, "UPDATE events SET payload = json_set(payload, '$.mood', 'cheerful') WHERE seq = 3")
        return conversation.id

    async def test_is_reported_to_whoever_says_something(self, newer: str, database: Path) -> None:
        """Each time that somebody asks."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            for _ in range(2):
                with pytest.raises(Damaged, match="Step 3 cannot be read"):
                    await (await engine.get(newer)).send("Are you there?")
