"""Notices between processes: told by NOTIFY in bundles, heard by LISTEN, and missed where that is not possible."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import psycopg
import pytest

from turnwise.persistence.errors import StorageFailed
from turnwise.persistence.ports import ConversationGone, LiveShown, Notice, NoticesMissed, StepStored
from turnwise.persistence.postgres.notices import MOST_LIVE, MOST_STEPS, PAYLOAD, Notices, Outgoing, channel_of
from turnwise.persistence.summaries import LONGEST_ID

from ...support.engine_scenarios import until


class Process:
    """What a store does with its notices: it sends them by a connection of its own, and collects what it hears."""

    def __init__(self, url: str, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self.is_broken = False
        self.statements = 0
        self.notices = Notices(self.execute, url)
        self.heard: list[Notice] = []
        self._listening: asyncio.Task[None] | None = None

    async def execute(self, statement: str, parameters: Sequence[Any]) -> None:
        """Execute a statement in a transaction of its own."""
        self.statements += 1
        if self.is_broken:
            raise StorageFailed("The database is away.")
        await self._connection.execute(statement, parameters)

    async def listen(self) -> None:
        """Collect what is heard, from the moment at which this listens."""
        self._listening = asyncio.ensure_future(self._listen())
        await until(lambda: self.notices.is_heard)

    async def _listen(self) -> None:
        async with aclosing(self.notices.listen()) as heard:
            async for notice in heard:
                self.heard.append(notice)

    async def close(self) -> None:
        """Listen no longer."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self.notices.close()

    def shown(self) -> dict[str, str]:
        """The text of all tokens that were heard, by conversation."""
        texts: dict[str, str] = {}
        for one in self.heard:
            if isinstance(one, LiveShown):
                texts[one.conversation_id] = texts.get(one.conversation_id, "") + one.data["text"]
        return texts


@asynccontextmanager
async def process(url: str) -> AsyncIterator[Process]:
    """A process that has this database open."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        one = Process(url, connection)
        try:
            yield one
        finally:
            await one.close()


@asynccontextmanager
async def two_processes(url: str) -> AsyncIterator[tuple[Process, Process]]:
    """One that tells and one that listens."""
    async with process(url) as telling, process(url) as listening:
        await listening.listen()
        yield telling, listening


def token(text: str, conversation_id: str = "c", effect_id: int = 1, kind: str = "text", place: int = 0) -> LiveShown:
    """A token of an answer."""
    return LiveShown(conversation_id, effect_id, "token", {"text": text, "kind": kind}, place)


def sent(outgoing: Outgoing) -> list[list[Any]]:
    """All that waits, as the pieces of the payloads that it is sent in."""
    return [[json.loads(piece) for piece in bundle] for bundle in outgoing.take()]


class TestHearing:
    """What one process tells, the others hear."""

    async def test_steps_deletions_and_tokens_arrive_in_their_order(self, postgres_url: str) -> None:
        """Behind the notice that what happened before is missed."""
        async with two_processes(postgres_url) as (telling, listening):
            told = [StepStored("c", 4), token("Hel"), ConversationGone("d"), StepStored("ü", 1)]
            for notice in told:
                telling.notices.tell(notice)
            await until(lambda: len(listening.heard) > len(told))

            assert listening.heard == [NoticesMissed(), *told]

    async def test_a_process_does_not_hear_itself(self, postgres_url: str) -> None:
        """Its own notices tell it only that it can hear."""
        async with two_processes(postgres_url) as (telling, listening):
            listening.notices.tell(StepStored("own", 1))
            await until(lambda: listening.notices.bundles == 1)
            telling.notices.tell(StepStored("c", 1))
            await until(lambda: len(listening.heard) == 2)

            assert listening.heard == [NoticesMissed(), StepStored("c", 1)]

    async def test_a_lost_connection_is_told_and_made_again(self, postgres_url: str) -> None:
        """Whoever listens learns that something may be missed, and hears what follows."""
        async with two_processes(postgres_url) as (telling, listening):
            await end_listeners(postgres_url)
            await until(lambda: listening.heard.count(NoticesMissed()) > 2)
            await until(lambda: listening.notices.is_heard)
            telling.notices.tell(StepStored("c", 1))
            await until(lambda: StepStored("c", 1) in listening.heard)

    async def test_while_nothing_can_be_heard_that_is_told_again_and_again(self, postgres_url: str) -> None:
        """A database that takes no connections: whoever must not miss a step looks for it."""
        async with process(postgres_url) as connected:
            one = Notices(connected.execute, postgres_url + "_missing")
            async with aclosing(one.listen()) as heard:
                notices = [await anext(heard) for _ in range(3)]

            assert notices == [NoticesMissed()] * 3
            assert not one.is_heard

    async def test_what_others_send_over_the_channel_is_passed_over(self, postgres_url: str) -> None:
        """Anybody with access to the database may notify; another version may know other notices."""
        async with two_processes(postgres_url) as (telling, listening):
            for payload in ("", "{", "null", "[]", "3", '["x"]', '["x",["stored","c","5"]]', '["x",["new",1],7]'):
                await telling.execute("SELECT pg_notify(%s, %s)", (channel_of(None), payload))
            telling.notices.tell(StepStored("c", 1))
            await until(lambda: len(listening.heard) > 1)

            assert listening.heard == [NoticesMissed(), StepStored("c", 1)]

    async def test_what_cannot_be_sent_is_told_as_missed(self, postgres_url: str) -> None:
        """The steps of an outage are not told one by one afterwards."""
        async with two_processes(postgres_url) as (telling, listening):
            telling.is_broken = True
            telling.notices.tell(StepStored("c", 1))
            await until(lambda: telling.statements > 1)
            telling.is_broken = False
            await until(lambda: len(listening.heard) > 1)

            assert listening.heard == [NoticesMissed(), NoticesMissed()]

    async def test_what_waits_is_sent_when_the_store_closes(self, postgres_url: str) -> None:
        """Other processes hear of the last steps at once."""
        async with two_processes(postgres_url) as (telling, listening):
            telling.notices.tell(StepStored("c", 9))
            await telling.notices.close()
            telling.notices.tell(StepStored("c", 10))
            await until(lambda: len(listening.heard) > 1)

            assert listening.heard == [NoticesMissed(), StepStored("c", 9)]

    async def test_many_tokens_and_steps_arrive_in_few_bundles(self, postgres_url: str) -> None:
        """2,000 conversations that stream are told in payloads that the server takes, and nothing of them is lost."""
        async with two_processes(postgres_url) as (telling, listening):
            names = [f"conversation-{number}" for number in range(2_000)]
            for place, text in enumerate("abc"):
                for name in names:
                    telling.notices.tell(token(text, name, place=place))
            for name in names:
                telling.notices.tell(StepStored(name, 2))
            await until(lambda: StepStored(names[-1], 2) in listening.heard)

            assert listening.shown() == dict.fromkeys(names, "abc")
            assert telling.notices.bundles < 60


async def end_listeners(url: str) -> None:
    """End the connections that listen, as an administrator does."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnwise notices'"
        await connection.execute(ended + " AND datname = current_database()")


