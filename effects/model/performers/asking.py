"""Asks a model within its deadlines, and turns a failure into an answer. All performers that need a model use it.

There are two deadlines. A model that says nothing for a while has hung, and a request of it must end soon. One that
goes on writing is at work, and what it has written so far is worth waiting for, so its deadline is long. What a server
sends to keep a connection open is no piece of an answer.

A prompt that holds the record of a dialogue is written as long as the model's window allows, and again much shorter if
the model says that it was too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ....states.dialogue import of_turn
from ....states.events import EffectFailed
from ....states.policy import ModelSpec, Policy, Retry, named_models
from ....states.transcript import Transcript
from ....states.values.messages import NOTHING_SPENT, Usage
from ....states.values.output import OutputSchema, OutputWay
from ....states.values.value import TRANSIENT, encodable, later, shortened
from ...clock import Clock
from ...context import EffectContext
from ..families import family_of
from ..outputs import way_of
from ..port import (
    Llm,
    LlmFailure,
    ModelAnswer,
    ModelRequest,
    Purpose,
    Token,
    estimated_usage,
    make_failure,
    ready_of,
)

T = TypeVar("T")


def ignore_token(token: Token) -> None:
    """Do nothing with the token."""


MAX_CALLS = 1_000
"""The most calls of one answer. More than any model makes; each step of a round stores what is left of it, so the cost
of a round grows with the square of its calls."""

_LONGEST_LOADING = 300.0
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
        self._silence = silence
        self._whole = silence if whole is None else whole
        self._running = RunningAnswers() if running is None else running

    def family_of(self, name: str) -> str:
        """The family of the model of this name."""
        return family_of(self._find(name))

    def output_way(self, name: str, schema: OutputSchema, has_tools: bool) -> OutputWay:
        """How the model of this name is asked for an answer with this schema, beside other tools or without."""
        return way_of(self._find(name), schema, has_tools=has_tools)

    async def ask(self, request: ModelRequest, show: Callable[[Token], None] = ignore_token) -> ModelAnswer:
        """Return the model's answer, and call `show` with each piece of it. Raises `LlmFailure`, also at a deadline."""
        return await self.finish(self.begin(request, show))

    def begin(self, request: ModelRequest, show: Callable[[Token], None]) -> UnfinishedAnswer:
        """Return the answer to this request, of which nothing has come: `finish` asks for it, and then `show` is called
        with each piece."""
        return UnfinishedAnswer(self._find(request.model), request, show)

    async def finish(self, answering: UnfinishedAnswer) -> ModelAnswer:
        """Ask, and return the whole answer. If the task is cancelled, `answering` has what had come by then. Raises
        `LlmFailure`, also at a deadline."""
        model, request = answering.model, answering.request
        if (ready := ready_of(model)) is not None:
            async with _failing_after(_LONGEST_LOADING, request.model, "not ready"):
                await ready()
        answer = await self._answer(answering)
        if not isinstance(answer, ModelAnswer):
            raise LlmFailure("internal", f"The model {request.model!r} returned something that is no ModelAnswer.")
        if len(answer.tool_calls) > MAX_CALLS:
            raise make_failure("malformed_response", request.model, f"it makes more than {MAX_CALLS:,} calls at once")
        return answer

    async def _answer(self, answering: UnfinishedAnswer) -> ModelAnswer:
        request = answering.request
        with self._running.noted(request.conversation_id, answering):
            async with (
                _failing_after(self._whole, request.model, "no whole answer", answering.usage),
                _failing_after(self._silence, request.model, "no piece of an answer", answering.usage) as silence,
            ):
                answering.on_piece = partial(_begin_again, silence, self._silence)
                return await answering.model.complete(request, answering.hear)


class RunningAnswers:
    """The answers under way of all conversations of an engine."""

    def __init__(self) -> None:
        self._of: dict[str, list[UnfinishedAnswer]] = {}

    @contextmanager
    def noted(self, conversation_id: str, answering: UnfinishedAnswer) -> Iterator[None]:
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
        """About what has been spent on the answers of this conversation, apart from its next message: whoever asked for
        that says itself what it has cost."""
        counted = (one.usage() for one in self._of.get(conversation_id, ()) if one.request.purpose != "converse")
        return sum(counted, NOTHING_SPENT)


