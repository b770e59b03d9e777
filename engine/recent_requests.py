"""The requests that a conversation has taken: a request that is sent again is not taken twice.

The log holds every one of them, and finds it by its id. The newest are remembered here as well, so that most repeated
requests are known without asking the store.
"""

from __future__ import annotations

from collections import OrderedDict

from ..persistence.ports import Log
from ..states.errors import Refused
from ..states.events import Event, Request

REMEMBERED = 64
"""How many requests are remembered: more than a client sends again at once when its connection comes back."""


class RecentRequests:
    """Knows the requests that stand in one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._recent: OrderedDict[str, Request] = OrderedDict()

    def note(self, event: Event) -> None:
        """Remember an event that was stored, if it is a request."""
        if isinstance(event, Request):
            self._recent[event.event_id] = event
            if len(self._recent) > REMEMBERED:
                self._recent.popitem(last=False)

    def knows(self, request: Request) -> bool:
        """Whether the request is remembered. Raises `Refused` if another one was taken under its id."""
        return _is_same(request, self._recent.get(request.event_id))

    async def was_taken(self, request: Request) -> bool:
        """Whether the request stands in the log. Raises `Refused` if another one was taken under its id, and
        `StoreError`."""
        if self.knows(request):
            return True
        taken = await self._log.request(request.event_id)
        if taken is None:
            return False
        self.note(taken.event)
        return _is_same(request, taken.event)


def _is_same(request: Request, taken: Event | None) -> bool:
    if taken is None:
        return False
    if request.model_copy(update={"at": taken.at}) != taken:
        raise Refused("event_id_reused")
    return True
