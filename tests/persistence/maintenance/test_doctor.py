"""The doctor finds what is wrong with a database, and damage stays where it is."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from turnwise import Engine
from turnwise.persistence.maintenance.doctor import (
    LOST_DELIVERY,
    OTHER_ORIGIN,
    Examination,
    Fault,
    Finding,
    audit,
    examine,
    repair,
)
from turnwise.persistence.maintenance.fork import fork
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.persistence.summaries import ConversationFilter
from turnwise.states import (
    Abort,
    CloseRequested,
    DeliverToUser,
    DetailsChanged,
    DoubtResolved,
    ExecuteTool,
    Idle,
    LlmResponse,
    LlmStopped,
    LogEntry,
    PersistToolResults,
    RequestLlm,
    StoreError,
    SummarizeTurn,
    ToolComplete,
    ToolInterrupted,
    TurnwiseError,
    UserCancel,
    begin,
    transition,
)
from turnwise.testing import strategies
from turnwise.testing.doubles import FunctionLlm, call, reply
from turnwise.testing.history import Trace

from ...support.cases import holds_for
from ...support.databases import change
from ...support.engine_scenarios import QUESTION, Gate, answers_after
from ...support.terminal import run
from ...support.walks import NOON, Walk
from ...walking import RecordedChoices, opening_of, read_walks, walk

# --- The doctor finds what is wrong with a database, says it in a sentence, and mends what follows from the rest.


def everything(path: Path) -> list[Any]:
    """All that is in the tables."""
    with closing(sqlite3.connect(path)) as other:
        tables = ("conversations", "events", "outbox", "acknowledgements", "forks", "details", "metadata_entries")
        return [other.execute(f"SELECT * FROM {table}").fetchall() for table in tables]


async def findings(store: SqliteStore) -> list[tuple[str | None, int | None, str]]:
    """What is wrong, without how it can be mended."""
    result = await examine(store)
    return [(finding.conversation_id, finding.seq, finding.sentence) for finding in result.findings]


def delivered_by(walk: Walk) -> int:
    """The effect by which the newest step says something to the user."""
    return next(effect.effect_id for effect in walk.steps[-1][1].effects if isinstance(effect, DeliverToUser))


class TestAHealthyDatabase:
    """Nothing is found where nothing is wrong."""

    async def test_has_no_findings(self, store: SqliteStore) -> None:
        """Conversations at rest, with a question, in the middle of a turn, closed, copied, and with mail to go out."""
        await Walk("done").turn("tonight").turn("tomorrow").into(store)
        await Walk("asked").question().into(store)
        await Walk("closed").turn("tonight").request(CloseRequested).into(store)
        await fork(store, "done", "copy", 5, datetime.now(NOON.tzinfo))
        walk = Walk("busy").say("hello")
        log = await walk.into(store)
        walk.answer(LlmResponse, content="Hello.")
        await log.append(*walk.steps[-1], targets=[(delivered_by(walk), "voice")])

        assert await examine(store) == Examination(conversations=5, steps=9 + 4 + 6 + 5 + 3)

    async def test_may_be_empty(self, store: SqliteStore) -> None:
        """There is nothing that could be wrong."""
        assert await examine(store) == Examination()

    async def test_may_be_in_use(self, database: Path) -> None:
        """P42: while an engine works with it, in the middle of turns, the doctor looks and touches nothing."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "At last."))) as engine:
            for _ in range(3):
                await (await engine.create()).send("Hello", wait=False)
            await gate.arrived.wait()
            looking = await SqliteStore.open(database, read_only=True)
            result = await examine(looking)
            await looking.close()

        assert result == Examination(conversations=3, steps=6)

    async def test_is_what_an_engine_leaves(self, database: Path) -> None:
        """With a tool's question that waits for a person, and after a turn."""
        answers = iter([call("ask_user_question", questions=[QUESTION]), reply("Booked.")])
        llm = FunctionLlm(lambda _: next(answers))
        async with Engine.open(database, model=llm, tools=["ask_user_question"]) as engine:
            conversation = await engine.create()
            await conversation.send("A table")
            while_waiting = await examine(engine.store)
            await conversation.answer({"When?": "6:30 PM"})
            afterwards = await examine(engine.store)

        assert while_waiting.findings == afterwards.findings == ()


_OTHER_OWNER = "The owner is not the one that the first step names."
_OTHER = "What lists show does not agree with the steps: {}."

