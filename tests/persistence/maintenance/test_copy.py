"""A copy is the original in another place, with everything that goes on in it; whatever interrupts the copying, the
next run ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine
from turnwise.persistence.errors import StorageFailed, StoreConflict
from turnwise.persistence.maintenance import copy as copying
from turnwise.persistence.maintenance.copy import Copied, copy_conversations
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.maintenance.fork import fork
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store
from turnwise.persistence.records import ConversationRecord
from turnwise.persistence.sqlite.store import SqliteStore
from turnwise.states import DeliverToUser, DetailsChanged, InvalidInput, LlmResponse
from turnwise.testing.doubles import FunctionLlm, reply

from ...support.engine_scenarios import Gate, answers_after
from ...support.terminal import execute_sql
from ...support.walks import Walk


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.slow)])
def target_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the database is that is copied into."""
    return request.getfixturevalue("postgres_url") if request.param == "server" else str(tmp_path / "target.db")


@pytest.fixture
async def target(target_url: str) -> AsyncIterator[Store]:
    """The database that is copied into, open."""
    store = await open_store(target_url)
    yield store
    await store.close()


async def copied(source: Store, target: Any, **options: Any) -> list[Copied]:
    """Copy everything."""
    return [each async for each in copy_conversations(source, target, await source.ids(), **options)]


async def outcomes(source: Store, target: Any, **options: Any) -> dict[str, str]:
    """Copy everything, and return what became of each conversation."""
    return {each.conversation_id: each.outcome for each in await copied(source, target, **options)}


async def records(store: Store) -> list[ConversationRecord]:
    """All that is stored."""
    return [await store.read_record(each) for each in await store.ids()]


async def speaking(store: SqliteStore, name: str, *channels: str) -> int:
    """Store a conversation of which something is to be delivered, and return the effect."""
    walk = Walk(name).say("hello")
    log = await walk.into(store)
    walk.answer(LlmResponse, content="Hello.")
    effect_id = next(each.effect_id for each in walk.steps[-1][1].effects if isinstance(each, DeliverToUser))
    await log.append(*walk.steps[-1], targets=[(effect_id, each) for each in channels])
    return effect_id


async def acknowledge(store: Store, name: str, effect_id: int, channel: str) -> None:
    """Deliver something."""
    (await store.load(name)).log.acknowledge(effect_id, channel)
    await store.outbox([name])  # the receipt is stored


async def store_of_all_kinds(store: SqliteStore) -> None:
    """Store conversations at rest, with a question, in a turn, copied, renamed, with a schedule, and with mail to go
    out."""
    await Walk("done", owner="anna", title="寿司").turn("tonight").turn("tomorrow").into(store)
    await Walk("asked").question().into(store)
    await Walk("busy").say("hello").into(store)
    await Walk("renamed").turn("tonight").request(DetailsChanged, metadata={"tenant": "a"}).into(store)
    await fork(store, "done", "fork", 5, datetime.now(UTC))
    await speaking(store, "speaking", "voice", "screen")


class Refusing:
    """A target that refuses what `refuses` says of the records that it is to write."""

    def __init__(self, target: Store, refuses: Callable[[ConversationRecord], Exception | None]) -> None:
        self._target = target
        self._refuses = refuses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    async def write_records(self, given: Iterable[ConversationRecord]) -> None:
        """Write all of them, or none."""
        wanted = tuple(given)
        for record in wanted:
            if error := self._refuses(record):
                raise error
        await self._target.write_records(wanted)


class TestACopy:
    """It is the same conversation in another place."""

    async def test_has_every_row(self, store: SqliteStore, target: Store) -> None:
        """Also what an export leaves out: a turn under way, what is to be delivered, what lists show."""
        await store_of_all_kinds(store)

        done = await copied(store, target)

        assert {each.outcome for each in done} == {"copied"}
        assert await records(target) == await records(store)
        assert await target.list() == await store.list()
        assert await examine(target) == await examine(store)

    async def test_goes_on_where_the_original_stood(self, database: Path, target_url: str) -> None:
        """An engine over the copy takes over the turn that was under way."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "At last."))) as engine:
            original = await engine.create()
            await original.send("Hello", wait=False)
            await gate.arrived.wait()
        source = await SqliteStore.open(database, read_only=True)
        target = await open_store(target_url)
        assert await outcomes(source, target) == {original.id: "copied"}
        await source.close()
        await target.close()

        async with Engine.open(target_url, model=FunctionLlm(lambda request: reply("Hello."))) as engine:
            turn = await (await engine.get(original.id)).wait()

        assert turn is not None
        assert turn.reply == "Hello."

    async def test_is_made_in_portions(
        self, store: SqliteStore, target: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However many conversations there are, and however long one of them is."""
        for number in range(7):
            await Walk(f"walk-{number}").turn("tonight" * (number % 3 + 1)).into(store)
        written: list[int] = []

        class Counting(Refusing):
            async def write_records(self, given: Iterable[ConversationRecord]) -> None:
                wanted = tuple(given)
                written.append(len(wanted))
                await super().write_records(wanted)

        monkeypatch.setattr(copying, "BATCH_COUNT", 3)
        await copied(store, Counting(target, lambda record: None))
        monkeypatch.setattr(copying, "BATCH_SIZE", 1)
        for each in await target.ids():
            await target.delete(each)
        await copied(store, Counting(target, lambda record: None))

        assert written == [3, 3, 1, *[1] * 7, 0]
        assert await records(target) == await records(store)

    async def test_passes_over_what_is_there(self, store: SqliteStore, target: Store) -> None:
        """And equal. Nothing is written."""
        await store_of_all_kinds(store)
        await copied(store, target)
        before = await records(target)

        again = await outcomes(store, Refusing(target, lambda record: AssertionError()))

        assert set(again.values()) == {"there"}
        assert await records(target) == before

    async def test_leaves_others_alone(self, store: SqliteStore, target: Store) -> None:
        """What the target has beside the copies stays."""
        await Walk("mine").turn("tonight").into(target)
        await Walk("walk").turn("tonight").into(store)

        await copied(store, target)

        assert await target.ids() == ("mine", "walk")


