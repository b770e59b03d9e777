"""A model of a server that speaks OpenAI's chat completions, asked without litellm.

Most servers of open models speak that protocol (vLLM, SGLang, llama.cpp, Ollama, LM Studio), and so do many providers
and gateways. For these nothing needs to be translated, so nothing needs litellm, whose import takes seconds: the first
word comes as soon as the server has it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, get_args

from ....states.errors import ConfigurationError
from ....states.values.files import FileKind
from ....states.values.messages import Usage
from ....states.values.value import MAX_QUOTED, FailureKind, shortened
from ..families import family_named
from ..keys import without_keys
from ..port import LlmFailure, ModelAnswer, ModelRequest, Token, make_failure, tokens_of
from .body import messages_of, response_format_of, settings_of, tool_choice_of
from .connection import Connection, kind_of_connection
from .dialect import ALL, Dialect, LearnedDialect
from .events import Chunk, Events
from .failures import failure_of_refusal, kind_of_response
from .reading import read_chunks
from .refusals import RefusedRequest
from .senses import Senses
from .served_model import ServedModel
from .stream_assembler import StreamAssembler
from .tokens import OWN_PRICES, Tokens, cost_by, has_prices
from .traits import Arguments

HeldToSchema = Literal["never", "alone", "always"]
"""When a server holds an answer to a JSON schema by `response_format`: never, only in requests without tools, or in all
of them."""

SILENCE = 120.0
"""Seconds without a word after which a request fails, unless the application says otherwise. The engine's own limit,
the setting `llm_chat_timeout_sec`, is the same."""

_RESERVED = frozenset({"model", "messages", "tools", "tool_choice", "response_format", "stream", "stream_options", "n"})


class OpenAICompatible(ServedModel):
    """A model of a server that implements OpenAI's chat completions API.

        OpenAICompatible("http://localhost:8000/v1", None, "qwen3-8b")

    `base_url` is the address that the documentation of the server gives for OpenAI's clients; usually it ends in `/v1`.
    `key` is sent with each request as a bearer token; None for a server that needs none. `model` is the name under
    which the server knows the model.

    `name` is what conversations and policies call the model, by default `model`. `window` is how many tokens one
    request may hold; without it a history is summarized only after the server has refused one as too long. `takes` says
    which files the model can be shown, `{"image": True, "audio": False}`; other kinds are tried until the server
    refuses one. `schema` says when the server holds an answer to a JSON schema: "never", "alone" (the default: in
    requests without tools), or "always", also in those with tools, as OpenAI does. `family` names the models that can
    read the sealed thinking of this one; by default it follows from `model`. `dialect` says what the server takes of
    the protocol, where that is known beforehand; what it refuses is learned.

    A user and a password may stand in the address in place of a key. `headers` are sent with each request, and win
    over the key. `parameters` are further members of its body, such as `{"temperature": 0}`; what a policy, a profile
    or a message sets takes precedence. The prices `input_cost_per_token` and `output_cost_per_token`, in US dollars,
    may be among the `parameters`; they are not sent, but used to compute the cost of answers. `timeout` is how many
    seconds the server may send nothing.

    Raises `ConfigurationError` for an invalid address, for a key or a header that HTTP cannot carry, and for parameters
    that turnwise sets itself. Nothing is sent before the first request, so only that finds a wrong key.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None,
        model: str,
        *,
        name: str | None = None,
        window: int | None = None,
        takes: Mapping[FileKind, bool] | None = None,
        schema: HeldToSchema = "alone",
        family: str | None = None,
        dialect: Dialect = ALL,
        headers: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float = SILENCE,
    ) -> None:
        model = _checked_name(model)
        name = model if name is None else name
        self._connection = Connection(base_url, key, headers or {}, _checked_timeout(timeout))
        super().__init__(
            name,
            model,
            dialect=LearnedDialect(name, model, dialect, _kind_of),
            senses=Senses(takes),
            secrets=self._connection.secrets,
        )
        self.window = window
        self.family: str = family or family_named(f"openai/{model}")
        self._schema = _checked_schema(schema)
        self._parameters = _checked_parameters(parameters)

    @property
    def is_priced(self) -> bool:
        """Whether it is known what a request costs: because prices were given."""
        return has_prices(self._parameters)

    def _check_can_be_asked(self) -> None:
        """Return, since only an answer tells."""

    def _holds_to_schema(self, has_tools: bool) -> bool:
        return self._schema == "always" or (self._schema == "alone" and not has_tools)

    async def ready(self) -> None:
        """Return when httpx is imported, in a thread, and the certificates that are trusted are read. Raises
        `LlmFailure`."""
        try:
            await self._connection.ready()
        except Exception as error:
            raise make_failure("internal", self.name, f"{type(error).__name__}: {error}") from None

    def estimate(self, request: ModelRequest, written: str) -> Usage:
        """About what a request has cost when this text of its answer has come."""
        return self._priced(Tokens(tokens_of(request.size), tokens_of(len(written))), estimated=True)

    # --- one request

    async def _ask(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        return await self._dialect.ask(
            self._arguments(request), lambda form, shown: self._attempt(form, request, shown), show
        )

    async def _attempt(self, arguments: Arguments, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Send the request once, in one form."""
        assembler, events = StreamAssembler.of(request, show), Events()
        async with self._connection.lines_of_answer(arguments) as lines:
            with self._reading(assembler, request, show):
                async for _ in read_chunks(_chunks_in(lines, events), assembler, assembler.add):
                    pass
                assembler.check(is_marked=events.is_done)
                assembler.close()
                return assembler.answer(self._usage_of(assembler, request), request.model)

    def _arguments(self, request: ModelRequest) -> Arguments:
        """The body of the request."""
        arguments: Arguments = {
            **{name: value for name, value in self._parameters.items() if name not in OWN_PRICES},
            "model": self.model,
            "messages": messages_of(request.messages),
            "stream": True,
            "stream_options": {"include_usage": True},
            **settings_of(request),
        }
        if request.output is not None and request.output.way == "native":
            arguments["response_format"] = response_format_of(request.output)
        if tools := [*request.tools, *self._server_tools(request)]:
            arguments["tools"] = tools
        if request.tools and request.tool_choice != "auto":
            arguments["tool_choice"] = tool_choice_of(request.tool_choice)
        return arguments

    def _server_tools(self, request: ModelRequest) -> list[dict[str, Any]]:
        """The tools that the server runs itself, where they are given as it defines them. The names that are known of
        other protocols mean nothing in this one, which is told in a warning, once."""
        wanted = request.settings.server_tools or ()
        for name in (one for one in wanted if isinstance(one, str)):
            self._tell_missing_tool(name)
        return [one for one in wanted if not isinstance(one, str)]

    # --- what came of it

    def _priced(self, tokens: Tokens, *, estimated: bool = False) -> Usage:
        return tokens.usage(cost_by(self._parameters, tokens), estimated=estimated)

    def _failure_of_request(self, error: Exception, request: ModelRequest) -> LlmFailure:
        if isinstance(error, RefusedRequest):
            told = without_keys(f"{error.refusal.status} {error.text}", self._secrets)
            return failure_of_refusal(error.refusal, self.name, told, request, self._largest)
        told = without_keys(f"{type(error).__name__}: {error}", self._secrets)
        return make_failure(kind_of_connection(error), self.name, told)


def _kind_of(error: Exception) -> FailureKind:
    return kind_of_response(error.refusal) if isinstance(error, RefusedRequest) else kind_of_connection(error)


async def _chunks_in(lines: AsyncIterator[str], events: Events) -> AsyncIterator[Chunk]:
    """The chunks in these lines, up to the mark of their end."""
    async for line in lines:
        for event in events.add(line):
            yield event
        if events.is_done:
            return
    for event in events.end():
        yield event


def _checked_name(model: Any) -> str:
    if not isinstance(model, str) or not model.strip() or not model.isprintable():
        raise ConfigurationError("A model of a server needs the name under which the server has it, on one line.")
    return str(model)


def _checked_schema(schema: HeldToSchema) -> HeldToSchema:
    if schema not in get_args(HeldToSchema):
        known, given = ", ".join(get_args(HeldToSchema)), shortened(repr(schema), MAX_QUOTED)
        raise ConfigurationError(f"A server holds answers to a schema {known}, and not {given}.")
    return schema


def _checked_timeout(timeout: Any) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise ConfigurationError("The timeout of a model is a number of seconds above 0.")
    return float(timeout)


def _checked_parameters(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(parameters or {})
    try:
        json.dumps(given, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ConfigurationError("The parameters of a model are sent as JSON, which cannot hold these.") from None
    if reserved := sorted(_RESERVED & given.keys()):
        raise ConfigurationError(f"These parameters are set by turnwise and cannot be given: {', '.join(reserved)}.")
    return given
