"""Has a model read the record of a conversation: what every performer does the same way that wants a text about it.

Which model is asked, how much of the record it is given, what is tried where that is too much, and how long a failure
that passes is waited for.
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
"""A cautious guess. Measured with OpenAI's cl100k on texts of our own: English 4.4, Russian 4.0, Japanese 2.8, Arabic
2.5, Chinese 2.4, Tamil 2.0, JSON 1.9; characters vary more than bytes do, from 0.7 a token to 4.4."""

SHARE = 0.8
"""Of the window, for the request; the rest is for the answer, and for texts with more tokens than guessed. Ours."""

UNKNOWN_WINDOW = 100_000
"""Bytes of the request where nobody knows the window. Ours: most models of today take that."""

LEAST = 4_000
"""Bytes that a request may always have: an instruction and something to read. Ours."""

SHRINKING = (1, 4, 16)
"""By what the limit is divided, attempt after attempt, when the request itself is too long. Ours."""


def model_for(turn: int | None, policy: Policy, transcript: Transcript) -> ModelSpec:
    """The model that answered last in this turn, as far as the policy still names it, or else the policy's first.
    `Pure.`"""
    models = {spec.name: spec for spec in policy.models}
    answered = (message.model for message in reversed(transcript.messages) if message.turn == turn)
    return next((models[name] for name in answered if name in models), policy.models[0])


async def read_by(model: ModelSpec, asking: ModelCaller, purpose: Purpose, prompt: Callable[[int], str]) -> ModelAnswer:
    """What the model answers to the prompt, one message without tools: `prompt` writes it in as many bytes as the model
    takes, or, where that is too long, in far fewer. Raises `LlmFailure`."""

    def ask(limit: int) -> Awaitable[ModelAnswer]:
        message = {"role": "user", "content": prompt(limit)}
        return asking.ask(ModelRequest(model=model.name, messages=(message,), purpose=purpose))

    *roomy, tightest = _limits(model)
    for limit in roomy:
        try:
            return await ask(limit)
        except LlmFailure as failed:
            if failed.kind != "context_window":
                raise
    return await ask(tightest)


def summary_in(answer: ModelAnswer, model: ModelSpec) -> str:
    """The summary that the model was to write. Raises `LlmFailure` if there is none."""
    summary = encodable(answer.content).strip()
    if not summary:
        raise make_failure("malformed_response", model.name, "the summary has no text")
    return summary


def failed_reading(effect_id: int, failed: LlmFailure, about: str, clock: Clock) -> EffectFailed:
    """The answer to an effect for which no model could be brought to read; `about` is what came to nothing."""
    sentence = sentence_of(failed, about)
    return EffectFailed(effect_id=effect_id, at=clock.now(), kind=failed.kind, sentence=sentence)


def _limits(model: ModelSpec) -> list[int]:
    """How many bytes the request may have, attempt after attempt."""
    room = UNKNOWN_WINDOW if model.window is None else int(model.window * SHARE * BYTES_PER_TOKEN)
    return list(dict.fromkeys(max(LEAST, room // divisor) for divisor in SHRINKING))


async def patiently(retry: Retry, clock: Clock, attempt: Callable[[], Awaitable[T]]) -> T:
    """What comes of the attempt, made again as these rules say while it fails for reasons that pass (case P11).

    Raises the `LlmFailure` of the last one.
    """
    number = 1
    while True:
        try:
            return await attempt()
        except LlmFailure as failed:
            wait = retry.wait(number, failed.retry_after) if failed.kind in TRANSIENT else None
            if wait is None:
                raise
        await clock.sleep_until(later(clock.now(), wait))
        number += 1
