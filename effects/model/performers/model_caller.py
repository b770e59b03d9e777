"""Asks a model once, within a deadline. All performers that need a model use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ....states.values.value import shortened
from ...text import encodable
from ..failures import make_failure
from ..port import Llm, LlmFailure, ModelAnswer, ModelRequest, Token


def ignore_token(token: Token) -> None:
    """Show the token to nobody."""


class ModelCaller:
    """Asks the models of an engine. `find` returns the model of a name.

    `deadline` is how many seconds one request may take as a whole, however slowly the pieces of its answer come.
    """

    def __init__(self, find: Callable[[str], Llm], deadline: float) -> None:
        self._find = find
        self._deadline = deadline

    async def ask(self, request: ModelRequest, show: Callable[[Token], None] = ignore_token) -> ModelAnswer:
        """Return the model's answer, and call `show` with each piece of it. Raises `LlmFailure`, also at the
        deadline."""
        try:
            async with asyncio.timeout(self._deadline):
                answer = await self._find(request.model).complete(request, show)
        except TimeoutError:
            raise make_failure("timeout", request.model, f"no answer within {self._deadline:g} s") from None
        if not isinstance(answer, ModelAnswer):
            raise LlmFailure("internal", f"The model {request.model!r} returned something that is no ModelAnswer.")
        return answer


def sentence_of(failure: LlmFailure, introduction: str = "") -> str:
    """The sentence of a failure behind its introduction, on one line, as an event can hold it. `Pure.`"""
    return shortened(" ".join(encodable(f"{introduction} {failure.sentence}").split()))
