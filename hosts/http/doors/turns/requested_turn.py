"""A request of a client, and the turn that it begins or continues.

Handing the request over and following the turn are two steps, so that a refusal can be answered with a status before a
stream begins. Both can be repeated under the same id: the turn is then shown as it went the first time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from .....engine.conversation import Conversation
from .....engine.turns import Turn
from .....engine.updates import SnapshotUpdate, StateChangeUpdate, TurnEndedUpdate, Update
from .....states.events import Request
from ...permissions import Caller
from .acts import Act, perform


class RequestedTurn(ABC):
    """A request under an id, and the turn that it belongs to. Call `store` first."""

    def __init__(self, conversation: Conversation, request_id: str) -> None:
        self.conversation = conversation
        self.request_id = request_id

    @abstractmethod
    async def store(self) -> Turn:
        """Hand the request to the conversation, and return the turn as of the moment when it is stored. Raises
        `InvalidInput`, `Refused` and `StoreError`."""

    @abstractmethod
    def updates(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates of the turn, from the request on until the turn ends or waits for a
        person."""

    async def turn(self) -> Turn:
        """Wait until the turn ends or waits for a person for the first time after the request, and return it."""
        return await self.conversation.turn_after(self.request_id)


@dataclass(frozen=True)
class Said:
    """A message of the user."""

    text: str
    images: Sequence[str] = ()


class MessageTurn(RequestedTurn):
    """The turn that takes a message."""

    def __init__(self, conversation: Conversation, request_id: str, said: Said) -> None:
        super().__init__(conversation, request_id)
        self._said = said

    async def store(self) -> Turn:
        """Send the message."""
        said = self._said
        return await self.conversation.send(said.text, images=said.images, message_id=self.request_id, wait=False)

    def updates(self) -> AsyncGenerator[Update, None]:
        """Return an iterator over the updates since the message."""
        return self.conversation.stream(self._said.text, images=self._said.images, message_id=self.request_id)


class ActTurn(RequestedTurn):
    """The turn that goes on after what a person did about it."""

    def __init__(self, caller: Caller, conversation: Conversation, request_id: str, act: Act) -> None:
        super().__init__(conversation, request_id)
        self._caller = caller
        self._act = act

    @property
    def call_id(self) -> str:
        """The call that the act is about."""
        return self._act.call_id

    async def store(self) -> Turn:
        """Answer, decline, approve or resolve."""
        return await perform(self._caller, self.conversation, self._act, self.request_id)

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yield the updates since the act. Where some cannot be shown, none are; the turn is waited for all the
        same."""
        seq = await seq_of_request(self.conversation, self.request_id)
        async with aclosing(self.conversation.updates(after=f"{seq}.0")) as updates:
            async for update in updates:
                if isinstance(update, SnapshotUpdate):
                    break
                yield update
                if _stops(update):
                    return
        await self.turn()


async def seq_of_request(conversation: Conversation, request_id: str) -> int | None:
    """Return the number of the step that took the request with this id, None if there is none."""
    for entry in reversed(await conversation.events()):
        if isinstance(entry.event, Request) and entry.event.event_id == request_id:
            return entry.seq
    return None


def _stops(update: Update) -> bool:
    """Whether the turn ends with this update, or waits for a person."""
    if isinstance(update, StateChangeUpdate):
        return update.state.waits_for_person
    return isinstance(update, TurnEndedUpdate)
