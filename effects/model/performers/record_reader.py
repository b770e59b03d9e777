"""Has a model read the record of a conversation and write a text about it.

Performers that condense, summarize and check work in the same way: they choose a model, give it as much of the record
as it can read, try again with less if that is too much, and answer with the text or with a failure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ....states.events import EffectFailed
from ....states.policy.policy import ModelSpec, Policy, Retry
from ....states.projections.transcript import Transcript
from ....states.values.failures import TRANSIENT
from ....states.values.value import later
from ...clock import Clock
from ...text import encodable
from ..failures import make_failure
from ..port import LlmFailure, ModelAnswer, ModelRequest, Purpose
from .model_caller import ModelCaller, sentence_of

T = TypeVar("T")

BYTES_PER_TOKEN = 2
"""A cautious estimate. Measured with OpenAI's cl100k: English 4.4, Russian 4.0, Japanese 2.8, Arabic 2.5, Chinese 2.4,
Tamil 2.0, JSON 1.9. Characters per token vary more, from 0.7 to 4.4."""

WINDOW_SHARE = 0.8
"""The share of the window that the request may take. The rest is for the answer, and for texts that have more tokens
than estimated."""

UNKNOWN_WINDOW = 100_000
"""Bytes of the request if the window is unknown. Most current models accept that."""

SMALLEST_LIMIT = 4_000
"""Bytes that a request may always have: enough for an instruction and something to read."""

DIVISORS = (1, 4, 16)
"""The limit is divided by these, attempt after attempt, if the model says that the request is too long."""


def model_for(turn: int | None, policy: Policy, transcript: Transcript) -> ModelSpec:
    """The model that answered last in this turn, if the policy still names it, otherwise the policy's first model.
    `Pure.`"""
    models = {spec.name: spec for spec in policy.models}
    names = (message.model for message in reversed(transcript.messages) if message.turn == turn)
    return next((models[name] for name in names if name in models), policy.models[0])


async def ask_within_window(
    model: ModelSpec, caller: ModelCaller, purpose: Purpose, write_prompt: Callable[[int], str]
) -> ModelAnswer:
    """Ask the model in a single message without tools, and return its answer.

    `write_prompt` writes the prompt in at most so many bytes. It is called again with a much lower limit if the model
    says that the request was too long. Raises `LlmFailure`.
    """

    def ask(limit: int) -> Awaitable[ModelAnswer]:
        message = {"role": "user", "content": write_prompt(limit)}
        return caller.ask(ModelRequest(model=model.name, messages=(message,), purpose=purpose))

    *limits, lowest = _limits(model)
    for limit in limits:
        try:
            return await ask(limit)
        except LlmFailure as failure:
            if failure.kind != "context_window":
                raise
    return await ask(lowest)


def summary_in(answer: ModelAnswer, model: ModelSpec) -> str:
    """The summary in the answer. Raises `LlmFailure` if it is blank."""
    summary = encodable(answer.content).strip()
    if not summary:
        raise make_failure("malformed_response", model.name, "the summary has no text")
    return summary


def effect_failed(effect_id: int, failure: LlmFailure, introduction: str, clock: Clock) -> EffectFailed:
    """The answer to an effect whose request failed; `introduction` says what was tried."""
    sentence = sentence_of(failure, introduction)
    return EffectFailed(effect_id=effect_id, at=clock.now(), kind=failure.kind, sentence=sentence)


def _limits(model: ModelSpec) -> list[int]:
    """How many bytes the prompt may have, attempt after attempt."""
    room = UNKNOWN_WINDOW if model.window is None else int(model.window * WINDOW_SHARE * BYTES_PER_TOKEN)
    return list(dict.fromkeys(max(SMALLEST_LIMIT, room // divisor) for divisor in DIVISORS))


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
