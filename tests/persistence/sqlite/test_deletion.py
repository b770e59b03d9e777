"""A conversation that is deleted leaves nothing in the bytes of the index."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from turnwise.persistence import SqliteStore, examine
from turnwise.persistence.sqlite.search import NAME
from turnwise.states import HistoryMessage, LlmResponse, UserQuestionResponse
from turnwise.states.values.acts import MemoryQuery, MemoryScope

from ...support.walks import WHEN, Walk

ANNA = MemoryScope("", "anna", 0)
SECRETS = ("zqzebra", "jqhistory", "vqnotes", "xqreply", "鱻")
"""Words that stand in the deleted conversation only. Each begins with another letter, since FTS5 stores what two words
have in common once."""


def secret() -> Walk:
    """A conversation with the secrets, in all that can be found of one."""
    walk = Walk("secret", owner="anna", messages=(HistoryMessage(role="assistant", content="jqhistory"),))
    walk.turn("zqzebra 鱻").question()
    notes = {WHEN.question: {"notes": "vqnotes"}}
    walk.request(UserQuestionResponse, answers={WHEN.question: "6:30 PM"}, annotations=notes)
    return walk.answer(LlmResponse, content="xqreply")


def index_of(path: Path) -> bytes:
    """All that the index holds, without the texts."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as other:
        return b"".join(block for (block,) in other.execute(f"SELECT block FROM {NAME}_data"))


def files_of(path: Path) -> bytes:
    """The bytes of the database and of the files beside it."""
    return b"".join(each.read_bytes() for each in path.parent.iterdir())


async def test_nothing_is_left_of_a_deleted_conversation(tmp_path: Path) -> None:
    """Not in the file, not in the write-ahead log, while the database is open and afterwards; whatever was said before
    and after it is still found."""
    path = tmp_path / "dinner.db"
    store = await SqliteStore.open(path)

    async def found(keyword: str) -> int:
        return len(await store.search(MemoryQuery(ANNA, (keyword,), None, None, 1000)))

    for number in range(3):
        await Walk(f"before {number}", owner="anna").turn(f"sushi {number}").into(store)
        assert await found("sushi") == 2 * (number + 1)  # each search adds a segment to the index
    await secret().into(store)
    for word in SECRETS:
        assert await found(word) > 0
        assert word.encode() in index_of(path)
    vectors = {number: [0.8, 0.6] for number, _ in await store.without_vectors(ANNA, "qqspace", 100)}
    await store.keep_vectors("qqspace", vectors)
    await Walk("after", owner="anna").turn("sushi").into(store)
    assert await found("sushi") == 8

    await store.delete("secret")

    for word in SECRETS:
        assert await found(word) == 0
        assert word.encode() not in index_of(path)
        assert word.encode() not in files_of(path)
    assert await found("sushi") == 8
    assert (await examine(store)).findings == ()
    await store.close()
    assert not any(word.encode() in files_of(path) for word in SECRETS)


async def test_a_conversation_that_was_never_searched_is_deleted_as_before(tmp_path: Path) -> None:
    """Half of its steps may be indexed, or none."""
    path = tmp_path / "dinner.db"
    store = await SqliteStore.open(path)
    await Walk("secret", owner="anna").turn("qqzebra").into(store)
    await store.recent(ANNA, Walk().steps[0][0].at)
    log = (await store.load("secret")).log
    await log.append(*Walk("secret", owner="anna").turn("qqzebra").say("qqlater").steps[-1])
    await Walk("another", owner="anna").turn("qqanother").into(store)

    await store.delete("secret")
    await store.delete("another")
    await store.close()

    assert b"qq" not in files_of(path)
