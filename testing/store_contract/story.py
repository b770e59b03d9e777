"""A conversation that tests store step by step."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...states.context import Context
from ...states.effects import DeliverToUser
from ...states.events import Answer, Event, LlmResponse, Opened, Request, ToolComplete, UserMessage
from ...states.machine import begin, transition
from ...states.policy import Policy
from ...states.states import State, pending
from ...states.step import LogEntry, Step
from ...states.values.messages import ToolCall, ToolResult

if TYPE_CHECKING:
    from ...persistence.ports import Log, Store

NOON = datetime(2025, 6, 1, 12, 0, 0, 123_456, tzinfo=UTC)
SOON = NOON + timedelta(seconds=30, microseconds=7)


class Story:
    """A conversation that goes through the machine, a second between two events. `steps` is what a store is given.

    Two stories that are built by the same calls have equal steps. `opened_with` are further fields of the first event.
    """

    def __init__(self, system: str = "You book tables.", at: datetime = NOON, **opened_with: Any) -> None:
        opened = Opened(event_id="opened", at=at, system=system, policy=Policy(), **opened_with)
        self.opening = opened, begin(opened)
        self.steps: list[tuple[Event, Step]] = [self.opening]
        self.context = Context().after(opened)
        self._at = at

    @property
    def state(self) -> State:
        """The state after the newest step."""
        return self.steps[-1][1].state

    @property
    def newest(self) -> tuple[Event, Step]:
        """The newest step, as a store is given it."""
        return self.steps[-1]

    @property
    def log(self) -> list[LogEntry]:
        """The log that a store must return."""
        return [LogEntry.of(event, step) for event, step in self.steps]

    def say(self, text: str = "A table for two?") -> Story:
        """A user says something, and the model is asked."""
        return self.request(UserMessage, text=text)

    def answer(self, text: str = "Sakura has one.") -> Story:
        """The model answers, which ends the turn."""
        return self._answer(LlmResponse, content=text)

    def turn(self, text: str = "A table for two?") -> Story:
        """A whole turn: a message, a tool call, an answer."""
        call = ToolCall(call_id=f"call-{len(self.steps)}", name="find_table", raw_arguments='{"party": 2}')
        self.say(text)._answer(LlmResponse, tool_calls=(call,), finish_reason="tool_calls")
        self._answer(ToolComplete, result=ToolResult(text=f"Found for {text}"))
        return self.answer(f"About {text}: Sakura has one.")

    def request(self, kind: type[Request], /, **fields: Any) -> Story:
        """Take a request under a new id."""
        return self.take(kind(event_id=f"request-{len(self.steps)}", at=self._now(), **fields))

    def _answer(self, kind: type[Answer], **fields: Any) -> Story:
        return self.take(kind(effect_id=min(pending(self.state)), at=self._now(), **fields))

    def take(self, event: Event) -> Story:
        """Take an event, which the machine must neither refuse nor ignore."""
        step = transition(self.state, event, self.context)
        assert not step.ignored
        self.steps.append((event, step))
        self.context = self.context.after(event)
        return self

    def _now(self) -> datetime:
        return self._at + timedelta(seconds=len(self.steps))

    async def into(self, store: Store, conversation_id: str = "story") -> Log:
        """Store all steps."""
        log = await store.create(conversation_id, *self.opening)
        for event, step in self.steps[1:]:
            await log.append(event, step)
        return log


def deliveries_of(step: Step, *targets: str) -> tuple[tuple[int, str], ...]:
    """Return the deliveries of a step to these targets, as `append` takes them."""
    effects = [effect.effect_id for effect in step.effects if isinstance(effect, DeliverToUser)]
    return tuple((effect_id, target) for effect_id in effects for target in targets)


def plain(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """Return the entries without what a store adds to them."""
    return [LogEntry(one.seq, one.event, one.effects, one.ended, one.turn) for one in entries]


async def log_of(store: Store, conversation_id: str = "story") -> list[LogEntry]:
    """Read the whole log, without what a store adds to its entries."""
    return plain(await store.entries(conversation_id))


async def found_request(log: Log, event_id: str) -> LogEntry | None:
    """Return the step that took the request with this id, without what a store adds to it."""
    entry = await log.request(event_id)
    return None if entry is None else plain([entry])[0]


async def undelivered_in(store: Store) -> list[tuple[str, str, int]]:
    """Return all deliveries that are not acknowledged: conversation, target and effect."""
    return [(one.conversation_id, one.target, one.effect_id) for one in await store.outbox(await store.ids())]