@dataclass(slots=True, eq=False)
class UnfinishedAnswer:
    """An answer of `model` to this request that is under way: what of it has come, and what that may have cost. `show`
    is called with each piece, and `on_piece` in front of it."""

    model: Llm
    request: ModelRequest
    show: Callable[[Token], None]
    on_piece: Callable[[], None] | None = None
    _pieces: list[Token] = field(default_factory=list)
    _told: Usage | None = None
    _has_begun: bool = False

    def hear(self, token: Token) -> None:
        """Show a piece of the answer, and go on waiting for the next."""
        self._has_begun = True
        if self.on_piece is not None:
            self.on_piece()
        self._told = token.usage or self._told
        if token.text:
            self._pieces.append(token)
            self.show(token)

    def written(self, *kinds: str) -> str:
        """What has come of these kinds."""
        return "".join(token.text for token in self._pieces if token.kind in kinds)

    def usage(self) -> Usage:
        """What has been spent so far, as the model has told, or about that; nothing if no piece has come, for then the
        model may not have begun."""
        if self._told is not None or not self._has_begun:
            return self._told or NOTHING_SPENT
        return estimated_usage(self.model, self.request, "".join(token.text for token in self._pieces))


def _nothing() -> Usage:
    return NOTHING_SPENT


@asynccontextmanager
async def _failing_after(
    seconds: float, model: str, what: str, spent: Callable[[], Usage] = _nothing
) -> AsyncIterator[asyncio.Timeout]:
    """Return a context that raises `LlmFailure` at the limit, with what was spent until then."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield limit
    except TimeoutError:
        raise make_failure("timeout", model, f"{what} within {seconds:g} s", usage=spent()) from None


def _begin_again(limit: asyncio.Timeout, seconds: float) -> None:
    """Count the seconds of the limit from now on, unless they have run out."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + seconds)


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


_BYTES_PER_TOKEN = 2
"""A cautious estimate. Measured with OpenAI's cl100k: English 4.4, Russian 4.0, Japanese 2.8, Arabic 2.5, Chinese 2.4,
Tamil 2.0, JSON 1.9. Characters per token vary more, from 0.7 to 4.4."""

_WINDOW_SHARE = 0.8
"""The share of the window that the request may take. The rest is for the answer, and for texts that have more tokens
than estimated."""

_UNKNOWN_WINDOW = 100_000
"""Bytes of the request if the window is unknown. Most current models accept that."""

SMALLEST_LIMIT = 4_000
"""Bytes that a request may always have: enough for an instruction and something to read."""

_DIVISORS = (1, 4, 16)
"""The limit is divided by these, attempt after attempt, if the model says that the request is too long."""


def request_of(
    context: EffectContext, model: str, messages: tuple[dict[str, Any], ...], purpose: Purpose
) -> ModelRequest:
    """A request without tools to the model of this name, for this conversation. `Pure.`"""
    whose = context.context
    return ModelRequest(
        model,
        messages,
        purpose=purpose,
        conversation_id=context.conversation_id,
        owner=whose.owner,
        metadata=whose.metadata,
    )


async def ask_within_window(
    model: ModelSpec,
    caller: ModelCaller,
    purpose: Purpose,
    context: EffectContext,
    write_prompt: Callable[[int], str],
) -> ModelAnswer:
    """Ask the model in a single message without tools, for this conversation, and return its answer.

    `write_prompt` writes the prompt in at most so many bytes. It is called again with a much lower limit if the model
    says that the request was too long. Raises `LlmFailure`.
    """

    def ask(limit: int) -> Awaitable[ModelAnswer]:
        message = {"role": "user", "content": write_prompt(limit)}
        return caller.ask(request_of(context, model.name, (message,), purpose))

    *limits, lowest = _limits(model)
    for limit in limits:
        try:
            return await ask(limit)
        except LlmFailure as failure:
            if failure.kind != "context_window":
                raise
    return await ask(lowest)


def _limits(model: ModelSpec) -> list[int]:
    """How many bytes the prompt may have, attempt after attempt."""
    room = _UNKNOWN_WINDOW if model.window is None else int(model.window * _WINDOW_SHARE * _BYTES_PER_TOKEN)
    return list(dict.fromkeys(max(SMALLEST_LIMIT, room // divisor) for divisor in _DIVISORS))


def model_for(turn: int | None, policy: Policy, transcript: Transcript) -> ModelSpec:
    """The model that answered last in this turn, if the policy still names it, otherwise the policy's first model.
    `Pure.`"""
    models = {spec.name: spec for spec in named_models(policy)}
    messages = () if turn is None else of_turn(transcript.messages, turn)
    names = (message.model for message in reversed(messages) if message.turn == turn)
    return next((models[name] for name in names if name in models), policy.models[0])
