"""A long conversation takes its next message without its past being read; whoever asks for the past gets all of it."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given

from turnwise import Engine
from turnwise.engine.projection import ConversationProjection
from turnwise.persistence.errors import Damaged
from turnwise.persistence.records import codec
from turnwise.persistence.records.codec import decode, encode, sight
from turnwise.persistence.records.digests import GENESIS, content
from turnwise.persistence.records.rows import EventRow
from turnwise.persistence.sqlite.store import Store
from turnwise.states import Context, Event, LlmResponse, LogEntry, Policy, PolicyChanged, Refused, UserMessage
from turnwise.states.context import CHANGES_CONTEXT
from turnwise.testing import strategies
from turnwise.testing.history import Trace
from turnwise.testing.scripted import FunctionLlm, ScriptedLlm, reply

from ..support.walks import NOON, Walk


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which the number of each step is added whose parts are read from now on."""
    steps: list[int] = []
    parts = codec._parts

    def noting(row: EventRow) -> object:
        steps.append(row.seq)
        return parts(row)

    monkeypatch.setattr(codec, "_parts", noting)
    return steps


def rows_of(walk: Walk) -> list[EventRow]:
    """The steps as rows."""
    return [encode(event, step, GENESIS)[0] for event, step in walk.steps]


class TestAnEntry:
    """A step is read when it is first looked at, and is the same step."""

    @given(trace=strategies.traces(max_size=12))
    def test_read_late_is_equal_to_one_read_at_once(self, trace: Trace) -> None:
        """Whatever happened in it, and whichever part is looked at first."""
        for observation in trace:
            if observation.step is not None:
                row = encode(observation.event, observation.step, GENESIS)[0]
                for part in ("event", "effects", "ended", "kind", "event_id", "turn"):
                    assert getattr(sight(row), part) == getattr(decode(row), part)
                assert sight(row) == decode(row)
                assert (sight(row).kind, sight(row).event_id) == (
                    type(observation.event),
                    getattr(observation.event, "event_id", None),
                )

    def test_knows_some_things_without_being_read(self, read: list[int]) -> None:
        """Its place, its digests, the kind of event and the id of a request."""
        (row,) = rows_of(Walk())
        entry = sight(row)

        assert (entry.seq, entry.turn, entry.kind.__name__, entry.event_id) == (1, 0, "Opened", "walk-1")
        assert (entry.digest, entry.chain, entry.content) == (row.state, row.chain, content(row[:-1]))
        assert read == []
        assert entry.event == Walk().steps[0][0]
        assert entry.effects == ()
        assert read == [1]

    def test_can_be_changed_into_another(self) -> None:
        """As any value of its kind; the copy holds what the entry would have read."""
        event, _ = Walk().steps[0]

        moved = dataclasses.replace(sight(rows_of(Walk())[0]), seq=7)

        assert (moved.seq, moved.event, moved.kind) == (7, event, type(event))

    def test_that_cannot_be_read_says_so_when_it_is_looked_at(self) -> None:
        """Each time, and with one sentence (P33)."""
        entry = sight(rows_of(Walk())[0]._replace(payload="not JSON"))

        for _ in range(2):
            with pytest.raises(Damaged) as damaged:
                entry.event  # noqa: B018

        assert damaged.value.sentence == "Step 1 cannot be read: it is damaged, or a newer turnwise wrote it."

    @pytest.mark.parametrize("change", [{"version": 2}, {"type": "table_turned"}])
    def test_of_a_newer_turnwise_is_refused_at_first_sight(self, change: dict[str, object]) -> None:
        """Before anybody acts on what they can read of the log."""
        with pytest.raises(Damaged):
            sight(rows_of(Walk())[0]._replace(**change))


class TestAContext:
    """The rules of a conversation are known without its past."""

    @given(event=strategies.events())
    def test_is_changed_by_few_events(self, event: Event) -> None:
        """Those that are said to; the others need not be read."""
        context = Context(system="You book tables.")

        assert isinstance(event, CHANGES_CONTEXT) or context.after(event) is context


