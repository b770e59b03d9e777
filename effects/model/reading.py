"""Has a model read the record of a conversation: what every performer does the same way that wants a text about it.

Which model is asked, how much of the record it is given, what is tried where that is too much, and how long a failure
that passes is waited for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...states.failures import TRANSIENT
from ...states.policy import ModelSpec, Retry
from ...states.value import later
from ..clock import Clock
from ..scene import Scene
from .port import LlmFailure

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


def model_for(turn: int | None, scene: Scene) -> ModelSpec:
    """The model that answered last in this turn, as far as the policy still names it, or else the policy's first.
    `Pure.`"""
    models = {spec.name: spec for spec in scene.context.policy.models}
    answered = (message.model for message in reversed(scene.transcript.messages) if message.turn == turn)
    return next((models[name] for name in answered if name in models), scene.context.policy.models[0])


async def fitting(model: ModelSpec, attempt: Callable[[int], Awaitable[T]]) -> T:
    """What comes of an attempt with a request of as many bytes as the model takes, or, where that is too long, of one
    with far fewer. Raises `LlmFailure`."""
    *roomy, tightest = _limits(model)
    for limit in roomy:
        try:
            return await attempt(limit)
        except LlmFailure as failed:
            if failed.kind != "context_window":
                raise
    return await attempt(tightest)


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
