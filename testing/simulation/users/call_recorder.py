"""Records what users call and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ....states.errors import CompactionFailed, EngineClosed, InvalidInput, Refused, UnknownConversation
from ....states.events import Event, Request
from ....states.step import Step
from ..environment.event_trace import EventTrace
from ..storage.storage import Process

if TYPE_CHECKING:
    from ....engine.conversation import Conversation

Outcome = Literal["waits", "returned", "refused", "cancelled", "closed", "broken"]
"""How a call ended: `cancelled` by its caller; `closed` because its engine was, or because its process had died."""


@dataclass(eq=False)
class Call:
    """A call of a user, and what came back. `event` is what was handed over, if the user made the event; `request_id`
    is the id under which the user asked for something."""

    who: str
    what: str
    process: Process
    event: Event | None = None
    request_id: str = ""
    outcome: Outcome = "waits"
    result: Any = None

    @property
    def step(self) -> Step | None:
        """The step that was returned."""
        return self.result if isinstance(self.result, Step) else None


class Asked(NamedTuple):
    """A request as a user made it: `ask` makes it under an id, by any handle."""

    request_id: str
    what: str
    ask: Callable[[Conversation, str], Coroutine[Any, Any, Any]]


@dataclass
class CallRecorder:
    """All calls of all users, in order."""

    trace: EventTrace
    calls: list[Call] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    """The ids of requests that users chose themselves."""
    asked: list[Asked] = field(default_factory=list)
    """The requests that were made by a method of a handle."""
    is_deleted: Callable[[], bool] = lambda: False
    """Whether the conversation was deleted."""

    @property
    def requests(self) -> list[Request]:
        """The requests that users made themselves."""
        return [call.event for call in self.calls if isinstance(call.event, Request)]

    def has_made(self, request: Request) -> bool:
        """Whether a user has made this very request, under an id of the user's own. One that a user has read in the log
        and handed over once more was made by somebody else."""
        return request.event_id in self.ids and request in self.requests

    async def record(self, call: Call, calling: Coroutine[Any, Any, Any]) -> None:
        """Make a call, and record what comes back, whatever it is."""
        self.calls.append(call)
        self.trace.record(call.who, call.what)
        try:
            call.result = await calling
            call.outcome = "returned"
        except BaseException as error:
            call.result = error
            call.outcome = self._outcome(error)
        if call.process.is_dead and call.outcome != "cancelled":
            call.outcome, call.result = "closed", None
        self.trace.record(call.who, f"{call.what}: {call.outcome}, {_short(call.result)}")
        if call.outcome == "broken":
            self.trace.report_fault(f"{call.who}, {call.what}: {type(call.result).__name__}: {call.result}")

    def _outcome(self, error: BaseException) -> Outcome:
        is_misfit = isinstance(error, InvalidInput) and error.subject == "arguments"  # the tool refuses what was edited
        if is_misfit or isinstance(error, Refused | CompactionFailed):
            return "refused"
        if isinstance(error, asyncio.CancelledError):
            return "cancelled"
        is_gone = isinstance(error, UnknownConversation) and self.is_deleted()
        return "closed" if is_gone or isinstance(error, EngineClosed) else "broken"


def _short(result: object) -> str:
    status = getattr(result, "status", None)
    if status is not None:
        return f"turn {getattr(result, 'number', '')} {status}"
    if isinstance(result, Step):
        return "ignored" if result.ignored else f"step {result.state.book.seq}"
    return result.code if isinstance(result, Refused) else str(result)