class TestAnInterruptedCopy:
    """Each conversation is there as a whole, or not at all."""

    @pytest.mark.parametrize("portion", [1, 2, 200])
    async def test_goes_on_with_the_rest(
        self, portion: int, store: SqliteStore, target: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whenever it is interrupted."""
        monkeypatch.setattr(copying, "BATCH_COUNT", portion)
        await store_of_all_kinds(store)
        ids = await store.ids()
        for stop_after in range(len(ids)):
            async with aclosing(copy_conversations(store, target, ids)) as copies:
                for _ in range(stop_after):
                    await anext(copies)
            there = {record.id: record for record in await records(target)}
            assert there == {record.id: record for record in await records(store) if record.id in there}

        again = await outcomes(store, target)

        assert set(again.values()) <= {"there", "copied"}
        assert await records(target) == await records(store)

    async def test_by_a_full_disk(self, store: SqliteStore, target: Store) -> None:
        """It stops with the error of the store."""
        await store_of_all_kinds(store)
        full = Refusing(target, lambda record: StorageFailed("The disk is full."))

        with pytest.raises(StorageFailed):
            await copied(store, full)

        assert await target.ids() == ()

    async def test_by_whoever_cancels_it(self, store: SqliteStore, target: Store) -> None:
        """Also between two statements."""
        await store_of_all_kinds(store)
        copies = asyncio.create_task(copied(store, target))
        while not await target.ids():
            await asyncio.sleep(0)
        copies.cancel()
        await asyncio.gather(copies, return_exceptions=True)

        await copied(store, target)

        assert await records(target) == await records(store)


class TestAnOriginalThatWentOn:
    """Since an earlier copy was made of it."""

    async def test_takes_the_place_of_the_copy(self, store: SqliteStore, target: Store) -> None:
        """If the copy has not gone on."""
        walk = Walk().turn("tonight")
        log = await walk.into(store)
        await copied(store, target)
        await log.append(*walk.say("tomorrow").steps[-1])

        assert await outcomes(store, target) == {"walk": "renewed"}
        assert await records(target) == await records(store)

    async def test_leaves_a_copy_that_went_on(self, store: SqliteStore, target: Store) -> None:
        """Nothing that was said is lost."""
        walk = Walk().turn("tonight")
        await walk.into(store)
        await copied(store, target)
        log = (await target.load("walk")).log
        await log.append(*walk.say("tomorrow").steps[-1])
        before = await records(target)

        assert await outcomes(store, target) == {"walk": "ahead"}
        assert await records(target) == before

    async def test_is_left_out_if_both_went_on(self, store: SqliteStore, target: Store) -> None:
        """Nobody can say which of them counts."""
        mine, other = Walk().turn("tonight"), Walk().turn("tonight")
        log = await mine.into(store)
        await copied(store, target)
        await log.append(*mine.say("tomorrow").steps[-1])
        await (await target.load("walk")).log.append(*other.say("never").steps[-1])
        before = await records(target)

        (left_out,) = await copied(store, target)

        assert left_out.outcome == "left_out"
        assert left_out.sentence.startswith("It has gone on both in the source and in the target")
        assert await records(target) == before

    async def test_is_left_out_if_it_is_another_one(self, store: SqliteStore, target: Store) -> None:
        """With the same id by chance."""
        await Walk().turn("tonight").into(store)
        await Walk(system="You sell shoes.").turn("tonight").into(target)

        (left_out,) = await copied(store, target)

        assert left_out.sentence.startswith("There is another conversation of this id")

    async def test_has_delivered_something(self, store: SqliteStore, target: Store) -> None:
        """It is not delivered a second time."""
        effect_id = await speaking(store, "walk", "voice", "screen")
        await copied(store, target)
        await acknowledge(store, "walk", effect_id, "voice")

        assert await outcomes(store, target) == {"walk": "renewed"}
        assert await records(target) == await records(store)

    async def test_where_the_copy_has_delivered_something(self, store: SqliteStore, target: Store) -> None:
        """Nor is this, whether the original has gone on or not."""
        effect_id = await speaking(store, "walk", "voice", "screen")
        await copied(store, target)
        await acknowledge(target, "walk", effect_id, "voice")
        assert await outcomes(store, target) == {"walk": "ahead"}
        await acknowledge(store, "walk", effect_id, "screen")

        assert await outcomes(store, target) == {"walk": "renewed"}
        assert await target.outbox(["walk"]) == ()
        assert (await examine(target)).findings == ()


class TestWhileTheSourceIsInUse:
    """Only what rests is copied: an engine of the target would act for the rest a second time."""

    async def test_what_is_under_way_waits(self, store: SqliteStore, target: Store) -> None:
        """A turn, a delivery. A question waits for a person, and may be copied."""
        await store_of_all_kinds(store)

        ahead = await outcomes(store, target, only_at_rest=True)
        rest = await outcomes(store, target)

        assert {name for name, outcome in ahead.items() if outcome == "under_way"} == {"busy", "speaking"}
        assert {name for name, outcome in rest.items() if outcome == "copied"} == {"busy", "speaking"}

    async def test_an_engine_goes_on_meanwhile(self, database: Path, target: Store) -> None:
        """Beside it the file is only read."""
        gate = Gate()
        async with Engine.open(database, model=FunctionLlm(answers_after(gate, "At last."))) as engine:
            conversation = await engine.create()
            await conversation.send("Hello", wait=False)
            await gate.arrived.wait()
            source = await SqliteStore.open(database, read_only=True)
            assert await outcomes(source, target, only_at_rest=True) == {conversation.id: "under_way"}
            gate.opened.set()
            await conversation.wait()
            await engine.delivered()
            assert await outcomes(source, target, only_at_rest=True) == {conversation.id: "copied"}
            await source.close()


class TestWhatCannotBeCopied:
    """It is named, and everything else is copied."""

    @pytest.mark.parametrize(
        ("damage", "sentence"),
        [
            ("DELETE FROM events WHERE conversation = 1 AND seq = 3", "Step 3 is missing: the log is damaged."),
            ("UPDATE events SET turn = 9 WHERE conversation = 1 AND seq = 3", "Step 3 is not what was stored"),
            ("UPDATE conversations SET waits = 1 WHERE key = 1", "Its row does not agree with its state"),
            ("UPDATE conversations SET owner = 'eve' WHERE key = 1", "The owner is not the one"),
            ("UPDATE conversations SET state = '{}' WHERE key = 1", "The state behind step 5 is not what was stored"),
            ("UPDATE forks SET seq = 4", "The conversation that this one was copied from"),
            ("DELETE FROM outbox WHERE target = 'voice'", "The deliveries that wait are not those"),
            ("UPDATE outbox SET attempts = 'x' WHERE target = 'voice'", "The attempts to deliver what waits"),
        ],
    )
    async def test_is_damaged(
        self, damage: str, sentence: str, store: SqliteStore, target: Store, database: Path
    ) -> None:
        """A copy would hide it."""
        await Walk("walk", owner="anna").turn("tonight").into(store)
        await fork(store, "walk", "fork", 5, datetime.now(UTC))
        await speaking(store, "speaking", "voice", "screen")
        execute_sql(database, damage)

        done = await copied(store, target)

        (left_out,) = [each for each in done if each.outcome != "copied"]
        assert left_out.outcome == "left_out"
        assert left_out.sentence.startswith(sentence)
        assert left_out.conversation_id not in await target.ids()
        assert (await examine(target)).findings == ()

    async def test_is_refused_by_the_target(self, store: SqliteStore, target: Store) -> None:
        """The others of its portion are stored."""
        await store_of_all_kinds(store)

        def refuse(record: ConversationRecord) -> Exception | None:
            return InvalidInput("No busy ones here.") if record.id == "busy" else None

        done = await copied(store, Refusing(target, refuse))

        assert Copied("busy", "left_out", 2, "No busy ones here.") in done
        assert set(await store.ids()) - set(await target.ids()) == {"busy"}

    async def test_is_stored_by_somebody_else_meanwhile(self, store: SqliteStore, target: Store) -> None:
        """Two copies at once have the same end."""
        await Walk("walk").turn("tonight").into(store)
        before = await target.ids()
        await copied(store, target)
        late: Any = Refusing(target, lambda record: StoreConflict("There is one."))

        async def no_ids() -> tuple[str, ...]:
            return before

        late.ids = no_ids

        assert await outcomes(store, late) == {"walk": "there"}

    async def test_comes_back_as_something_else(self, store: SqliteStore, target: Store) -> None:
        """What was written is read again before it counts as copied."""
        await Walk("walk").turn("tonight").into(store)

        class Forgetful(Refusing):
            async def read_record(self, conversation_id: str) -> ConversationRecord:
                record = await target.read_record(conversation_id)
                return record._replace(steps=(*record.steps[:-1], record.steps[-1]._replace(turn=7)))

        (left_out,) = await copied(store, Forgetful(target, lambda record: None))

        assert left_out.sentence == "What the target returns is not what was written into it."
