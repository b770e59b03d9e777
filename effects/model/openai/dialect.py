"""What one server takes of OpenAI's protocol, as far as it is known: set by hand, or learned from its refusals.

A request that was refused had no effect. So where the refusal names something that can be left out or written
otherwise, the request is sent again in that form, at once and within the same attempt. The form is kept only if the
server took it; from then on requests have it from the beginning, and a warning has told so once. What a refusal does
not name is never guessed.

Some providers refuse a round of calls without what their models write into it: sealed thinking, a signature, the
reasoning that led to the calls. It is missing where another model made the calls. Each provider has a form in which it
takes such a round; `Need` names them. What a model needs is known of its maker, or learned from a refusal.

A refusal may also speak of the tools: of one of them, of their schemas, or of their number. Where one is refused, it is
sent with the plainest schema, and if that does not help it is left out, so that one tool never fails every turn.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, TypeVar

from ....states.errors import ConfigurationError
from ....states.values.value import MAX_QUOTED, FailureKind, shortened
from ...logs import performer_logger
from ...schemas.wire import plain_schema
from ..families import ITEMS, Need, maker_of
from ..port import THOUGHTS, LlmFailure, Token
from .failures import BrokenAnswer
from .refusals import Refusal, RefusedRequest, refusal_of
from .traits import (
    BY_NAME,
    PARAMETERS,
    Arguments,
    Message,
    Trait,
    each_message,
    each_tool,
    further_fields,
    is_passing,
    named_fields,
    named_parameters,
    named_shapes,
    names_value,
    without,
    without_anywhere,
)

logger: Final = performer_logger("turnwise.model")

T = TypeVar("T")

Show = Callable[[Token], None]
"""What shows a piece of an answer."""

_MAX_CHANGES = 12
"""The most forms that are tried for one request. A server that refuses more than that is not one that can be asked."""

_REFUSING: frozenset[FailureKind] = frozenset(
    {"invalid_request", "server_error", "unsupported_content", "unknown_model"}
)
"""The kinds of failure in which servers say that they do not take a form of a request. Templates of open models fail as
errors of the server; what no endpoint takes may be told as not found."""


@dataclass(frozen=True)
class Dialect:
    """What a server takes, for the argument `dialect` of `LiteLlm` and `OpenAICompatible`, where it is known
    beforehand.

    Everything is taken by default. What is not is found out by the server's refusals, too, at the price of a refused
    request each. Raises `ConfigurationError` for values of other types.

    - `stream`: answers that stream. Without them the text of an answer is shown when it is complete.
    - `stream_options`: the option by which a stream tells the usage.
    - `tool_choice_none`: tools that are listed although none may be called.
    - `tool_choice_forced`: that at least one tool, or a certain one, must be called.
    - `response_format`: a schema to which the server holds an answer.
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
    tool_choice_forced: bool = True
    response_format: bool = True
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


