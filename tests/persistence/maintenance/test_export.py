"""What is exported comes in again as it was, to the letter; what is no export does not come in at all."""

from __future__ import annotations

import asyncio
import io
import json
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from turnwise import Engine, Refused, Texts, tool
from turnwise.persistence.codec import GENESIS, content, decode_state, digest, encode, link, to_microseconds
from turnwise.persistence.errors import Damaged, NotAnExport, StoreConflict
from turnwise.persistence.maintenance import reading
from turnwise.persistence.maintenance.doctor import audit
from turnwise.persistence.maintenance.export import (
    Imported,
    at_rest,
    export_all,
    export_conversation,
    first_line,
    import_records,
    last_line,
    lines_of,
)
from turnwise.persistence.maintenance.fork import fork
from turnwise.persistence.maintenance.reading import read_export
from turnwise.persistence.maintenance.replay import replay_conversation, replay_record
from turnwise.persistence.records import ConversationRecord, Origin
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter
from turnwise.states import (
    CloseRequested,
    DetailsChanged,
    Failed,
    HistoryMessage,
    LlmResponse,
    Opened,
    ToolCall,
    UnknownConversation,
)
from turnwise.testing import strategies
from turnwise.testing.doubles import FunctionLlm, ScriptedLlm, call, reply
from turnwise.testing.history import Trace

from ...support.cases import holds_for
from ...support.databases import BOTH_STORES, Database, change, rows_of
from ...support.engine_scenarios import QUESTION, Gate, answers_after
from ...support.walks import NOON, Walk