class TestMemory:
    """What an engine holds of a conversation that it has just loaded."""

    async def test_of_a_long_conversation_reads_only_its_rules(self, store: Store, read: list[int]) -> None:
        """The opening and each change of the rules: what the next event needs."""
        walk = Walk()
        for number in range(20):
            walk.turn(f"the {number}th evening")
        walk.request(PolicyChanged, policy=Policy(parallel=True)).turn("the last evening")
        await walk.into(store)
        loaded = await store.load("walk")

        memory = ConversationProjection(loaded.state, loaded.entries)

        assert memory.context.policy == Policy(parallel=True)
        assert not memory.knows(UserMessage(event_id="new", at=NOON, text="hello"))
        assert read == [1, 82]

    async def test_compares_a_request_with_the_one_it_took(self, store: Store, read: list[int]) -> None:
        """P3: under a known id the whole request counts; that one step is read, and no other."""
        await Walk().turn("tonight").turn("tomorrow").into(store)
        loaded = await store.load("walk")
        memory = ConversationProjection(loaded.state, loaded.entries)

        assert memory.knows(UserMessage(event_id="walk-6", at=NOON, text="tomorrow"))
        with pytest.raises(Refused) as refused:
            memory.knows(UserMessage(event_id="walk-6", at=NOON, text="never"))

        assert refused.value.code == "event_id_reused"
        assert read == [1, 6]

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

        late = ConversationProjection(seen.state, [sight(encode(event, step, GENESIS)[0]) for event, step in taken])

        assert late.context == seen.context
        assert late.turns == seen.turns
        assert late.transcript == seen.transcript


class TestALogThatANewerTurnwiseWrote:
    """Nothing is damaged in it, and a part of a step is unknown: what cannot be read must not be gone on with."""

    @pytest.fixture
    def newer(self, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
        """Until it is undone, models answer with something that this turnwise does not know."""
        payload = codec._payload

        def written(event: Event) -> str:
            told = payload(event)
            return told[:-1] + ',"mood":"cheerful"}' if isinstance(event, LlmResponse) else told

        monkeypatch.setattr(codec, "_payload", written)
        return monkeypatch

    async def test_takes_no_step(self, newer: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Who says something is told why not, each time anew, and neither the log nor the memory moves."""
        async with Engine.open(tmp_path / "dinner.db", model=ScriptedLlm([reply("Hello.")])) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
        newer.undo()

        async with Engine.open(tmp_path / "dinner.db", model=ScriptedLlm([])) as engine:
            again = await engine.get(conversation.id)
            for _ in range(2):
                with pytest.raises(Damaged, match="Step 3 cannot be read"):
                    await again.send("Are you there?")

            assert (again.state.type, again.state.book.seq) == ("idle", 3)
            assert len((await engine.store.rows(again.id)).steps) == 3

    async def test_is_not_taken_up(
        self, newer: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It would grow by a step with each process, and never get further; the others go on."""
        answers = iter(["Hello."])

        async def model(request: object) -> str:
            for answer in answers:
                return answer
            await asyncio.Event().wait()
            raise AssertionError("nobody wakes it")

        llm = FunctionLlm(model, name="scripted")
        async with Engine.open(tmp_path / "dinner.db", model=llm) as engine:
            conversation, other = await engine.create(), await engine.create()
            await conversation.send("Hi")
            await conversation.send("Are you there?", wait=False)
            await other.send("Hi", message_id="m1", wait=False)
        newer.undo()

        async with Engine.open(tmp_path / "dinner.db", model=ScriptedLlm([reply("Yes.")])) as engine:
            assert (await (await engine.get(other.id)).send("Hi", message_id="m1")).reply == "Yes."
            with pytest.raises(Damaged, match="Step 3 cannot be read"):
                await engine.get(conversation.id)
            assert len((await engine.store.rows(conversation.id)).steps) == 4
        assert f"{conversation.id} cannot be taken up: Step 3 cannot be read" in caplog.text
