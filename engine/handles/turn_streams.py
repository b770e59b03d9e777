"""What a handle shows of one turn: its updates as they happen, and the turn once it has stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress
from functools import partial

from ...states.errors import InvalidInput, Refused
from ...states.events import UserMessage
from ...states.policy import WhenBusy
from ...states.values.messages import Image
from ..projections.turn import Turn
from ..projections.turn_stream import updates_of_turn
from ..projections.updates.update import Update
from .turn_requests import TurnRequests


class TurnStreams(TurnRequests):
    """Follows one turn of a conversation."""

    def stream(
        self,
        text: str,
        *,
        images: Iterable[str | bytes | Image] = (),
        message_id: str | None = None,
        when_busy: WhenBusy | None = None,
    ) -> AsyncGenerator[Update, None]:
        """Send a message, and yield the updates of the turn that takes it: from the message on, without a snapshot,
        until the turn has ended (`turn_ended`) or waits for a person (a `state_change`).

            async for update in conversation.stream("A table for two"): ...

        The arguments are those of `send`. The message is sent when the iteration begins. A message that waits for its
        turn shows nothing until then; one that is sent again under its `message_id` is not taken twice, and the same
        stored updates are shown. Leaving the loop does not stop the turn. Raises `InvalidInput` at once, and later what
        `send` raises.
        """
        return self._stream(self._message(text, images, message_id, when_busy))

    async def _stream(self, message: UserMessage) -> AsyncGenerator[Update, None]:
        loop = self._loop
        await loop.turns.read()  # from here on the updates of every step are known
        with loop.feed.reading(), loop.follower.waiting():
            watcher = self._watcher()
            async with self._sending:
                outcome = await self._ask(message)
            updates = watcher.updates_from_now()
            if outcome.step.ignored and outcome.handled is not None:
                updates = self._watcher(f"{outcome.handled.seq}.0").updates()
            await loop.turns.taken(message.event_id)
            stopped = partial(loop.turns.of_message, message.event_id)
            async with aclosing(self._noted(updates_of_turn(updates, message.event_id, stopped))) as shown:
                async for update in shown:
                    yield update

    async def wait(self) -> Turn:
        """Wait until the turn under way ends or waits for a person, and return it; if none is under way, return the
        newest turn at once.

        It does not matter who began the turn: another handle, another engine over the same store, or a process that has
        ended since. The steps of another engine are looked for twice a second. Raises `Refused` with `wrong_state` if
        there was no turn yet, and what `send` raises.
        """
        with suppress(Refused):  # the store takes nothing at the moment; what is known here is as it was stored
            await self._loop.catch_up()
        return await self._stopped_turn(self._loop.turns.newest())

    async def turn_after(self, request_id: str) -> Turn:
        """Wait until the turn of this request ends or waits for a person for the first time after it, and return it as
        it was then, even if it has gone on since. `request_id` is also the id of a message.

        So a server answers a repeated request as it answered the first one; `send` returns the turn of a repeated
        message as it is by now. Raises `InvalidInput` if no request with this id was stored, and what `send` raises.
        """
        handled = await self._loop.recent_requests.find_by_id(request_id)
        if handled is None or not handled.seq:
            raise InvalidInput("No request was stored under this id.")
        is_message = isinstance(handled.request, UserMessage)
        number = await self._loop.turns.taken(request_id) if is_message else handled.turn
        if not number:
            raise InvalidInput("This request belongs to no turn.")
        return await self._stopped_turn(self._loop.turns.after(handled.seq, number))
