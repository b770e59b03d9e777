"""What a tool may know about the call that it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ToolContext:
    """Given to a tool function that has a parameter of this type; the model neither sees nor fills that parameter.

    `key` is `<conversation id>/<effect id>`, the same when this call is run again after a crash: a tool that acts on
    the world hands it on as its idempotency key. Where a person in doubt says that it is to run again, that run has a
    key of its own. `progress` shows a line to whoever watches, and may be called from any thread.
    """

    conversation_id: str
    key: str
    call_id: str
    progress: Callable[[str], None]