DETAILS_DAMAGED = [
    ("UPDATE conversations SET owner = NULL WHERE key = 1", _OTHER_OWNER),
    ("UPDATE conversations SET owner = 'bert' WHERE key = 1", _OTHER_OWNER),
    ("UPDATE details SET title = 'Lunch' WHERE conversation = 1", _OTHER.format("title")),
    ("UPDATE details SET title = x'00' WHERE conversation = 1", _OTHER.format("title")),
    ("UPDATE details SET first_message = NULL WHERE conversation = 1", _OTHER.format("first message")),
    ("UPDATE details SET metadata = NULL WHERE conversation = 1", _OTHER.format("metadata")),
    ("UPDATE details SET metadata = 'not JSON' WHERE conversation = 1", _OTHER.format("metadata")),
    (
        "UPDATE details SET metadata = json_set(metadata, '$.tenant', 'c') WHERE conversation = 1",
        _OTHER.format("metadata"),
    ),
    ("DELETE FROM details WHERE conversation = 1", _OTHER.format("title, metadata, role, works_for, first message")),
    ("UPDATE details SET role = NULL WHERE conversation = 1", _OTHER.format("role")),
    ("UPDATE details SET role = 'nurse' WHERE conversation = 1", _OTHER.format("role")),
    ("UPDATE details SET parent = 'bert''s' WHERE conversation = 1", _OTHER.format("parent")),
    ("UPDATE details SET works_for = x'00' WHERE conversation = 1", _OTHER.format("works_for")),
    ("DELETE FROM metadata_entries WHERE conversation = 1", _OTHER.format("index of the metadata")),
    ("INSERT INTO metadata_entries VALUES (zeroblob(16), 1)", _OTHER.format("index of the metadata")),
]
"""Damage of what lists show of the conversation with the key 1, which `named` made."""


def named() -> Walk:
    """A background agent with an owner, a title, and metadata that was changed."""
    agent = {"role": "background", "works_for": "anna's"}
    walk = Walk(owner="anna", title="Dinner", metadata={"tenant": "a"}, **agent).turn("tonight")
    return walk.request(DetailsChanged, metadata={"tenant": "b"})


