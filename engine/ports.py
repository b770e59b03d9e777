"""What a loop expects of those around it, who know of it and of whom it knows no more than this."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from ..states.errors import TurnwiseError
from ..states.events import Event
from ..states.states import State
from ..states.step import Step

if TYPE_CHECKING:
    from .loop import Loop


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
