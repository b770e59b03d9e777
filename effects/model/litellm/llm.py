"""A model of any of a hundred providers, asked through litellm.

litellm translates between the providers' protocols; everything else is decided by the machine. So litellm retries
nothing, falls back to no other model, and prints nothing. Importing it takes seconds. An engine begins with that when
it opens, and no deadline of a request includes it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....states.errors import ConfigurationError
from ....states.values.files import FileKind
from ....states.values.messages import Usage
from ....states.values.value import MAX_QUOTED, FailureKind, shortened
from ..families import CONTENT, Need, family_named, maker_of
from ..openai.body import response_format_of, settings_of, tool_choice_of
from ..openai.dialect import ALL, Dialect, LearnedDialect
from ..openai.senses import Senses
from ..openai.served_model import ServedModel
from ..openai.stream_assembler import PAUSED, StreamAssembler
from ..openai.tokens import OWN_PRICES, Tokens, tokens_in
from ..openai.traits import Arguments, copy_json
from ..port import LlmFailure, ModelAnswer, ModelRequest, Token, logger
from .caching import KEY, LONGEST_KEY, wants_breakpoints, with_breakpoints
from .costs import PRICES, Costs, estimated_tokens, listed_model
from .errors import failure_of, kind_of
from .file_parts import NEVER_TAKEN, with_own_messages
from .loading import begin_loading, is_loaded, load_litellm
from .response_request import RESPONSES, is_asked_directly, response_arguments, with_reasoning_items
from .responses import ResponseEvents
from .server_tools import BOTH, SEARCH, needs_both, server_tools
from .stream import AnswerReader, translated

_SECRET_OPTIONS = ("key", "token", "secret", "password")

_FIXED: dict[str, Any] = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "num_retries": 0,
    "max_retries": 0,
}
_COPIED = frozenset({"messages", "tools", "stream_options"})

_RESERVED = frozenset({"model", "messages", "tools", "tool_choice", "response_format", "fallbacks", *_FIXED})
"""The arguments of litellm that an application cannot set: the machine decides what is asked and what is retried."""

_INCLUDED = ("reasoning.encrypted_content",)
_PROBABILITIES = ("message.output_text.logprobs",)
"""What a response holds only if it is asked for: its reasoning, sealed, and the probabilities of its tokens."""


MOST_PAUSES = 8
"""How often an answer is continued that a provider has paused because its own tools take long. Each time it works as
long as it does by itself, so this is more than any answer needs."""


class LiteLlm(ServedModel):
    """The model `name`, as litellm names it: `openai/gpt-4.1-mini`, `anthropic/…`, `ollama/…`.

    With `model`, that is litellm's name, and `name` is what conversations call it: so an engine has one model with two
    settings, `LiteLlm("careful", model="openai/gpt-4.1-mini", temperature=0)` beside another one.

    `family` names the models that can read what this one writes for itself, such as sealed thinking; by default it
    follows from litellm's name, see docs/guides/models.md.

    `dialect` says what the server takes of the protocol, where that is known beforehand; what it refuses is learned.

    `options` are passed to litellm unchanged: `api_key`, `api_base`, `temperature`, `timeout` (seconds of silence) and
    so on. `window` is how many tokens one request may hold; models in litellm's list need none. `takes` says which
    files the model can be shown, `{"image": True, "audio": False}`; of other kinds litellm's list or the first refusals
    tell. Raises `ConfigurationError` for an option that an application cannot set.

    Only `warm`, `check`, `ready` and requests import litellm.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | None = None,
        window: int | None = None,
        family: str | None = None,
        takes: Mapping[FileKind, bool] | None = None,
        dialect: Dialect = ALL,
        **options: Any,
    ) -> None:
        if reserved := sorted(_RESERVED & options.keys()):
            raise ConfigurationError(
                f"These options of litellm are set by turnwise and cannot be given: {', '.join(reserved)}."
            )
        model = name if model is None else model
        super().__init__(
            name,
            model,
            dialect=LearnedDialect(name, model, dialect, kind_of),
            senses=Senses(takes, self._is_listed_to_take),
            secrets=_secrets_in(options),
        )
        self.family: str = family or family_named(model)
        self._window = window
        self._options = options
        self._listed = model.replace(RESPONSES, "/")
        """The name under which litellm lists the model, whatever protocol it is asked over."""
        self._costs = Costs(self._listed, options)
        self._litellm: Any = None
        self._can_be_asked = False

    @property
    def window(self) -> int | None:
        """The tokens that one request may hold, or None if that is not known."""
        return listed_model(self._listed).window if self._window is None else self._window

    def _is_listed_to_take(self, kind: FileKind) -> bool | None:
        if kind in NEVER_TAKEN.get(self.model.partition("/")[0], ()):
            return False
        return listed_model(self._listed).takes.get(kind)

    @property
    def is_priced(self) -> bool:
        """Whether it is known what a request costs: from litellm's list, or because a price is given as an option."""
        return listed_model(self._listed).is_priced or any(price in self._options for price in PRICES)

    def _holds_to_schema(self, has_tools: bool) -> bool:
        """A provider that holds an answer to a schema may keep the model from calling tools by that, so beside tools it
        is done only by those that let a model call them all the same."""
        listed, protocol = listed_model(self._listed), self.model.partition("/")[0]
        is_elsewhere = any(self._options.get(name) for name in _ADDRESSES)
        if not is_elsewhere and (listed.provider or protocol) in _SCHEMA_BESIDE_TOOLS and listed.takes_schema:
            return True
        maker = maker_of(self.model)
        if has_tools or (maker is not None and maker.need is Need.THINKING_OFF):
            return False
        return listed.takes_schema or protocol in _SCHEMA_ALONE

    def warm(self) -> None:
        """Import litellm now. The first call blocks for seconds: within an event loop, run it in a thread. Raises
        `ConfigurationError` if it cannot be imported."""
        try:
            self._litellm = load_litellm()
        except Exception as error:
            raise ConfigurationError(self._describe(error)) from error

    @property
    def can_be_asked(self) -> bool:
        """Whether it is known that litellm knows this model's provider, and that its key is not missing."""
        return self._can_be_asked

    def check(self) -> None:
        """Raise `ConfigurationError` if litellm does not know this model's provider, or if its key is missing.

        Sends no request, so it cannot tell whether the provider knows the model or accepts the key. Blocks as `warm`
        does.
        """
        self.warm()
        if (fault := self._find_fault()) is not None:
            raise ConfigurationError(fault[1])
        self._can_be_asked = True

    async def ready(self) -> None:
        """Return when litellm is imported, in a thread. Raises `LlmFailure`."""
        if self._litellm is None:
            try:
                self._litellm = await asyncio.wrap_future(begin_loading())
            except Exception as error:
                logger.warning("litellm cannot be imported.", exc_info=error)
                raise LlmFailure("internal", self._describe(error)) from None

    @property
    def loading(self) -> str | None:
        """What this model waits for before its first request; None if there is nothing."""
        return None if is_loaded() else "litellm"

    def _describe(self, error: Exception) -> str:
        cause = shortened(f"{type(error).__name__}: {error}", MAX_QUOTED)
        return f"The model {self.name} cannot be asked, because litellm cannot be imported ({cause})."

    def _check_can_be_asked(self) -> None:
        if not self._can_be_asked and (fault := self._find_fault()) is not None:
            raise LlmFailure(*fault)
        self._can_be_asked = True

    def estimate(self, request: ModelRequest, written: str) -> Usage:
        """About what a request has cost when this text of its answer has come. Needs litellm to be loaded."""
        return self._priced(estimated_tokens(self.model, request, written, self._litellm), estimated=True)

    def _priced(self, tokens: Tokens, *, estimated: bool = False) -> Usage:
        return tokens.usage(self._costs.cost_of(tokens, self._litellm), estimated=estimated)

    def _failure_of_request(self, error: Exception, request: ModelRequest) -> LlmFailure:
        return failure_of(error, self.name, self._secrets, request, self._largest)

    def _find_fault(self) -> tuple[FailureKind, str] | None:
        """Why this model cannot be asked at all, as kind and sentence. Needs litellm to be loaded."""
        base = self._options.get("api_base")
        try:
            _, provider, *_ = self._litellm.get_llm_provider(model=self.model, api_base=base)
        except Exception:
            sentence = f"The model {self.model!r} is not known: name provider and model, as in openai/gpt-4.1-mini."
            return "unknown_model", sentence
        if not self._secrets and (missing := _missing_keys(self._litellm, self.model, provider)):
            return "authentication", f"There is no key for the model {self.name!r}: set {' or '.join(missing)}."
        return None

    async def _ask(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        arguments = self._arguments(request)
        answer = await self._ask_with(arguments, request, show)
        for _ in range(MOST_PAUSES):
            blocks = answer.opaque_fields.get(CONTENT)
            if answer.finish_reason != PAUSED or not blocks:
                break
            begun = {"role": "assistant", "content": blocks}
            try:
                more = await self._ask_with({**arguments, "messages": [*arguments["messages"], begun]}, request, show)
            except Exception as error:
                failure = self._failure_of(error, request)
                failure.usage += answer.usage
                raise failure from None
            answer = _continued(answer, more)
        return answer

    async def _ask_with(
        self, arguments: Arguments, request: ModelRequest, show: Callable[[Token], None]
    ) -> ModelAnswer:
        return await self._dialect.ask(arguments, lambda form, shown: self._attempt(form, request, shown), show)

    async def _attempt(self, arguments: Arguments, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Send the request once, in one form."""
        stream = await self._sent(_own_copy(arguments))
        assembler = StreamAssembler.of(request, show)
        with self._reading(assembler, request, show):
            if not arguments["stream"]:
                return self._whole_answer(stream, assembler, request)
            reader = AnswerReader(stream, assembler, self._litellm)
            await reader.read()
            return self._answer(assembler, reader.response, request)

    async def _sent(self, arguments: Arguments) -> Any:
        """Send the request, and return litellm's stream of the answer, or the whole answer if there is no stream."""
        if not is_asked_directly(self.model):
            arguments = with_own_messages(with_reasoning_items(arguments), self.model.partition("/")[0])
            return await self._litellm.acompletion(**arguments)
        answer = await self._litellm.aresponses(**response_arguments(arguments))
        if not arguments["stream"]:
            return answer
        # Like the stream of a completion, it tells the callbacks of the application what is read from it.
        return self._litellm.CustomStreamWrapper(
            completion_stream=answer,
            model=answer.model,
            custom_llm_provider=answer.custom_llm_provider,
            logging_obj=answer.logging_obj,
        )

    def _whole_answer(self, response: Any, assembler: StreamAssembler, request: ModelRequest) -> ModelAnswer:
        """The answer of a server that sends no streams."""
        is_response = is_asked_directly(self.model)
        whole = ResponseEvents().chunks_of(response.model_dump(exclude_unset=True)) if is_response else None
        for chunk in (translated(response),) if whole is None else whole:
            assembler.add(chunk)
        assembler.check(is_marked=True)
        assembler.close()
        return self._answer(assembler, response, request)

    def _arguments(self, request: ModelRequest) -> Arguments:
        arguments = {
            **{name: value for name, value in self._options.items() if name not in OWN_PRICES},
            "model": self.model,
            "messages": request.messages,
            **_FIXED,
            **settings_of(request),
        }
        is_response = RESPONSES in self.model
        if is_response:
            arguments["include"] = [*_INCLUDED, *(_PROBABILITIES if "logprobs" in arguments else ())]
        if request.output is not None and request.output.way == "native":
            arguments["response_format"] = response_format_of(request.output)
        if request.settings.cache == "auto":
            arguments |= self._cached(request)
        if request.settings.server_tools:
            arguments |= self._with_server_tools(request, arguments.get("tools", request.tools), is_response)
        if request.tools:
            arguments.setdefault("tools", request.tools)
            if request.tool_choice != "auto" and self._takes_tool_choice():
                arguments["tool_choice"] = tool_choice_of(request.tool_choice)
        return arguments

    def _cached(self, request: ModelRequest) -> Arguments:
        """What tells the provider up to where this request is the same as later ones."""
        if wants_breakpoints(self.model):
            messages, tools = with_breakpoints(request, self.model.partition("/")[0])
            return {"messages": messages, "tools": tools} if tools else {"messages": messages}
        key = request.conversation_id
        return {KEY: key} if 0 < len(key) <= LONGEST_KEY and self._takes(KEY, otherwise=False) else {}

    def _with_server_tools(self, request: ModelRequest, tools: Sequence[Any], is_response: bool) -> Arguments:
        """What asks for the tools of the provider. Those that it does not have are told in a warning, once."""
        wanted = request.settings.server_tools or ()
        asked, unknown = server_tools(wanted, self.model, is_response=is_response)
        arguments: Arguments = {"tools": [*tools, *asked]} if asked else {}
        if asked and tools and needs_both(self.model):
            arguments[BOTH] = True
        for name in unknown:
            if name == "web_search" and self._takes(SEARCH, otherwise=False):
                arguments[SEARCH] = {}
            else:
                self._tell_missing_tool(name)
        return arguments

    def _takes_tool_choice(self) -> bool:
        return self._takes("tool_choice", otherwise=True)

    def _takes(self, parameter: str, *, otherwise: bool) -> bool:
        """Whether litellm sends this parameter to the provider; `otherwise` where it does not know."""
        model, provider, *_ = self._litellm.get_llm_provider(model=self._listed)
        supported = self._litellm.get_supported_openai_params(model=model, custom_llm_provider=provider)
        return otherwise if supported is None else parameter in supported

    def _answer(self, assembler: StreamAssembler, response: Any, request: ModelRequest) -> ModelAnswer:
        # Where nobody has counted the tokens, litellm estimates how many they are.
        tokens = tokens_in(assembler.usage or getattr(response, "usage", None))
        return assembler.answer(self._priced(tokens, estimated=not assembler.usage), request.model)


_SCHEMA_BESIDE_TOOLS = frozenset({"openai", "azure"})
"""Providers, as litellm names them, that hold an answer to a schema and let the model call tools before it."""

_SCHEMA_ALONE = frozenset({"ollama", "ollama_chat", "hosted_vllm", "lm_studio", "llamafile"})
"""Protocols of servers that hold an answer to a schema, whatever the model. They hold every answer to it, so that no
tool is called."""

_ADDRESSES = ("api_base", "base_url")


def _continued(answer: ModelAnswer, more: ModelAnswer) -> ModelAnswer:
    """An answer that the provider has paused, and what it continues with, as one."""
    length = len(answer.content)
    moved = (
        one.replace(
            start=None if one.start is None else one.start + length, end=None if one.end is None else one.end + length
        )
        for one in more.citations
    )
    blocks = [*answer.opaque_fields[CONTENT], *(more.opaque_fields.get(CONTENT) or _text_blocks(more.content))]
    return replace(
        more,
        content=answer.content + more.content,
        thinking=answer.thinking + more.thinking,
        opaque=(*answer.opaque, *more.opaque),
        usage=answer.usage + more.usage,
        citations=(*answer.citations, *moved),
        opaque_fields={**answer.opaque_fields, **more.opaque_fields, CONTENT: blocks},
    )


def _text_blocks(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _secrets_in(options: Mapping[str, Any]) -> list[str]:
    return [
        value
        for name, value in options.items()
        if isinstance(value, str) and value.strip() and any(word in name for word in _SECRET_OPTIONS)
    ]


def _own_copy(arguments: Arguments) -> Arguments:
    """The arguments with lists and dicts of their own: litellm changes them in place for some providers."""
    return {name: copy_json(value) if name in _COPIED else value for name, value in arguments.items()}


def _missing_keys(litellm: Any, model: str, provider: str) -> list[str]:
    """The environment variables of which one must hold a key; empty if there is one, or if none is needed. Other ways
    to sign in, such as AWS's, are not checked.

    litellm knows which variables the provider of a model reads, and takes a variable for a key even if it is blank. A
    blank key is missing here.
    """
    if (litellm.api_key or "").strip():
        return []
    if missing := litellm.validate_environment(model=model)["missing_keys"]:
        return [name for name in missing if name.endswith("_API_KEY")]
    provider = provider.replace("_", "")
    own = (provider, _OTHER_NAMES.get(provider, provider))
    keys = {name: key for name, key in os.environ.items() if name.endswith("_API_KEY")}
    keys = {name: key for name, key in keys.items() if name.replace("_", "").lower().startswith(own)}
    return [] if any(key.strip() for key in keys.values()) else sorted(keys)


_OTHER_NAMES = {"gemini": "google"}
"""The name that a provider has in a variable for its key, beside its own."""
