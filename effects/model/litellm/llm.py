"""A model at any of a hundred providers, asked through litellm.

litellm speaks every provider's dialect; the machine decides about everything else. So litellm is kept to one job:
one request, one answer or one typed failure. It never tries again, never falls back to another model, and prints
nothing. It costs seconds to import, which a program pays only when it asks a model, or beforehand with `warm`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

from ....states.errors import ConfigurationError
from ....states.values.failures import FailureKind
from ....states.values.messages import Usage
from ..port import LlmFailure, ModelAnswer, ModelRequest, Token
from .context_windows import window_of
from .failures import failure, failure_of
from .library import load_litellm
from .stream_assembler import StreamAssembler
from .stream_chunks import Chunks

_SECRETS = ("key", "token", "secret", "password")

_FIXED: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "num_retries": 0,
    "max_retries": 0,
}
_OWN = frozenset({"model", "messages", "tools", "tool_choice", "fallbacks", *_FIXED})
"""The arguments of litellm that are not a host's to choose: what is asked is the machine's, and so are retries."""


class LiteLlm:
    """The model `name`, as litellm names it: `openai/gpt-4.1-mini`, `anthropic/…`, `ollama/…`.

    `options` go to litellm as they are: `api_key`, `api_base`, `temperature`, `timeout` (seconds of silence) and so on.
    `window` is how many tokens one request may hold; it need not be given for models that litellm lists. Raises
    `ConfigurationError` for an option that is not a host's to choose.
    """

    def __init__(self, name: str, *, window: int | None = None, **options: Any) -> None:
        if taken := sorted(_OWN & options.keys()):
            raise ConfigurationError(f"LiteLlm chooses by itself what litellm gets as {' and '.join(taken)}.")
        self.name = name
        self._window = window
        self._options = options
        self._litellm: Any = None

    @property
    def window(self) -> int | None:
        """The tokens that one request may hold, or None if that is not known. Does not import litellm."""
        return window_of(self.name) if self._window is None else self._window

    def warm(self) -> None:
        """Import litellm now. Blocks for seconds the first time: in an event loop, run it in a thread."""
        self._litellm = load_litellm()

    def check(self) -> None:
        """Raise `ConfigurationError` if litellm does not know this model's provider, or there is no key for it.

        Asks nobody outside, so it cannot tell whether the provider knows the model or takes the key. Blocks as
        `warm` does.
        """
        self.warm()
        if self._fault is not None:
            raise ConfigurationError(self._fault[1])

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Ask the model once, as a stream, and `show` each piece as it comes.

        Raises `LlmFailure`. However this ends, by a cancel too, the connection is closed before it returns. Keeps no
        deadline for the whole answer: the caller puts `asyncio.timeout` around it.
        """
        try:
            if self._litellm is None:
                await asyncio.to_thread(self.warm)
            if self._fault is not None:
                raise LlmFailure(*self._fault)
            return await self._ask(request, show)
        except LlmFailure:
            raise
        except Exception as error:
            raise failure_of(error, self.name, self._secrets()) from None

    @cached_property
    def _fault(self) -> tuple[FailureKind, str] | None:
        """Why this model cannot be asked at all, once litellm is there to know it."""
        base = self._options.get("api_base")
        try:
            self._litellm.get_llm_provider(model=self.name, api_base=base)
        except Exception:
            sentence = f"The model {self.name!r} is not known: name provider and model, as in openai/gpt-4.1-mini."
            return "unknown_model", sentence
        if not self._secrets() and (missing := self._missing_keys()):
            return "authentication", f"There is no key for the model {self.name!r}: set {' or '.join(missing)}."
        return None

    async def _ask(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        stream = await self._litellm.acompletion(**self._arguments(request))
        chunks = Chunks(stream.completion_stream)
        if chunks.come:  # some providers are asked only when the stream is read, and read by litellm alone
            stream.completion_stream = chunks
        pieces = StreamAssembler(show)
        try:
            async for chunk in stream:
                pieces.take(chunk)
        finally:
            await stream.aclose()
        if chunks.unreadable:
            raise failure("malformed_response", self.name, "a piece of the stream is not what the protocol says")
        # litellm makes up a good end for a stream that had none; what really came stands here.
        if stream.received_finish_reason is None:
            kind: FailureKind = "network" if pieces.anything else "malformed_response"
            raise failure(kind, self.name, "the stream ended without a finish reason")
        return self._answer(pieces, request)

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        arguments = {
            **self._options,
            "model": self.name,
            # litellm rewrites messages and tools in place for some providers.
            "messages": copy.deepcopy(list(request.messages)),
            **copy.deepcopy(_FIXED),
        }
        if request.tools:
            arguments["tools"] = copy.deepcopy(list(request.tools))
            if request.tool_choice == "none" and self._takes_tool_choice():
                arguments["tool_choice"] = "none"
        return arguments

    def _takes_tool_choice(self) -> bool:
        model, provider, *_ = self._litellm.get_llm_provider(model=self.name)
        supported = self._litellm.get_supported_openai_params(model=model, custom_llm_provider=provider)
        return supported is None or "tool_choice" in supported

    def _answer(self, pieces: StreamAssembler, request: ModelRequest) -> ModelAnswer:
        response = self._litellm.stream_chunk_builder(pieces.chunks, messages=list(request.messages))
        if response is None or not response.choices:
            raise failure("malformed_response", self.name, "the response has no choices")
        choice = response.choices[0]
        if choice.finish_reason == "content_filter":
            raise failure("content_filter", self.name, "the answer was withheld")
        message = choice.message
        return ModelAnswer(
            content=message.content or "",
            thinking=getattr(message, "reasoning_content", None) or "",
            opaque=pieces.sealed(),
            tool_calls=pieces.tool_calls(),
            finish_reason=choice.finish_reason or "stop",
            usage=self._usage(response),
            model=request.model,
        )

    def _usage(self, response: Any) -> Usage:
        usage = getattr(response, "usage", None)
        return Usage(
            input_tokens=getattr(usage, "prompt_tokens", None) or 0,
            output_tokens=getattr(usage, "completion_tokens", None) or 0,
            cost=self._cost(response),
        )

    def _cost(self, response: Any) -> float | None:
        try:
            return float(self._litellm.completion_cost(completion_response=response, model=self.name))
        except Exception:  # a bare Exception says that litellm knows no price for this model
            return None

    def _secrets(self) -> list[str]:
        return [
            value
            for name, value in self._options.items()
            if isinstance(value, str) and any(word in name for word in _SECRETS)
        ]

    def _missing_keys(self) -> list[str]:
        """The environment variables of which one must hold a key; of other ways to sign in (AWS's) nothing is said."""
        if self._litellm.api_key:
            return []
        missing = self._litellm.validate_environment(model=self.name)["missing_keys"]
        return [name for name in missing if name.endswith("_API_KEY")]