pytestmark = BOTH_STORES


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Another one."""
    store = await SqliteStore.open(tmp_path / "other.db")
    yield store
    await store.close()


async def exported(store: SqliteStore) -> list[str]:
    """A database as an export."""
    lines = [first_line()]
    count = 0
    async for _, each in export_all(store):
        assert not isinstance(each, Damaged)
        lines += each
        count += 1
    return [*lines, last_line(count)]


def read(lines: list[str]) -> tuple[ConversationRecord, ...]:
    """What an export holds."""
    return read_export(f"{line}\n".encode() for line in lines)


def fault_of(lines: list[str] | list[bytes]) -> NotAnExport:
    """Why these lines are refused; they must be."""
    with pytest.raises(NotAnExport) as refused:
        read_export(line.encode() if isinstance(line, str) else line for line in lines)
    sentence = refused.value.sentence
    assert sentence.startswith(f"Line {refused.value.line} ")
    assert sentence.endswith(".")
    assert "\n" not in sentence
    return refused.value


def whole_of(walk: Walk) -> ConversationRecord:
    """A walk as it would stand in the tables."""
    chain, rows, rest = GENESIS, [], None
    for event, step in walk.steps:
        row, rest = encode(event, step, chain)
        rows.append(row)
        chain = row.chain
    opened = walk.steps[0][0]
    assert rest is not None
    assert isinstance(opened, Opened)
    return ConversationRecord(walk.name, to_microseconds(NOON), rest, tuple(rows), opened.owner)


def export_of(*walks: Walk) -> list[str]:
    """The export of these walks."""
    lines = [line for walk in walks for line in lines_of(whole_of(walk))]
    return [first_line(), *lines, last_line(len(walks))]


class TestTheRoundTrip:
    """Out of one database, into another, and out again: the same bytes."""

    async def test_is_exact(self, store: SqliteStore, other: SqliteStore) -> None:
        """Several conversations in one file, in every state at rest, with ids, digests and moments."""
        await Walk("done").turn('say "hi"\nand {leave} \u2028 寿司 \x7f').turn("tomorrow").into(store)
        await Walk("closed").turn("tonight").request(CloseRequested).into(store)
        await fork(store, "done", "copy", 5, NOON + timedelta(days=1, microseconds=7))
        lines = await exported(store)

        imported = await import_records(other, read(lines))

        assert await exported(other) == lines
        assert imported == (
            Imported("done", 9, already_stored=False),
            Imported("closed", 6, already_stored=False),
            Imported("copy", 5, already_stored=False),
        )

    @pytest.mark.slow
    @given(trace=strategies.traces())
    def test_is_exact_whatever_happened(self, trace: Trace) -> None:
        """Each conversation that the machine can have, under any rules."""
        walk = Walk()
        walk.steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]
        whole = whole_of(walk)

        assert read(export_of(walk)) == (whole,)

    async def test_keeps_what_the_list_tells(
        self, store: SqliteStore, other: SqliteStore, database: Database, tmp_path: Path
    ) -> None:
        """The state, when it moved last, where it came from, and whom it belongs to."""
        await Walk().turn("tonight").into(store)
        await fork(store, "walk", "copy", None, NOON)
        change(database, "UPDATE conversations SET owner = 'anna', parent = 'other'", rows=2)

        await import_records(other, read(await exported(store)))

        assert await other.list() == await store.list()
        assert {one.id: one.origin for one in await other.list()} == {"walk": None, "copy": Origin("walk", 5)}
        columns = "SELECT id, seq, chain, state_type, waits, next_timer, owner, parent, created_at FROM conversations"
        assert rows_of(database, f"{columns} ORDER BY key") == rows_of(tmp_path / "other.db", f"{columns} ORDER BY key")

    async def test_keeps_owner_title_and_metadata(self, store: SqliteStore, other: SqliteStore) -> None:
        """They follow from the steps, so a conversation is found in the other database as in this one."""
        history = (HistoryMessage.model_validate({"role": "user", "content": "from elsewhere"}),)
        await Walk("named", owner="anna", title="Dinner", metadata={"tenant": "a"}).turn("tonight").into(store)
        await Walk("continued", messages=history, metadata={"messages": []}).turn("tonight").into(store)
        await Walk("changed").turn("tonight").request(DetailsChanged, metadata={"tenant": "a"}).into(store)

        await import_records(other, read(await exported(store)))

        assert await other.list() == await store.list()
        assert {one.title for one in await other.list()} == {"Dinner", "from elsewhere", "tonight"}
        assert [one.id for one in await other.list(ConversationFilter(owner="anna"))] == ["named"]
        assert [one.id for one in await other.list(ConversationFilter(metadata={"tenant": "a"}))] == [
            "changed",
            "named",
        ]
        assert await exported(other) == await exported(store)

    async def test_leaves_out_what_is_to_be_delivered(self, store: SqliteStore, other: SqliteStore) -> None:
        """Whoever has the original delivers it."""
        walk = Walk().say("hello")
        log = await walk.into(store)
        walk.call("find_table")
        await log.append(*walk.steps[-1], targets=[(2, "voice")])

        await import_records(other, read(await exported(store)))

        assert await other.outbox(["walk"]) == ()

    async def test_keeps_how_it_was_written(self, store: SqliteStore, other: SqliteStore) -> None:
        """A log whose JSON another version wrote with other spaces and escapes has other digests, and keeps them."""
        await Walk().turn("寿司").into(store)
        lines = await exported(store)
        (whole,) = read(lines)
        chain, rows = GENESIS, []
        for row in whole.steps:
            spaced = row._replace(payload=json.dumps(json.loads(row.payload), indent=None))
            rows.append(spaced._replace(chain=link(chain, content(spaced[:-1]))))
            chain = rows[-1].chain
        old = whole._replace(steps=tuple(rows), head=whole.head._replace(chain=chain))

        await import_records(other, (old,))
        again = read(await exported(other))

        assert again == (old,) != (whole,)
        assert (await replay_conversation(other, "walk")).divergence is None

    async def test_of_nothing(self, store: SqliteStore, other: SqliteStore) -> None:
        """An empty database is an export of no conversations."""
        lines = await exported(store)

        assert lines == ['{"format":"turnwise-log","version":1}', '{"conversations":0}']
        assert await import_records(other, read(lines)) == ()

    def test_of_several_files_in_one(self) -> None:
        """Exports may be put behind each other, and lines may end as they do on Windows."""
        lines = [*export_of(Walk("one").say("hello")), *export_of(Walk("two"), Walk("three"))]

        wholes = read_export(f"{line}\r\n".encode() for line in lines)

        assert [whole.id for whole in wholes] == ["one", "two", "three"]

    def test_every_step_is_a_line(self) -> None:
        """A line break in a text is written as an escape; each line is an object by itself."""
        lines = export_of(Walk().say("one\ntwo\r\nthree"))

        assert [line for line in lines if "\n" in line or "\r" in line] == []
        assert json.loads(lines[3])["payload"] == {"text": "one\ntwo\r\nthree"}
        assert [json.loads(line).get("seq") for line in lines] == [None, 2, 1, 2, None]


class TestImporting:
    """All that a file holds, or nothing."""

    async def test_again_changes_nothing(self, store: SqliteStore) -> None:
        """What is there already, equal step by step, is left as it is."""
        await Walk().turn("tonight").into(store)
        lines = await exported(store)

        assert await import_records(store, read(lines)) == (Imported("walk", 5, already_stored=True),)
        assert await exported(store) == lines

    @pytest.mark.parametrize("turns", [0, 2])
    async def test_another_conversation_under_the_id_is_refused(self, turns: int, store: SqliteStore) -> None:
        """Shorter or longer; and what stands beside it in the file does not come in either."""
        walk = Walk()
        await Walk().turn("tonight").into(store)
        for _ in range(turns):
            walk.turn("tonight")
        before = await exported(store)

        with pytest.raises(StoreConflict, match="There is already another conversation with the id walk"):
            await import_records(store, read(export_of(Walk("new"), walk)))

        assert await exported(store) == before

    async def test_the_same_twice_in_a_file_is_once(self, store: SqliteStore) -> None:
        """And two different ones under one id are refused."""
        walk = Walk().say("hello")

        twice = await import_records(store, read(export_of(walk, walk)))
        with pytest.raises(StoreConflict):
            await import_records(store, read(export_of(Walk("other"), Walk("other").say("hello"))))

        assert [one.already_stored for one in twice] == [False, True]
        assert await store.ids() == ("walk",)


class TestNothingGoesOn:
    """What was under way in an imported conversation has ended, whatever its log says: a file may come from anybody."""

    async def imported(self, source: SqliteStore, path: Path) -> tuple[Imported, ...]:
        """Import all conversations of a store into a new database."""
        store = await SqliteStore.open(path)
        result = await import_records(store, read(await exported(source)))
        assert await import_records(store, read(await exported(source))) == tuple(
            Imported(one.conversation_id, one.steps, already_stored=True, closed=one.closed) for one in result
        )
        assert await store.claim(10) == ()
        for one in result:
            assert (await replay_conversation(store, one.conversation_id)).divergence is None
            record = await store.read_record(one.conversation_id)
            entries = await store.entries(one.conversation_id)
            assert list(audit(entries, decode_state(record.head))) == []
        await store.close()
        return result

    async def test_a_tool_that_a_foreign_log_calls_pure_does_not_run(self, store: SqliteStore, tmp_path: Path) -> None:
        """The log rests while a payment runs, and declares it pure. The application that imports it declares it
        at-most-once and with approval: nothing is paid, also when the conversation goes on."""
        called = ToolCall(call_id="1", name="pay", crash="pure", raw_arguments='{"amount": 5000}')
        walk = Walk().say("Pay.").answer(LlmResponse, tool_calls=(called,), finish_reason="tool_calls")
        assert walk.steps[-1][1].state.type == "tool_executing"
        await walk.into(store)
        paid: list[int] = []

        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        (one,) = await self.imported(store, tmp_path / "new.db")
        async with Engine.open(tmp_path / "new.db", model=ScriptedLlm([reply("Again?")]), tools=[pay]) as engine:
            conversation = await engine.get("walk")
            state = conversation.state
            turn = await conversation.send("Go on.")
            results = [message.text for message in await conversation.transcript() if message.role == "tool"]

        assert one == Imported("walk", 4, already_stored=False, closed=True)
        assert isinstance(state, Failed)
        assert state.sentence == Texts().imported
        assert (turn.reply, paid, results) == ("Again?", [], [Texts().in_doubt])

    async def test_a_model_request_is_not_made(self, database: Path, tmp_path: Path) -> None:
        """Until somebody tries again: then the turn goes on with what was said."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "never"))) as engine:
            conversation = await engine.create()
            await conversation.send("Hello", wait=False)
            await gate.arrived.wait()
            await self.imported(engine.store, tmp_path / "new.db")

        async with Engine.open(tmp_path / "new.db", model=FunctionLlm(lambda _: "Hello again.")) as engine:
            again = await engine.get(conversation.id)
            before = again.state.type
            turn = await again.retry()

        assert (before, turn.reply) == ("failed", "Hello again.")

    async def test_a_question_is_open_no_longer(self, database: Path, tmp_path: Path) -> None:
        """P19: the original still waits for the answer; a copy must not take it, too."""
        asks = ScriptedLlm([call("ask_user_question", questions=[QUESTION])])
        async with Engine.open(database, model=asks, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            before = await conversation.transcript()
            await self.imported(engine.store, tmp_path / "new.db")

        async with Engine.open(tmp_path / "new.db", model=ScriptedLlm([reply("When?")])) as engine:
            again = await engine.get(conversation.id)
            after = await again.transcript()
            with pytest.raises(Refused):
                await again.answer({"When?": "6:30 PM"})
            turn = await again.send("Hello?")

        assert after[: len(before)] == before
        assert [message.text for message in after[len(before) :]] == [Texts().unanswered]
        assert turn.reply == "When?"

    async def test_an_approval_is_waited_for_no_longer(self, database: Path, tmp_path: Path) -> None:
        """The call did not run, and is told so."""

        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            raise AssertionError("nobody approved it")

        async with Engine.open(database, model=ScriptedLlm([call("pay", amount=5)]), tools=[pay]) as engine:
            conversation = await engine.create()
            await conversation.send("Pay.")
            await self.imported(engine.store, tmp_path / "new.db")

        async with Engine.open(tmp_path / "new.db", model=ScriptedLlm([]), tools=[pay]) as engine:
            again = await engine.get(conversation.id)
            results = [message.text for message in await again.transcript() if message.role == "tool"]

        assert (again.state.type, results) == ("failed", [Texts().did_not_run])

    async def test_messages_that_waited_keep_waiting(self, database: Path, tmp_path: Path) -> None:
        """They begin no turn by themselves, and are taken up with the next message."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "never"))) as engine:
            conversation = await engine.create()
            await conversation.send("One", wait=False)
            await gate.arrived.wait()
            await conversation.send("Two", when_busy="queue", wait=False)
            await self.imported(engine.store, tmp_path / "new.db")

        async with Engine.open(tmp_path / "new.db", model=FunctionLlm(lambda _: "Both.")) as engine:
            again = await engine.get(conversation.id)
            assert again.state.type == "failed"
            await again.send("Three")
            texts = [message.text for message in await again.transcript()]

        assert texts == ["One", "Two", "Three", "Both."]

    async def test_a_schedule_is_taken_away(self, database: Path, tmp_path: Path) -> None:
        """The original wakes up by it."""
        async with Engine.open(database, model=ScriptedLlm([])) as engine:
            conversation = await engine.create(every=60, task="Look.")
            (one,) = await self.imported(engine.store, tmp_path / "new.db")

        async with Engine.open(tmp_path / "new.db", model=ScriptedLlm([])) as engine:
            assert (await engine.get(conversation.id)).state.book.wake is None
            assert await engine.store.scheduled(10) == ()
        assert (one.steps, one.closed) == (2, True)

    @pytest.mark.slow
    @given(trace=strategies.traces())
    def test_whatever_happened_before(self, trace: Trace) -> None:
        """Any conversation that the machine can have rests, replays, and breaks no invariant; its steps so far are as
        they were, and imported again it gets no further step."""
        walk = Walk()
        walk.steps = [(seen.event, seen.step) for seen in trace if seen.step is not None]
        before = whole_of(walk)

        after = at_rest(before)

        state = decode_state(after.head)
        assert not state.in_flight()
        assert not state.ends_with_process
        assert state.type in ("idle", "failed", "closed")
        assert state.book.wake is None
        assert after.steps[: len(before.steps)] == before.steps
        assert replay_record(after).divergence is None
        assert at_rest(after) == after

    async def test_a_state_that_its_steps_do_not_lead_to_is_refused(self, other: SqliteStore) -> None:
        """A head that doubts a call which no step knows cannot be closed, so nothing of the file comes in."""
        record = whole_of(Walk().say("Pay.").call("pay"))
        forged = record.head.state.replace('"round":{', '"round":{"doubtful":["nobody"],')

        with pytest.raises(Damaged, match="does not belong to its steps"):
            await import_records(other, [record._replace(head=record.head._replace(state=forged))])

        assert await other.ids() == ()


class TestExporting:
    """What is not whole is not exported."""

    @pytest.mark.parametrize(
        ("sql", "sentence"),
        [
            (
                "UPDATE events SET payload = replace(payload, 'hello', 'hullo') WHERE seq = 2",
                "Step 2 is not what was stored",
            ),
            ("UPDATE events SET payload = 'not JSON' WHERE seq = 2", "Step 2 cannot be read"),
            ("UPDATE events SET payload = CAST(x'7b22ff227d' AS TEXT) WHERE seq = 2", "Step 2 "),
            ("DELETE FROM events WHERE seq = 1", "Step 1 is missing"),
            ("DELETE FROM events", "Step 1 is missing"),
            ("UPDATE conversations SET state = '{}'", "The state behind step 2 is not"),
            ("UPDATE conversations SET state = x'00'", "The state behind step 2 is not"),
            ("UPDATE conversations SET created_at = 'noon'", "cannot be read"),
            ("UPDATE conversations SET owner = CAST(x'ff' AS TEXT)", "cannot be read"),
        ],
    )
    async def test_damage_is_told(self, sql: str, sentence: str, store: SqliteStore, database: Database) -> None:
        """In one sentence that names the step; of all conversations, the others are exported."""
        if "x'" in sql and not isinstance(database, Path):
            pytest.skip("PostgreSQL keeps only text in a text.")
        await Walk().say("hello").into(store)
        change(database, sql, rows=2 if sql == "DELETE FROM events" else 1)
        await Walk("sound").into(store)

        with pytest.raises(Damaged, match=sentence):
            await export_conversation(store, "walk")
        found = [isinstance(each, Damaged) async for _, each in export_all(store)]

        assert found == [True, False]

    async def test_nobody_is_unknown(self, store: SqliteStore) -> None:
        """There must be a conversation."""
        with pytest.raises(UnknownConversation):
            await export_conversation(store, "nobody")


Edit = Callable[[list[str]], Any]


def _set(line: int, old: str, new: str) -> Edit:
    """Change a piece of a line."""

    def edit(lines: list[str]) -> None:
        assert old in lines[line]
        lines[line] = lines[line].replace(old, new, 1)

    return edit


def _put(line: int, text: str) -> Edit:
    """Put another line in the place of one."""

    def edit(lines: list[str]) -> None:
        lines[line] = text

    return edit


def _drop(line: int) -> Edit:
    """Leave a line out."""
    return lambda lines: lines.pop(line)


def _swap(one: int, two: int) -> Edit:
    """Let two lines change places."""

    def edit(lines: list[str]) -> None:
        lines[one], lines[two] = lines[two], lines[one]

    return edit


DEEP = "[" * 100_000
NEWER = '{"format":"turnwise-log","version":2}'


class TestWhatIsNoExport:
    """P33: refused in one sentence that names the line, before anything is stored."""

    @holds_for(
        ("edit", "line", "sentence"),
        [
            (_put(0, ""), 1, "does not begin an export of turnwise."),
            (_put(0, "Dear diary,"), 1, "does not begin an export of turnwise."),
            (_put(0, "{}"), 1, "does not begin an export of turnwise."),
            (_put(0, '{"format":"other","version":1}'), 1, "does not begin an export of turnwise."),
            (_put(0, '{"format":"turnwise-log","version":"1"}'), 1, "does not begin an export of turnwise."),
            (_put(0, '{"format":"turnwise-log"}'), 1, "does not begin an export of turnwise."),
            (_put(0, NEWER), 1, "was written by a newer turnwise; update turnwise to import it."),
            (_drop(0), 1, "does not begin an export of turnwise."),
            (_put(1, ""), 2, "is not a line of an export."),
            (_put(1, "null"), 2, "is not a line of an export."),
            (_put(2, "[1]"), 3, "is not a line of an export."),
            (_put(2, DEEP), 3, "is not a line of an export."),
            (_put(2, f'{{"seq":{DEEP}'), 3, "is not a line of an export."),
            (_put(2, f'{{"seq":{"9" * 5_000}}}'), 3, "is not a line of an export."),
            (_set(2, '"turn":0', '"turn":0,"turn":0'), 3, "is not a line of an export."),
            (_set(2, '"turn":0', '"turn":NaN'), 3, "is not a line of an export."),
            (_set(2, '"turn":0', '"turn":true'), 3, "is not a line of an export."),
            (_set(2, '"turn":0', '"turn":9223372036854775808'), 3, "is not a line of an export."),
            (_set(2, '"turn":0', '"turn":-1'), 3, "is not a line of an export."),
            (_set(2, '"turn":0', '"turn": 0'), 3, "is not a line of an export."),
            (_set(2, '"turn":0', '"turn":0,"more":0'), 3, "is not a line of an export."),
            (_set(2, '"at":"2025', '"at":"next year, '), 3, "is not a line of an export."),
            (_set(2, "+00:00", ""), 3, "is not a line of an export."),
            (_set(2, '"event_id":"walk-1"', '"event_id":"\\ud800"'), 3, "is not a line of an export."),
            (_set(2, '"chain":"', '"chain":"0'), 3, "is not a line of an export."),
            (_set(2, '"payload":', '"other":'), 3, "is not a line of an export."),
            (_set(1, '"state":', '"other":'), 2, "is not a line of an export."),
            (_set(1, '"walk"', '""'), 2, "is not a line of an export."),
            (_set(1, '"walk"', f'"{"w" * 201}"'), 2, "is not a line of an export."),
            (_set(1, '"walk"', '"a\\u001b[2J"'), 2, "is not a line of an export."),
            (_set(1, '"walk"', '"a b"'), 2, "is not a line of an export."),
            (_set(1, '"walk"', "7"), 2, "is not a line of an export."),
            (_set(1, '"seq":5', '"seq":0'), 2, "is not a line of an export."),
            (_set(1, '"seq":5', '"seq":4'), 2, "has another state than its newest step, 4."),
            (_set(1, '"seq":5', '"seq":6'), 8, "is not a line of an export."),
            (_set(1, '"turn":1', '"turn":2'), 2, "has another state than its newest step, 5."),
            (_set(3, "tonight", "tomorrow"), 4, "is not what was exported: it was changed or damaged."),
            (_set(3, "123456", "123457"), 4, "is not what was exported: it was changed or damaged."),
            (_set(4, '"effects":[', '"effects":[ '), 5, "is not what was exported: it was changed or damaged."),
            (_set(6, '"ended":{', '"ended":{"turn":7},"other":{'), 7, "is not a line of an export."),
            (_set(3, '"user_message"', '"user_massage"'), 4, "cannot be read"),
            (_set(3, '"version":1', '"version":2'), 4, "cannot be read"),
            (_set(3, '"text"', '"test"'), 4, "cannot be read"),
            (_drop(3), 4, "holds step 3, and step 2 belongs there."),
            (_swap(3, 4), 4, "holds step 3, and step 2 belongs there."),
            (_drop(6), 7, "is not a line of an export."),
            (_drop(7), 8, "is missing: the export was cut off."),
            (_put(7, '{"conversations":2}'), 8, "counts 2 conversations, and 1 stand before it."),
            (lambda lines: lines.append("more"), 9, "does not begin an export of turnwise."),
        ],
    )
    def test_is_told_by_its_line(self, edit: Edit, line: int, sentence: str) -> None:
        """Lines that are none, that lie, that are missing or stand elsewhere, and those of a later version."""
        lines = export_of(Walk().turn("tonight"))
        edit(lines)

        fault = fault_of(lines)

        assert fault.line == line
        assert fault.sentence.startswith(f"Line {line} {sentence}")

    @holds_for("kept", range(8))
    def test_cut_off_behind_any_line(self, kept: int) -> None:
        """The end is missed wherever the file ends, between two conversations too."""
        lines = export_of(Walk("one").say("hello"), Walk("two").say("hello"))

        fault = fault_of(lines[:kept])

        assert fault.sentence == f"Line {kept + 1} is missing: the export was cut off."

    def test_cut_off_anywhere(self) -> None:
        """Also within a line, and within a letter of it."""
        whole = "\n".join(export_of(Walk().say("寿司"))).encode()
        chance = random.Random(1)

        for length in chance.sample(range(1, len(whole)), 200):
            fault_of(whole[:length].splitlines(keepends=True))

    def test_any_bit_that_is_flipped_is_noticed_or_means_nothing(self) -> None:
        """An error with a sentence, or the same steps as before: only what is not covered by a digest may differ, who
        the conversation is and when it began."""
        walk = Walk().turn("tonight 寿司")
        whole = "\n".join(export_of(walk)).encode()
        steps, rest = whole_of(walk).steps, whole_of(walk).head
        chance, refused = random.Random(2), 0

        for place in chance.sample(range(len(whole)), 400):
            flipped = whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
            try:
                (read_again,) = read_export(flipped.split(b"\n"))
                assert (read_again.steps, read_again.head) == (steps, rest)
            except NotAnExport:
                refused += 1

        assert refused > 300

    def test_bytes_that_are_no_text(self) -> None:
        """UTF-8 is what an export is written in; UTF-16, as some shells write it, is not."""
        lines = [line.encode() for line in export_of(Walk())]

        assert fault_of([lines[0], b'{"conversation":"\xff"}']).sentence == "Line 2 is not UTF-8 text."
        assert fault_of(["".join(export_of(Walk())).encode("utf-16")]).sentence == "Line 1 is not UTF-8 text."

    def test_a_line_without_an_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is not read to where it ends."""
        monkeypatch.setattr(reading, "LONGEST_LINE", 1_000)
        file = io.BytesIO(first_line().encode() + b"\n" + b"x" * 1_000_000)

        with pytest.raises(NotAnExport, match=r"^Line 2 is longer than any line of an export\.$"):
            read_export(reading.lines_of(file))
        assert file.tell() < 2_000

    @pytest.mark.parametrize(
        ("column", "value", "sentence"),
        [
            ("event_id", "walk-1", "repeats the request or the answer of an earlier step."),
            ("effect_id", 1, "cannot be read"),
            ("seq", 2, "holds step 2, and step 3 belongs there."),
        ],
    )
    def test_a_forged_log_whose_digests_hold(self, column: str, value: Any, sentence: str) -> None:
        """Digests find damage, not malice: what they cannot see is looked at by itself."""
        walk = Walk().say("hello").request(CloseRequested)
        whole = whole_of(walk)
        forged = whole.steps[2]._replace(**{column: value})
        forged = forged._replace(chain=link(whole.steps[1].chain, content(forged[:-1])))
        lines = [first_line(), *lines_of(whole._replace(steps=(*whole.steps[:2], forged))), last_line(1)]

        assert sentence in fault_of(lines).sentence

    def test_a_forged_owner(self) -> None:
        """The first step names the owner, and its digest holds."""
        whole = whole_of(Walk(owner="anna").say("hello"))
        forged = [whole._replace(owner=owner) for owner in ("bert", None)]

        for record in forged:
            fault = fault_of([first_line(), *lines_of(record), last_line(1)])
            assert fault.sentence == "Line 3 names another owner than the line of its conversation."

    def test_a_history_in_front_of_other_members(self) -> None:
        """A log whose digests hold is read in the same way with and without the messages of its history."""
        history = (HistoryMessage.model_validate({"role": "user", "content": "hello"}),)
        whole = whole_of(Walk(messages=history))
        members = json.loads(whole.steps[0].payload)
        payload = json.dumps({"messages": members.pop("messages"), **members}, separators=(",", ":"))
        forged = whole.steps[0]._replace(payload=payload)
        forged = forged._replace(chain=link(GENESIS, content(forged[:-1])))
        head = whole.head._replace(chain=forged.chain)

        fault = fault_of([first_line(), *lines_of(whole._replace(steps=(forged,), head=head)), last_line(1)])

        assert "does not have the messages of its history at the end" in fault.sentence

    @pytest.mark.parametrize(("old", "new"), [('"effect_id":1', '"effect_id":7'), ('"seq":2', '"seq":3')])
    def test_a_forged_state_that_no_engine_could_take_up(self, old: str, new: str) -> None:
        """It waits for what was never wanted, or counts other steps."""
        whole = whole_of(Walk().say("hello"))
        state = whole.head.state.replace(old, new)
        assert state != whole.head.state
        forged = whole.steps[1]._replace(state=digest(state))
        forged = forged._replace(chain=link(whole.steps[0].chain, content(forged[:-1])))
        rest = whole.head._replace(state=state)
        lines = [first_line(), *lines_of(whole._replace(steps=(whole.steps[0], forged), head=rest)), last_line(1)]

        assert fault_of(lines).sentence == "Line 2 has a state to which the steps do not lead."


def test_a_database_of_many_conversations_is_read_one_by_one(tmp_path: Path) -> None:
    """What is deleted while an export runs is left out, and the rest is exported."""

    async def scene() -> list[str]:
        store = await SqliteStore.open(tmp_path / "many.db")
        for name in ("one", "two", "three"):
            await Walk(name).into(store)
        names = []
        async for _, each in export_all(store):
            assert not isinstance(each, Damaged)
            names.append(json.loads(next(each))["conversation"])
            if len(names) == 1:
                await store.delete("two")
        await store.close()
        return names

    assert asyncio.run(scene()) == ["one", "three"]


def test_moments_are_exact() -> None:
    """To the microsecond, in UTC."""
    whole = whole_of(Walk().say("hello"))

    told = json.loads(next(lines_of(whole)))["created_at"]

    assert datetime.fromisoformat(told) == NOON
    assert datetime.fromisoformat(told).tzinfo == UTC


class TestAConversationOfAHost:
    """A host marks what it has made for itself, and removes it. No file from elsewhere can bring such a mark."""

    async def test_it_is_left_out_of_an_export_of_all(self, store: SqliteStore, other: SqliteStore) -> None:
        """The others come in again."""
        await Walk("marked", metadata={"turnwise.completion": "stateless"}).into(store)
        await Walk("kept", metadata={"completion": "stateless"}).into(store)
        records = read(await exported(store))
        await import_records(other, records)

        assert [record.id for record in records] == ["kept"]

    @pytest.mark.parametrize("opened", [True, False], ids=["when it began", "by a change"])
    async def test_its_marks_are_not_imported(self, opened: bool) -> None:
        """However they came into the log of the file."""
        marks = {"turnwise.completion": "stateless"}
        walk = Walk(metadata=marks) if opened else Walk().request(DetailsChanged, metadata=marks)
        refused = fault_of(export_of(walk))

        assert "reserved for hosts" in refused.sentence