def _traits_of(dialect: Dialect) -> Iterator[Trait]:
    """Yield what a server with this dialect does not take. `Pure.`"""
    yield from (trait for name, trait in BY_NAME.items() if getattr(dialect, name, None) is False)
    if dialect.named_results:
        yield BY_NAME["unnamed_results"]
    if dialect.system_role != "system":
        yield BY_NAME["system_role" if dialect.system_role == "user" else "plain_system"]
    if dialect.max_tokens is not None:
        other = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        yield BY_NAME[other[dialect.max_tokens]]
    for name in dialect.without:
        yield without_anywhere(name)
    yield from map(_without_tool, dialect.without_tools)
    if dialect.most_tools is not None:
        yield _fewer_tools(dialect.most_tools)


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
    """What is known of the server of one model: what was set by hand, what the maker of the model needs, and what the
    server refused. `name` is what the model is called, and `made` its name where that tells its maker. `kind_of` tells
    the kind of an error that is no `LlmFailure`."""

    def __init__(
        self, name: str, made: str, given: Dialect = ALL, kind_of: Callable[[Exception], FailureKind] | None = None
    ) -> None:
        if not isinstance(given, Dialect):
            raise ConfigurationError("The dialect of a model must be a Dialect.")
        self._model = name
        self._kind_of = kind_of
        maker = maker_of(made)
        needed = () if maker is None or maker.need not in NEEDED else (NEEDED[maker.need],)
        self._known: tuple[Trait, ...] = (*needed, *_traits_of(given))

    @property
    def refused(self) -> tuple[str, ...]:
        """What the server does not take, in the words of the warnings."""
        return tuple(trait.told for trait in self._known)

    @property
    def refused_tools(self) -> tuple[str, ...]:
        """The names, on the wire, of the tools that the server does not take."""
        return tuple(trait.tool for trait in self._known if trait.tool)

    def takes(self, name: str) -> bool:
        """Whether nothing is known that speaks against the trait or the parameter of this name."""
        return not any(trait.name in (name, f"parameter {name}") for trait in self._known)

    async def ask(
        self,
        arguments: Arguments,
        send: Callable[[Arguments, Show], Awaitable[T]],
        show: Show,
    ) -> T:
        """Return what `send` returns for the request in a form that the server takes; it shows the answer by what it is
        given. Raises what it raises for any other reason, and once a part of an answer was shown."""
        search = _Search(_rewritten(arguments, self._known), self._known, self._kind_of)
        shown = _Shown(show)
        for _ in range(_MAX_CHANGES + 1):
            try:
                answer = await send(search.arguments, shown)
            except Exception as error:
                if shown.has_shown or not search.go_on(error):
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


class _Shown:
    """Shows tokens, and knows whether there was one."""

    def __init__(self, show: Show) -> None:
        self.has_shown = False
        self._show = show

    def __call__(self, token: Token) -> None:
        self.has_shown = self.has_shown or bool(token.text)
        self._show(token)


class _Search:
    """The forms of one request, until the server takes one.

    A form after which the server says the same is taken back, because it has not helped: the next one is tried instead.
    Only if that leads nowhere are those that were taken back tried together. Parameters are left out together from the
    beginning: each of them is named.
    """

    def __init__(
        self, arguments: Arguments, known: Iterable[Trait], kind_of: Callable[[Exception], FailureKind] | None
    ) -> None:
        self.arguments = arguments
        self._kind_of = kind_of
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
        if self._changes > _MAX_CHANGES:
            return False
        new = [found] if (found := self._find(error, text)) is not None else self._all_in_vain()
        self._tried |= {trait.name for trait in new}
        self.helped += new
        self.arguments = _rewritten(self.arguments, new)
        return bool(new)

    def _find(self, error: Exception, text: str) -> Trait | None:
        if isinstance(error, LlmFailure):
            kind = error.kind
        elif self._kind_of is None:
            return None
        else:
            kind = self._kind_of(error)
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
    if isinstance(inner, RefusedRequest):
        said = inner.refusal
    elif isinstance(inner, BrokenAnswer):
        said = Refusal() if inner.error is None else Refusal.of_body(inner.error)
    else:
        said = Refusal() if inner is None else refusal_of(inner)
    return _NOTHING_SAID.sub("", said.text)


def _named_in(text: str, arguments: Arguments, kind: FailureKind) -> Iterator[Trait]:
    """Yield what a refusal of this kind names, the narrower first."""
    if kind not in _REFUSING:
        yield from _refused_schemas(text, arguments) if kind in ("internal", "network") else ()
        return
    if kind == "server_error":
        yield from named_shapes(text, is_server_error=True)
        yield from _refused_schemas(text, arguments) if not is_passing(text) else ()
        return
    yield from _named_tool(text, arguments)
    yield from _too_many_tools(text, arguments)
    yield from (trait for trait in ROUNDS if trait.is_named(text))
    renamed = ("max_tokens", "max_completion_tokens") if names_value(text) else ()
    yield from (trait for trait in PARAMETERS if trait.is_named(text) and trait.name not in renamed)
    yield from named_parameters(text, arguments)
    yield from named_fields(text, arguments)
    yield from named_shapes(text)
    yield from _refused_schemas(text, arguments)


