"""A stored conversation goes through its steps again; where it comes out elsewhere, the replay says so."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from turnwise import Engine, presets
from turnwise.persistence.codec import GENESIS, content_of, decode, digest, encode, link
from turnwise.persistence.maintenance import replay as replays
from turnwise.persistence.maintenance.replay import (
    PAGE,
    Divergence,
    Fold,
    ReplayReport,
    StepOutcome,
    replay,
    replay_conversation,
    replay_record,
)
from turnwise.persistence.ports import Store
from turnwise.persistence.records import ConversationRecord, EventRow, HeadRow, StoredEntry
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import (
    Abort,
    CloseRequested,
    Context,
    DeliverToUser,
    Event,
    Idle,
    LlmStopped,
    ModelSpec,
    Opened,
    Policy,
    PolicyChanged,
    Questions,
    Retry,
    State,
    Step,
    Texts,
    ToolComplete,
    ToolResult,
    Transcript,
    TurnwiseError,
    UnknownConversation,
    UserCancel,
    UserMessage,
    transition,
)
from turnwise.states.replies import text_of_reply
from turnwise.states.step import LogEntry
from turnwise.testing import RecordingChannel, ScriptedLlm, call, calls, reply, strategies
from turnwise.testing.history import Trace

from ...support.cases import holds_for
from ...support.databases import BOTH_STORES, Database, change
from ...support.walks import NOON, Walk

pytestmark = BOTH_STORES

# --- A stored conversation goes through its steps again; where it comes out differently, the report says so.


def stored(steps: Iterable[tuple[Event, Step]]) -> list[StoredEntry]:
    """The log that a store keeps of these steps."""
    entries, chain = [], GENESIS
    for event, step in steps:
        row, _ = encode(event, step, chain)
        entries.append(decode(row))
        chain = row.chain
    return entries


def divergence_of(report: ReplayReport) -> Divergence:
    """What a report says has come out differently; something must have."""
    assert report.divergence is not None
    return report.divergence


class TestACleanLog:
    """What the machine did it does again."""

    async def test_replays_to_its_end(self, store: Store) -> None:
        """A turn with a tool, one that was cancelled, a question, a change of the rules, and the end."""
        walk = Walk().turn("tonight").say("And tomorrow?").request(UserCancel).answer(LlmStopped, content="Tom")
        walk.request(PolicyChanged, policy=Policy(questions=Questions(deadline=60.0)))
        walk.question().request(CloseRequested)
        await walk.into(store)

        report = await replay_conversation(store, "walk")

        assert (report.events, report.divergence) == (len(walk.steps), None)

    @pytest.mark.slow
    @given(trace=strategies.traces())
    def test_replays_whatever_happened(self, trace: Trace) -> None:
        """Each conversation that the machine can have, under any rules."""
        steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]

        report = replay(stored(steps))

        assert (report.events, report.divergence) == (len(steps), None)
        assert len(report.deliveries) == sum(isinstance(each, DeliverToUser) for _, s in steps for each in s.effects)

    async def test_shows_what_was_delivered(self, database: Database) -> None:
        """B9, J13: in order and as the user read it, and delivers nothing."""
        channel = RecordingChannel()
        llm = ScriptedLlm([calls(call("talk", message="a"), call("talk", message="b\nTOOL: x")), reply("A thought.")])
        policy = presets.talk().replace(marker="TOOL")
        async with Engine.open(database, model=llm, tools=["talk"], channels=[channel], policy=policy) as engine:
            conversation = await engine.create()
            await conversation.send("Hi")
            await engine.delivered()

            report = await conversation.replay()

        assert report.deliveries == ("a", "b\n")
        assert channel.texts == ["a", "b\n"]

    def test_may_be_empty(self) -> None:
        """A log without steps has none that differ."""
        assert replay([]) == ReplayReport(events=0)

    async def test_of_nobody_is_unknown(self, store: Store) -> None:
        """There must be a conversation."""
        with pytest.raises(UnknownConversation):
            await replay_conversation(store, "nobody")


class TestAChangeOfTheRules:
    """A log that an older turnwise wrote, whose machine did something else. Nothing in it is damaged."""

    def test_of_effects_is_found(self) -> None:
        """The report has the event, what was stored, and what comes of it now, with the state in full."""
        walk = Walk().turn("tonight")
        event, step = walk.steps[1]
        wanted = (*step.effects, Abort(effect_id=7))
        walk.steps[1] = event, replace(step, effects=wanted)

        report = replay(stored(walk.steps))

        assert report.events == 1
        assert report.divergence == Divergence(
            seq=2,
            reason="Step 2 has other effects now.",
            event=event,
            expected=StepOutcome(wanted, None, digest(step.state.to_json())),
            actual=StepOutcome(step.effects, None, digest(step.state.to_json()), step.state),
        )

    def test_of_the_end_of_a_turn_is_found(self) -> None:
        """The turn ended then, and does not now, or otherwise."""
        walk = Walk().turn("tonight")
        event, step = walk.steps[-1]
        walk.steps[-1] = event, replace(step, ended=None)

        divergence = divergence_of(replay(stored(walk.steps)))

        assert (divergence.seq, divergence.reason) == (5, "Step 5 ends the turn in another way now.")
        assert (divergence.expected.ended, divergence.actual.ended) == (None, step.ended)

    def test_of_the_state_is_found(self) -> None:
        """Only a digest of the state was kept, and it tells."""
        walk = Walk().turn("tonight")
        event, step = walk.steps[-1]
        other = Idle(book=step.state.book.replace(window_used=1))
        walk.steps[-1] = event, replace(step, state=other)

        divergence = divergence_of(replay(stored(walk.steps)))

        assert (divergence.seq, divergence.reason) == (5, "Step 5 leads to another state now.")
        assert divergence.expected.digest == digest(other.to_json())
        assert divergence.actual.state == step.state

    def test_that_refuses_an_event_is_found(self) -> None:
        """A message was taken while a question waited; now it is refused."""
        walk = Walk().question()
        book = walk.state.book.replace(seq=walk.state.book.seq + 1)
        walk.steps.append((UserMessage(event_id="taken", at=NOON, text="hello?"), Step(Idle(book=book))))

        divergence = divergence_of(replay(stored(walk.steps)))

        assert divergence.seq == len(walk.steps)
        assert divergence.reason == f"Step {divergence.seq} is refused now, with the code awaiting_user_response."
        assert divergence.actual == StepOutcome()

    def test_that_ignores_an_event_is_found(self) -> None:
        """A late result was taken; now it is ignored."""
        walk = Walk().turn("tonight")
        book = walk.state.book.replace(seq=walk.state.book.seq + 1)
        late = ToolComplete(effect_id=99, at=NOON, result=ToolResult(text="late"))
        walk.steps.append((late, Step(Idle(book=book))))

        divergence = divergence_of(replay(stored(walk.steps)))

        assert (divergence.seq, divergence.reason) == (6, "Step 6 is ignored now.")

    def test_that_begins_otherwise_is_found(self) -> None:
        """A log begins with the opening of its conversation."""
        event, step = Walk().say("hello").steps[1]
        begun = replace(step, state=Idle(book=step.state.book.replace(seq=1)))

        divergence = divergence_of(replay(stored([(event, begun)])))

        expected = (1, "The log does not begin with the opening of a conversation.")
        assert (divergence.seq, divergence.reason) == expected

    def test_a_second_beginning_is_found(self) -> None:
        """Nor does a conversation begin twice."""
        walk = Walk()
        opened, step = walk.steps[0]
        again = replace(step, state=Idle(book=step.state.book.replace(seq=2)))

        divergence = divergence_of(replay(stored([*walk.steps, (opened, again)])))

        assert divergence.reason == "Step 2 is refused now, with the code already_open."


class TestDamage:
    """The chain finds what SQLite does not: 35 of 60 random corruptions in a trial."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("seq", "70"),
            ("event_id", "'forged'"),
            ("event_id", "NULL"),
            ("effect_id", "70"),
            ("type", "'user_cancel'"),
            ("type", "'no such thing'"),
            ("version", "2"),
            ("at", "at + 1"),
            ("at", "'noon'"),
            ("at", "-9223372036854775808"),
            ("turn", "7"),
            ("payload", """'{"text":"never said"}'"""),
            ("payload", """'{"text":"hello","extra":1}'"""),
            ("payload", "'not JSON'"),
            ("payload", "'[]'"),
            ("payload", "x'ff'"),
            ("payload", "CAST(x'7b2274657874223a22ff227d' AS TEXT)"),
            ("effects", "NULL"),
            ("effects", "'[]'"),
            ("effects", "'not JSON'"),
            ("effects", """'[{"type":"abort","effect_id":1}]'"""),
            ("ended", """'{"turn":1,"status":"completed"}'"""),
            ("ended", "'not JSON'"),
            ("state", bytes(16)),
            ("state", "'text'"),
            ("chain", bytes(16)),
            ("chain", "'text'"),
        ],
    )
    async def test_of_any_column_is_found(
        self, column: str, value: str | bytes, store: Store, database: Database
    ) -> None:
        """Whatever is changed in whichever column of a step, the report names that step."""
        await Walk().turn("tonight").turn("tomorrow").into(store)
        if isinstance(value, bytes):
            change(database, f"UPDATE events SET {column} = ? WHERE seq = 6", value)
        else:
            change(database, f"UPDATE events SET {column} = {value} WHERE seq = 6")

        report = await replay_conversation(store, "walk")

        assert report.events == 5
        assert divergence_of(report).seq == 6

    async def test_is_told_from_a_change_of_the_rules(self, store: Store, database: Database) -> None:
        """The sentence says that the log is damaged, and shows nothing of what was said (P33)."""
        walk = Walk().turn("SECRET")
        await walk.into(store)
        change(database, "UPDATE events SET effects = NULL WHERE seq = 2")

        divergence = divergence_of(await replay_conversation(store, "walk"))

        assert divergence.reason == "Step 2 is not what was stored: the log is damaged."
        assert divergence.event == walk.steps[1][0]
        assert divergence.expected.effects == ()
        assert divergence.actual.effects == walk.steps[1][1].effects

    @pytest.mark.parametrize("seq", range(1, 6))
    async def test_a_missing_step_is_found(self, seq: int, store: Store, database: Database) -> None:
        """At either end and in between."""
        await Walk().turn("tonight").into(store)
        change(database, f"DELETE FROM events WHERE seq = {seq}")

        divergence = divergence_of(await replay_conversation(store, "walk"))

        assert (divergence.seq, divergence.reason) == (seq, f"Step {seq} is missing: the log is damaged.")
        assert (divergence.event, divergence.expected, divergence.actual) == (None, StepOutcome(), StepOutcome())

    async def test_a_step_of_another_conversation_is_found(self, store: Store, database: Database) -> None:
        """A row fits into one place only, even beside a twin."""
        await Walk().turn("tonight").into(store)
        await Walk("twin").turn("tonight").into(store)
        change(database, "DELETE FROM events WHERE seq = 3 AND conversation = 1")
        change(database, "UPDATE events SET conversation = 1 WHERE seq = 3")

        divergences = [divergence_of(await replay_conversation(store, name)) for name in ("walk", "twin")]

        assert [divergence.seq for divergence in divergences] == [3, 3]

    @pytest.mark.parametrize(
        ("column", "value", "reason"),
        [
            ("seq", 4, "The head of the conversation is not its newest step, 5: the log is damaged."),
            ("seq", 6, "Step 6 is missing: the log is damaged."),
            ("chain", bytes(16), "The head of the conversation is not its newest step, 5: the log is damaged."),
            (
                "state",
                "not JSON",
                "The state of the conversation cannot be read: it is damaged, or a newer turnwise wrote it.",
            ),
        ],
    )
    async def test_of_the_place_of_rest_is_found(
        self, column: str, value: int | str | bytes, reason: str, store: Store, database: Database
    ) -> None:
        """The conversation must rest behind its last step."""
        await Walk().turn("tonight").into(store)
        change(database, f"UPDATE conversations SET {column} = ?", value)

        report = await replay_conversation(store, "walk")

        assert (report.events, divergence_of(report).reason) == (5, reason)

    async def test_of_the_state_at_the_head_is_found(self, store: Store, database: Database) -> None:
        """There the whole state is stored, and both are shown."""
        walk = Walk().turn("tonight")
        await walk.into(store)
        other = walk.state.model_copy(update={"book": walk.state.book.replace(turn=9)})
        change(database, "UPDATE conversations SET state = ?", other.to_json())

        divergence = divergence_of(await replay_conversation(store, "walk"))

        assert (divergence.seq, divergence.reason) == (
            5,
            "The conversation does not rest in the state that step 5 leads to.",
        )
        assert (divergence.expected.state, divergence.actual.state) == (other, walk.state)

    @pytest.mark.slow
    async def test_of_any_byte_is_found_or_changes_nothing(self, store: Store, database_file: Path) -> None:
        """A flipped bit in any byte that is used: an error with a sentence, a divergence, or the same log as before."""
        walks = [Walk(name).turn("tonight").turn("tomorrow 寿司").question() for name in ("one", "two")]
        before = [(await walk.into(store), await store.entries(walk.name)) for walk in walks]
        await store.close()
        whole = database_file.read_bytes()
        used = [place for place, byte in enumerate(whole) if byte]
        chance = random.Random(1)

        found = 0
        for _ in range(200):
            place = chance.choice(used)
            database_file.write_bytes(
                whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
            )
            for walk, (_, entries) in zip(walks, before, strict=True):
                after = await self._looked_at(database_file, walk.name)
                found += after is None
                assert after is None or after == entries

        assert found > 100

    async def _looked_at(self, database_file: Path, conversation_id: str) -> Any:
        """The log, if nothing seems wrong with it."""
        try:
            store = await SqliteStore.open(database_file, read_only=True)
            try:
                report = await replay_conversation(store, conversation_id)
                return await store.entries(conversation_id) if report.divergence is None else None
            finally:
                await store.close()
        except TurnwiseError:
            return None


