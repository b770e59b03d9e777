"""What the doctor finds wrong with a database in PostgreSQL as a whole, and with the workers that should be there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from turnwise.persistence.maintenance.doctor import examine, repair
from turnwise.persistence.ports import JobsHealth
from turnwise.persistence.postgres import examination
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.examination import faults_of_jobs
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.states.values.acts import MemoryQuery, MemoryScope
from turnwise.testing.store_contract.story import Story


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A new database, open."""
    store = await PostgresStore.open(PostgresAddress.of(postgres_url), connections=4)
    yield store
    await store.close()


@pytest.fixture
def administrator(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Who may change everything, past what the server sees to."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        yield connection


async def found(store: PostgresStore) -> list[str]:
    """What is wrong, in sentences."""
    return [finding.sentence for finding in (await examine(store)).findings]


async def repaired(store: PostgresStore) -> list[str]:
    """Repair what can be repaired, and return what is wrong then."""
    await repair(store, (await examine(store)).findings)
    return await found(store)


class TestTheTables:
    """Rows, and what finds them."""

    async def test_nothing_is_wrong_with_new_ones(self, store: PostgresStore) -> None:
        """Nor with those that hold a conversation, at rest or under way."""
        assert await found(store) == []
        await Story(owner="anna").say().answer().into(store)
        await Story().say().into(store, "busy")
        assert await found(store) == []

    async def test_rows_of_no_conversation(self, store: PostgresStore, administrator: psycopg.Connection[Any]) -> None:
        """The server keeps others from making such rows."""
        await Story(owner="anna").say().answer().into(store)
        administrator.execute("INSERT INTO outbox VALUES (7, 'voice', 1, 1, 0, NULL, 0)")

        assert await found(store) == ["There are deliveries that wait of no conversation: 1."]
        assert await repaired(store) == []

    async def test_an_index_that_is_gone_or_was_left_half_made(
        self, store: PostgresStore, administrator: psycopg.Connection[Any]
    ) -> None:
        """Without it everything works, slowly."""
        administrator.execute("DROP INDEX events_event_id")
        administrator.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'conversations_owner'::regclass"
        )

        assert await found(store) == [
            "The index conversations_owner is not valid: rebuild it with REINDEX INDEX conversations_owner.",
            "The index events_event_id is missing; without it the server reads whole tables.",
        ]


class TestTheIndexOfWhatWasSaid:
    """It follows from the logs."""

    SCOPE = MemoryScope(conversation_id="story", owner="anna", turn=99)
    QUERY = MemoryQuery(scope=SCOPE, keywords=("table",), since=None, until=None, limit=9)

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE texts SET said = 'other'",
            "UPDATE texts SET words = ''",
            "UPDATE texts SET scope = scope + 1",
            "UPDATE texts SET seq = 1",
            "DELETE FROM texts",
        ],
    )
    async def test_one_that_does_not_agree_is_built_again(
        self, damage: str, store: PostgresStore, administrator: psycopg.Connection[Any]
    ) -> None:
        """By the next search."""
        await Story(owner="anna").say("A table for two").answer().into(store)
        before = await store.search(self.QUERY)
        assert before
        assert await found(store) == []
        administrator.execute(damage)

        assert await found(store) == ["The index of what was said does not agree with the logs."]
        assert await repaired(store) == []
        assert await store.search(self.QUERY) == before

    async def test_it_may_lag_behind(self, store: PostgresStore) -> None:
        """Until somebody searches."""
        story = Story(owner="anna").say("A table for two").answer()
        log = await story.into(store)
        await store.search(self.QUERY)
        await log.append(*story.say("Another table").newest)

        assert await found(store) == []

    async def test_the_texts_of_another_owner_are_indexed_again(
        self, store: PostgresStore, administrator: psycopg.Connection[Any]
    ) -> None:
        """An owner that was changed beside the log is put right, and so are the words."""
        await Story(owner="anna").say("A table for two").answer().into(store)
        before = await store.search(self.QUERY)
        administrator.execute("UPDATE conversations SET owner = 'bert'")

        assert await repaired(store) == []
        assert await store.search(self.QUERY) == before


class TestTheClock:
    """That of this machine beside that of the server."""

    @pytest.mark.parametrize(("seconds", "way"), [(30.0, "30.0 s ahead of"), (-30.0, "30.0 s behind")])
    async def test_one_that_is_wrong(
        self, seconds: float, way: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Deadlines are judged by it."""
        right = examination.time.time
        monkeypatch.setattr(examination.time, "time", lambda: right() + seconds)

        (sentence,) = await found(store)

        assert sentence.startswith("The clock of this machine is ")
        assert sentence.split()[6] in (f"{abs(seconds) - 0.1:.1f}", f"{abs(seconds):.1f}")
        assert way.split(maxsplit=2)[2] in sentence


class TestTheWorkers:
    """Whether the work that waits is done."""

    @pytest.mark.parametrize(
        ("health", "sentences"),
        [
            (JobsHealth(waiting=5, running=3, stalled=0, workers=1, longest_wait=59.0), ()),
            (JobsHealth(waiting=0, running=0, stalled=0, workers=0, longest_wait=None), ()),
            (
                JobsHealth(waiting=5, running=0, stalled=0, workers=0, longest_wait=600.0),
                ("Conversations that wait for a worker: 5, the first for 10 min; none runs. Start `turnwise worker`.",),
            ),
            (
                JobsHealth(waiting=5, running=100, stalled=0, workers=1, longest_wait=9000.0),
                (
                    "Conversations that wait for a worker: 5, the first for 2 h; those that run have no slot free. "
                    "Start `turnwise worker`.",
                ),
            ),
            (
                JobsHealth(waiting=0, running=3, stalled=3, workers=0, longest_wait=None),
                ("Conversations that dead workers have left: 3. Start `turnwise worker`, which takes them over.",),
            ),
        ],
    )
    def test_they_do_not_come_or_are_dead(self, health: JobsHealth, sentences: tuple[str, ...]) -> None:
        """For a minute."""
        assert tuple(fault.sentence for fault in faults_of_jobs(health)) == sentences

    async def test_work_for_which_nobody_was_called(
        self, store: PostgresStore, administrator: psycopg.Connection[Any]
    ) -> None:
        """A worker finds it by itself; so none has looked for a while."""
        await Story().say().into(store, "busy")
        administrator.execute("DELETE FROM turnwise_jobs.procrastinate_jobs")

        (sentence,) = await found(store)

        assert sentence.startswith("Conversations with work for which nobody was called: 1.")

    async def test_the_tables_of_the_jobs_are_gone(
        self, store: PostgresStore, administrator: psycopg.Connection[Any], postgres_url: str
    ) -> None:
        """Whoever opens the database makes them again."""
        administrator.execute("DROP SCHEMA turnwise_jobs CASCADE")

        (sentence,) = await found(store)
        again = await PostgresStore.open(PostgresAddress.of(postgres_url), connections=2)

        assert sentence.startswith("The tables by which work finds workers are missing")
        assert await found(again) == []
        await again.close()
