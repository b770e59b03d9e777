"""Finds what was said, by keywords, by meaning or by the moment, with PostgreSQL's index of words.

The words are those of `persistence.words`, as in every store, and no dictionary or extension of the server takes part:
each word stands in a `tsvector` as it is, with the number of its group before it. So a search reads what the owner's
texts hold of the keywords, and nothing of other groups. That words follow each other, as those of `foo-bar` or of a
Chinese word, is seen when the texts are read.

A text ranks by the keywords that it holds: each counts the more, the fewer texts hold it, and the shorter the text is;
and a second time if the text holds it with an ending that is nearer. Of the texts that hold a keyword the newest are
ranked, so that a word that almost every text holds does not crowd out a rare one.

The index follows the logs, without a share in the transaction of any step. A search first has the conversations of its
scope indexed that have moved, each in short transactions behind a lock of its own, so two processes may come for the
same conversation. How far the index has followed a log stands in `text_positions`.

Each function works within the transaction of its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ...states.values.acts import FoundText, MemoryQuery, MemoryScope, VectorQuery
from ..codec import from_microseconds, to_microseconds
from ..records import RebuildIndex, StorageFault
from ..sql import queries
from ..sql.texts import (
    IS_SHOWN,
    MAX_FOUND,
    Budget,
    Group,
    LogPart,
    LogText,
    Window,
    group_of,
    hides_as_the_log,
    number_of,
    scoped,
)
from ..vectors import BATCH, Vectors, nearest_of
from ..words import MAX_RECENT, Keyword, holds, keywords_of, words_of
from .connection import PostgresDriver

MAX_INDEXED = 1_000_000
"""Bytes of different words of a text that can be found: what a `tsvector` holds is less than a mebibyte."""

_MAX_RANKED = 3000
"""How many of the texts that hold a keyword are ranked: the newest."""

_READ = 100
"""How many texts are read at a time, the best first, until there are enough."""

# --- the index

BUDGET = (200, 500_000)
"""Steps, and characters of their JSON, that one transaction indexes. Chosen so that it takes some tens of
milliseconds."""

_MOVED = """
SELECT key FROM conversations LEFT JOIN text_positions ON conversation = key
WHERE {scope} AND conversations.seq > coalesce(text_positions.seq, 0) ORDER BY key
"""
_MOVED_OF_OWNER = _MOVED.format(scope="conversations.owner = %s")
_MOVED_BY_ID = _MOVED.format(scope="conversations.id = %s")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('turnwise texts', %s))"
_STANDS = """
SELECT conversations.seq, owner, coalesce(text_positions.seq, 0)
FROM conversations LEFT JOIN text_positions ON conversation = key WHERE key = %s
"""
_ADD = """
INSERT INTO texts (conversation, seq, part, scope, at, turn, by_user, length, said, words)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, array_to_tsvector(%s::text[]))
"""
_MOVE = """
INSERT INTO text_positions (conversation, seq) VALUES (%s, %s)
ON CONFLICT (conversation) DO UPDATE SET seq = excluded.seq
"""


def moved(driver: PostgresDriver, scope: MemoryScope) -> list[int]:
    """Return the keys of the conversations of a scope that are ahead of the index."""
    by_id = scope.owner is None
    found = driver.execute(
        _MOVED_BY_ID if by_id else _MOVED_OF_OWNER, (scope.conversation_id if by_id else scope.owner,)
    )
    return [key for (key,) in found]


def index(driver: PostgresDriver, key: int) -> bool:
    """Index the next steps of a conversation. Returns whether the index has now reached the end of the log."""
    driver.execute(_LOCK, (key,))
    found = driver.execute(_STANDS, (key,)).fetchone()
    if found is None or found[2] >= found[0]:
        return True
    head, owner, position = found
    log, budget = LogPart(driver, key, position), Budget(*BUDGET)
    steps = log.read(budget)
    last = steps[-1].seq if steps and budget.is_spent else head
    scope = number_of(owner, key)
    driver.executemany(_ADD, [_row(key, scope, text) for text in log.texts(steps)])
    log.hide(steps)
    driver.execute(_MOVE, (key, last))
    return bool(last >= head)


def _row(key: int, scope: int, text: LogText) -> tuple[Any, ...]:
    said = text.said
    words = words_of(said.text)
    stored = said.text.encode(errors="surrogatepass")
    moment = (to_microseconds(said.at), said.turn, int(said.role == "user"))
    return (key, text.seq, text.part, scope, *moment, len(words), stored, _indexed(scope, words))


_INDEXED = """
SELECT key, owner, text_positions.seq FROM text_positions JOIN conversations ON key = text_positions.conversation
"""
_TEXTS_OF_LOG = """
SELECT conversation, seq, part, scope, at, turn, by_user, length, said, tsvector_to_array(words) FROM texts
WHERE conversation = %s AND seq <= %s
"""


DIFFERENT = StorageFault("The index of what was said does not agree with the logs.", RebuildIndex())
"""What is wrong with an index: it is built again as a whole, where somebody searches."""


class Indexed(NamedTuple):
    """A conversation that is indexed up to the step `position`."""

    key: int
    owner: str | None
    position: int


def indexed(driver: PostgresDriver) -> list[Indexed]:
    """Return the conversations that are indexed."""
    return [Indexed(*row) for row in driver.execute(_INDEXED)]


def agrees(driver: PostgresDriver, conversation: Indexed) -> bool:
    """Whether what is indexed of a conversation follows from its log. One that was deleted meanwhile agrees."""
    key, owner, position = conversation
    log = LogPart(driver, key, 0)
    texts = log.texts(queries.steps(driver, key, 1, position))
    expected = {row[:-1]: frozenset(row[-1]) for row in (_row(key, number_of(owner, key), text) for text in texts)}
    stored = driver.execute(_TEXTS_OF_LOG, (key, position))
    agree = expected == {tuple(row): frozenset(words) for *row, words in stored}
    return (agree and hides_as_the_log(driver, key, position)) or not queries.steps(driver, key, 1, 1)


def forget(driver: PostgresDriver, conversation_id: str) -> None:
    """Forget what was indexed of a conversation, and its vectors."""
    of_it = "WHERE conversation = (SELECT key FROM conversations WHERE id = %s)"
    for table in ("text_positions", "hidden_turns", "texts"):
        driver.execute(f"DELETE FROM {table} {of_it}", (conversation_id,))


def drop(driver: PostgresDriver) -> None:
    """Forget what was indexed, and the vectors. It is indexed again where somebody searches."""
    for table in ("text_positions", "hidden_turns", "texts"):
        driver.execute(f"DELETE FROM {table}")


def _indexed(scope: int, words: Sequence[str]) -> list[str]:
    """Return the different words of a text as the index holds them; of very many, the first."""
    different, size = list[str](), 0
    for word in scoped(scope, dict.fromkeys(words)):
        size += len(word.encode())
        if size > MAX_INDEXED:
            break
        different.append(word)
    return different


# --- keywords


def _run(driver: PostgresDriver, statement: str, group: Group, **given: Any) -> list[Any]:
    """Execute a statement in which `{group}` is the condition that a text is in the group, as far as the text tells it.

    It is planned for these very values. A plan for all owners would be a bad one for those who have many texts.
    """
    sql = statement.replace("{group}", _condition(group))
    return driver.execute_once(sql, {**group._asdict(), **given}).fetchall()


def _condition(group: Group) -> str:
    """Return the condition that a text is in the group, without what this group does not need. `Pure.`"""
    conditions = ["scope = %(number)s", IS_SHOWN]
    if group.only is not None:
        conditions.append("texts.conversation = %(only)s")
    if group.current is not None:
        conditions.append("(texts.conversation <> %(current)s OR texts.turn < %(turn)s)")
    return " AND ".join(conditions)


_RANKED = f"""
WITH hits AS MATERIALIZED (
    SELECT id, length, wanted.number FROM unnest(%(wanted)s::text[]) WITH ORDINALITY AS wanted (words, number)
    CROSS JOIN LATERAL (
        SELECT id, length FROM (
            SELECT id, conversation, scope, at, turn, length FROM texts WHERE words @@ wanted.words::tsquery OFFSET 0
        ) AS texts
        WHERE {{group}} AND at BETWEEN %(since)s AND %(until)s ORDER BY id DESC LIMIT {_MAX_RANKED}
    ) AS hit
)
SELECT id FROM hits
JOIN (SELECT number, ln(1 + (SELECT count(DISTINCT id) FROM hits) / count(*)::float) AS weight
    FROM hits GROUP BY number) AS weights USING (number)
