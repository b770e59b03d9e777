"""What is the same of each model that a server is asked for, whatever sends the requests.

There is one request, and one answer or one typed failure: nothing is retried, except for a request in a form that the
server refused, and nothing falls back to another model. What the server takes is learned from what it answers: which
forms of a request, which files, and how large a request may be.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....states.values.files import FileKind
from ....states.values.messages import NOTHING_SPENT, Usage
from ....states.values.output import OutputWay
from ..port import LlmFailure, ModelAnswer, ModelRequest, Token, logger
from .dialect import LearnedDialect
from .failures import BrokenAnswer, failure_of_answer
from .senses import Senses
from .stream_assembler import StreamAssembler
from .tokens import Tokens, tokens_in


class ServedModel(ABC):
    """A model of the `Llm` port that a server has.

    `name` is what conversations call it, and `model` what its client does. `secrets` are kept out of the log.
    """

    def __init__(
        self, name: str, model: str, *, dialect: LearnedDialect, senses: Senses, secrets: Sequence[str]
    ) -> None:
        self.name = name
        self.model = model
        self._dialect = dialect
        self._senses = senses
        self._secrets = secrets
        self._told_tools = set[str]()
        self._largest: int | None = None
        """The size of the largest request that the model has accepted."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def refused(self) -> tuple[str, ...]:
        """What the server does not take, as far as it is known, so that requests are sent without: `streams`, `seed`,
        `the tool look_up`."""
        return self._dialect.refused

    @property
    def refused_tools(self) -> tuple[str, ...]:
        """The names, on the wire, of the tools that the server does not take."""
        return self._dialect.refused_tools

    def takes(self, kind: FileKind) -> bool | None:
        """Whether the model takes files of this kind, by what is said of it; None if that is not known."""
        return self._senses.declared(kind)

    def output_way(self, has_tools: bool) -> OutputWay:
        """How this model is asked for a typed answer, beside other tools or without."""
        if self._dialect.takes("response_format") and self._holds_to_schema(has_tools):
            return "native"
        return "tool" if self._dialect.takes("tools") else "prompted"

    @abstractmethod
    async def ready(self) -> None:
        """Return when what sends the requests is loaded. Raises `LlmFailure`."""

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Send the request once, as a stream, and call `show` with each piece of the answer.

        Raises `LlmFailure`. However this ends, also by a cancel, the connection is closed before it returns. It sets no
        deadline for the whole answer: put `asyncio.timeout` around it.
        """
        try:
            await self.ready()
            self._check_can_be_asked()
            self._senses.check(request)
            answer = await self._ask(request, show)
        except Exception as error:
            failure = self._failure_of(error, request)
            self._senses.note_failure(request, failure)
            raise failure from None
        self._largest = max(request.size, self._largest or 0)
        self._senses.note_answer(request)
        return answer

    @abstractmethod
    def estimate(self, request: ModelRequest, written: str) -> Usage:
        """About what a request has cost when this text of its answer has come."""

    # --- what a client does in its own way

    @abstractmethod
    def _check_can_be_asked(self) -> None:
        """Raise `LlmFailure` if it is known that no request can be sent."""

    @abstractmethod
    def _holds_to_schema(self, has_tools: bool) -> bool:
        """Whether the server holds an answer to a JSON schema, in a request with tools or without."""

    @abstractmethod
    async def _ask(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Send the request in the forms that the server may take, each by way of `_reading`."""

    @abstractmethod
    def _priced(self, tokens: Tokens, *, estimated: bool = False) -> Usage:
        """These tokens, with their cost if that is known."""

    @abstractmethod
    def _failure_of_request(self, error: Exception, request: ModelRequest) -> LlmFailure:
        """The failure that an error of the client stands for."""

    # --- one answer

    @contextmanager
    def _reading(
        self, assembler: StreamAssembler, request: ModelRequest, show: Callable[[Token], None]
    ) -> Iterator[None]:
        """While an answer is read into this assembler: whoever stops it, or is told why it broke off, is told what was
        spent, too. Sending the request is no part of this, as the server may take it in another form."""
        try:
            yield
        except asyncio.CancelledError:
            if assembler.usage:
                show(Token("", usage=self._usage_of(assembler, request)))
            raise
        except Exception as error:
            failure = self._failure_of(error, request)
            is_free = assembler.is_empty and not assembler.usage
            failure.usage = NOTHING_SPENT if is_free else self._usage_of(assembler, request)
            raise failure from None

    def _usage_of(self, assembler: StreamAssembler, request: ModelRequest) -> Usage:
        """The usage as it was told, else about what was written."""
        if assembler.usage:
            return self._priced(tokens_in(assembler.usage))
        return self.estimate(request, assembler.written)

    def _failure_of(self, error: Exception, request: ModelRequest) -> LlmFailure:
        match error:
            case LlmFailure():
                return error
            case BrokenAnswer():
                return failure_of_answer(error, self.name, self._secrets)
            case _:
                return self._failure_of_request(error, request)

    def _tell_missing_tool(self, name: str) -> None:
        """Tell in a warning, once, that the provider has no tool of this name that it would run itself."""
        if name not in self._told_tools:
            self._told_tools.add(name)
            logger.warning("The model %s has no tool %s of its provider, so it is asked without.", self.name, name)
