"""The store behind PgBouncer in transaction mode: nothing that it does belongs to a session of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from turnwise import Engine
from turnwise.persistence.ports import NoticesMissed, StepStored, Store
from turnwise.persistence.postgres.address import PostgresAddress
from turnwise.persistence.postgres.database import PostgresDatabase
from turnwise.persistence.postgres.store import PostgresStore
from turnwise.testing import FunctionLlm, reply
from turnwise.testing.postgres_server import PostgresServer
from turnwise.testing.store_contract import StoreContract, Story

from ...support.engine_scenarios import Watcher
from ...support.postgres.fixtures import Databases, installation_or_skip
from ...support.postgres.pooler import pooler, until_it_answers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for these tests."""
    with PostgresServer.start(installation_or_skip()) as server:
        yield server


@pytest.fixture(scope="module")
def databases(server: PostgresServer) -> Iterator[Databases]:
    """Its databases."""
    with Databases(server.url("postgres")) as databases:
        yield databases


@pytest.fixture
async def url(server: PostgresServer, databases: Databases) -> AsyncIterator[str]:
    """The URL of a new database, through the pooler."""
    direct = databases.create()
    async with pooler(server) as url:
        yield urlsplit(url)._replace(path=f"/{databases.name_of(direct)}").geturl()
    databases.drop(direct)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """Open a store over the database at this URL, with more connections than the pooler has."""
    store = await PostgresStore.open(PostgresAddress.of(url), connections=6)
    try:
        yield store
    finally:
        await store.close()


class TestBehindAPooler(StoreContract):
    """All that a store must do."""

    @pytest.fixture(autouse=True)
    def _given(self, databases: Databases, url: str, tmp_path: Path) -> None:
        self.databases, self.url, self.place = databases, url, tmp_path

    def opened(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """A folder in that of the test stands for a schema."""
        return opened(self.url if place == self.place else f"{self.url}&schema={place.name}")

    @asynccontextmanager
    async def in_trouble(self, store: Store, place: Path) -> AsyncIterator[None]:
        """The server is out of order. The pooler notices late that it takes sessions again."""
        with self.databases.out_of_order(self.url):
            yield
        await until_it_answers(self.url)


class TestPoolers:
    """What is done otherwise behind one."""

    async def test_it_is_noticed(self, server: PostgresServer, url: str, databases: Databases) -> None:
        """By the number that it makes up for the process of the server."""
        for each, is_pooled in ((url, True), (databases.url_of(databases.name_of(url)), False)):
            database = await PostgresDatabase.open(PostgresAddress.of(each), connections=1)
            assert database.is_pooled is is_pooled
            await database.close()

    async def test_many_transactions_at_once_share_its_connections(self, url: str) -> None:
        """Each finds its tables, in a schema of its own, whatever session it is given."""
        async with opened(f"{url}&schema=one") as one, opened(f"{url}&schema=two") as two:
            for number in range(10):
                await asyncio.gather(*(Story().say().into(each, f"{number}") for each in (one, two)))

            assert [len(await each.ids()) for each in (one, two)] == [10, 10]

    async def test_notices_are_heard_around_it(self, server: PostgresServer, url: str) -> None:
        """Where the URL says how to reach the server itself."""
        around = f"{url}&direct_host={server.folder}&direct_port={server.port}"
        async with opened(around) as teller, opened(around) as hearer:
            notices = hearer.notices()
            assert await anext(notices) == NoticesMissed()

            await Story().into(teller)

            assert await anext(notices) == StepStored("story", 1)
            await notices.aclose()

    async def test_without_that_what_others_store_is_looked_for(self, url: str) -> None:
        """Every second, by whoever waits for it or watches it: a conversation, and a tree."""
        model = FunctionLlm(lambda _: reply("Here."))
        async with (
            Engine.open(url, model=model) as worker,
            Engine.open(url, model=model, worker=False) as web,
            aclosing(web.updates()) as tree,
        ):
            await anext(tree)
            there = await worker.create()
            watcher = Watcher(await web.get(there.id))
            await watcher.until("snapshot")
            turn = await (await web.get(there.id)).send("Hi.")
            await watcher.until("turn_ended")
            await watcher.stop()
            seen = [(await anext(tree)).update.type]
            while seen[-1] != "turn_ended":
                seen.append((await anext(tree)).update.type)

            assert turn.reply == "Here."
            assert seen[0] == "conversation_opened"