class TestBundles:
    """What waits to be sent becomes few payloads, and never too much."""

    def test_steps_of_one_conversation_become_one_notice(self) -> None:
        """Whoever hears of the newest reads all of them."""
        outgoing = Outgoing()
        for seq in range(2, 6):
            outgoing.add(StepStored("c", seq))
            outgoing.add(StepStored("d", seq))

        assert sent(outgoing) == [[["stored", "c", 5], ["stored", "d", 5]]]

    def test_tokens_of_one_text_become_one_token(self) -> None:
        """Also with tokens of other conversations between them."""
        outgoing = Outgoing()
        for place, text in enumerate(("a", "b")):
            for name in ("c", "d"):
                outgoing.add(token(text, name, place=place))

        assert [piece[4]["text"] for bundle in sent(outgoing) for piece in bundle] == ["ab", "ab"]

    @pytest.mark.parametrize(
        "between",
        [
            StepStored("c", 3),
            token("?", kind="thinking"),
            token("?", effect_id=2),
            token("a"),
            LiveShown("c", 1, "tool_progress", {"call_id": "x", "text": "half"}),
        ],
    )
    def test_tokens_are_not_joined_over_what_stands_between_them(self, between: Notice) -> None:
        """They would be shown in another order."""
        outgoing = Outgoing()
        for notice in (token("a"), between, token("b", place=2)):
            outgoing.add(notice)

        assert len(sent(outgoing)[0]) == 3

    def test_the_longest_ids_fit(self) -> None:
        """In any script, and with control characters."""
        outgoing = Outgoing()
        names = ["𐍈" * LONGEST_ID, "\x01" * LONGEST_ID, "x" * LONGEST_ID]
        for name in names:
            outgoing.add(StepStored(name, 2**62))

        assert [piece[1] for bundle in sent(outgoing) for piece in bundle] == names

    @pytest.mark.parametrize("text", ["x", "я", "𐍈", "\x00", '"', "\ud800"])
    def test_a_long_token_is_divided(self, text: str) -> None:
        """Each part fits into a payload, whatever its script."""
        outgoing = Outgoing()
        outgoing.add(token(text * 20_000))
        payloads = list(outgoing.take())

        assert all(len(",".join(bundle).encode()) <= PAYLOAD for bundle in payloads)
        pieces = [json.loads(piece) for bundle in payloads for piece in bundle]
        assert sum(len(piece[4]["text"]) for piece in pieces) == 20_000
        assert [piece[5] for piece in pieces] == [1_200 * number for number in range(len(pieces))]

    def test_what_fits_into_no_payload_is_left_out(self) -> None:
        """A report of a tool that is too long, or no JSON, is not sent; an id that is too long says that something is
        missed."""
        outgoing = Outgoing()
        outgoing.add(LiveShown("c", 1, "tool_progress", {"call_id": "x", "text": "x" * 9_000}))
        outgoing.add(LiveShown("c", 1, "tool_progress", {"call_id": "x", "text": object()}))
        outgoing.add(StepStored("c" * 9_000, 1))

        assert sent(outgoing) == [[[], [], ["missed"]]]

    def test_what_waits_is_bounded(self) -> None:
        """Tokens beyond the bound are lost; too many steps become one notice that some are missed."""
        outgoing = Outgoing()
        for number in range(3 * MOST_LIVE // 1_000):
            outgoing.add(token("x" * 1_000, f"c{number}"))
        characters = sum(len(piece[4]["text"]) for bundle in sent(outgoing) for piece in bundle)
        for number in range(MOST_STEPS + 1):
            outgoing.add(StepStored(f"c{number}", 1))

        assert MOST_LIVE * 0.9 < characters <= MOST_LIVE
        assert sent(outgoing) == [[["missed"]]]