class TestRules:
    """The rules that held."""

    def test_rules_are_stored_whole(self) -> None:
        """A default that changes later must not change what held then: no field of a policy is left out, but for those
        that were added since, whose defaults never change."""
        opened = Opened(event_id="1", at=NOON, policy=Policy())

        stored = json.loads(opened.to_json())["policy"]

        assert stored.keys() == Policy.model_fields.keys() - set(Policy.ADDED)
        assert stored["retry"].keys() == Retry.model_fields.keys()
        assert stored["texts"].keys() == Texts.model_fields.keys() - set(Texts.ADDED)
        assert Opened.model_validate_json(opened.to_json()) == opened


# --- A replay of stored rows compares texts and decodes only what differs; it finds what a comparison of values finds.


Change = Callable[[EventRow], EventRow]


def rows_of(steps: Iterable[tuple[Event, Step]]) -> tuple[list[EventRow], HeadRow]:
    """The rows that a store keeps of these steps, and the head row of the last one."""
    rows, chain = [], GENESIS
    for event, step in steps:
        row, head = encode(event, step, chain)
        rows.append(row)
        chain = row.chain
    return rows, head


def linked(rows: Iterable[EventRow]) -> list[EventRow]:
    """These rows with the links that they would have if they had been stored like this."""
    chain, relinked = GENESIS, []
    for row in rows:
        chain = link(chain, content_of(row))
        relinked.append(row._replace(chain=chain))
    return relinked


