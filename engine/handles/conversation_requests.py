"""The requests of a handle that concern the conversation itself: its rules, its compaction and its end."""

from __future__ import annotations

from ...states.events import CloseRequested, CompactionRequested, Event, PolicyChanged
from ...states.policy.policy import Policy
from ...states.states import Cancelling, Compacting
from ...states.step import Step
from ..compaction import failure_of, goes_on
from ..requests import checked, make
from .handle import Handle, new_id


class ConversationRequests(Handle):
    """The requests of a conversation that change it, or end it."""

    async def set_policy(self, policy: Policy) -> None:
        """Change the policy from the next turn on. Its models are replaced by those of the engine."""
        policy = self._host.with_models(policy)
        await self._ask(make(PolicyChanged, event_id=new_id(), at=self._host.now(), policy=policy))

    async def compact(self) -> None:
        """Have everything so far condensed into a summary, which replaces it in requests to models; the log and the
        transcript keep everything. Returns when that is done, or was stopped by `cancel` or `close`.
        Raises `CompactionFailed` if it could not be done, and `Refused`: `busy` and the like during a turn."""
        step = await self._ask(make(CompactionRequested, event_id=new_id(), at=self._host.now()))
        feed, begun = self._loop.feed, step.state
        assert isinstance(begun, Compacting), "the table rests there whenever it takes this request"
        while goes_on(self._loop.state, begun) and not feed.closed:
            await feed.changed()
        if (failure := failure_of(begun, await self._read_entries(begun.book.seq))) is not None:
            raise failure

    async def close(self) -> None:
        """End the conversation for good, and cancel what runs. It can still be read."""
        step = await self._ask(make(CloseRequested, event_id=new_id(), at=self._host.now()))
        if isinstance(step.state, Cancelling):
            await self._turn(step)

    async def dispatch(self, event: Event) -> Step:
        """Submit an event, and return the step that it led to. Raises `InvalidInput` and `Refused`."""
        return await self._ask(checked(event))
