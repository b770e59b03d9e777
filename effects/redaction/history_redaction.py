"""A history in OpenAI's chat format, without secrets.

Its messages are any JSON, stored as they were given. The ids of calls in it come from elsewhere, so a secret may stand
in them as well; other messages refer to them. So the same id becomes the same one everywhere, and two that differ stay
two.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...states.values.messages import HistoryMessage
from .redaction import Redaction

_IDS = frozenset({"id", "call_id", "tool_call_id"})
"""Members that tie messages together, as far as a text is their value."""

_SEALED = frozenset({"thinking_blocks", "reasoning_details", "encrypted_content", "signature"})
"""Members that a provider has signed or encrypted, which cannot be changed."""

_NO_ADDRESS = "[REDACTED]"
"""Stands for the address of an image that holds a secret. It leads nowhere, so the image is passed over."""


def redacted_history(messages: tuple[HistoryMessage, ...], redaction: Redaction) -> tuple[HistoryMessage, ...]:
    """Return the messages without secrets, or the same object if they have none."""
    history = _History(redaction, messages)
    redacted = tuple(history.redacted(message) for message in messages)
    return messages if all(map(operator.is_, redacted, messages)) else redacted


class _History:
    """Redacts the messages of one history."""

    def __init__(self, redaction: Redaction, messages: Iterable[HistoryMessage]) -> None:
        self._redaction = redaction
        self._ids = _redacted_ids(
            [*dict.fromkeys(found for one in messages for found in _ids_in(one.given))], redaction
        )

    def redacted(self, message: HistoryMessage) -> HistoryMessage:
        """Return the message without secrets, or the same object."""
        given: dict[str, Any] = self._of(message.given)
        return message if given == message.given else message.model_copy(update={"given": given})

    def _of(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._of(one) for one in value]
        if not isinstance(value, dict):
            return self._redaction.redact_json(value)
        members = ((name, self._member(name, member)) for name, member in value.items())
        return {self._redaction.redact(name): member for name, member in members if member is not _SEALED}

    def _member(self, name: str, member: Any) -> Any:
        """Return the value of a member, or `_SEALED` if the member is to be left out."""
        if isinstance(member, str):
            if name in _IDS:
                return self._ids[member]
            if name == "url":
                return member if self._redaction.redact(member) == member else _NO_ADDRESS
        if name in _SEALED:
            return member if self._redaction.redact_json(member) == member else _SEALED
        if isinstance(member, dict | list):
            return self._of(member)
        (redacted,) = self._redaction.redact_json({name: member}).values()
        return redacted


def _ids_in(value: Any) -> Iterator[str]:
    """Yield the ids in a message, with repetitions."""
    if isinstance(value, list):
        for one in value:
            yield from _ids_in(one)
    elif isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, str) and name in _IDS:
                yield member
            else:
                yield from _ids_in(member)


def _redacted_ids(ids: Sequence[str], redaction: Redaction) -> dict[str, str]:
    """Return what stands for each id. One that would become like another has a number behind it."""
    redacted = dict(zip(ids, redaction.redact_json(list(ids)), strict=True))
    taken = {one for one, other in redacted.items() if one == other}
    numbers: Counter[str] = Counter()
    for one, other in redacted.items():
        if one != other:
            unused = other
            while unused in taken:
                numbers[other] += 1
                unused = f"{other} {numbers[other] + 1}"
            taken.add(unused)
            redacted[one] = unused
    return redacted
