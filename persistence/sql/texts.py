"""What was said, as every relational store finds it again: whose texts may be found, and which texts a log holds.

All conversations of an owner are one group, and a conversation without an owner is a group by itself. The number of the
group stands with every text and in front of every word of an index, so what one owner said and what another one said
have no word in common, and a search reads nothing of other groups. Two owners whose numbers were equal would still not
see each other's texts: a search compares the owners, too.

Each function works within the transaction of its caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import NamedTuple

from pydantic_core import from_json
from sqlalchemy import bindparam, delete, func, insert, literal_column, select

from ...states.branches import Branches
from ...states.context import Context
from ...states.dialogue import SaidText, may_say, said_texts
from ...states.effects import SwitchBranch
from ...states.events import Event, PolicyChanged
from ...states.step import LogEntry
from ...states.values.acts import MemoryScope
from ..codec import decode, to_microseconds, without_given_messages
from ..errors import Damaged
from ..records import EventRow
from . import queries
from .schema import conversations, events, hidden_turns
from .statements import Driver, prepared

MAX_FOUND = 1000
"""How many texts a search returns at most, whatever is asked for."""

_OWNERS = 1 << 47
"""The numbers below are those of owners. Chosen so that SQLite stores any of them in six bytes."""

_BY_ID = prepared(select(conversations.c.key, conversations.c.owner).where(conversations.c.id == bindparam("id")), "id")
_BY_OWNER = prepared(select(conversations.c.key).where(conversations.c.owner == bindparam("owner")), "owner")
_POLICY = prepared(
    select(func.max(events.c.seq)).where(
        events.c.conversation == bindparam("conversation"),
        events.c.type == literal_column(f"'{PolicyChanged.model_fields['type'].default}'"),
        events.c.seq <= bindparam("position"),
    ),
    "conversation",
    "position",
)


_SWITCH = SwitchBranch.model_fields["type"].default
_IS_SWITCH = f'"{_SWITCH}"'
_SWITCHES = prepared(
    select(events.c.effects)
    .where(
        events.c.conversation == bindparam("conversation"),
        events.c.seq <= bindparam("position"),
        events.c.effects.like(literal_column(f"'%{_IS_SWITCH}%'")),
    )
    .order_by(events.c.seq),
    "conversation",
    "position",
)
_OF_CONVERSATION = hidden_turns.c.conversation == bindparam("conversation")
_SHOW_ALL = prepared(delete(hidden_turns).where(_OF_CONVERSATION), "conversation")
_HIDE = prepared(insert(hidden_turns), "conversation", "first", "last")
_HIDDEN = prepared(select(hidden_turns.c.first, hidden_turns.c.last).where(_OF_CONVERSATION), "conversation")

IS_SHOWN = """NOT EXISTS (SELECT 1 FROM hidden_turns
WHERE hidden_turns.conversation = texts.conversation AND texts.turn BETWEEN hidden_turns.first AND hidden_turns.last)"""
"""The condition that a text is in the branch of its conversation that is under way."""


class Group(NamedTuple):
    """What a scope stands for in a database: the number of the group; the owner, or None; the key of the one
    conversation that may be searched, or None for all of the group; and, as far as it is stored, the key of the
    conversation whose turns from `turn` on are left out."""

    number: int
    owner: str | None
    only: int | None
    current: int | None
    turn: int


def number_of(owner: str | None, key: int) -> int:
    """Return the number of the group of a conversation. `Pure.`"""
    if owner is None:
        return _OWNERS + key
    return int.from_bytes(blake2b(owner.encode(), digest_size=8).digest()) % _OWNERS


def group_of(driver: Driver, scope: MemoryScope) -> Group | None:
    """Return the group of a scope; None if nothing can be found in it."""
    row = driver.execute(_BY_ID, (scope.conversation_id,)).fetchone()
    key, owner = (None, None) if row is None else row
    if scope.owner is not None:
        return Group(number_of(scope.owner, 0), scope.owner, None, key, scope.turn)
    return None if key is None else Group(number_of(owner, key), owner, key, key, scope.turn)


def keys_of(driver: Driver, scope: MemoryScope) -> set[int]:
    """Return the keys of the conversations of a scope."""
    if scope.owner is None:
        row = driver.execute(_BY_ID, (scope.conversation_id,)).fetchone()
        return set() if row is None else {row[0]}
    return {key for (key,) in driver.execute(_BY_OWNER, (scope.owner,))}


def scoped(scope: int, words: Iterable[str]) -> list[str]:
    """Return the words as an index holds them: each with the number of its group before it. `Pure.`"""
    prefix = f"{scope:x}z"  # a number in base 16 has no z
    return [prefix + word for word in words]


class Window(NamedTuple):
    """The moments between which a text must have been said, both included, in microseconds since 1970."""

    since: int
    until: int

    @classmethod
    def of(cls, since: datetime | None, until: datetime | None) -> Window:
        """Return the window between two moments, of which None is no bound."""
        return cls(
            ALWAYS.since if since is None else to_microseconds(since),
            ALWAYS.until if until is None else to_microseconds(until),
        )


ALWAYS = Window(-(2**63), 2**63 - 1)
"""The window without bounds."""


# --- the texts of a log


@dataclass
class Budget:
    """What one transaction may still read: steps, and characters of their JSON."""

    steps: int
    characters: int

    @property
    def is_spent(self) -> bool:
        """Whether the transaction should end."""
        return self.steps <= 0 or self.characters <= 0


class LogText(NamedTuple):
    """A text of a log: the step that adds it, and its position among the texts of this step."""

    seq: int
    part: int
    said: SaidText


class LogPart:
    """The steps of a log behind `position`, and what is read of those before them."""

    def __init__(self, driver: Driver, key: int, position: int) -> None:
        self._driver = driver
        self._key = key
        self._position = position
        self._events: dict[int, Event | None] = {}

    def read(self, budget: Budget) -> list[EventRow]:
        """Read the next rows, at least one if there is one, until the budget is spent."""
        rows: list[EventRow] = []
        first = self._position + 1
        for row in queries.each_step(self._driver, self._key, first, first + max(budget.steps, 1) - 1):
            rows.append(row)
            budget.steps -= 1
            budget.characters -= len(row.payload)
            if budget.is_spent:
                break
        return rows

    def texts(self, rows: Iterable[EventRow]) -> Iterator[LogText]:
        """Yield the texts that these steps add. A step that cannot be read has none; the doctor reports it."""
        context = self._context()
        for row in rows:
            if not may_say(row.type, row.effects) or (entry := _entry(row)) is None:
                continue
            self._events[entry.seq] = entry.event
            context = context.after(entry.event)
            for part, said in enumerate(said_texts(entry, context, self.event)):
                yield LogText(entry.seq, part, said)

    def hide(self, rows: Iterable[EventRow]) -> None:
        """Note which turns are hidden, if one of these steps, which were read, went to another branch."""
        switching = [row.seq for row in rows if row.effects is not None and _IS_SWITCH in row.effects]
        if switching:
            self._driver.execute(_SHOW_ALL, (self._key,))
            hidden = hidden_in_log(self._driver, self._key, switching[-1])
            self._driver.executemany(_HIDE, [(self._key, first, last) for first, last in hidden])

    def event(self, seq: int) -> Event | None:
        """Return the event of a step, or None if it cannot be read."""
        if seq not in self._events:
            rows = queries.steps(self._driver, self._key, seq, seq)
            entry = _entry(rows[0]) if rows else None
            self._events[seq] = None if entry is None else entry.event
        return self._events[seq]

    def _context(self) -> Context:
        """Return the role and the policy at `position`; nothing else of a context counts here."""
        context = Context()
        if self._position == 0:
            return context
        changed = self._driver.execute(_POLICY, (self._key, self._position)).fetchone()[0]
        for seq in (1, changed):
            for row in queries.steps(self._driver, self._key, seq, seq) if seq is not None else ():
                entry = _entry(without_given_messages(row))
                context = context if entry is None else context.after(entry.event)
        return context


def hidden_in_log(driver: Driver, key: int, position: int) -> list[tuple[int, int]]:
    """Return the first and the last turn of each row of turns that were hidden at this step, as the log says. What
    cannot be read counts as nothing; the doctor reports it."""
    branches, turns = Branches(), 0
    for (effects,) in driver.execute(_SWITCHES, (key, position)).fetchall():
        try:
            switches = [SwitchBranch.model_validate(one) for one in from_json(effects) if one.get("type") == _SWITCH]
        except (ValueError, TypeError, AttributeError):
            continue
        for switch in switches:
            branches, turns = branches.after(switch), switch.turns
    return list(branches.hidden(turns))


def hides_as_the_log(driver: Driver, key: int, position: int) -> bool:
    """Whether the turns that are noted as hidden are those that were at this step."""
    noted = sorted((first, last) for first, last in driver.execute(_HIDDEN, (key,)).fetchall())
    return noted == hidden_in_log(driver, key, position)


def _entry(row: EventRow) -> LogEntry | None:
    try:
        return decode(row)
    except Damaged:
        return None
