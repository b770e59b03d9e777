"""Asks a model once, within a deadline: what every performer that needs a model does the same way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ....states.values.value import shortened
from ...text import encodable
from ..failures import make_failure
from ..port import Llm, LlmFailure, ModelAnswer, ModelRequest, Token


def unseen(token: Token) -> None:
    """What nobody watches."""


class ModelCaller:
    """A way to the models. `find` gives the model of a name.

    `deadline` is how many seconds one request may take as a whole, however slowly its pieces come.
    """

    def __init__(self, find: Callable[[str], Llm], deadline: float) -> None:
        self._find = find
        self._deadline = deadline

    async def ask(self, request: ModelRequest, show: Callable[[Token], None] = unseen) -> ModelAnswer:
        """What the model answers; `show` gets the pieces as they come. Raises `LlmFailure`, also at the deadline."""
        try:
            async with asyncio.timeout(self._deadline):
                answer = await self._find(request.model).complete(request, show)
        except TimeoutError:
            raise make_failure("timeout", request.model, f"no answer within {self._deadline:g} s") from None
        if not isinstance(answer, ModelAnswer):
            raise LlmFailure("internal", f"The model {request.model!r} returned something that is no ModelAnswer.")
        return answer


def sentence_of(failed: LlmFailure, before: str = "") -> str:
    """The sentence of a failure on one line, behind what it is about, as an event can hold it. `Pure.`"""
    return shortened(" ".join(encodable(f"{before} {failed.sentence}").split()))