_NO_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The signature of a call that has none (Google, "Thought signatures", frequently asked questions)."""

REASONING = "reasoning_content"

_BLANK_REASONING = " "
"""The shortest reasoning that counts as one."""

_THINKING = ("thinking", "reasoning_effort")
"""The parameters by which a request asks for thinking."""


def _has_calls(message: Message) -> bool:
    return message["role"] == "assistant" and bool(message.get("tool_calls"))


def _told(message: Message) -> str:
    """The reasoning of a message, under whatever name it stands."""
    return next((text for name in THOUGHTS if isinstance(text := message.get(name), str) and text), "")


def _with_some_reasoning(message: Message) -> Message:
    return message if not _has_calls(message) or _told(message) else {**message, REASONING: _BLANK_REASONING}


def _with_named_reasoning(message: Message) -> Message:
    if not _has_calls(message) or message.get(REASONING):
        return message
    return {**message, REASONING: _told(message) or _BLANK_REASONING}


def _signed(message: Message) -> Message:
    """The message with a signature on its first call, if nothing is signed in it."""
    if not _has_calls(message):
        return message
    first, *others = message["tool_calls"]
    seals = set(further_fields([{**message, "tool_calls": [first]}])) - set(THOUGHTS)
    if seals or "__thought__" in first["id"]:
        return message
    return {**message, "tool_calls": [{**first, "extra_content": _NO_SIGNATURE}, *others]}


def _without_thinking(arguments: Arguments) -> Arguments:
    """The request asks for no thinking if the round under way does not begin with sealed thinking."""
    if not any(name in arguments for name in _THINKING) or _begins_with_thinking(arguments["messages"]):
        return arguments
    return without(each_message(lambda message: without(message, "thinking_blocks"))(arguments), *_THINKING)


def _begins_with_thinking(messages: Sequence[Message]) -> bool:
    """Whether the round under way begins with sealed thinking, or has not begun. It is what stands behind the user's
    last message; one directly behind results belongs to the round."""
    first: Message | None = None
    for before, message in zip([{"role": "user"}, *messages][-2::-1], reversed(messages), strict=True):
        if message["role"] == "user" and before["role"] != "tool":
            break
        if message["role"] == "assistant":
            first = message
    return first is None or "thinking_blocks" in first or "reasoning_details" in first


NEEDED: Mapping[Need, Trait] = {
    Need.SIGNATURE: Trait("unsigned", "calls without a signature", r"thought.?signature", each_message(_signed)),
    Need.THINKING_OFF: Trait(
        "unsealed",
        "thinking in rounds that do not begin with it",
        r"(?:expected|start with a) .?thinking\b",
        _without_thinking,
    ),
    Need.REASONING: Trait(
        "unreasoned", "calls without reasoning", rf"\b{REASONING}\b", each_message(_with_some_reasoning)
    ),
}
"""The form of a round that each need refuses."""

ROUNDS: tuple[Trait, ...] = (
    NEEDED[Need.SIGNATURE],
    NEEDED[Need.THINKING_OFF],
    Trait(
        "reasoning elsewhere",
        f"calls without {REASONING}",
        NEEDED[Need.REASONING].says,
        each_message(_with_named_reasoning),
    ),
    Trait(
        "items",
        ITEMS,
        r"\b(?:items?|containers?)\b.{0,120}\b(?:without its required|not found|expired)|\bduplicate items?\b"
        r"|\bencrypted.content\b.{0,200}\b(?:verified|decrypted|parsed)",
        each_message(lambda message: without(message, ITEMS)),
        once=True,
    ),
)
"""What a refusal may say of rounds. It tells the name under which the reasoning is wanted, where a maker tells only
that it is."""


_PLACES = (
    re.compile(r"function_?declarations\W{1,4}([0-9]+)"),
    re.compile(r"\b(?:tools|functions)(?:\W{1,4}|\W{1,4}(?:function|custom)\W{1,4})([0-9]+)\b"),
)
"""How a refusal tells the place of a tool: `tools[3].function`, `tools.3.custom`, `body, tools, 3`."""

_OF_SCHEMAS = re.compile(
    r"\bschemas?\b|\bgrammar\b|\bparameters?\b|\bfunctions?\b|\btools?\b|declaration|\bproperties\b|\$ref|\$defs"
)

_UNREADABLE = (
    r"\b(?:grammar|json[_ ]?schema|input_schema|schemas?)\b.{0,80}"
    r"\b(?:fail\w*|invalid|not|unsupported|unable|cannot|error|unrecognized|exceed\w*|too)\b"
    r"|\b(?:fail\w*|invalid|not|unsupported|unable|cannot|error|unrecognized|unknown)\b.{0,80}"
    r"\b(?:grammar|json[_ ]?schema|input_schema|schemas?|function_declarations)\b"
    r"|max\w* (?:recursion )?depth|recursion|\bcircular\b"
)

_TOO_MANY = r"\b(?:too (?:many|long)|at most|maximum|max|exceed\w*|limit\w*|more than|up to)\b"
_TOOLS = r"\b(?:tools?|functions?|function_declarations)\b"
_NUMBERS = rf"{_TOOLS}.{{0,120}}{_TOO_MANY}|{_TOO_MANY}.{{0,80}}{_TOOLS}"


def _named_tool(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield what may help against a refusal that names a tool of the request: first its plain form, then the request
    without it. `Pure.`"""
    name = _name_in(text, arguments)
    if name is not None:
        yield _plain(name)
        yield _without_tool(name)