class TestWhatIsFound:
    """Each finding names the conversation and the step."""

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("sql", "seq", "sentence"),
        [
            (
                "UPDATE events SET payload = replace(payload, 'tonight', 'at noon') WHERE seq = 2",
                2,
                "Step 2 is not what was stored: the log is damaged.",
            ),
            ("UPDATE events SET chain = zeroblob(16) WHERE seq = 3", 3, "Step 3 is not what was stored"),
            ("UPDATE events SET effects = 'not JSON' WHERE seq = 3", 3, "Step 3 cannot be read"),
            ("DELETE FROM events WHERE seq = 3", 3, "Step 3 is missing: the log is damaged."),
            ("DELETE FROM events WHERE seq = 5", 5, "Step 5 is missing: the log is damaged."),
            ("UPDATE conversations SET seq = 7", 6, "Step 6 is missing: the log is damaged."),
            ("UPDATE conversations SET seq = 'text'", 5, "The head of the conversation is not its newest step, 5"),
            ("UPDATE conversations SET chain = zeroblob(16)", 5, "The head of the conversation is not its newest"),
            ("UPDATE conversations SET state = '{}'", 5, "The state that is stored is not the one that step 5 leads"),
            ("UPDATE conversations SET state = x'00'", 5, "The state that is stored is not the one that step 5 leads"),
            ("UPDATE conversations SET waits = 1", 5, "The column waits does not agree with the state"),
            ("UPDATE conversations SET next_timer = 1", 5, "The column next_timer does not agree with the state"),
            ("UPDATE conversations SET next_timer = 'x'", 5, "The column next_timer does not agree with the state"),
            ("UPDATE conversations SET state_type = 'failed'", 5, "The column state_type does not agree"),
            ("UPDATE conversations SET updated_at = 1", 5, "The column updated_at does not agree with the state"),
            ("INSERT INTO outbox VALUES (1, 'voice', 99, 5, 0, NULL, 0)", 5, "A delivery waits for the effect 99"),
            ("INSERT INTO outbox VALUES (1, 'voice', 1, 2, 0, NULL, 0)", 2, "A delivery waits for the effect 1, which"),
            ("INSERT INTO outbox VALUES (1, 'voice', 2, 70, 0, NULL, 0)", 70, "A delivery waits for the effect 2"),
        ],
    )
    async def test_in_a_conversation(
        self, sql: str, seq: int, sentence: str, store: SqliteStore, database: Path
    ) -> None:
        """And nothing else is said to be wrong, neither with it nor with the one beside it."""
        await Walk().turn("tonight").into(store)
        await Walk("sound").turn("tonight").into(store)
        where = {"UPDATE events": " AND conversation = 1", "DELETE FROM": " AND conversation = 1"}
        change(database, sql + where.get(" ".join(sql.split()[:2]), " WHERE key = 1" if "INSERT" not in sql else ""))

        (found,) = await findings(store)

        assert found[:2] == ("walk", seq)
        assert found[2].startswith(sentence)

    @pytest.mark.slow
    @pytest.mark.parametrize(("sql", "sentence"), DETAILS_DAMAGED)
    async def test_in_what_lists_show(self, sql: str, sentence: str, store: SqliteStore, database: Path) -> None:
        """The owner, a title, the metadata or the role is not what the steps say."""
        await named().into(store)
        await Walk("sound", owner="bert", metadata={"tenant": "a"}).turn("tonight").into(store)
        change(database, sql)

        assert await findings(store) == [("walk", 1, sentence)]

    async def test_an_owner_that_no_step_names_is_nothing(self, store: SqliteStore, database: Path) -> None:
        """Logs of older versions were imported with one."""
        await Walk().turn("tonight").into(store)
        change(database, "UPDATE conversations SET owner = 'anna'")

        assert await findings(store) == []

    @pytest.mark.parametrize(
        "damage",
        [
            "DELETE FROM outbox WHERE target = 'voice'",
            "UPDATE outbox SET target = 'paper' WHERE target = 'voice'",
            "UPDATE conversations SET sent = sent + 1",
            "UPDATE acknowledgements SET checksum = 'x'",
            "DELETE FROM acknowledgements",
        ],
    )
    async def test_a_delivery_that_was_lost(self, damage: str, store: SqliteStore, database: Path) -> None:
        """Or that goes to another target, or of which it is not known: what was put into the outbox and what was
        acknowledged must add up. A second look behind the repair finds nothing."""
        walk = Walk().say("hello")
        log = await walk.into(store)
        walk.answer(LlmResponse, content="Hello.")
        effect_id = delivered_by(walk)
        await log.append(*walk.steps[-1], targets=[(effect_id, each) for each in ("screen", "voice", "radio")])
        log.acknowledge(effect_id, "radio")
        log.acknowledge(effect_id, "radio")
        log.acknowledge(99, "screen")
        await store.outbox(["walk"])  # the receipts are stored
        assert await findings(store) == []
        change(database, damage)

        (found,) = await findings(store)
        await repair(store, (await examine(store)).findings)

        assert found == ("walk", 3, LOST_DELIVERY)
        assert await findings(store) == []

    @pytest.mark.parametrize("damage", ["origin = 'another'", "seq = seq - 1", "seq = 99", "seq = 'x'"])
    async def test_another_origin(self, damage: str, store: SqliteStore, database: Path) -> None:
        """No step of a copy says where it comes from."""
        await Walk().turn("tonight").turn("tomorrow").into(store)
        await fork(store, "walk", "copy", 5, datetime.now(NOON.tzinfo))
        assert await findings(store) == []
        change(database, f"UPDATE forks SET {damage}")

        found = await findings(store)

        assert found == [("copy", 1, OTHER_ORIGIN)]

    async def test_a_change_of_the_rules(self, store: SqliteStore) -> None:
        """A log that an older turnwise wrote, whose machine did something else, and in which nothing is damaged."""
        walk = Walk().turn("tonight")
        event, step = walk.steps[1]
        walk.steps[1] = event, replace(step, effects=(*step.effects, Abort(effect_id=7)))
        await walk.into(store)

        assert await findings(store) == [("walk", 2, "Step 2 has other effects now.")]

    async def test_a_broken_law(self, store: SqliteStore) -> None:
        """An answer that nobody waited for: no machine may ever take one."""
        walk = Walk().turn("tonight")
        event, step = walk.steps[4]
        walk.steps[4] = event.model_copy(update={"effect_id": 99}), step
        await walk.into(store)

        told = [sentence for _, _, sentence in await findings(store)]

        assert "The effect 99 is answered, and no step asked for it." in told

    async def test_rows_of_nobody(self, store: SqliteStore, database: Path) -> None:
        """Steps and deliveries whose conversation is gone."""
        await Walk().turn("tonight").into(store)
        change(database, "INSERT INTO outbox VALUES (7, 'voice', 1, 1, 0, NULL, 0)")
        change(database, "UPDATE events SET conversation = 8 WHERE seq = 5")
        change(database, "INSERT INTO forks VALUES (9, 'walk', 1, NULL)")
        change(database, "INSERT INTO details (conversation) VALUES (9)")
        change(database, "INSERT INTO metadata_entries VALUES (zeroblob(16), 9)")

        told = [sentence for _, _, sentence in await findings(store)]

        assert "There are steps of no conversation: 1." in told
        assert "There are deliveries that wait of no conversation: 1." in told
        assert "There are origins of no conversation: 1." in told
        assert "There are titles of no conversation: 1." in told
        assert "There are entries of metadata of no conversation: 1." in told

    async def test_damage_that_sqlite_sees(self, store: SqliteStore, database: Path) -> None:
        """An index in which rows are missing."""
        await Walk().turn("tonight").into(store)
        await store.close()
        with closing(sqlite3.connect(database)) as other:
            ((root,),) = other.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_event_id'")
            ((size,),) = other.execute("PRAGMA page_size")
        whole = database.read_bytes()
        cells = (root - 1) * size + 3
        database.write_bytes(whole[:cells] + bytes(2) + whole[cells + 2 :])
        without_index = await self._told(database)

        assert any(sentence.startswith("SQLite finds the file damaged: ") for sentence in without_index)

    async def _told(self, database: Path) -> list[str]:
        """What is wrong with a file."""
        looking = await SqliteStore.open(database, read_only=True)
        try:
            return [sentence for _, _, sentence in await findings(looking)]
        finally:
            await looking.close()

    @pytest.mark.slow
    async def test_any_flipped_bit_is_a_sentence_or_changes_nothing(self, store: SqliteStore, database: Path) -> None:
        """Whatever byte is hit: a finding, a typed error, or the same conversations as before."""
        walks = [Walk(name).turn("tonight").turn("tomorrow 寿司").question() for name in ("one", "two")]
        for each in walks:
            await each.into(store)
        await store.close()
        whole, sound = database.read_bytes(), everything(database)
        used = [place for place, byte in enumerate(whole) if byte]
        chance, found = random.Random(1), 0

        for _ in range(120):
            place = chance.choice(used)
            flipped = bytes([whole[place] ^ 1 << chance.randrange(8)])
            database.write_bytes(whole[:place] + flipped + whole[place + 1 :])
            try:
                looking = await SqliteStore.open(database, read_only=True)
            except TurnwiseError:
                found += 1
                continue
            try:
                result = await examine(looking)
            finally:
                await looking.close()
            found += bool(result.findings)
            assert result.findings or [rows[1:] for rows in everything(database)[1]] == [rows[1:] for rows in sound[1]]

        assert found > 60


