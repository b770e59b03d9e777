"""Asks a model within its deadlines, and turns a failure into an answer. All performers that need a model use it.

There are two deadlines. A model that says nothing for a while has hung, and a request of it must end soon. A model that
goes on writing is at work, slowly perhaps, and what it has written so far is worth waiting for; its deadline is long.
Only a piece of the answer counts as one: what a server sends to keep a connection open says nothing of the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ....states.events import EffectFailed
from ....states.policy import Retry
from ....states.values.messages import Usage
from ....states.values.value import TRANSIENT, encodable, later, shortened
from ...clock import Clock
from ..failure_sentences import make_failure
from ..families import family_of
from ..port import NOTHING_SPENT, Llm, LlmFailure, ModelAnswer, ModelRequest, Token, estimated_usage, ready_of
from .time_limit import LimitedWork, TimeLimit

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

    `silence` is how many seconds a model may say nothing, before its answer and within it, and `whole` how many one
    request may take in all, however steadily its pieces come; without it as many as `silence`. They begin when the
    model is ready: what a model loads before its first request is not what the deadlines are for. The answers under way
    are noted in `running`.
    """

    def __init__(
        self,
        find: Callable[[str], Llm],
        silence: float,
        whole: float | None = None,
        running: RunningAnswers | None = None,
    ) -> None:
        self._find = find
        self._silence = TimeLimit(silence)
        self._whole = TimeLimit(silence if whole is None else whole)
        self._loading = TimeLimit(LONGEST_LOADING)
        self._running = RunningAnswers() if running is None else running

    def family_of(self, name: str) -> str:
        """The family of the model of this name."""
        return family_of(self._find(name))

    async def ask(self, request: ModelRequest, show: Callable[[Token], None] = ignore_token) -> ModelAnswer:
        """Return the model's answer, and call `show` with each piece of it. Raises `LlmFailure`, also at a deadline."""
        model = self._find(request.model)
        if (ready := ready_of(model)) is not None:
            with _failing_after(self._loading, request.model, "not ready"):
                await ready()
        answer = await self._answer(model, request, show)
        if not isinstance(answer, ModelAnswer):
            raise LlmFailure("internal", f"The model {request.model!r} returned something that is no ModelAnswer.")
        if len(answer.tool_calls) > MAX_CALLS:
            raise make_failure("malformed_response", request.model, f"it makes more than {MAX_CALLS:,} calls at once")
        return answer

    async def _answer(self, model: Llm, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        answering = _Answering(model, request, show)
        with (
            self._running.noted(request.conversation_id, answering),
            _failing_after(self._whole, request.model, "no whole answer", answering.usage),
            _failing_after(self._silence, request.model, "no piece of an answer", answering.usage) as silence,
        ):
            answering.silence = silence
            return await model.complete(request, answering.hear)


class RunningAnswers:
    """The answers under way of all conversations of an engine."""

    def __init__(self) -> None:
        self._of: dict[str, list[_Answering]] = {}

    @contextmanager
    def noted(self, conversation_id: str, answering: _Answering) -> Iterator[None]:
        """Return a context in which this answer of the conversation is under way."""
        running = self._of.setdefault(conversation_id, [])
        running.append(answering)
        try:
            yield
        finally:
            running.remove(answering)
            if not running:
                self._of.pop(conversation_id, None)

    def spent_on(self, conversation_id: str) -> Usage:
        """About what has been spent on the answers of this conversation."""
        return sum((answering.usage() for answering in self._of.get(conversation_id, ())), NOTHING_SPENT)


class _Answering:
    """An answer that is under way: how much of it has come, and what that may have cost."""

    __slots__ = ("_has_begun", "_model", "_request", "_show", "_written", "silence")

    def __init__(self, model: Llm, request: ModelRequest, show: Callable[[Token], None]) -> None:
        self._model = model
        self._request = request
        self._show = show
        self._written = 0
        self._has_begun = False
        self.silence: LimitedWork | None = None

    def hear(self, token: Token) -> None:
        """Show a piece of the answer, and go on waiting for the next."""
        self._has_begun = True
        if self.silence is not None:
            self.silence.restart()
        if token.text:
            self._written += len(token.text)
            self._show(token)

    def usage(self) -> Usage:
        """About what has been spent so far; nothing if no piece has come, for then the model may not have begun."""
        return estimated_usage(self._model, self._request, self._written) if self._has_begun else NOTHING_SPENT


def _nothing() -> Usage:
    return NOTHING_SPENT


@contextmanager
def _failing_after(
    limit: TimeLimit, model: str, what: str, spent: Callable[[], Usage] = _nothing
) -> Iterator[LimitedWork]:
    """Return a context that raises `LlmFailure` at the limit, with what was spent until then."""
    try:
        with limit.apply() as work:
            yield work
    except TimeoutError:
        raise make_failure("timeout", model, f"{what} within {limit.seconds:g} s", usage=spent()) from None


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