def record_of(rows: Sequence[EventRow], head: HeadRow) -> ConversationRecord:
    """A stored conversation with these rows."""
    return ConversationRecord("walk", 0, head._replace(seq=rows[-1].seq, chain=rows[-1].chain), tuple(rows))


def changed(walk: Walk, seq: int, change: Change) -> ConversationRecord:
    """A conversation whose step `seq` was stored in another way. Nothing in it is damaged."""
    rows, head = rows_of(walk.steps)
    rows[seq - 1] = change(rows[seq - 1])
    return record_of(linked(rows), head)


def by_values(record: ConversationRecord) -> ReplayReport:
    """The report of a replay that decodes every step before it compares."""
    return replay(map(decode, record.steps))


def turns(count: int) -> Walk:
    """A conversation of so many turns, each with a call of a tool."""
    walk = Walk()
    for _ in range(count):
        walk.turn()
    return walk


DEFAULTS = {
    "request_llm": {"memory": None, "plain": False},
    "execute_tool": {"started_as": None},
    "deliver_to_user": {"relayed": False},
}


def spelled_out(row: EventRow) -> EventRow:
    """A row that says the same with some of its defaults written, and with other white space."""
    effects = [{**effect, **DEFAULTS.get(effect["type"], {})} for effect in json.loads(row.effects or "[]")]
    ended = None if row.ended is None else {**json.loads(row.ended), "silent": False, "failure": None}
    return row._replace(
        effects=json.dumps(effects, indent=1) if effects else None,
        ended=None if ended is None else json.dumps(ended, indent=1),
    )