class TestMending:
    """What follows from the log is written anew; nothing else is touched."""

    @pytest.mark.parametrize(
        "sql",
        [
            "UPDATE conversations SET state = '{}'",
            "UPDATE conversations SET state = x'00'",
            "UPDATE conversations SET state = json_set(state, '$.book.turn', 9)",
            "UPDATE conversations SET waits = 1, next_timer = 7, state_type = 'x', updated_at = 1",
            "UPDATE conversations SET next_timer = 'noon'",
            "INSERT INTO outbox VALUES (1, 'voice', 99, 5, 0, NULL, 0)",
            "INSERT INTO outbox VALUES (7, 'voice', 1, 1, 0, NULL, 0)",
        ],
    )
    async def test_makes_it_as_it_was(self, sql: str, store: SqliteStore, database: Path) -> None:
        """To the byte; and a second look finds nothing."""
        await Walk().turn("tonight").into(store)
        before = everything(database)
        change(database, sql)

        mended = await repair(store, (await examine(store)).findings)

        assert mended
        assert everything(database) == before
        assert await findings(store) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("sql", [sql for sql, _ in DETAILS_DAMAGED])
    async def test_gives_lists_what_the_steps_say(self, sql: str, store: SqliteStore, database: Path) -> None:
        """To the byte, so that the conversation is found again; and a second look finds nothing."""
        await named().into(store)
        before = everything(database), await store.list()
        change(database, sql)

        mended = await repair(store, (await examine(store)).findings)

        assert mended
        assert (everything(database), await store.list()) == before
        assert [one.id for one in await store.list(ConversationFilter(owner="anna", metadata={"tenant": "b"}))] == [
            "walk"
        ]
        assert await findings(store) == []

    @pytest.mark.parametrize(
        "sql",
        [
            "UPDATE events SET payload = replace(payload, 'tonight', 'at noon') WHERE seq = 2",
            "DELETE FROM events WHERE seq = 3",
            "DELETE FROM events WHERE seq = 5",
            "UPDATE conversations SET seq = 4",
            "UPDATE conversations SET chain = zeroblob(16)",
        ],
    )
    async def test_never_guesses(self, sql: str, store: SqliteStore, database: Path) -> None:
        """What was lost stays lost, and what is left stays as it is."""
        await Walk().turn("tonight").into(store)
        change(database, sql)
        before = everything(database)
        found = await findings(store)

        mended = await repair(store, (await examine(store)).findings)

        assert mended == ()
        assert everything(database) == before
        assert await findings(store) == found != []

    async def test_keeps_a_delivery_of_a_step_that_is_damaged(self, store: SqliteStore, database: Path) -> None:
        """Who cannot read what was to be said cannot know that it was nothing."""
        walk = Walk().say("hello")
        log = await walk.into(store)
        walk.answer(LlmResponse, content="Hello.")
        await log.append(*walk.steps[-1], targets=[(delivered_by(walk), "voice")])
        change(database, "UPDATE events SET effects = 'not JSON' WHERE seq = 3")

        mended = await repair(store, (await examine(store)).findings)

        assert mended == ()
        assert [one.effect_id for one in await store.outbox(await store.ids())] == [delivered_by(walk)]

    async def test_keeps_a_state_that_other_rules_wrote(self, store: SqliteStore, database: Path) -> None:
        """Where the machine of today would go another way, the stored state counts, and its columns are read off it."""
        walk = Walk().turn("tonight")
        event, step = walk.steps[1]
        walk.steps[1] = event, replace(step, effects=(*step.effects, Abort(effect_id=7)))
        await walk.into(store)
        before = everything(database)
        change(database, "UPDATE conversations SET waits = 1")

        await repair(store, (await examine(store)).findings)

        assert everything(database) == before
        assert await findings(store) == [("walk", 2, "Step 2 has other effects now.")]

    async def test_gives_back_what_waits(self, store: SqliteStore, database: Path) -> None:
        """A conversation that no engine would have taken up, because its row said that it waits for nothing."""
        await Walk().say("hello").into(store)
        change(database, "UPDATE conversations SET waits = 0")
        assert await store.claim(10) == ()

        await repair(store, (await examine(store)).findings)

        assert await store.claim(10) == ("walk",)
        assert (await replay_conversation(store, "walk")).divergence is None

    @pytest.mark.parametrize(
        "damage", ["next_attempt = 'soon'", "next_attempt = 1 << 62", "attempts = 'x'", "begun = 'x'"]
    )
    async def test_makes_a_delivery_due_at_once(self, damage: str, store: SqliteStore, database: Path) -> None:
        """Of which nobody can read how often it was tried, or when it is tried next; an engine refuses the file."""
        walk = Walk().say("tonight")
        log = await walk.into(store)
        walk.answer(LlmResponse, content="Hello.")
        effect_id = delivered_by(walk)
        await log.append(*walk.steps[-1], targets=[(effect_id, "voice")])
        assert await findings(store) == []
        change(database, f"UPDATE outbox SET {damage}")

        (mended,) = await repair(store, (await examine(store)).findings)

        assert mended.sentence == f"The attempts to deliver the effect {effect_id} cannot be read."
        assert everything(database)[2] == [(1, "voice", effect_id, len(walk.steps), 0, None, 0)]

    async def test_spares_a_delivery_that_is_due(self, store: SqliteStore, database: Path) -> None:
        """Only rows that point nowhere go."""
        walk = Walk().say("hello")
        log = await walk.into(store)
        walk.answer(LlmResponse, content="Hello.")
        await log.append(*walk.steps[-1], targets=[(delivered_by(walk), "voice")])
        change(database, "INSERT INTO outbox VALUES (1, 'voice', 99, 3, 0, NULL, 0)")

        await repair(store, (await examine(store)).findings)

        assert [(one.effect_id, one.target) for one in await store.outbox(await store.ids())] == [
            (delivered_by(walk), "voice")
        ]

    async def test_needs_the_database_for_itself(self, store: SqliteStore, database: Path) -> None:
        """A database that is open for reading only is not mended."""
        await Walk().turn("tonight").into(store)
        change(database, "UPDATE conversations SET waits = 1")
        looking = await SqliteStore.open(database, read_only=True)
        found = (await examine(looking)).findings

        with pytest.raises(StoreError, match="opened for reading only"):
            await repair(looking, found)
        await looking.close()

    async def test_of_nothing_is_nothing(self, store: SqliteStore) -> None:
        """There may be nothing to mend."""
        assert await repair(store, [Finding("All is lost.")]) == ()


