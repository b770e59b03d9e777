"""What outlives the engines of a simulation: a store, the processes that have it open, and what is seen to be stored.

A storage takes its time and fails at bad moments. What stands in it is read from it after each step, and that is what
counts: the checks of a simulation look at the disk, and never at what an engine says of itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from turnwise.states.effects import Effect
from turnwise.states.events import Answer, AnyEvent, Event, Request
from turnwise.states.states import AnyState
from turnwise.states.step import LogEntry
from turnwise.states.values.turn import TurnEnded

from .environment import EventTrace, RandomSource

if TYPE_CHECKING:
    from turnwise.persistence.ports import Store
    from turnwise.persistence.records import StoredEntry

Delivered: TypeAlias = tuple[str, str, int]
"""A delivery: its conversation, the name of its channel, and its effect."""


class Storage(Protocol):
    """What is stored, through all processes that have it open."""

    @property
    def settled(self) -> set[Delivered]:
        """The deliveries that were taken out of the outbox."""
        ...

    async def open(self, name: str) -> Process:
        """A new process of this name, with its store."""
        ...

    def outbox(self) -> Iterable[Delivered]:
        """What is still to be delivered."""
        ...

    def left_out(self) -> Iterable[Delivered]:
        """What of it is tried no more, because processes have died in each attempt."""
        ...

    def faults(self) -> Iterable[str]:
        """What is wrong with what is stored, at the end of the simulation."""
        ...

    def close(self) -> None:
        """Remove what is stored."""
        ...


class Process(Protocol):
    """A process that has the store open. Once it is dead it stores nothing, and nobody hears what it says."""

    @property
    def name(self) -> str:
        """What tells it apart from all others of the simulation."""
        ...

    @property
    def store(self) -> Store:
        """The store, as this process has it open."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the process has died."""
        ...

    def die_after(self, statements: int) -> None:
        """Have the process die once it has done so many more statements that write."""
        ...


LogKey: TypeAlias = tuple[str, int]
"""The key of a conversation: its id, and how many conversations with this id were deleted before it was created."""


@dataclass
class Disk:
    """The steps of all conversations. `failing` is the probability that a step cannot be stored."""

    chance: RandomSource
    trace: EventTrace
    failing: float = 0.0
    rows: dict[str, list[Row]] = field(default_factory=dict)
    deleted: dict[str, list[list[Row]]] = field(default_factory=dict)
    """The logs of the conversations that were deleted, by the id that they had, in the order of their deletion. A
    conversation may be created under the id of a deleted one."""
    began: dict[LogKey, int] = field(default_factory=dict)
    """For each conversation the number of lines in the trace when it was created."""
    ended: dict[LogKey, int] = field(default_factory=dict)
    """For each conversation that was deleted the number of lines in the trace when it was."""
    identities: dict[str, set[str | int | None]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """What conversations are called in the trace, where there are several; sub-agents after the one above them."""
    followers: list[Callable[[str, Row], None]] = field(default_factory=list)
    """Who is told of each step, with its conversation, once it is stored."""

    def keep(self, conversation_id: str, row: Row) -> None:
        """Keep a step that is stored."""
        self.rows.setdefault(conversation_id, []).append(row)
        self.began.setdefault(self.key_of(conversation_id), len(self.trace.lines))
        self.identities.setdefault(conversation_id, set()).add(identity(row.event))
        effects = " ".join(_short(effect) for effect in row.effects)
        stored = f"{row.seq}: {row.event.type} -> {row.state.type}   {effects}"
        self.trace.record("store", f"{row.writer} {self.name(conversation_id)}{stored}")
        for follower in self.followers:
            follower(conversation_id, row)

    def name(self, conversation_id: str) -> str:
        """What a conversation is called in the trace, with a space behind it; empty if it has no name there."""
        root, slash, rest = conversation_id.partition("/")
        return f"{self.names[root]}{slash}{rest} " if root in self.names else ""

    def delete(self, conversation_id: str) -> None:
        """Delete a conversation."""
        self.ended[self.key_of(conversation_id)] = len(self.trace.lines)
        self.deleted.setdefault(conversation_id, []).append(self.rows.pop(conversation_id))
        self.identities.pop(conversation_id, None)
        self.trace.record("store", f"{self.name(conversation_id)}is deleted")

    def logs_of(self, conversation_id: str) -> list[list[Row]]:
        """The logs of all conversations that have had this id: those that were deleted, then the stored one."""
        stored = self.rows.get(conversation_id)
        return [*self.deleted.get(conversation_id, ()), *(() if stored is None else (stored,))]

    def key_of(self, conversation_id: str) -> LogKey:
        """The key of the conversation that is stored under this id, or that was deleted last."""
        return conversation_id, max(0, len(self.logs_of(conversation_id)) - 1)

    def steps_of(self, conversation_id: str) -> Sequence[Row]:
        """The steps of the conversation that is stored under this id, or that was deleted last; none if there never was
        one."""
        logs = self.logs_of(conversation_id)
        return logs[-1] if logs else ()

    def head(self, conversation_id: str) -> AnyState:
        """The state that the conversation rests in, as stored, or in which it was deleted."""
        return self.steps_of(conversation_id)[-1].state

    @property
    def steps(self) -> int:
        """How many steps are stored."""
        return sum(map(len, self.rows.values()))

    def text(self) -> str:
        """Everything that is stored, for comparison."""
        return "\n".join(row.text for rows in self.rows.values() for row in rows)


def _short(effect: Effect) -> str:
    effect_id = getattr(effect, "effect_id", None)
    return effect.type if effect_id is None else f"{effect.type}:{effect_id}"


@dataclass(frozen=True)
class Row:
    """A step as it is stored, and the state after it. `writer` is the name of the process that stored it, `chain` the
    link of the step."""

    seq: int
    event: Event
    effects: tuple[Effect, ...]
    ended: TurnEnded | None
    state: AnyState
    writer: str = ""
    chain: bytes = b""

    @classmethod
    def of(cls, entry: StoredEntry, state: AnyState, writer: str) -> Row:
        """A step as a store returns it, with the state after it."""
        return cls(entry.seq, entry.event, entry.effects, entry.ended, state, writer, entry.chain)

    @property
    def text(self) -> str:
        """The step as JSON, for comparison."""
        effects = f"[{','.join(effect.to_json() for effect in self.effects)}]"
        ended = "" if self.ended is None else self.ended.to_json()
        return "\n".join((self.event.to_json(), effects, ended, self.state.to_json()))

    @property
    def entry(self) -> LogEntry:
        """The step as an entry of the log."""
        return LogEntry(self.seq, cast(AnyEvent, self.event), self.effects, self.ended, self.state.book.turn)


def identity(event: Event) -> str | int | None:
    """What the log may hold once only: the id of a request, or of the effect that is answered. `Pure.`"""
    return event.event_id if isinstance(event, Request) else event.effect_id if isinstance(event, Answer) else None


async def disk_time(chance: RandomSource) -> None:
    """The time that a disk takes: often none, not even another task's turn."""
    if chance.probably(0.5):
        await asyncio.sleep(chance.pick((0.0, 0.0, 0.001, 0.02, 1.0)))
