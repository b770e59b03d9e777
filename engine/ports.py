"""The ports of a conversation's loop; those of the store are defined in `persistence/ports.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol, runtime_checkable

from ..effects.context import EffectContext
from ..persistence.ports import Log
from ..states.effects import Effect
from ..states.errors import TurnwiseError
from ..states.events import Event
from ..states.states import State
from ..states.step import LogEntry, Step


class Dispatcher(Protocol):
    """Carries out the effects of committed steps, or has them carried out elsewhere.

    Results come back through `Engine.answer`, which raises `InvalidInput` for an answer that does not hold what it
    declares: its effect then still waits for one. `effects.dispatcher.InProcessDispatcher` runs effects as tasks; a
    dispatcher that hands them to another program need not do anything when a conversation closes. An engine does not
    end its dispatcher: whoever made it does, after the engine has closed.
    """

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Start these effects of one step, in order. Called only after the step was committed; must not wait. A step
        that also stops effects may be handed over in parts. Every awaited effect must get one answer. Effects that
        concern only the log are to be passed over."""
        ...

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Stop an effect, also one that has not started yet. A model, a tool or a sub-agent that was stopped must still
        be answered: with what its performer returns then, or else with its `acknowledgement`. An unknown effect is
        passed over."""
        ...

    async def wait_until_tried(self, conversation_id: str | None = None) -> None:
        """Return when every outgoing effect so far was tried once, of this conversation or of all."""
        ...

    async def stop(self, conversation_id: str, *, answers: bool = True) -> None:
        """Stop everything of a conversation except outgoing effects, because its loop closes. Return in bounded time.
        What finishes all the same is answered, unless `answers` is false; other effects get no answer."""
        ...

    async def release(self, conversation_id: str, *, deliver: bool = True) -> None:
        """Stop outgoing effects, too: once those so far were tried, or after a bounded time; at once unless `deliver`.
        Called after `stop`."""
        ...


class Custodian(Protocol):
    """Knows which conversations this process has the custody of, where several processes share a store."""

    def note_step(self, conversation_id: str, by_others: LogEntry | None) -> bool:
        """Note the step that was stored just now, and return whether its effects are carried out here. Called once for
        each step, with the step if another process has stored it."""
        ...

    def drives(self, conversation_id: str) -> bool:
        """Whether the effects of the conversation are carried out here now."""
        ...

    def proving_log(self, conversation_id: str, log: Log) -> Log:
        """Return the log by which a loop of the conversation is to store steps: what it takes proves the custody."""
        ...

    def interrupted(self, conversation_id: str) -> AbstractAsyncContextManager[None]:
        """Return a context in which no process carries out anything for the conversation. Raises `StoreError`."""
        ...

    async def lose(self, conversation_id: str) -> None:
        """Another process has taken the conversation over: begin nothing more for it, and stop what runs. When this
        returns, its log takes steps like that of any process without custody. Called between two events."""
        ...


class LoopOwner(Protocol):
    """Holds the loops, and hears from each what decides how long it is held."""

    def moved(self, conversation_id: str) -> None:
        """The conversation has taken a step."""
        ...

    def failed(self, conversation_id: str, why: TurnwiseError) -> None:
        """The loop cannot go on, for the reason `why`. It must be closed, and the conversation taken over again by
        another loop when somebody asks for it."""
        ...


class Observer(Protocol):
    """Sees what happens to the conversations of an engine, and changes nothing. Must not raise."""

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """A step of this engine was committed. Its effects have not started yet."""
        ...


@runtime_checkable
class PickUpObserver(Observer, Protocol):
    """An observer that also hears which conversations this process looks after, where several share a store."""

    def picked_up(self, conversation_id: str, state: State) -> None:
        """What is in flight in this state goes on here; another process has stored the steps that led to it."""
        ...

    def let_go(self, conversation_id: str) -> None:
        """The conversation does not go on here any more."""
        ...


@runtime_checkable
class RequestObserver(Observer, Protocol):
    """An observer that also sees how requests are waited for."""

    def asked(self, conversation_id: str, event: Event) -> AbstractContextManager[None]:
        """Return a context that lasts while somebody waits for this request to be handled. What the request fails with
        is raised in it."""
        ...
