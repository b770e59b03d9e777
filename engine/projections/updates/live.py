"""Updates that are shown while something happens and are never stored. They have no id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from ....effects.context import LiveKind
from ....states.errors import InvalidInput
from ....states.states import Compacting, LlmRequesting, State
from ....states.values.value import encodable
from .data import data_of


@dataclass(frozen=True)
class BaseLiveUpdate:
    """What all live updates have."""

    id: ClassVar[None] = None
    position: ClassVar[None] = None

    @property
    def data(self) -> dict[str, Any]:
        """The fields as JSON. A field that is not set is left out."""
        return data_of(self)


@dataclass(frozen=True)
class TokenUpdate(BaseLiveUpdate):
    """A piece of the answer that a model is writing, of the `kind` text or thinking. `request` and `attempt` are those
    of the state: a piece of another request or attempt begins a new answer. With `fallback` the text reaches the user
    only if the model says nothing by tool. With `from_start` the text is everything of this kind that was streamed so
    far, and replaces what is shown of it: for a watcher that has missed pieces."""

    type: ClassVar[Literal["token"]] = "token"
    text: str
    kind: Literal["text", "thinking"]
    turn: int
    request: int
    attempt: int
    from_start: bool = False
    fallback: bool = False


@dataclass(frozen=True)
class ToolProgressUpdate(BaseLiveUpdate):
    """A tool that runs reports this text, by `ToolContext.progress`."""

    type: ClassVar[Literal["tool_progress"]] = "tool_progress"
    call_id: str
    text: str
    turn: int


@dataclass(frozen=True)
class DeliveredUpdate(BaseLiveUpdate):
    """This channel has taken the delivery `ordinal` of this turn. The `key` is that of the delivery."""

    type: ClassVar[Literal["delivered"]] = "delivered"
    turn: int
    ordinal: int
    key: str
    channel: str


@dataclass(frozen=True)
class DeliveryFailedUpdate(BaseLiveUpdate):
    """This channel has not taken the delivery, for the reason in `sentence`. It is tried again."""

    type: ClassVar[Literal["delivery_failed"]] = "delivery_failed"
    turn: int
    ordinal: int
    key: str
    channel: str
    sentence: str


LiveUpdate: TypeAlias = TokenUpdate | ToolProgressUpdate | DeliveredUpdate | DeliveryFailedUpdate


_KINDS: Mapping[LiveKind, type[LiveUpdate]] = {
    "token": TokenUpdate,
    "tool_progress": ToolProgressUpdate,
    "delivered": DeliveredUpdate,
    "delivery_failed": DeliveryFailedUpdate,
}


def live_update(kind: LiveKind, data: Mapping[str, Any], effect_id: int, state: State) -> LiveUpdate:
    """Return what a performer reports of the effect `effect_id`, with the ids that the state knows. Raises
    `InvalidInput` for data that an update of this kind does not have. `Pure.`"""
    given: dict[str, Any] = {
        name: encodable(value) if isinstance(value, str) else value for name, value in data.items()
    }
    if kind == "token":
        _check_token(given)
        attempt = state.attempt if isinstance(state, LlmRequesting | Compacting) else 1
        given |= {"turn": state.book.turn, "request": effect_id, "attempt": attempt}
    elif kind == "tool_progress":
        given |= {"turn": state.book.turn, "text": encodable(str(given.get("text", "")))}  # a tool may report a number
    try:
        return _KINDS[kind](**given)
    except TypeError:
        raise InvalidInput(f"A live update of the kind {kind} has other data.") from None


def _check_token(data: Mapping[str, Any]) -> None:
    if not isinstance(data.get("text"), str):
        raise InvalidInput("What a model shows of its answer is a text.")
    if data.get("kind") not in ("text", "thinking"):
        raise InvalidInput("A token is of the kind text or of the kind thinking.")