def test_defaults_that_are_written_are_no_divergence() -> None:
    """A log may spell equal values in another way, as one of another version may."""
    rows, head = rows_of(turns(2).steps)
    others = linked(map(spelled_out, rows))

    report = replay_record(record_of(others, head))

    assert sum(other.effects != row.effects for other, row in zip(others, rows, strict=True)) == 8
    assert (report.events, report.divergence) == (len(rows), None)


def _reversed(row: EventRow) -> EventRow:
    return row._replace(effects=json.dumps(json.loads(row.effects or "")[::-1], separators=(",", ":")))


def _without_the_last(row: EventRow) -> EventRow:
    return row._replace(effects=json.dumps(json.loads(row.effects or "")[:-1]))


CHANGES: dict[str, tuple[Change, str]] = {
    "effects in another order": (_reversed, "has other effects now."),
    "an effect less": (_without_the_last, "has other effects now."),
    "no effects": (lambda row: row._replace(effects=None), "has other effects now."),
    "no end of a turn": (lambda row: row._replace(ended=None), "ends the turn in another way now."),
    "a state of which only the digest is known": (
        lambda row: row._replace(state=b"another digest.."),
        "leads to another state now.",
    ),
}


class TestDivergences:
    """What differs is found at its step, and reported in full."""

    @holds_for("name", CHANGES)
    @holds_for("seq", [5, 9])
    def test_are_found_at_their_step(self, name: str, seq: int) -> None:
        """In the middle and at the end of a log: the event, what was stored, and what it leads to now."""
        change, reason = CHANGES[name]
        walk = turns(2)
        event, step = walk.steps[seq - 1]
        record = changed(walk, seq, change)

        report = replay_record(record)

        found = _found(report)
        assert (report.events, found.seq, found.reason) == (seq - 1, seq, f"Step {seq} {reason}")
        assert found.event == event
        assert (found.actual.effects, found.actual.ended, found.actual.state) == (step.effects, step.ended, step.state)
        stored = decode(record.steps[seq - 1])
        assert (found.expected.effects, found.expected.ended) == (stored.effects, stored.ended)
        assert found.expected.digest == stored.digest
        assert found.expected.state == (step.state if seq == 9 and stored.digest == found.actual.digest else None)

    @pytest.mark.parametrize("name", CHANGES)
    def test_are_those_of_a_comparison_of_values(self, name: str) -> None:
        """Whether texts or values are compared, the report is the same."""
        record = changed(turns(2), 5, CHANGES[name][0])

        assert replay_record(record) == by_values(record)

    def test_of_a_changed_event_are_found_by_what_it_led_to(self) -> None:
        """The chain fits, so it is not damage: the moment of the event decides when the turn began."""
        walk = turns(2)
        record = changed(walk, 2, lambda row: row._replace(at=row.at + 1))

        report = replay_record(record)

        assert (report.events, _found(report).reason) == (1, "Step 2 has other effects now.")
        assert _found(report).event == walk.steps[1][0].replace(at=walk.steps[1][0].at + timedelta(microseconds=1))
        assert report == by_values(record)

    @pytest.mark.parametrize("seq", [1, 4])
    def test_of_a_link_are_found_though_all_else_fits(self, seq: int) -> None:
        """Every column of the step says what comes of it, and only its link is another one."""
        rows, head = rows_of(turns(2).steps)
        rows[seq - 1] = rows[seq - 1]._replace(chain=bytes(16))
        record = record_of(rows, head)

        report = replay_record(record)

        damage = f"Step {seq} is not what was stored: the log is damaged."
        assert (report.events, _found(report).seq, _found(report).reason) == (seq - 1, seq, damage)
        assert report.divergence == by_values(record).divergence


