"""What one server takes of OpenAI's protocol, as far as it is known: set by hand, or learned from its refusals.

A request that was refused had no effect. So where the refusal names something that can be left out or written
otherwise, the request is sent again in that form, at once and within the same attempt. The form is kept only if the
server took it; from then on requests have it from the beginning, and a warning has told so once. What a refusal does
not name is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeVar

from ....states.errors import ConfigurationError
from ....states.values.value import MAX_QUOTED, FailureKind, shortened
from ...logs import performer_logger
from ..port import LlmFailure
from .error_kinds import kind_of
from .foreign_rounds import ROUNDS
from .refusals import Refusal, refusal_of
from .refused_tools import fewer_tools, named_tool, refused_schemas, too_many_tools, without_tool
from .request_traits import (
    BY_NAME,
    PARAMETERS,
    Arguments,
    Trait,
    is_passing,
    named_fields,
    named_parameters,
    named_shapes,
    names_value,
    without_anywhere,
)
from .stream_assembler import BrokenAnswer

logger = performer_logger("turnwise.model")

T = TypeVar("T")

MAX_CHANGES = 12
"""The most forms that are tried for one request. A server that refuses more than that is not one that can be asked."""

_REFUSING: frozenset[FailureKind] = frozenset(
    {"invalid_request", "server_error", "unsupported_content", "unknown_model"}
)
"""The kinds of failure in which servers say that they do not take a form of a request. Templates of open models fail as
errors of the server; what no endpoint takes may be told as not found."""


@dataclass(frozen=True)
class Dialect:
    """What a server takes, for `LiteLlm(…, dialect=Dialect(…))`, where it is known beforehand.

    Everything is taken by default. What is not is found out by the server's refusals, too, at the price of a refused
    request each. Raises `ConfigurationError` for values of other types.

    - `stream`: answers that stream. Without them the text of an answer is shown when it is complete.
    - `stream_options`: the option by which a stream tells the usage.
    - `tool_choice_none`: tools that are listed although none may be called.
    - `null_content`: messages of the assistant with calls and no text. Otherwise their text is empty.
    - `empty_content`: messages without text. Otherwise they get one.
    - `text_parts`: text as a list of parts.
    - `repeated_roles`: two messages of one role in a row, and a conversation that the assistant begins.
    - `user_after_tool`: a user's message directly behind the result of a tool.
    - `assistant_last`: a message of the assistant at the end of a request.
    - `system_role`: system messages. With `"developer"` they have that role, with `"user"` their text stands in front
      of the user's first message.
    - `max_tokens`: the name of the parameter for the length of an answer.
    - `named_results`: whether each result must have the name of its tool.
    - `without`: names of parameters, and of fields of messages, that are left out.
    - `without_tools`: names of tools that are left out.
    - `most_tools`: how many tools a request may hold.
    """

    stream: bool = True
    stream_options: bool = True
    tool_choice_none: bool = True
    null_content: bool = True
    empty_content: bool = True
    text_parts: bool = True
    repeated_roles: bool = True
    user_after_tool: bool = True
    assistant_last: bool = True
    system_role: Literal["system", "developer", "user"] = "system"
    max_tokens: Literal["max_tokens", "max_completion_tokens"] | None = None
    named_results: bool = False
    without: Collection[str] = ()
    without_tools: Collection[str] = ()
    most_tools: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            check = _CHECKS.get(field.name, _is_flag)
            if not check(getattr(self, field.name)):
                given = shortened(repr(getattr(self, field.name)), MAX_QUOTED)
                raise ConfigurationError(f"The {field.name} of a Dialect cannot be {given}.")


def traits_of(dialect: Dialect) -> Iterator[Trait]:
    """Yield what a server with this dialect does not take. `Pure.`"""
    for name in _FLAGS:
        if not getattr(dialect, name):
            yield BY_NAME[name]
    if dialect.named_results:
        yield BY_NAME["unnamed_results"]
    if dialect.system_role != "system":
        yield BY_NAME["system_role" if dialect.system_role == "user" else "plain_system"]
    if dialect.max_tokens is not None:
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        yield BY_NAME[other[dialect.max_tokens]]
    for name in dialect.without:
        yield without_anywhere(name)
    yield from map(without_tool, dialect.without_tools)
    if dialect.most_tools is not None:
        yield fewer_tools(dialect.most_tools)


_FLAGS = (
    *("stream", "stream_options", "tool_choice_none", "null_content", "empty_content", "text_parts", "repeated_roles"),
    *("user_after_tool", "assistant_last"),
)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _are_names(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str) and all(isinstance(one, str) for one in value)


_CHECKS: dict[str, Callable[[object], bool]] = {
    "system_role": lambda value: value in ("system", "developer", "user"),
    "max_tokens": lambda value: value in (None, "max_tokens", "max_completion_tokens"),
    "without": _are_names,
    "without_tools": _are_names,
    "most_tools": lambda value: value is None or (type(value) is int and value > 0),
}

ALL = Dialect()
"""The dialect of a server that takes everything."""


class LearnedDialect:
    """What is known of the server of one model, by the model's name: what was set by hand, what the maker of the model
    needs, and what the server refused."""

    def __init__(self, model: str, given: Dialect = ALL, needed: Iterable[Trait] = ()) -> None:
        if not isinstance(given, Dialect):
            raise ConfigurationError("The dialect of a LiteLlm must be a Dialect.")
        self._model = model
        self._known: tuple[Trait, ...] = (*needed, *traits_of(given))

    @property
    def refused(self) -> tuple[str, ...]:
        """What the server does not take, in the words of the warnings."""
        return tuple(trait.told for trait in self._known)

    @property
    def refused_tools(self) -> tuple[str, ...]:
        """The names, on the wire, of the tools that the server does not take."""
        return tuple(trait.tool for trait in self._known if trait.tool)

    async def ask(
        self, arguments: Arguments, send: Callable[[Arguments], Awaitable[T]], has_shown: Callable[[], bool]
    ) -> T:
        """Return what `send` returns for the request in a form that the server takes. Raises what it raises for any
        other reason, and once `has_shown` says that a part of an answer was shown."""
        search = _Search(_rewritten(arguments, self._known), self._known)
        for _ in range(MAX_CHANGES + 1):
            try:
                answer = await send(search.arguments)
            except Exception as error:
                if has_shown() or not search.go_on(error):
                    raise
            else:
                self._learn(search.helped)
                return answer
        raise AssertionError("the last try of a request returns or raises")  # pragma: no cover

    def _learn(self, helped: Sequence[Trait]) -> None:
        """Remember what the server does not take, now that it took a request without it."""
        names = {trait.name for trait in self._known}
        for trait in helped:
            if trait.once:
                logger.warning("The model %s does not take this value of %s.", self._model, trait.told)
        new = [trait for trait in helped if trait.name not in names and not trait.once]
        if new:
            told = ", ".join(trait.told for trait in new)
            logger.warning("The model %s does not take %s, so its requests are sent without.", self._model, told)
            self._known = (*self._known, *new)


class _Search:
    """The forms of one request, until the server takes one.

    A form after which the server says the same is taken back, because it has not helped: the next one is tried instead.
    Only if that leads nowhere are those that were taken back tried together. Parameters are left out together from the
    beginning: each of them is named.
    """

    def __init__(self, arguments: Arguments, known: Iterable[Trait]) -> None:
        self.arguments = arguments
        self.helped: list[Trait] = []
        self._first = arguments
        self._tried = {trait.name for trait in known}
        self._changes = 0
        self._in_vain: list[Trait] = []
        self._text: str | None = None

    def go_on(self, error: Exception) -> bool:
        """Take the next form, and return whether there is one that may help against this error."""
        text, self._changes = _text_of(error), self._changes + 1
        if text == self._text and self.helped and not _is_of_parameter(self.helped[-1]):
            self._in_vain.append(self.helped.pop())
            self.arguments = _rewritten(self._first, self.helped)
        self._text = text
        if self._changes > MAX_CHANGES:
            return False
        new = [found] if (found := self._find(error, text)) is not None else self._all_in_vain()
        self._tried |= {trait.name for trait in new}
        self.helped += new
        self.arguments = _rewritten(self.arguments, new)
        return bool(new)

    def _find(self, error: Exception, text: str) -> Trait | None:
        kind = error.kind if isinstance(error, LlmFailure) else kind_of(error)
        for trait in _named_in(text, self.arguments, kind):
            if trait.name not in self._tried and trait.rewrite(self.arguments) is not self.arguments:
                return trait
        return None

    def _all_in_vain(self) -> list[Trait]:
        together, self._in_vain = self._in_vain, []
        return together if len(together) > 1 else []


def _rewritten(arguments: Arguments, traits: Iterable[Trait]) -> Arguments:
    for trait in traits:
        arguments = trait.rewrite(arguments)
    return arguments


def _is_of_parameter(trait: Trait) -> bool:
    return trait.name.startswith("parameter ")


_NOTHING_SAID = re.compile(r",? ?\b(?:param|code|type): (?:null|none)\b")
"""Fields of an error in which nothing stands. What it says of null is said of the request."""


def _text_of(error: Exception) -> str:
    """What the server said, also in the middle of a stream. What this program says of it is no refusal."""
    inner = error.__context__ if isinstance(error, LlmFailure) else error
    if isinstance(inner, BrokenAnswer):
        said = Refusal() if inner.error is None else Refusal.of_body(inner.error)
    else:
        said = Refusal() if inner is None else refusal_of(inner)
    return _NOTHING_SAID.sub("", said.text)


def _named_in(text: str, arguments: Arguments, kind: FailureKind) -> Iterator[Trait]:
    """Yield what a refusal of this kind names, the narrower first."""
    if kind not in _REFUSING:
        yield from refused_schemas(text, arguments) if kind in ("internal", "network") else ()
        return
    if kind == "server_error":
        yield from named_shapes(text, is_server_error=True)
        yield from refused_schemas(text, arguments) if not is_passing(text) else ()
        return
    yield from named_tool(text, arguments)
    yield from too_many_tools(text, arguments)
    yield from (trait for trait in ROUNDS if trait.is_named(text))
    renamed = ("max_tokens", "max_completion_tokens") if names_value(text) else ()
    yield from (trait for trait in PARAMETERS if trait.is_named(text) and trait.name not in renamed)
    yield from named_parameters(text, arguments)
    yield from named_fields(text, arguments)
    yield from named_shapes(text)
    yield from refused_schemas(text, arguments)
