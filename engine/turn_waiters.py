"""How the turns of a conversation stand, for whoever waits to know.

A turn is told of when it has ended, or when it waits for a person; until then its caller waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..states.errors import Refused, TurnwiseError
from ..states.states import AwaitingPerson, InDoubt
from .projection import ConversationProjection
from .turn import Turn

Look = Callable[[], Turn | None]
"""Finds a turn that can be told of, or None as long as it cannot. Raises `Refused` if it never will."""


@dataclass(frozen=True)
class _Waiter:
    look: Look
    future: asyncio.Future[Turn]

    def told(self) -> bool:
        """Tell, if there is something to tell."""
        if self.future.done():
            return True
        try:
            turn = self.look()
        except Refused as refused:
            self.future.set_exception(refused)
            return True
        if turn is not None:
            self.future.set_result(turn)
        return turn is not None


class TurnWaiters:
    """The turns in a memory. Whoever moves that memory on must `tell` those who wait here."""

    def __init__(self, memory: ConversationProjection) -> None:
        self._memory = memory
        self._waiting: list[_Waiter] = []
        self._closed: TurnwiseError | None = None

    async def of_turn(self, number: int) -> Turn:
        """How this turn stands once it has ended or waits for a person; waits until then."""
        return await self._found(partial(self._of_turn, number))

    async def of_message(self, message_id: str) -> Turn:
        """The same for the turn that takes this message. Raises `Refused` if none will, by itself."""
        return await self._found(partial(self._of_message, message_id))

    def standing(self, message_id: str) -> Turn:
        """How the turn of this message stands at this moment."""
        number = self._memory.turn_of(message_id)
        if number is None:
            return Turn(number=0, status="queued")
        return self._of_turn(number) or Turn(number=number, status="running")

    def tell(self) -> None:
        """The conversation has moved on: tell those whose turn can be told of now."""
        self._waiting = [waiter for waiter in self._waiting if not waiter.told()]

    def close(self, why: TurnwiseError) -> None:
        """Nothing moves any more: whoever waits, or would have to, gets `why`."""
        self._closed = why
        for waiter in self._waiting:
            if not waiter.future.done():
                waiter.future.set_exception(why)
        self._waiting.clear()

    async def _found(self, look: Look) -> Turn:
        if (turn := look()) is not None:
            return turn
        if self._closed is not None:
            raise self._closed
        waiter = _Waiter(look, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        return await waiter.future

    def _of_message(self, message_id: str) -> Turn | None:
        number = self._memory.turn_of(message_id)
        return None if number is None else self._of_turn(number)

    def _of_turn(self, number: int) -> Turn | None:
        state = self._memory.state
        if isinstance(state, AwaitingPerson | InDoubt) and state.turn.number == number:
            return Turn.that_waits(state, self._memory.transcript, self._memory.context.policy)
        return self._memory.turns.get(number)
