"""Databases that earlier versions wrote are read, and taken over, as if this version had written them."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from turnwise import Engine
from turnwise.persistence.maintenance.doctor import examine
from turnwise.persistence.maintenance.export import export_all
from turnwise.persistence.maintenance.replay import replay_conversation
from turnwise.persistence.opening import open_store
from turnwise.persistence.ports import Store
from turnwise.persistence.summaries import ConversationFilter, details_of

from .files import FILES, Expected, described
from .participants import engine_over

RESTING = {"idle", "failed", "closed", "awaiting_user_response", "awaiting_approval", "awaiting_sub_agents", "in_doubt"}
"""The states in which nothing happens until a person, or a sub-agent, does something."""


def test_there_is_a_corpus() -> None:
    """Each folder has databases, and expected.json describes them all."""
    folders = {file.parent for file in FILES}

    names = {folder: set(described(folder)) for folder in folders}

    assert names
    assert names == {folder: {file.stem for file in FILES if file.parent == folder} for folder in folders}


def test_it_was_never_written_again(file: Path, original: bytes) -> None:
    """The file is what that version wrote, to the byte."""
    assert sha256(original).hexdigest() == described(file.parent)[file.stem]["sha256"]


class TestReading:
    """Opened read-only, which changes nothing."""

    async def test_it_is_listed(self, store: Store, expected: Expected) -> None:
        """Every conversation, in the state that it was left in."""
        states = {summary.id: summary.state for summary in await store.list()}

        assert states == {conversation_id: one["state"] for conversation_id, one in expected.items()}

    async def test_its_titles_are_its_first_messages(self, store: Store, expected: Expected) -> None:
        """As they follow from each log, although no table holds them."""
        titles = {summary.id: summary.title for summary in await store.list()}

        assert titles == {each: details_of(await store.entries(each)).shown_title for each in expected}
        assert any(titles.values())

    async def test_its_owners_are_listed(self, store: Store, expected: Expected) -> None:
        """Those that were imported with an owner are found by it."""
        for summary in await store.list():
            if summary.owner is not None:
                assert summary.id in {one.id for one in await store.list(ConversationFilter(owner=summary.owner))}
        assert (
            await store.list(ConversationFilter(owner="nobody"))
            == await store.list(ConversationFilter(metadata={"tenant": "a"}))
            == ()
        )

    async def test_it_replays(self, store: Store, expected: Expected) -> None:
        """Every step comes out as it was stored: the same state, effects and chain."""
        for conversation_id, one in expected.items():
            report = await replay_conversation(store, conversation_id)

            assert (report.events, report.divergence) == (one["steps"], None), one["title"]

    async def test_it_exports_the_same_lines(self, store: Store, expected: Expected) -> None:
        """To the byte."""
        digests = {}
        async for conversation_id, lines in export_all(store):
            assert isinstance(lines, Iterator)
            digests[conversation_id] = sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()

        assert digests == {conversation_id: one["export_sha256"] for conversation_id, one in expected.items()}

    async def test_its_deliveries_still_wait(self, store: Store, expected: Expected) -> None:
        """As many as nobody had acknowledged."""
        waiting = Counter(delivery.conversation_id for delivery in await store.outbox(expected))

        assert waiting == {conversation_id: one["outbox"] for conversation_id, one in expected.items() if one["outbox"]}

    async def test_the_doctor_finds_nothing(self, store: Store, expected: Expected) -> None:
        """Nothing is damaged, and no invariant is broken."""
        examination = await examine(store)

        assert examination.findings == ()
        assert examination.conversations == len(expected)
        assert examination.steps == sum(one["steps"] for one in expected.values())

    async def test_nothing_is_written(self, original: bytes, copy: Path, expected: Expected) -> None:
        """The file is the same afterwards, to the byte."""
        store = await open_store(copy, read_only=True)
        for conversation_id in expected:
            await store.load(conversation_id)
            await store.entries(conversation_id)
        await store.close()

        assert copy.read_bytes() == original


# --- an engine takes the conversations over


def stored_steps(database: Path) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the rows of all steps as another program finds them in the file."""
    with closing(sqlite3.connect(database)) as other:
        rows = other.execute("SELECT conversation, seq, * FROM events").fetchall()
    return {(conversation_id, seq): tuple(row) for conversation_id, seq, *row in rows}


def tables_of(database: Path) -> set[str]:
    """The statements that make the tables and indexes of a database, without blanks. The full-text index is none of
    them: it is made when somebody searches."""
    with closing(sqlite3.connect(database)) as other:
        rows = other.execute(
            "SELECT sql FROM sqlite_master WHERE sql NOT NULL AND name NOT LIKE 'text_index%'"
        ).fetchall()
    return {"".join(sql.split()) for (sql,) in rows}


async def at_rest(engine: Engine) -> None:
    """Wait until every conversation rests."""
    while {summary.state for summary in await engine.list()} - RESTING:
        await asyncio.sleep(0.02)


@pytest.mark.slow
class TestTakingOver:
    """`Engine.open`, which recovers what a crash interrupted."""

    async def test_every_conversation_comes_to_rest(
        self, copy: Path, expected: Expected, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Without an error, also those that were interrupted; and the doctor still finds nothing. What is added are the
        sub-agents that nothing had carried out before."""
        async with engine_over(copy) as engine:
            await at_rest(engine)
            await engine.delivered()
        store = await open_store(copy, read_only=True)
        examination = await examine(store)
        parents = {summary.id: summary.parent for summary in await store.list()}
        await store.close()

        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
        assert examination.findings == ()
        assert {parents[each] for each in parents.keys() - expected.keys()} <= expected.keys()

    async def test_its_tables_are_those_of_a_new_database(self, copy: Path, tmp_path: Path) -> None:
        """Statement by statement, however they came about."""
        new = tmp_path / "new.db"
        for path in (copy, new):
            await (await open_store(path)).close()

        assert tables_of(copy) == tables_of(new)

    async def test_its_titles_are_stored(self, copy: Path) -> None:
        """They are the same as when it was only read."""
        store = await open_store(copy, read_only=True)
        before = {summary.id: summary.title for summary in await store.list()}
        await store.close()

        store = await open_store(copy)
        after = {summary.id: summary.title for summary in await store.list()}
        await store.close()

        assert after == before

    async def test_its_steps_are_not_written_again(self, copy: Path) -> None:
        """What is added follows what was there; nothing that was there is changed."""
        before = stored_steps(copy)
        async with engine_over(copy) as engine:
            await at_rest(engine)
        after = stored_steps(copy)

        assert {place: after.get(place) for place in before} == before

    async def test_an_idle_conversation_goes_on(self, copy: Path, expected: Expected) -> None:
        """Its next turn is answered, and its log, with the old steps in it, replays. The model of this test writes
        plain text, so a conversation that asks for answers of a form gets none."""
        idle = [conversation_id for conversation_id, one in expected.items() if one["state"] == "idle"]
        async with engine_over(copy) as engine:
            await at_rest(engine)
            for conversation_id in idle:
                conversation = await engine.get(conversation_id)
                turn = await conversation.send("And now?")
                report = await conversation.replay()

                lacks_form = turn.failure is not None and "the form that was asked for" in turn.failure
                assert turn.status in ("completed", "incomplete") or lacks_form, expected[conversation_id]["title"]
                assert report.divergence is None
                assert report.events > expected[conversation_id]["steps"]
