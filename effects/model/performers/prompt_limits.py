"""Asks a model with a prompt that fits its window.

A prompt that holds the record of a dialogue can be written in any length. It is written as long as the model's window
allows, and again much shorter if the model says that it was too long.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ....states.policy import ModelSpec
from ..port import LlmFailure, ModelAnswer, ModelRequest, Purpose
from .model_caller import ModelCaller

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


async def ask_within_window(
    model: ModelSpec,
    caller: ModelCaller,
    purpose: Purpose,
    conversation_id: str,
    write_prompt: Callable[[int], str],
) -> ModelAnswer:
    """Ask the model in a single message without tools, for this conversation, and return its answer.

    `write_prompt` writes the prompt in at most so many bytes. It is called again with a much lower limit if the model
    says that the request was too long. Raises `LlmFailure`.
    """

    def ask(limit: int) -> Awaitable[ModelAnswer]:
        message = {"role": "user", "content": write_prompt(limit)}
        return caller.ask(ModelRequest(model.name, (message,), purpose=purpose, conversation_id=conversation_id))

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
    room = UNKNOWN_WINDOW if model.window is None else int(model.window * WINDOW_SHARE * BYTES_PER_TOKEN)
    return list(dict.fromkeys(max(SMALLEST_LIMIT, room // divisor) for divisor in DIVISORS))
