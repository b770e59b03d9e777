"""A turn as the text that it says, for protocols that have nothing but texts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from .....engine.turns import Turn
from .prompts import prompt_of
from .requested_turn import RequestedTurn
from .said_texts import SaidTexts
from .text_parts import TextPiece

BETWEEN_PARTS = "\n\n"


async def spoken_turn(
    requested: RequestedTurn, *, live: bool, prompts: bool = True
) -> AsyncGenerator[str | Turn, None]:
    """Yield what is said in the turn, in pieces that joined make one text; and at last the turn, as it ended or waits
    for a person. With `prompts`, what it asks a person is said as well. With `live`, a text comes while it is written.
    """
    texts = SaidTexts(requested.conversation.policy, live=live)
    joined = _Joined()
    async with aclosing(requested.updates()) as updates:
        async for update in updates:
            for piece in texts.read(update):
                yield joined.text_of(piece)
    for piece in texts.close():
        yield joined.text_of(piece)
    turn = await requested.turn()
    missing = turn.deliveries if joined.is_empty else ()  # the updates of the turn could not be shown
    prompt = prompt_of(turn) if prompts else None
    for text in (*missing, *([] if prompt is None else [prompt])):
        for piece in texts.full_text(text):
            yield joined.text_of(piece)
    yield turn


class _Joined:
    """Puts a blank line between parts."""

    def __init__(self) -> None:
        self._number = 0

    @property
    def is_empty(self) -> bool:
        return not self._number

    def text_of(self, piece: TextPiece) -> str:
        begins = piece.number != self._number
        text = BETWEEN_PARTS + piece.text if begins and self._number else piece.text
        self._number = piece.number
        return text
