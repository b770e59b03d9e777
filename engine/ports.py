"""The ports of a conversation's loop, except for the store, whose ports are defined in `persistence/ports.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from ..effects.context import EffectContext
from ..states.effects import Effect
from ..states.errors import TurnwiseError
from ..states.events import Event
from ..states.states import State
from ..states.step import Step

if TYPE_CHECKING:
    from .loop import Loop


class Dispatcher(Protocol):
    """Carries out the effects of committed steps, or has them carried out elsewhere.

    Results come back through `Engine.answer`. `effects.dispatcher.InProcessDispatcher` runs them as tasks; a
    dispatcher that hands them to another program need not do anything when a conversation closes.
    """

    def dispatch(self, effects: Sequence[Effect], context: EffectContext) -> None:
        """Start the effects of one step, in order. Called only after the step was committed; must not wait. Every
        awaited effect must get one answer. Effects that concern only the log are to be passed over."""
        ...

    def abort(self, conversation_id: str, effect_id: int) -> None:
        """Stop an effect, also one that has not started yet. A tool or a sub-agent that was stopped must still be
        answered, with `ToolAborted` or `SubAgentFinished`. An unknown effect is passed over."""
        ...

    async def tried(self, conversation_id: str | None = None) -> None:
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


class Keeper(Protocol):
    """Who holds the loops."""

    def keep(self, loop: Loop) -> None:
        """The loop has gone a step further, or begun."""
        ...

    def lose(self, loop: Loop, why: TurnwiseError) -> None:
        """The conversation went on elsewhere, or cannot go on here: this loop must end, and be read from the store
        again."""
        ...


class Observer(Protocol):
    """Who looks on, and changes nothing."""

    def asked(self, conversation_id: str, event: Event) -> AbstractContextManager[None]:
        """Somebody asks for something, and waits while this holds."""
        ...

    def stepped(self, conversation_id: str, before: State, event: Event, step: Step) -> None:
        """A step was committed, and nothing that it wants has begun yet."""
        ...