GROUP BY id
ORDER BY sum(weight / (0.5 + 0.5 * length / (SELECT avg(length) FROM hits))) DESC, id DESC
"""
"""`OFFSET 0` keeps the planner from looking through all texts of the owner, or from the newest text of all backwards,
where it believes that a word is frequent."""

_TEXTS = """
SELECT texts.id, conversations.id, turn, at, by_user, said
FROM (SELECT * FROM texts WHERE id = ANY(%(numbers)s) OFFSET 0) AS texts
CROSS JOIN LATERAL (SELECT id, owner FROM conversations WHERE key = texts.conversation OFFSET 0) AS conversations
WHERE {group} AND owner IS NOT DISTINCT FROM %(owner)s::text
"""
"""Reads texts whose numbers are known, and makes sure of their owner. The planner is kept from beginning with all texts
or all conversations of the owner."""


def search(driver: PostgresDriver, query: MemoryQuery) -> tuple[FoundText, ...]:
    """Return the texts that hold keywords of the query, the best ones first."""
    group, keywords = group_of(driver, query.scope), keywords_of(query.keywords)
    if group is None or not keywords or query.limit <= 0:
        return ()
    wanted = [each for keyword in keywords for each in _expressions(group.number, keyword)]
    window = Window.of(query.since, query.until)
    numbers = [number for (number,) in _run(driver, _RANKED, group, **window._asdict(), wanted=wanted)]
    return _different(_holding(_read(driver, group, numbers), keywords), query.limit)


def _expressions(scope: int, keyword: Keyword) -> Iterator[str]:
    """Yield a `tsquery` that finds the texts which hold all words of a keyword; and if words may have other endings,
    another one for the texts that have the nearer ones. `Pure.`"""
    stems, nearest = list[str](), list[str]()
    for phrase in keyword:
        *first, last = scoped(scope, phrase.words)
        beginnings = scoped(scope, phrase.beginnings)
        words = [f"'{word}'" for word in first]
        alternatives = [f"'{beginning}':*" for beginning in beginnings] or [f"'{last}'"]
        stems += [*words, f"({' | '.join(alternatives)})"]
        nearest += [*words, alternatives[0]]
    yield " & ".join(stems)
    if any(len(phrase.beginnings) > 1 for phrase in keyword):
        yield " & ".join(nearest)


def _holding(texts: Iterable[tuple[int, FoundText]], keywords: Sequence[Keyword]) -> Iterator[tuple[int, FoundText]]:
    """Yield the texts in which the words of a keyword follow each other. One whose words need not was found by them."""
    is_certain = all(len(phrase.words) == 1 for keyword in keywords for phrase in keyword)
    for number, text in texts:
        words = () if is_certain else words_of(text.text)
        if is_certain or any(holds(words, keyword) for keyword in keywords):
            yield number, text


def _read(driver: PostgresDriver, group: Group, numbers: Sequence[int]) -> Iterator[tuple[int, FoundText]]:
    """Read the texts with these numbers, in their order, some at a time. One that is not in the group is passed
    over."""
    for start in range(0, len(numbers), _READ):
        some = numbers[start : start + _READ]
        rows = _run(driver, _TEXTS, group, numbers=list(some))
        found = {number: _found(*rest) for number, *rest in rows}
        yield from ((number, found[number]) for number in some if number in found)


def _found(conversation_id: str, turn: int, at: int, by_user: int, said: bytes) -> FoundText:
    role: Literal["user", "assistant"] = "user" if by_user else "assistant"
    return FoundText(conversation_id, turn, from_microseconds(at), role, said.decode(errors="surrogatepass"))


def _different(texts: Iterable[tuple[int, FoundText]], limit: int) -> tuple[FoundText, ...]:
    """Return texts until there are enough. One that a fork has in common with its original is returned once."""
    different: dict[tuple[datetime, str, str], FoundText] = {}
    most = min(limit, MAX_FOUND)
    for _, text in texts if most > 0 else ():
        different.setdefault((text.at, text.role, text.text), text)
        if len(different) >= most:
            break
    return tuple(different.values())


# --- moments

_RECENT = f"""
SELECT id FROM texts WHERE {{group}} AND at >= %(since)s ORDER BY at DESC, id DESC LIMIT {MAX_RECENT}
"""


def recent(driver: PostgresDriver, scope: MemoryScope, since: datetime) -> tuple[FoundText, ...]:
    """Return the texts that were said at `since` or later, oldest first."""
    group = group_of(driver, scope)
    if group is None:
        return ()
    rows = _run(driver, _RECENT, group, since=to_microseconds(since))
    return _different(_read(driver, group, [number for (number,) in rows][::-1]), MAX_RECENT)


# --- vectors

_WITHOUT = """
SELECT id FROM texts
WHERE {group} AND NOT EXISTS (SELECT 1 FROM text_vectors WHERE text_vectors.text = texts.id AND space = %(space)s)
ORDER BY at DESC, id DESC LIMIT %(limit)s
"""
_KEEP = """
INSERT INTO text_vectors (text, space, vector) SELECT id, %s, %s FROM texts WHERE id = %s FOR KEY SHARE
ON CONFLICT (text, space) DO UPDATE SET vector = excluded.vector
"""
_VECTORS = """
SELECT texts.id, vector FROM texts
CROSS JOIN LATERAL (
    SELECT vector FROM text_vectors WHERE text_vectors.text = texts.id AND space = %(space)s OFFSET 0
) AS vectors
WHERE {group} AND at BETWEEN %(since)s AND %(until)s AND length(vector) = %(size)s
"""
_LARGEST = 2**31
"""More texts than are ever asked for."""


def without(driver: PostgresDriver, scope: MemoryScope, space: str, limit: int) -> tuple[tuple[int, str], ...]:
    """Return texts that have no vector in this space, the newest first, each with its number."""
    group = group_of(driver, scope)
    if group is None or limit <= 0:
        return ()
    rows = _run(driver, _WITHOUT, group, space=space, limit=min(limit, _LARGEST))
    texts = _read(driver, group, [number for (number,) in rows])
    return tuple((number, text.text) for number, text in texts)


def keep(driver: PostgresDriver, space: str, vectors: Mapping[int, bytes]) -> None:
    """Store vectors, which are `vectors.encoded`, of those texts that are still there."""
    driver.executemany(_KEEP, [(space, vector, number) for number, vector in sorted(vectors.items())])


def nearest(driver: PostgresDriver, query: VectorQuery, vector: bytes) -> tuple[FoundText, ...]:
    """Return the texts whose vectors have the smallest angle to that of the query, which is `vector`, as
    `vectors.encoded` writes it; the nearest first."""
    group = group_of(driver, query.scope)
    if group is None or query.limit <= 0:
        return ()
    most = min(query.limit, MAX_FOUND)
    numbers = nearest_of(vector, _batches(driver, group, query, len(vector)), 2 * most)  # forks have texts in common
    return _different(_read(driver, group, numbers), most)


def _batches(driver: PostgresDriver, group: Group, query: VectorQuery, size: int) -> Iterator[Vectors]:
    """Read vectors some at a time, as bytes and not as text, which would be twice as long."""
    window = Window.of(query.since, query.until)
    given = {**group._asdict(), **window._asdict(), "space": query.space, "size": size}
    with driver.connection.cursor("turnwise_vectors", binary=True) as rows:
        rows.execute(_VECTORS.replace("{group}", _condition(group)).encode(), given)
        yield from iter(lambda: rows.fetchmany(BATCH), [])