def _refused_schemas(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield what may help against a refusal of schemas that names no tool: all in their plain form. `Pure.`"""
    if arguments.get("tools") and re.search(_UNREADABLE, text):
        yield Trait("plain_schemas", "full schemas of tools", "", each_tool(_with_plain_schema))


def _too_many_tools(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield what may help against a refusal of the number of tools that tells how many there may be. `Pure.`"""
    count = len(arguments.get("tools") or ())
    if count and re.search(_NUMBERS, text):
        allowed = [
            int(found) for found in re.findall(r"(?<![\w.])[0-9]{1,4}(?![\w.]*\w)", text) if 0 < int(found) < count
        ]
        if allowed:
            yield _fewer_tools(max(allowed))


def _without_tool(name: str) -> Trait:
    """The trait of a server that does not take the tool of this name. `Pure.`"""
    drop = each_tool(lambda function: None if function["name"] == name else function)
    return Trait(f"tool {name}", f"the tool {name}", "", drop, name)


def _fewer_tools(most: int) -> Trait:
    """The trait of a server that takes so many tools at most: the first ones are sent. `Pure.`"""

    def first(arguments: Arguments) -> Arguments:
        tools = arguments.get("tools") or []
        return arguments if len(tools) <= most else {**arguments, "tools": tools[:most]}

    return Trait(f"tools {most}", f"more than {most} tools", "", first)


def _plain(name: str) -> Trait:
    rewrite = each_tool(lambda function: _with_plain_schema(function) if function["name"] == name else function)
    return Trait(f"schema {name}", f"the full schema of the tool {name}", "", rewrite)


def _with_plain_schema(function: dict[str, Any]) -> dict[str, Any]:
    schema = function.get("parameters")
    plain = plain_schema(schema) if isinstance(schema, dict) else schema
    return function if plain == schema else {**function, "parameters": plain}


def _name_in(text: str, arguments: Arguments) -> str | None:
    """The tool that a refusal means, by its name or by its place."""
    names = [str(tool.get("function", tool).get("name", "")) for tool in arguments.get("tools") or ()]
    for pattern in _PLACES:
        if (found := pattern.search(text)) and int(found[1]) < len(names):
            return str(names[int(found[1])])
    if not names or not _OF_SCHEMAS.search(text):
        return None
    by_length = sorted([name for name in names if name], key=len, reverse=True)
    return next((name for name in by_length if _is_named(name.lower(), text)), None)


def _is_named(name: str, text: str) -> bool:
    """Whether a refusal speaks of the tool of this name. A name that may be an ordinary word stands behind a word that
    announces it."""
    word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    if "_" in name or "-" in name or any(character.isdigit() for character in name):
        return re.search(word, text) is not None
    return re.search(rf"\b(?:function|tool|schema for|name|for)s?(?: name)?\W{{1,3}}{word}", text) is not None
