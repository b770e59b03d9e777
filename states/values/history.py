"""Messages that a conversation is given to begin with, in the chat format of OpenAI.

Other programs keep their histories in this format. A message is stored exactly as it was given, with whatever members
it has, so that it can be given back unchanged. `openai_format.repair` makes sure that a list of messages is one that a
conversation can continue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, cast

from pydantic import model_serializer, model_validator
from pydantic_core import PydanticCustomError

from .value import Block, Value

HistoryRole = Literal["system", "developer", "user", "assistant", "tool"]

HISTORY_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})

_OWN_CALL_ID = re.compile(r"call_([0-9]{1,18})_[0-9]+(?:_[0-9a-f]{12})?", re.ASCII)
"""A call id as this library makes them: the number of the effect that made the call, the place of the call, and what
tells the histories of one conversation apart."""


class HistoryMessage(Value):
    """A message as it was given: `HistoryMessage(role="user", content="Hello")`. As JSON it is this object itself."""

    given: Block

    if TYPE_CHECKING:  # the members of a message are the arguments, whatever they are

        def __init__(self, **message: Any) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        if message.keys() == {"given"} and isinstance(message["given"], dict):
            message = message["given"]
        role = message.get("role")
        if not (isinstance(role, str) and role in HISTORY_ROLES):
            raise PydanticCustomError("history_role", "a message of a history has one of the roles of OpenAI's format")
        return {"given": message}

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return self.given

    @property
    def role(self) -> HistoryRole:
        """Who says it."""
        return cast(HistoryRole, self.given["role"])

    @property
    def is_system(self) -> bool:
        """Whether it is an instruction of the application."""
        return self.role in ("system", "developer")

    @property
    def calls(self) -> tuple[dict[str, Any], ...]:
        """The tool calls of an assistant's message that name their tool and have an id. `Pure.`"""
        calls = self.given.get("tool_calls") if self.role == "assistant" else None
        return tuple(filter(_is_call, calls)) if isinstance(calls, list) else ()


def _is_call(call: Any) -> TypeGuard[dict[str, Any]]:
    match call:
        case {"id": str(call_id), "function": {"name": str(), "arguments": str()}}:
            return bool(call_id)
        case _:
            return False


def effects_taken(messages: Iterable[HistoryMessage]) -> int:
    """Return the highest number of an effect in the call ids of these messages, or 0. New effects are numbered beyond
    it, so that no new call has the id of a given one. `Pure.`"""
    return max((effect_number(call["id"]) for message in messages for call in message.calls), default=0)


def effect_number(call_id: str) -> int:
    """Return the number of the effect in a call id as this library makes them; 0 for any other id. `Pure.`"""
    own = _OWN_CALL_ID.fullmatch(call_id)
    return 0 if own is None else int(own[1])