LONG = turns(20)
AROUND_PAGES = (1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 1, len(LONG.steps) - 1)
"""Steps at the ends of pages, and next to them."""


@pytest.mark.parametrize("seq", AROUND_PAGES)
class TestPages:
    """Rows are taken page by page; where a page begins and ends makes no difference."""

    def test_a_divergence_is_found_at_its_step(self, seq: int) -> None:
        """The steps before it in its page are taken."""
        record = changed(LONG, seq, lambda row: row._replace(state=b"another digest.."))

        report = replay_record(record)

        assert (report.events, _found(report).reason) == (seq - 1, f"Step {seq} leads to another state now.")
        assert _found(report).actual.state == LONG.steps[seq - 1][1].state
        assert report == by_values(record)

    @pytest.mark.slow
    @pytest.mark.parametrize("change", [{"at": 0}, {"type": "no such thing"}, {"payload": "not JSON"}, {"turn": 9}])
    def test_damage_is_found_at_its_step(self, seq: int, change: dict[str, object]) -> None:
        """A row that was changed, also into one that cannot be read."""
        rows, head = rows_of(LONG.steps)
        rows[seq - 1] = rows[seq - 1]._replace(**change)
        record = record_of(rows, head)

        report = replay_record(record)

        assert (report.events, _found(report).seq) == (seq - 1, seq)
        assert report == by_values(record)

    def test_a_missing_step_is_found(self, seq: int) -> None:
        """The page is one row longer than the log has."""
        rows, head = rows_of(LONG.steps)
        del rows[seq - 1]

        report = replay_record(record_of(rows, head))

        assert (report.events, _found(report).reason) == (seq - 1, f"Step {seq} is missing: the log is damaged.")


