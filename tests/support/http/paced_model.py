"""A model whose answer a test shows piece by piece, from another thread than the one it runs in."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from turnwise.effects.model.port import LlmFailure, ModelAnswer, ModelRequest, Token
from turnwise.testing import reply

from .live_server import PATIENCE


class PacedLlm:
    """A model that waits for the test at every piece. Requests take from one queue, in the order in which they came.

    model.show("Hel"); model.show("lo"); model.answer("Hello")
    """

    def __init__(self, name: str = "paced") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._asked = threading.Semaphore(0)
        self._pieces: deque[Token | ModelAnswer | LlmFailure] = deque()
        self._wakes: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def show(self, text: str, *, thinking: bool = False, speech: bool = False) -> None:
        """Show the next piece of the answer: of its text, of its thinking, or of what a tool is to say."""
        self._put(Token(text, "thinking" if thinking else "speech" if speech else "text"))

    def answer(self, answer: ModelAnswer | LlmFailure | str) -> None:
        """End the request with this answer or failure. A text that was not shown before is not shown."""
        self._put(reply(answer) if isinstance(answer, str) else answer)

    def wait_for_request(self) -> None:
        """Wait until one more request has arrived."""
        assert self._asked.acquire(timeout=PATIENCE), "The model was not asked."

    def _put(self, piece: Any) -> None:
        self._pieces.append(piece)
        for loop, wake in [*self._wakes]:
            loop.call_soon_threadsafe(wake.set)

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request with what the test gives."""
        wake = (asyncio.get_running_loop(), asyncio.Event())
        self._wakes.append(wake)
        self.requests.append(request)
        self._asked.release()
        try:
            while True:
                while not self._pieces:
                    wake[1].clear()
                    await wake[1].wait()
                match self._pieces.popleft():
                    case Token() as token:
                        show(token)
                    case LlmFailure() as failure:
                        raise failure
                    case answer:
                        return answer
        finally:
            self._wakes.remove(wake)
