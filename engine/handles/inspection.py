"""What a handle shows of the machine: its state, its steps, what a model was sent, and what waits to be delivered."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from ...effects.context import mark_of
from ...effects.model.performers.llm_request import RequestWriter
from ...states.errors import InvalidInput
from ..projections.request_view import RequestView, asked_request, written_request
from ..projections.step_view import StepView
from ..projections.updates.state_view import StateView, view_of
from .handle import Handle

if TYPE_CHECKING:
    from ...persistence.records import Origin, Undelivered


class Inspection(Handle):
    """Reads the log for people who look into the machine. Nothing in the conversation changes by that."""

    async def view(self) -> StateView:
        """Return the current state as updates show it."""
        projection = self._loop.projection
        await projection.read()
        return view_of(projection.state, projection.transcript, projection.context.policy)

    async def updated_at(self) -> datetime:
        """Return the moment of the newest step, as `Engine.list` shows it."""
        entries = await self._read_entries(self._loop.projection.seq - 1)
        return entries[-1].event.at

    async def steps(self, after: int = 0, limit: int | None = None) -> tuple[StepView, ...]:
        """Return the steps that follow the step `after`, at most `limit` of them, in order: each with its event, its
        effects, and the state that it led to.

        The states are computed from the beginning of the log, so a page far back costs as much as all steps before it;
        the page behind one that was read lately costs only itself. Raises `InvalidInput`, and `Damaged` if the log
        cannot be read, or if a step does not come out as it was stored.
        """
        first, most = _count("after", after), None if limit is None else _count("limit", limit)
        return () if most == 0 else await self._loop.steps.read(first, most)

    async def step_of(self, request_id: str) -> int | None:
        """Return the number of the step that took the request with this id, which may be that of a message; None if no
        step did. The cost does not grow with the log. Raises `UnknownConversation` if the conversation was deleted, and
        `StoreError`."""
        handled = await self._loop.recent_requests.find_by_id(request_id)
        return None if handled is None or handled.is_no_op else handled.seq

    async def model_request(self, seq: int) -> RequestView:
        """Return the request for the next answer that the step `seq` asked for, as it was sent to the model, or is
        being sent. It is written again from the log, by the code that wrote it then.

        Raises `InvalidInput` if there is no such step, or if it asked for none (`StepView.requests` is empty); and
        `Damaged` if the log cannot be read.
        """
        asked = await asked_request(self._loop.projection, self._read_entries, _count("seq", seq))
        choices = self._host.choices
        return written_request(self.id, asked, RequestWriter(choices.registry, choices.models.family_of))

    async def origin(self) -> Origin | None:
        """Return where this conversation was copied from, and the newest step that both have in common; None if it is
        no copy."""
        from ...persistence.maintenance.fork import origin_of

        return await origin_of(self._host.store, self.id)

    async def history_mark(self) -> str:
        """Return a short text that no other history under this id has: a conversation that was deleted and created
        again has another one. It is for names outside that must not be taken for those of another history."""
        (first,) = await self._read_entries(0, 1)
        return mark_of(first.chain)

    async def outbox(self) -> tuple[Undelivered, ...]:
        """Return the deliveries of this conversation that are not acknowledged: for each channel, and for each agent
        that was written to, in the order in which they were asked for."""
        return await self._host.store.outbox([self.id])


def _count(name: str, number: int) -> int:
    if type(number) is not int or not 0 <= number < 2**62:
        raise InvalidInput(f"{name} is a whole number, not below 0.")
    return number