def _found(report: ReplayReport) -> Divergence:
    assert report.divergence is not None
    return report.divergence


def test_a_fault_behind_a_divergence_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that differ at step 2 may fail at step 3, whose event belongs to another state: step 2 is reported."""
    rows, head = rows_of(turns(2).steps)

    def changed_rules(state: State, event: Event, context: Context) -> Step:
        if state.book.seq > 1:
            raise LookupError(event.type)
        return transition(state, event, context.replace(policy=Policy(models=(ModelSpec(name="another"),))))

    monkeypatch.setattr(replays, "transition", changed_rules)
    report = replay_record(record_of(rows, head))

    assert (report.events, _found(report).seq, _found(report).reason) == (1, 2, "Step 2 has other effects now.")


@pytest.mark.slow
class TestCost:
    """What a step that comes out as it was stored does not cost."""

    def test_only_events_are_decoded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Effects, ends and states are compared as texts."""
        rows, head = rows_of(turns(3).question().steps)

        def refuse(row: EventRow) -> StoredEntry:
            raise AssertionError(f"step {row.seq} is decoded")

        monkeypatch.setattr(replays, "decode", refuse)

        assert replay_record(record_of(rows, head)).divergence is None

    def test_decoded_events_are_dropped_at_rest(self) -> None:
        """In a log of many turns no more events are in memory than those of one turn."""
        walk = turns(40)
        rows, _ = rows_of(walk.steps)
        gc.collect()
        before, most, fold = _events_in_memory(), 0, Fold()

        for row in rows:
            assert fold.take_rows((row,)) is None
            if row.seq % 20 == 0:
                most = max(most, _events_in_memory() - before)

        assert most <= 5


def _events_in_memory() -> int:
    return sum(isinstance(each, Event) for each in gc.get_objects())


@pytest.mark.slow
@given(trace=strategies.traces())
def test_rows_replay_whatever_happened(trace: Trace) -> None:
    """Under any rules, and what was delivered is what the transcript says."""
    steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]
    rows, head = rows_of(steps)

    report = replay_record(record_of(rows, head))

    assert (report.events, report.divergence) == (len(steps), None)
    assert report.deliveries == tuple(_delivered(steps))


def _delivered(steps: Iterable[tuple[Event, Step]]) -> Iterator[str]:
    """The texts of the deliveries, each under the rules that held then."""
    transcript, context = Transcript(), Context()
    for event, step in steps:
        transcript.add(LogEntry.of(event, step))
        context = context.after(event)
        for effect in step.effects:
            if isinstance(effect, DeliverToUser):
                yield text_of_reply(transcript.words(effect.said), context.policy)
