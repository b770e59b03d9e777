"""Asks a model within a deadline, and turns a failure into an answer. All performers that need a model use it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ....states.events import EffectFailed
from ....states.policy.policy import Retry
from ....states.values.failures import TRANSIENT
from ....states.values.surrogates import encodable
from ....states.values.value import later, shortened
from ...clock import Clock
from ..failure_sentences import make_failure
from ..families import family_of
from ..port import Llm, LlmFailure, ModelAnswer, ModelRequest, Token, ready_of
from .time_limit import TimeLimit

T = TypeVar("T")


def ignore_token(token: Token) -> None:
    """Do nothing with the token."""


MAX_CALLS = 1_000
"""The most calls of one answer. More than any model makes; each step of a round stores what is left of it, so the cost
of a round grows with the square of its calls."""

LONGEST_LOADING = 300.0
"""Seconds until a model that does not get ready counts as failed. Many times what the slowest disk takes to load
litellm, so that it ends only what hangs."""


class ModelCaller:
    """Asks the models of an engine. `find` returns the model of a name.

    `deadline` is how many seconds one request may take as a whole, however slowly the pieces of its answer come. It
    begins when the model is ready: what a model loads before its first request is not what the deadline is for.
    """

    def __init__(self, find: Callable[[str], Llm], deadline: float) -> None:
        self._find = find
        self._limit = TimeLimit(deadline)
        self._loading = TimeLimit(LONGEST_LOADING)

    def family_of(self, name: str) -> str:
        """The family of the model of this name."""
        return family_of(self._find(name))

    async def ask(self, request: ModelRequest, show: Callable[[Token], None] = ignore_token) -> ModelAnswer:
        """Return the model's answer, and call `show` with each piece of it. Raises `LlmFailure`, also at the
        deadline."""
        model = self._find(request.model)
        if (ready := ready_of(model)) is not None:
            with _failing_after(self._loading, request.model, "not ready"):
                await ready()
        with _failing_after(self._limit, request.model, "no answer"):
            answer = await model.complete(request, show)
        if not isinstance(answer, ModelAnswer):
            raise LlmFailure("internal", f"The model {request.model!r} returned something that is no ModelAnswer.")
        if len(answer.tool_calls) > MAX_CALLS:
            raise make_failure("malformed_response", request.model, f"it makes more than {MAX_CALLS:,} calls at once")
        return answer


@contextmanager
def _failing_after(limit: TimeLimit, model: str, what: str) -> Iterator[None]:
    """Return a context that raises `LlmFailure` at the limit."""
    try:
        with limit.apply():
            yield
    except TimeoutError:
        raise make_failure("timeout", model, f"{what} within {limit.seconds:g} s") from None


def sentence_of(failure: LlmFailure, introduction: str = "") -> str:
    """The sentence of a failure behind its introduction, on one line, as an event can hold it. `Pure.`"""
    return shortened(" ".join(encodable(f"{introduction} {failure.sentence}").split()))


def effect_failed(effect_id: int, failure: LlmFailure, introduction: str, clock: Clock) -> EffectFailed:
    """The answer to an effect whose request failed; `introduction` says what was tried."""
    sentence = sentence_of(failure, introduction)
    return EffectFailed(effect_id=effect_id, at=clock.now(), kind=failure.kind, sentence=sentence)


async def retry_transient(retry: Retry, clock: Clock, attempt: Callable[[], Awaitable[T]]) -> T:
    """Return what the attempt returns. While it fails for transient reasons, it is repeated as the policy says.

    Raises the `LlmFailure` of the last attempt.
    """
    number = 1
    while True:
        try:
            return await attempt()
        except LlmFailure as failure:
            wait = retry.wait(number, failure.retry_after) if failure.kind in TRANSIENT else None
            if wait is None:
                raise
        await clock.sleep_until(later(clock.now(), wait))
        number += 1
