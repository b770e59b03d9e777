"""The conversation as it is, for a watcher that begins now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ....states.policy import Policy
from ....states.states import State, pending
from ....states.transcript import Transcript
from ....states.values.messages import Message
from .message_view import message_data, message_view
from .state_view import StateView, view_of
from .stored import StoredUpdate
from .streamed_text import Streaming


@dataclass(frozen=True)
class SnapshotUpdate(StoredUpdate):
    """The conversation as it is now: its `state` as in state_change, and its `transcript`, messages with their
    `deliveries` if there are any. `streaming` is the text that the model has written so far of an answer that is not
    complete; it is left out if there is none."""

    type: ClassVar[Literal["snapshot"]] = "snapshot"
    state: StateView
    transcript: tuple[Message, ...]
    streaming: Streaming | None = None

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        data = {"state": self.state.data, "transcript": [message_data(message) for message in self.transcript]}
        return data if self.streaming is None else {**data, "streaming": self.streaming.data}


def snapshot(
    state: State, transcript: Transcript, policy: Policy, streaming: Streaming | None = None
) -> SnapshotUpdate:
    """Return the conversation as it is now, for a new watcher. Its id follows those of all updates so far. `Pure.`"""
    return SnapshotUpdate(
        (state.book.seq + 1, 0),
        state=view_of(state, transcript, policy),
        transcript=tuple(message_view(message, policy) for message in transcript.messages),
        streaming=streaming if streaming is not None and streaming.request in pending(state) else None,
    )
