"""The rehearsal model: an `Llm` that works without a key and without a network.

A program can be tried, shown and tested with it before anybody has an account. Only the model is replaced: requests
are built, answers stream, tools run and questions are asked as with any other model. It imports no client library, so
a program that uses it starts at once.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from ....states.values.messages import Usage
from ....states.values.value import encodable
from ..port import ModelAnswer, ModelCall, ModelRequest, Purpose, Token
from . import REHEARSAL
from .dialogue import CONDENSED, Reply
from .preparation import choose_profile, search_terms
from .rules import reply_to

DELAY = 0.015
"""Seconds before each word, so that a reader can watch the answer come in."""

VERDICT = '{"passed": true, "reason": "A rehearsal takes every claim at its word."}'
"""The answer to a request to check the work."""

SUMMARY = "Something was done; a rehearsal cannot tell what."
"""The answer to a request to summarize a turn."""

_ANSWERS: dict[Purpose, str] = {"check": VERDICT, "summarize": SUMMARY, "condense": CONDENSED}

_PREPARATIONS: dict[Purpose, Callable[[Sequence[dict[str, Any]]], str]] = {
    "route": choose_profile,
    "enrich": search_terms,
}


class RehearsalLlm:
    """Answers by fixed rules, word by word. `delay` is the pause before each word, in seconds; None means `DELAY`.

    `window` is how many tokens one request may hold, as for any model; without it nothing is condensed ahead.
    """

    name: Final = REHEARSAL

    def __init__(self, *, window: int | None = None, delay: float | None = None) -> None:
        self.window = window
        self._delay = DELAY if delay is None else delay

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request; call `show` with each word as it comes. Tokens in the usage are counted as words."""
        reply = _reply_to(request)
        words = re.findall(r"\s*\S+", encodable(reply.text))
        for word in words:
            await asyncio.sleep(self._delay)
            show(Token(word))
        return ModelAnswer(
            content="".join(words),
            tool_calls=tuple(
                ModelCall(f"call_{index}", call.name, json.dumps(call.arguments, ensure_ascii=False))
                for index, call in enumerate(reply.calls)
            ),
            finish_reason="tool_calls" if reply.calls else "stop",
            usage=Usage(input_tokens=len(json.dumps(request.messages).split()), output_tokens=len(words)),
            model=request.model,
        )


def _reply_to(request: ModelRequest) -> Reply:
    if request.purpose in _PREPARATIONS:
        return Reply(_PREPARATIONS[request.purpose](request.messages))
    if request.purpose in _ANSWERS:
        return Reply(_ANSWERS[request.purpose])
    return reply_to(request.messages, request.tools if request.tool_choice == "auto" else ())
