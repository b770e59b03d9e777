"""What is stored in a simulation: each step as JSON, and as it is read from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from pydantic import TypeAdapter

from ....states.effects import AnyEffect, Effect
from ....states.events import Answer, AnyEvent, Event, Request
from ....states.states import AnyState
from ....states.step import Step
from ....states.values.turn import TurnEnded
from ..environment.event_trace import EventTrace
from ..environment.random_source import RandomSource

if TYPE_CHECKING:
    from ....persistence.records import StoredEntry

LogKey: TypeAlias = tuple[str, int]
"""The key of a conversation: its id, and how many conversations with this id were deleted before it was created."""

_EVENT: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)
_EFFECTS: TypeAdapter[tuple[Effect, ...]] = TypeAdapter(tuple[AnyEffect, ...])
_STATE: TypeAdapter[AnyState] = TypeAdapter(AnyState)


@dataclass(frozen=True)
class Row:
    """A step as it is stored: JSON, and what is read from it. `writer` is the name of the process that stored it, and
    `chain` the link of the step."""

    seq: int
    text: str
    event: AnyEvent
    effects: tuple[Effect, ...]
    ended: TurnEnded | None
    state: AnyState
    writer: str = ""
    chain: bytes = b""

    @classmethod
    def of(cls, event: Event, step: Step, writer: str) -> Row:
        """Write a step as JSON and read it back. Raises ValueError if that cannot be done."""
        ended = "" if step.ended is None else step.ended.to_json()
        effects = _array(step.effects)
        written, state = event.to_json(), step.state.to_json()
        return cls(
            seq=step.state.book.seq,
            text="\n".join((written, effects, ended, state)),
            event=_EVENT.validate_json(written),
            effects=_EFFECTS.validate_json(effects),
            ended=TurnEnded.model_validate_json(ended) if ended else None,
            state=_STATE.validate_json(state),
            writer=writer,
        )

    @classmethod
    def read(cls, entry: StoredEntry, state: str, writer: str) -> Row:
        """A step as a database holds it, with the state after it as JSON."""
        ended = "" if entry.ended is None else entry.ended.to_json()
        text = "\n".join((entry.event.to_json(), _array(entry.effects), ended, state))
        read = _STATE.validate_json(state)
        return cls(entry.seq, text, entry.event, entry.effects, entry.ended, read, writer, entry.chain)

    @property
    def entry(self) -> StoredEntry:
        """The step as an entry of the log; it has no digests but its link."""
        from ....persistence.records import StoredEntry

        return StoredEntry(
            self.seq,
            self.event,
            self.effects,
            self.ended,
            self.state.book.turn,
            digest=b"",
            chain=self.chain,
            content=b"",
        )


def identity(event: Event) -> str | int | None:
    """What the log may hold once only: the id of a request, or of the effect that is answered. `Pure.`"""
    return event.event_id if isinstance(event, Request) else event.effect_id if isinstance(event, Answer) else None


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
    moved: dict[str, int] = field(default_factory=dict)
    """For each conversation the number of its newest step among all steps."""
    identities: dict[str, set[str | int | None]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """What conversations are called in the trace, where there are several; sub-agents after the one above them."""
    followers: list[Callable[[str, Row], None]] = field(default_factory=list)
    """Who is told of each step, with its conversation, once it is stored."""

    def add(self, conversation_id: str, event: Event, step: Step, writer: str) -> Row:
        """Store a step. Raises ValueError if it cannot be written as JSON and read back."""
        row = self._linked(conversation_id, Row.of(event, step, writer))
        if (row.event, row.effects, row.ended, row.state) != (event, step.effects, step.ended, step.state):
            self.trace.report_fault(f"step {row.seq}, {event.type}, is not read as it was written: {row.text[:300]}")
        self.keep(conversation_id, row)
        return row

    def _linked(self, conversation_id: str, row: Row) -> Row:
        """The row with its link, which depends on all rows before it."""
        from ....persistence.codec import GENESIS, digest, link

        rows = self.rows.get(conversation_id)
        return replace(row, chain=link(rows[-1].chain if rows else GENESIS, digest(row.text)))

    def keep(self, conversation_id: str, row: Row) -> None:
        """Keep a step that is stored."""
        self.rows.setdefault(conversation_id, []).append(row)
        self.began.setdefault(self.key_of(conversation_id), len(self.trace.lines))
        self.moved[conversation_id] = len(self.trace.lines)
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


def _array(effects: tuple[Effect, ...]) -> str:
    return f"[{','.join(effect.to_json() for effect in effects)}]"


def _short(effect: Effect) -> str:
    effect_id = getattr(effect, "effect_id", None)
    return effect.type if effect_id is None else f"{effect.type}:{effect_id}"
