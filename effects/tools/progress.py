"""Hands what a function of a tool shows of its progress over to the event loop.

A plain function runs in a thread of its own, and what a conversation shows belongs to the event loop. So a line is
shown there, also one of a coroutine function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...states.errors import InvalidInput
from ...states.values.value import encodable

_NO_TEXT = "What a tool shows of its progress must be readable as text."


class Progress:
    """Forwards progress from any thread to the event loop in which this is made, until the call is over.

    Set `show`, which shows a line, before the function begins.
    """

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self.show = show
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    def __call__(self, line: object) -> None:
        """Show the line soon. Raises `InvalidInput` for one that has no text: here, where the tool reports it, because
        an error in the event loop would be nobody's."""
        try:
            text = encodable(str(line))  # a tool may report a number
        except Exception as error:
            raise InvalidInput(_NO_TEXT) from error
        self._loop.call_soon_threadsafe(self._forward, text)

    def close(self) -> None:
        """Show nothing more: the call is over."""
        self._is_over = True

    def _forward(self, line: str) -> None:
        if self.show is not None and not self._is_over:
            self.show(line)
