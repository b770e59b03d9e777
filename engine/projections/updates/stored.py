"""Updates that follow from the log. Each has an id, from which a watcher can resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ....states.values.messages import Image, MessageRole, Usage
from ....states.values.turn import EndedStatus, LimitKind
from ..turn import EndedTurn
from .data import data_of
from .state_view import StateView
from .update_id import Position

ToolStatus = Literal["running", "completed", "failed", "cancelled", "denied"]
"""What became of a tool call so far."""


@dataclass(frozen=True)
class StoredUpdate:
    """What all updates that follow from the log have: a `position`, in whose order they come."""

    position: Position

    @property
    def id(self) -> str:
        """The position as text, which `Conversation.updates` takes as `after`."""
        return f"{self.position[0]}.{self.position[1]}"

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON. A field that is not set is left out."""
        return data_of(self)


@dataclass(frozen=True)
class StateChangeUpdate(StoredUpdate):
    """The conversation is in another `state`, or what the state tells has changed. As data, `type` is the type of the
    state and `data` what it tells."""

    type: ClassVar[Literal["state_change"]] = "state_change"
    state: StateView

    @property
    def data(self) -> dict[str, Any]:
        """The state as JSON."""
        return self.state.data


@dataclass(frozen=True)
class MessageUpdate(StoredUpdate):
    """A message entered the transcript: of a user, with the `message_id` under which it was sent, or of the model.
    `origin` is the agent that wrote it, if it was another one. With `fallback` a text of the model reaches the user
    only if nothing is said by tool in the turn; if it does, an update shows the delivery."""

    type: ClassVar[Literal["message"]] = "message"
    role: MessageRole
    text: str
    turn: int
    message_id: str = ""
    origin: str = ""
    images: tuple[Image, ...] = ()
    fallback: bool = False


@dataclass(frozen=True)
class ThoughtUpdate(StoredUpdate):
    """The model thought this, or wrote a text that the rules keep from the user."""

    type: ClassVar[Literal["thought"]] = "thought"
    text: str
    turn: int


@dataclass(frozen=True)
class ToolUpdate(StoredUpdate):
    """A tool call was started, or has ended with a `result` or an `error`: the text that the model reads. `speaks` says
    whether the tool may say something to the user. `raw_arguments` is set where the model did not write a JSON
    object."""

    type: ClassVar[Literal["tool"]] = "tool"
    call_id: str
    name: str
    speaks: bool
    status: ToolStatus
    turn: int
    arguments: dict[str, Any]
    raw_arguments: str | None = None
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class DeliveryUpdate(StoredUpdate):
    """This text is said to the user. `ordinal` counts the deliveries of the turn; a `relayed` one was written by
    another agent."""

    type: ClassVar[Literal["delivery"]] = "delivery"
    text: str
    turn: int
    ordinal: int
    relayed: bool = False


@dataclass(frozen=True)
class TurnEndedUpdate(StoredUpdate):
    """A turn has ended. The fields are those of the turn, whose number is `turn`."""

    type: ClassVar[Literal["turn_ended"]] = "turn_ended"
    turn: int
    status: EndedStatus
    is_complete: bool
    reply: str
    final_content: str | None
    user_response: str | None
    deliveries: tuple[str, ...]
    silent: bool
    truncated: bool
    failure: str | None
    limit: LimitKind | None
    usage: Usage
    profile: str

    @classmethod
    def of(cls, position: Position, turn: EndedTurn) -> TurnEndedUpdate:
        """Return the update that shows the end of this turn. `Pure.`"""
        return cls(
            position,
            turn=turn.number,
            status=turn.status,
            is_complete=turn.status == "completed",
            reply=turn.reply,
            final_content=turn.final_content,
            user_response=turn.user_response,
            deliveries=turn.deliveries,
            silent=turn.silent,
            truncated=turn.truncated,
            failure=turn.failure,
            limit=turn.limit,
            usage=turn.usage,
            profile=turn.profile,
        )

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON."""
        return {**data_of(self), "usage": self.usage.model_dump(mode="json")}
