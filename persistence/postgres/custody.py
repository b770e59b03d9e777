"""Who looks after a conversation, and what calls for somebody who does."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from ..sql.statements import Driver


class Calls(Protocol):
    """What calls for processes within a transaction of the store, for which `Jobs` finds them.

    A call is made if the transaction is committed, and only then. One too many does no harm.
    """

    def call(self, driver: Driver, conversation_id: str) -> None:
        """Call for a process that looks after the conversation. Without effect while such a call waits."""
        ...

    def call_at(self, driver: Driver, conversation_id: str, due: datetime) -> None:
        """Call for a process at this moment; at once if it is past."""
        ...
