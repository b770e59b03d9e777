"""What is stored in a simulation: each step as JSON, and as it reads from there, so that nothing passes that could not
be stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import TypeAdapter

from ...states.effects import AnyEffect, Effect
from ...states.events import Answer, AnyEvent, Event, Request
from ...states.log import LogEntry
from ...states.states import AnyState, State
from ...states.step import Step
from ...states.values.turn import TurnEnded
from .random_source import RandomSource
from .story import Story

_EVENT: TypeAdapter[Event] = TypeAdapter(AnyEvent)
_EFFECTS: TypeAdapter[tuple[Effect, ...]] = TypeAdapter(tuple[AnyEffect, ...])
_STATE: TypeAdapter[State] = TypeAdapter(AnyState)


@dataclass(frozen=True)
class Row:
    """A step as it is stored: JSON, and what is read from it."""

    seq: int
    text: str
    event: Event
    effects: tuple[Effect, ...]
    ended: TurnEnded | None
    state: State

    @classmethod
    def of(cls, event: Event, step: Step) -> Row:
        """Write a step, and read it back."""
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
        )

    @classmethod
    def read(cls, entry: LogEntry, state: str) -> Row:
        """A step as a database has it, with the state behind it as JSON."""
        ended = "" if entry.ended is None else entry.ended.to_json()
        text = "\n".join((entry.event.to_json(), _array(entry.effects), ended, state))
        return cls(entry.seq, text, entry.event, entry.effects, entry.ended, _STATE.validate_json(state))

    @property
    def entry(self) -> LogEntry:
        """The step as an entry of the log."""
        return LogEntry(self.seq, self.event, self.effects, self.ended, self.state.book.turn)


def named(event: Event) -> str | int | None:
    """What the log may hold once only: the id of a request, or of the effect that is answered."""
    return event.event_id if isinstance(event, Request) else event.effect_id if isinstance(event, Answer) else None


@dataclass
class Disk:
    """What outlives the engine: all steps of all conversations. `failing` is how often a step cannot be stored."""

    dice: RandomSource
    story: Story
    failing: float = 0.0
    rows: dict[str, list[Row]] = field(default_factory=dict)
    names: dict[str, set[str | int | None]] = field(default_factory=dict)

    def add(self, conversation_id: str, event: Event, step: Step) -> None:
        """Keep a step. Raises ValueError if it cannot be written as JSON and read again."""
        row = Row.of(event, step)
        if (row.event, row.effects, row.ended, row.state) != (event, step.effects, step.ended, step.state):
            self.story.blame(f"step {row.seq}, {event.type}, is not what was written: {row.text[:300]}")
        self.keep(conversation_id, row)

    def keep(self, conversation_id: str, row: Row) -> None:
        """Keep a step as it was read."""
        self.rows.setdefault(conversation_id, []).append(row)
        self.names.setdefault(conversation_id, set()).add(named(row.event))
        wants = " ".join(_short(effect) for effect in row.effects)
        self.story.tell("store", f"{row.seq}: {row.event.type} -> {row.state.type}   {wants}")

    def head(self, conversation_id: str) -> State:
        """Where the conversation rests, as stored."""
        return self.rows[conversation_id][-1].state

    @property
    def steps(self) -> int:
        """How many are stored."""
        return sum(map(len, self.rows.values()))

    def text(self) -> str:
        """All that is stored, for comparison."""
        return "\n".join(row.text for rows in self.rows.values() for row in rows)


def _array(effects: tuple[Effect, ...]) -> str:
    return f"[{','.join(effect.to_json() for effect in effects)}]"


def _short(effect: Effect) -> str:
    effect_id = getattr(effect, "effect_id", None)
    return effect.type if effect_id is None else f"{effect.type}:{effect_id}"
