"""What an assistant says in a turn: the texts that a client of another protocol shows as its messages.

That is each text that the model writes, where the rules of the conversation show it, and each text that is said by
tool. The same text is not shown twice because it is also delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .....engine.updates import DeliveryUpdate, MessageUpdate, TokenUpdate, Update
from .....states.policy import Policy
from .text_parts import TextParts, TextPiece


class SaidTexts:
    """Reads the updates of a turn, and yields what the assistant says, in parts.

    With `live`, a text is shown while it is written. A conversation whose rules remove something from what a model
    wrote (secrets, marked lines) shows it only afterwards, without that. Of text that the rules keep from the user, or
    that is for the user only if nothing is said by tool, nothing is shown but what was delivered.
    """

    def __init__(self, policy: Policy, *, live: bool) -> None:
        is_reply = policy.text in ("auto", "reply")
        self._is_live = live and is_reply and not policy.redact and not policy.marker
        self._parts = TextParts()
        self._shown: Counter[str] = Counter()

    def read(self, update: Update) -> Iterator[TextPiece]:
        """Yield what this update adds."""
        match update:
            case TokenUpdate(kind="text", fallback=False) if self._is_live:
                yield from self._parts.token(update)
            case MessageUpdate(role="assistant", text=text, fallback=False):
                self._shown[text] += 1
                yield from self._parts.full_text(text)
            case DeliveryUpdate(text=text) if self._shown[text]:
                self._shown[text] -= 1
            case DeliveryUpdate(text=text):
                yield from self._parts.full_text(text)
            case _:
                pass

    def close(self) -> Iterator[TextPiece]:
        """End a text that was not finished, as the turn has stopped."""
        yield from self._parts.close()

    def full_text(self, text: str) -> Iterator[TextPiece]:
        """Yield a text that the door adds, as a part of its own."""
        yield from self._parts.close()
        yield from self._parts.full_text(text)