# --- Damage stays where it is: whatever goes through all conversations goes on, and names what it cannot read.


NAMES = [f"conversation-{number:02}" for number in range(40)]
PAGE = 4096


@pytest.fixture
async def damaged_databases_database(tmp_path: Path) -> Path:
    """A database of forty conversations that nobody has open."""
    path = tmp_path / "turnwise.db"
    store = await SqliteStore.open(path)
    for name in NAMES:
        walk = Walk(name)
        for number in range(2):
            walk.turn(f"{number} " * 500)
        await walk.into(store)
    await store.close()
    return path


def pages_of(database: Path, table: str) -> list[int]:
    """The pages of a table or an index, the root first; as SQLite's own file format says it."""
    data = database.read_bytes()
    with closing(sqlite3.connect(database)) as look:
        (root,) = look.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    pages, left = [], [root]
    while left:
        page = left.pop()
        pages.append(page)
        start = (page - 1) * PAGE
        if data[start] in (2, 5):  # an interior page: its children
            count = int.from_bytes(data[start + 3 : start + 5], "big")
            cells = [int.from_bytes(data[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(count)]
            left += [int.from_bytes(data[start + cell : start + cell + 4], "big") for cell in cells]
            left.append(int.from_bytes(data[start + 8 : start + 12], "big"))
    return pages


def write(database: Path, at: int, data: bytes) -> None:
    """Write bytes into the file, as a failing disk does."""
    with database.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip_in_table(database: Path, bit: int) -> None:
    """Flip a bit in the id of a conversation, where its row is."""
    data = database.read_bytes()
    for page in pages_of(database, "conversations"):
        start = data.find(b"conversation-07", (page - 1) * PAGE, page * PAGE)
        if start >= 0:
            return write(database, start + 13, bytes([data[start + 13] ^ bit]))
    raise AssertionError("the id is not in the table")


def flip_in_index(database: Path, bit: int) -> None:
    """Flip a bit in the id of a conversation, where it is looked up."""
    data = database.read_bytes()
    for page in pages_of(database, "sqlite_autoindex_conversations_1"):
        start = data.find(b"conversation-07", (page - 1) * PAGE, page * PAGE)
        if start >= 0:
            return write(database, start + 13, bytes([data[start + 13] ^ bit]))
    raise AssertionError("the id is not in the index")


def noise(database: Path, table: str, which: int) -> None:
    """Fill a page of a table with noise."""
    write(database, (pages_of(database, table)[which] - 1) * PAGE, bytes(range(256)) * (PAGE // 256))


DAMAGES = {
    "a bit of an id": lambda database: flip_in_table(database, 1),
    "an id that is no text": lambda database: flip_in_table(database, 128),
    "a bit of an id in the index": lambda database: flip_in_index(database, 1),
    "an id in the index that is no text": lambda database: flip_in_index(database, 128),
    "a page of steps": lambda database: noise(database, "events", 3),
    "a page of conversations": lambda database: noise(database, "conversations", 1),
    "a page of the index": lambda database: noise(database, "sqlite_autoindex_conversations_1", -1),
}


@pytest.mark.slow
class TestGoingOn:
    """One conversation is damaged, or a page of a table."""

    @pytest.mark.parametrize("damage", DAMAGES)
    @pytest.mark.parametrize("command", [["doctor"], ["replay", "--all"], ["export", "--all"], ["list"]])
    def test_the_others_are_reached(self, damaged_databases_database: Path, damage: str, command: list[str]) -> None:
        """Most of forty conversations are whole: each command says so of them, names what it cannot read, and exits
        with 1. A list that can be shown in full exits with 0."""
        DAMAGES[damage](damaged_databases_database)

        done = run(*command, cwd=damaged_databases_database.parent)

        assert "Traceback" not in done.stderr
        if command == ["doctor"]:
            assert "All is well" not in done.stdout
            assert done.returncode == 1
            assert "damage" in done.stdout + done.stderr or "malformed" in done.stdout
            return
        if command == ["list"]:
            assert sum(name in done.stdout for name in NAMES) >= 10
            assert done.returncode == (1 if sum(name in done.stdout for name in NAMES) < 19 else done.returncode)
            return
        if command[0] == "export":
            reached = sum(json.loads(line).get("conversation") in NAMES for line in done.stdout.splitlines())
        else:
            reached = sum(line.split("  ")[0] in NAMES and "no divergence" in line for line in done.stdout.splitlines())
        assert reached >= 10, done.stdout[-2000:] + done.stderr
        assert done.returncode == 1


def recovered(database: Path, *, revision: bool) -> Path:
    """The database as another program has put it together again: its tables and their rows, and not its marks."""
    path = database.with_name("recovered.db")
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(path)) as target:
        target.executescript("\n".join(source.iterdump()))
        if not revision:
            target.execute("DROP TABLE alembic_version")
        target.commit()
    return path


@pytest.mark.slow
class TestRecovered:
    """A file that another program has put together again from what it found."""

    @pytest.mark.parametrize("revision", [True, False])
    def test_the_doctor_says_what_is_missing_and_sets_it(
        self, damaged_databases_database: Path, revision: bool
    ) -> None:
        """Other commands refuse the file in one sentence that names the doctor. Afterwards all is well."""
        path = recovered(damaged_databases_database, revision=revision)

        refused = run("list", "--db", path.name, cwd=path.parent)
        said = run("doctor", "--db", path.name, cwd=path.parent)
        fixed = run("doctor", "--fix", "--db", path.name, cwd=path.parent)
        after = run("doctor", "--db", path.name, cwd=path.parent)

        assert refused.returncode == 2
        assert "turnwise doctor --fix" in refused.stderr
        assert said.returncode == 1
        assert "The application id is missing" in said.stdout
        assert ("The revision of the tables is missing" in said.stdout) == (not revision)
        assert (fixed.returncode, after.returncode) == (0, 0)
        assert "All is well: 40 conversations" in after.stdout

    @pytest.mark.skipif(shutil.which("sqlite3") is None, reason="needs the program sqlite3")
    def test_of_a_file_with_a_page_of_noise(self, damaged_databases_database: Path) -> None:
        """The section on saving what can be saved, as it says: put the rows together, let the doctor set the marks,
        and export the rest. Where the program can do `.recover`, its output has the same shape."""
        noise(damaged_databases_database, "events", 3)
        folder = damaged_databases_database.parent
        dump = subprocess.run(
            ["sqlite3", damaged_databases_database.name, ".dump"], cwd=folder, capture_output=True, check=False
        )
        lines = [b"COMMIT;" if line.startswith(b"ROLLBACK;") else line for line in dump.stdout.splitlines()]
        subprocess.run(
            ["sqlite3", "recovered.db"], input=b"\n".join(lines), cwd=folder, capture_output=True, check=False
        )

        fixed = run("doctor", "--fix", "--db", "recovered.db", cwd=folder)
        exported = run("export", "--all", "--db", "recovered.db", cwd=folder)
        (folder / "rest.jsonl").write_text(exported.stdout)
        imported = run("import", "rest.jsonl", "--db", "new.db", cwd=folder)
        after = run("doctor", "--db", "new.db", cwd=folder)

        assert "The application id is missing" in fixed.stdout
        assert exported.returncode == 1
        assert imported.returncode == 0
        assert after.returncode == 0
        assert len(imported.stdout.splitlines()) >= 10

    def test_a_file_of_another_program_stays_one(self, tmp_path: Path) -> None:
        """Although it has a table of the same name."""
        with closing(sqlite3.connect(tmp_path / "other.db")) as other:
            other.execute("CREATE TABLE conversations (id)")
            other.commit()

        said = run("doctor", "--fix", "--db", "other.db", cwd=tmp_path)

        assert said.returncode == 2
        assert "is the database of another program" in said.stderr


# --- A log that was kept as it should be is found sound; whatever no machine may ever have done is found and told.


WALKS = Path(__file__).parent.parent.parent / "fixtures" / "walks.txt"

Log = list[LogEntry]


def log_of(walk: Walk) -> Log:
    """The log of a walk."""
    return [LogEntry.of(event, step) for event, step in walk.steps]


def sentences(log: Log, walk: Walk) -> list[str]:
    """What is wrong with the log, if it rests where the walk does."""
    return [fault.sentence for fault in audit(log, walk.state)]


class TestASoundLog:
    """Whatever the machine does is sound."""

    @given(trace=strategies.traces())
    def test_has_no_fault(self, trace: Trace) -> None:
        """Each conversation that the machine can have, under any rules, wherever it stops."""
        log = [LogEntry.of(seen.event, seen.step) for seen in trace if seen.step is not None]

        assert list(audit(log, trace[-1].after)) == []

    @pytest.mark.slow
    def test_has_no_fault_along_the_kept_walks(self) -> None:
        """In which every row of the table is taken behind every other one that can be: a tenth of them."""
        for seed, choices in read_walks(WALKS)[::10]:
            opened = opening_of(seed)
            log, state = [LogEntry.of(opened, begin(opened))], begin(opened).state
            for taken in walk(seed, RecordedChoices(choices)):
                step = transition(taken.state, taken.event, taken.context)
                log += [] if step.ignored else [LogEntry.of(taken.event, step)]
                state = step.state

            assert list(audit(log, state)) == []

    def test_may_be_in_the_middle_of_something(self) -> None:
        """What was wanted and has no answer yet is what the state waits for."""
        walk = Walk().turn("tonight").say("And tomorrow?")

        assert sentences(log_of(walk), walk) == []

    def test_may_have_been_cancelled(self) -> None:
        """P6: what was stopped is no longer waited for."""
        walk = Walk().say("hello").request(UserCancel).answer(LlmStopped, content="Good ev")

        assert sentences(log_of(walk), walk) == []

    def test_may_be_about_to_stop(self) -> None:
        """P6: what was told to stop is awaited until it has."""
        walk = Walk().say("hello").request(UserCancel)

        assert sentences(log_of(walk), walk) == []


def answered_twice(log: Log) -> None:
    """The tool's result comes a second time, in place of the model's last answer."""
    log[4] = replace(log[4], event=log[3].event)


def never_wanted(log: Log) -> None:
    """A result names an effect that there never was."""
    log[3] = replace(log[3], event=ToolComplete.model_validate({**dict(log[3].event), "effect_id": 99}))


def taken_twice(log: Log) -> None:
    """The message has the id of the opening."""
    log[1] = replace(log[1], event=log[1].event.model_copy(update={"event_id": "walk-1"}))


def wanted_again(log: Log) -> None:
    """The model is asked again under the id of the request that it answered."""
    request = next(effect for effect in log[1].effects if isinstance(effect, RequestLlm))
    log[3] = replace(log[3], effects=(*log[3].effects, request))


def one_id_for_two(log: Log) -> None:
    """What is said to the user has the id of the request before it."""
    effects = (e.replace(effect_id=1) if isinstance(e, DeliverToUser) else e for e in log[4].effects)
    log[4] = replace(log[4], effects=tuple(effects))


def stopped_before(log: Log) -> None:
    """In place of the model's last request there is a summary, which was stopped and need not acknowledge it; its
    answer was taken all the same."""
    effects = tuple(each for each in log[3].effects if not isinstance(each, RequestLlm))
    log[3] = replace(log[3], effects=(*effects, SummarizeTurn(effect_id=3), Abort(effect_id=3)))


def stopped_twice(log: Log) -> None:
    """The model's last request was stopped and acknowledged it, and an answer was taken all the same."""
    stopped = LlmStopped(effect_id=3, at=log[3].event.at, content="Sakura")
    log[3] = replace(log[3], effects=(*log[3].effects, Abort(effect_id=3)))
    log[4:] = [replace(log[3], seq=5, event=stopped, effects=()), replace(log[4], seq=6)]


def without_result(log: Log) -> None:
    """The result of the tool never enters the transcript."""
    log[3] = replace(log[3], effects=tuple(e for e in log[3].effects if not isinstance(e, PersistToolResults)))


def runs_twice(log: Log) -> None:
    """The tool is started once more, and nobody said that it might."""
    call = next(effect for effect in log[2].effects if isinstance(effect, ExecuteTool))
    log[3] = replace(log[3], effects=(*log[3].effects, call.replace(effect_id=77)))


class TestWhatMayNotBe:
    """Each thing is told with the step and in a sentence."""

    @holds_for(
        ("spoil", "seq", "sentence"),
        [
            (answered_twice, 5, "The effect 2 is answered a second time."),
            (never_wanted, 4, "The effect 99 is answered, and no step asked for it."),
            (taken_twice, 2, "The request was taken before."),
            (wanted_again, 4, "The effect 1 is asked for again, and was answered before."),
            (one_id_for_two, 5, "Two effects have the id 1."),
            (stopped_before, 5, "The effect 3 is answered, and was no longer awaited."),
            (stopped_twice, 6, "The effect 3 is answered a second time."),
            (without_result, 5, "The call walk-call-2 has no result."),
            (runs_twice, 4, "The call walk-call-2 runs again, and must not run twice."),
        ],
    )
    def test_is_told(self, spoil: Callable[[Log], None], seq: int, sentence: str) -> None:
        """One answer for each effect, one result for each call, one run of what may run once."""
        walk = Walk().turn("tonight")
        log = log_of(walk)
        spoil(log)

        assert Fault(seq, sentence) in audit(log, walk.state)

    def test_a_turn_may_not_end_with_something_open(self) -> None:
        """Nothing is in flight at rest."""
        walk = Walk().turn("tonight")
        log = log_of(walk)
        log[3] = replace(log[3], event=walk.steps[0][0])

        assert "The turn 1 ended while the effect 2 was open." in sentences(log, walk)

    def test_a_state_may_not_wait_for_what_nobody_wanted(self) -> None:
        """Nor may it rest while something was wanted and has no answer."""
        walk = Walk().say("hello")
        log = log_of(walk)

        rests = audit(log, Idle(book=walk.state.book))
        waits = audit(log[:1], walk.state)

        assert list(rests) == [
            Fault(2, "The conversation waits for nothing, and what was not answered is the effect 1.")
        ]
        assert list(waits) == [
            Fault(2, "The conversation waits for the effect 1, and what was not answered is nothing.")
        ]

    def test_what_a_person_allowed_may_run_again(self) -> None:
        """P27: a call that was in doubt, and that somebody wants to run once more."""
        walk = Walk().turn("tonight")
        log = log_of(walk)[:3]
        call = next(effect for effect in log[2].effects if isinstance(effect, ExecuteTool))
        log.append(LogEntry(4, ToolInterrupted(at=NOON, call_id=call.call.call_id)))
        again = DoubtResolved(event_id="again", at=NOON, call_id=call.call.call_id, verdict="again")
        log.append(LogEntry(5, again, (call.replace(effect_id=3),)))

        state = walk.steps[2][1].state
        told = [fault.sentence for fault in audit(log, state)]

        assert not any("must not run twice" in sentence for sentence in told)
