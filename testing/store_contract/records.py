"""Raw records: conversations are copied, carried away, taken in and examined by what the store returns and takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ...persistence.codec import read_record
from ...persistence.errors import StoreConflict
from ...persistence.maintenance.doctor import examine
from ...persistence.maintenance.export import Imported, export_all, first_line, import_records, last_line
from ...persistence.maintenance.fork import fork
from ...persistence.maintenance.reading import read_export
from ...persistence.maintenance.replay import replay_conversation
from ...persistence.records import Origin
from ...states.errors import UnknownConversation
from .opening import OpenedStore, on_a_store
from .story import NOON, SOON, Story, deliveries_of, found_request, log_of, plain

if TYPE_CHECKING:
    from ...persistence.ports import Store


class RecordContract(OpenedStore):
    """`ids`, `read_record`, `write_records`, `copy`, and the maintenance that works with them."""

    @on_a_store
    async def test_a_record_holds_all_rows(self, store: Store) -> None:
        """The steps can be read from it and are verified; it names owner and deliveries."""
        story = Story(owner="anna").say().answer()
        said = deliveries_of(story.newest[1], "screen", "paper")
        log = await store.create("story", *story.opening)
        await log.append(*story.steps[1])
        await log.append(*story.steps[2], said)
        log.postpone(*said[0], 3, SOON)
        await store.outbox(["story"])

        record = await store.read_record("story")

        assert plain(read_record(record)) == story.log
        assert (record.id, record.owner, record.parent, record.origin) == ("story", "anna", None, None)
        assert [(row.target, row.effect_id, row.seq, row.attempts) for row in record.outbox] == [
            ("paper", said[1][0], 3, 0),
            ("screen", said[0][0], 3, 3),
        ]

    @on_a_store
    async def test_a_record_that_is_written_is_read_again(self, store: Store) -> None:
        """Under another id it is a conversation like any other, and goes on."""
        story = Story().say().answer()
        log = await Story().say().into(store)
        await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))
        record = (await store.read_record("story"))._replace(
            id="copy", owner="bert", parent="someone", origin=Origin("story", 3)
        )

        await store.write_records([record])

        copy = await store.read_record("copy")
        assert copy._replace(origin_checksum=None) == record  # what it was copied from is checked by the store itself
        loaded = await store.load("copy")
        assert (loaded.state, loaded.context, loaded.log.seq) == (story.state, story.context, 3)
        assert await found_request(loaded.log, "request-1") == story.log[1]
        assert [one.target for one in await store.outbox(["copy"])] == ["screen"]
        assert [(one.owner, one.origin) for one in await store.list(owner="bert")] == [("bert", Origin("story", 3))]
        await loaded.log.append(*story.say("And tomorrow?").newest)
        assert await log_of(store, "copy") == story.log

    @on_a_store
    async def test_records_are_written_all_or_none(self, store: Store) -> None:
        """One whose id is taken keeps the others out."""
        await Story().turn().into(store)
        record = await store.read_record("story")

        for refused in (record, record._replace(id="new")):
            with pytest.raises(StoreConflict):
                await store.write_records([record._replace(id="new"), refused])

        assert await store.ids() == ("story",)
        await store.write_records([])

    @on_a_store
    async def test_a_copy_needs_its_original(self, store: Store) -> None:
        """Of a conversation that was deleted in the meantime nothing comes back."""
        await Story().turn().into(store)
        record = (await store.read_record("story"))._replace(id="copy")
        await store.copy("story", record)
        with pytest.raises(StoreConflict):
            await store.copy("story", record)
        await store.delete("story")

        with pytest.raises(UnknownConversation):
            await store.copy("story", record._replace(id="another"))

        assert await store.ids() == ("copy",)

    @on_a_store
    async def test_ids_are_found_by_their_beginning(self, store: Store) -> None:
        """Case counts, and no character stands for others."""
        for name in ("ab-1", "b", "ab-2", "a", "AB-3", "a%", "a\U0010ffff"):
            await Story().into(store, name)

        assert await store.ids("ab") == await store.ids(prefix="ab-") == ("ab-1", "ab-2")
        assert await store.ids("ab-2") == ("ab-2",)
        assert await store.ids("a%") == ("a%",)
        assert await store.ids("a") == ("ab-1", "ab-2", "a", "a%", "a\U0010ffff")
        for unknown in ("c", "%", "_", "ab-22", "\U0010ffff"):
            assert await store.ids(unknown) == ()

    @on_a_store
    async def test_the_ids_are_in_the_order_of_creation(self, store: Store) -> None:
        """Whatever moved last."""
        logs = {name: await Story().into(store, name) for name in ("c", "a", "b")}
        await logs["c"].append(*Story().say().newest)

        assert await store.ids() == ("c", "a", "b")

    # --- maintenance

    @on_a_store
    async def test_a_conversation_can_be_forked_and_replayed(self, store: Store) -> None:
        """The copy rests where its original rested, and says where it comes from."""
        story = Story().turn("tonight")
        rest = story.state
        log = await story.into(store)
        await log.append(*story.say("And tomorrow?").newest)

        landing = await fork(store, "story", "copy", None, NOON)

        assert (landing.seq, landing.state) == (5, rest)
        assert (await store.load("copy")).state == rest
        assert [one.origin for one in await store.list() if one.id == "copy"] == [Origin("story", 5)]
        for name in ("story", "copy"):
            assert (await replay_conversation(store, name)).divergence is None

    def test_an_export_can_be_imported(self, tmp_path: Path) -> None:
        """Into another store of this kind, where it has the same steps; a second time nothing happens. What was under
        way is closed there, by a step more, so that nothing of it goes on by itself."""

        async def carry() -> None:
            async with self.opened(tmp_path / "here") as here, self.opened(tmp_path / "there") as there:
                await Story().turn().into(here, "one")
                await Story("Be brief.").turn().say().into(here, "two")
                exported = await _exported(here)
                records = read_export(line.encode() for line in exported)

                for already_stored in (False, True):
                    assert await import_records(there, records) == (
                        Imported("one", 5, already_stored),
                        Imported("two", 7, already_stored, closed=True),
                    )
                carried = read_export(line.encode() for line in await _exported(there))
                assert carried[0].steps == records[0].steps
                assert carried[1].steps[:-1] == records[1].steps
                assert await there.claim(10) == ()

        for place in ("here", "there"):
            (tmp_path / place).mkdir()
        asyncio.run(carry())

    @on_a_store
    async def test_the_doctor_finds_nothing(self, store: Store) -> None:
        """In a store in which nothing is damaged."""
        await Story().turn().into(store, "idle")
        log = await Story().say().into(store, "busy")
        story = Story().say().answer()
        await log.append(*story.newest, deliveries_of(story.newest[1], "screen"))

        examination = await examine(store)

        assert (examination.conversations, examination.steps, examination.findings) == (2, 8, ())


async def _exported(store: Store) -> list[str]:
    """Export all conversations."""
    lines = [first_line()]
    count = 0
    async for _, exported in export_all(store):
        assert not isinstance(exported, Exception)
        lines += exported
        count += 1
    return [*lines, last_line(count)]
