"""The port of language models: one method.

Any object with `complete` is a model: litellm's, a test double, a client of the application. Providers write the
content of an answer as a text, as a list of parts, or as null, and its thinking each under another name; whoever
implements the port for one of them reads both by the functions here.

A provider's own error message may quote the prompt, so it is written to the log `turnwise.model` and never shown:
people read one sentence for each kind of failure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import iscoroutinefunction
from math import isfinite
from typing import Any, Final, Literal, Protocol, get_args, runtime_checkable

from ...states.errors import ConfigurationError
from ...states.policy import DEFAULT_SETTINGS, ModelSettings
from ...states.values.files import FileKind
from ...states.values.messages import NOTHING_SPENT, Citation, Usage
from ...states.values.output import OutputWay
from ...states.values.value import MAX_QUOTED, NO_FAULT_OF_A_MODEL, FailureKind, shortened
from ..logs import performer_logger

Purpose = Literal["converse", "check", "summarize", "condense", "reword", "route", "enrich"]
"""What a request is for: the next answer in the conversation, the check of a claim that the work is complete, the
summary of a turn for display, the summary of messages that no longer fit the window, a text to be spoken, the choice of
a profile, or the words by which older conversations are searched."""


@dataclass(frozen=True)
class RequestedOutput:
    """The form that an answer must have: a JSON `schema` of an object, under a `name`.

    The `way` says how the model is asked. native: `schema` is for the provider's own means. tool: the last of the
    request's tools, which is called `tool`, has the schema, and its call is the answer. A `strict` one can be held to.
    prompted: the messages say it. If the model `must_answer`, it may call no other tool.
    """

    way: OutputWay
    name: str
    schema: Mapping[str, Any]
    strict: bool = False
    description: str = ""
    tool: str = ""
    must_answer: bool = False


@dataclass(frozen=True)
class ModelRequest:
    """A request to a model: `messages` and `tools` in the shape of OpenAI's chat completions, as plain dicts.

    Images, recordings, documents and videos are parts of messages, as litellm takes them: `image_url` and `file` with a
    data: URL or an address, `input_audio` with base64. `tool_choice="none"` lists the tools but allows no call,
    "required" wants at least one, and the name of a tool wants a call of it. `output` says which form the answer must
    have; None stands for a text. Later requests share the dicts, so change copies only. `purpose` and `conversation_id`
    are not sent to the provider; the id is empty if the application calls a `Rewording` without one. Neither are the
    `owner` and the `metadata` of the conversation: by them a model of the application may choose a key, an address or a
    limit. A text that is reworded comes without them. `settings` are
    parameters such as the temperature, from the message, the profile and the policy of the turn, apart from the
    `tool_choice`; those that are None are not sent. The first `stable` messages are those of later requests of the
    conversation, too, until it is condensed. `spoken` has the tools that speak to the user, by name, each with the
    argument that holds the words: a model may show these while it writes them, as tokens of the kind speech.
    """

    model: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    tool_choice: str = "auto"
    purpose: Purpose = "converse"
    conversation_id: str = ""
    settings: ModelSettings = DEFAULT_SETTINGS
    stable: int = field(default=0, compare=False)
    output: RequestedOutput | None = None
    spoken: Mapping[str, str] | None = field(default=None, compare=False)
    owner: str | None = field(default=None, compare=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def size(self) -> int:
        """The characters of text in the messages, arguments of calls among them. `Pure.`"""
        return sum(len(text) for message in self.messages for text in _texts_in(message))

    @cached_property
    def shows(self) -> frozenset[FileKind]:
        """The kinds of files that the request shows. Text files are texts. `Pure.`"""
        return frozenset(_kinds_shown(self.messages))


def _texts_in(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    parts = content if isinstance(content, list) else ({"text": content},)
    yield from (text for part in parts if isinstance(text := part.get("text"), str))
    yield from (call["function"]["arguments"] for call in message.get("tool_calls") or ())


def _kinds_shown(messages: tuple[dict[str, Any], ...]) -> Iterator[FileKind]:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if (kind := _kind_of(part)) is not None:
                yield kind


_PARTS: Mapping[str, FileKind] = {"image_url": "image", "input_audio": "audio", "video_url": "video"}


def _kind_of(part: Any) -> FileKind | None:
    match part:
        case {"type": "file", "file": {"format": str(media_type)}}:
            return _kind_of_type(media_type)
        case {"type": "file", "file": {"file_data": str(url)}}:
            return _kind_of_type(url.removeprefix("data:")[:100])
        case {"type": "file"}:
            return "document"
        case {"type": str(kind)}:
            return _PARTS.get(kind)
        case _:
            return None


def _kind_of_type(media_type: str) -> FileKind:
    match media_type.partition("/")[0]:
        case "image" | "audio" | "video" as kind:
            return kind
        case _:
            return "document"


@dataclass(frozen=True)
class ModelCall:
    """A call as the model wrote it: the provider's id, which may be repeated or empty, and the arguments as JSON
    text.

    `opaque` are the further fields of the call under their names, such as `extra_content` with a thought signature.
    They are stored, and go back unchanged to the family of models that wrote them.
    """

    id: str
    name: str
    arguments: str = "{}"
    opaque: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelAnswer:
    """The answer of a model.

    `opaque` are sealed thinking blocks, and `opaque_fields` the further fields of the message under their names, such
    as `reasoning_details`. Both are stored, and go back unchanged to the family of models that wrote them; so does
    `thinking`, under the name that it had: `thinking_field`. `citations` are the sources that the model names, and
    `logprobs` the probabilities of its tokens, as the provider wrote them.

    A `content` that a provider wrote as a list of parts, or as None, may be given as it is: it becomes the text in it,
    and thinking among the parts is added to `thinking`. Raises `LlmFailure` for content of any other shape.
    """

    content: str = ""
    thinking: str = ""
    opaque: tuple[dict[str, Any], ...] = ()
    tool_calls: tuple[ModelCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    opaque_fields: Mapping[str, Any] = field(default_factory=dict)
    thinking_field: str = "reasoning_content"
    citations: tuple[Citation, ...] = ()
    logprobs: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        content: Any = self.content
        thinking: Any = self.thinking
        if isinstance(content, str) and isinstance(thinking, str):
            return
        try:
            (text, thought), (more, other) = read_content(content), read_content(thinking)
        except (UnreadableContent, RecursionError):
            raise LlmFailure("malformed_response", "The answer has content that is neither text nor parts.") from None
        object.__setattr__(self, "content", text)
        object.__setattr__(self, "thinking", f"{more}{other}{thought}")


@dataclass(frozen=True)
class Token:
    """A piece of a streamed answer, which is shown before the rest has arrived. An empty one is not shown; it says that
    the answer goes on, with a piece of a call for example. One of the kind output is a piece of the arguments by which
    a typed answer is given (`RequestedOutput.tool`). One of the kind speech holds words that a tool is to say to the
    user (`ModelRequest.spoken`); a blank line stands between those of two calls.

    `usage` is what the answer has cost so far, where the model knows it: an answer that is stopped then counts with
    that, and with an estimate otherwise."""

    text: str
    kind: Literal["text", "thinking", "output", "speech"] = "text"
    usage: Usage | None = None


LLM_FAILURES = tuple(kind for kind in get_args(FailureKind) if kind not in NO_FAULT_OF_A_MODEL)
"""The kinds of failure in which a model request can end."""


class LlmFailure(Exception):
    """A request failed. `sentence` is for people, without a payload or a repr. `retry_after` is the wait in seconds
    that the provider asks for; one that does not end is none. `usage` is what was spent before the answer broke off; a
    request that was refused costs nothing. With `of_answer` it was the model's answer that a filter did not let pass,
    and not the request.

    `kind` decides whether the request is tried again; docs/guides/model-failures.md lists the kinds. Raises
    `ConfigurationError` for any other, because it would leave open what is to be done.
    """

    def __init__(
        self,
        kind: FailureKind,
        sentence: str,
        retry_after: float | None = None,
        usage: Usage = NOTHING_SPENT,
        *,
        of_answer: bool = False,
    ) -> None:
        super().__init__(sentence)
        if kind not in LLM_FAILURES:
            known = ", ".join(LLM_FAILURES)
            given = shortened(str(kind), MAX_QUOTED)
            raise ConfigurationError(f"An LlmFailure cannot be of the kind {given}. Known: {known}.")
        self.kind: FailureKind = kind
        self.sentence = sentence
        self.retry_after: float | None = _wait_of(retry_after)
        self.usage = usage
        self.of_answer = of_answer


def _wait_of(seconds: Any) -> float | None:
    """The wait as an event can hold it: seconds in a number that is finite and not negative."""
    try:
        wait = float(seconds)
    except (TypeError, ValueError, OverflowError):
        return None
    return max(wait, 0.0) if isfinite(wait) else None


logger: Final = performer_logger("turnwise.model")

SENTENCES: dict[FailureKind, str] = {
    "rate_limit": "The model's provider takes no more requests for now.",
    "server_error": "The model's provider reported an internal error.",
    "timeout": "The model took too long to answer.",
    "network": "The connection to the model failed.",
    "malformed_response": "The model's provider sent an answer that cannot be read.",
    "authentication": "The model's provider refused the key or the account.",
    "no_credit": "The account at the model's provider has no credit left.",
    "unknown_model": "The model's provider does not know this model.",
    "invalid_request": "The model's provider refused the request as invalid.",
    "context_window": "The conversation is too long for the model.",
    "content_filter": "The model's provider refused the content.",
    "unsupported_content": "The model does not take this kind of content, such as images or documents.",
    "unreadable_content": "The model's provider cannot read an image or a file in the conversation.",
    "internal": "The model could not be asked.",
}
"""The sentence for each kind of failure that a model request can have."""

_LONGEST_DETAIL = 500
"""Characters of a provider's error message that are logged. The message may quote the whole prompt."""


def make_failure(
    kind: FailureKind, model: str, detail: str, retry_after: float | None = None, usage: Usage = NOTHING_SPENT
) -> LlmFailure:
    """Return a failure of this kind with its sentence, and log `detail` as a warning.

    `detail` must hold no secrets. `retry_after` is the wait in seconds that the provider asks for, and `usage` what was
    spent.
    """
    logger.warning("%s failed (%s): %s", model, kind, " ".join(detail.split())[:_LONGEST_DETAIL])
    return LlmFailure(kind, SENTENCES[kind], retry_after, usage)


@runtime_checkable
class Llm(Protocol):
    """A language model.

    It may have a `name`, by which policies and logs refer to it; the default is the name of its class. It may have a
    `window`: how many tokens one request may hold. Without a window the history is condensed only after the model has
    said that a request was too long. It may have `is_priced`, which is False if its answers tell no cost
    (`Usage.cost`); then a conversation that limits the cost of its turns cannot ask it. Without that attribute it
    counts as priced.

    It may have `takes(kind)`, which returns whether it can be shown files of this kind (`image`, `document`, `audio`,
    `video`), or None if that is not known. A file that no model of a conversation takes is refused before it is sent.

    It may have a `family`, the name of the models that can read what this one writes for itself, such as sealed
    thinking. The default follows from its name.

    It may have `output_way(has_tools)`, which says how it is asked for a typed answer, in a request with other tools or
    without: `"native"`, `"tool"` or `"prompted"`. Without it a tool is offered, and a call of it is the answer.

    It may have `estimate(request, written)`, which returns about what it has cost when this text of the answer has
    come. It is asked for the usage of an answer that is cut off or stopped. Without it the tokens are estimated without
    a cost.

    It may have `refused_tools`, the names, as requests have them, of tools that its server does not take. They are told
    by `Engine.check`.

    It may have `ready`, a coroutine function without arguments that returns when the model can take requests, after it
    has loaded a library for example. It is awaited before each request, and the deadline of the request begins when it
    has returned. Raises `LlmFailure`. An engine calls it when it opens, too, so that the first request waits less. It
    may have `loading`, a name for what it still has to load, which is told to people who wait; None if there is
    nothing.
    """

    async def complete(self, request: ModelRequest, show: Callable[[Token], None]) -> ModelAnswer:
        """Answer the request, and call `show` with each piece as it arrives.

        Raises `LlmFailure`. When the task is cancelled the implementation closes its connection before it lets
        `CancelledError` pass. It may show a last, empty token with the `usage` before.
        """
        ...


_CHARACTERS_PER_TOKEN = 4
"""For estimates. English has 4.4 bytes a token in OpenAI's encoding, other languages have fewer."""


def estimated_usage(model: Llm, request: ModelRequest, written: str) -> Usage:
    """About what a request has cost when this text of its answer has come."""
    if callable(estimate := getattr(model, "estimate", None)):
        usage: Usage = estimate(request, written)
        return usage
    return Usage(input_tokens=tokens_of(request.size), output_tokens=tokens_of(len(written)), estimated=True)


def tokens_of(characters: int) -> int:
    """About how many tokens so many characters are. `Pure.`"""
    return -(-characters // _CHARACTERS_PER_TOKEN)


def ready_of(model: Llm) -> Callable[[], Awaitable[None]] | None:
    """What returns when this model can take requests; None for a model that always can. `Pure.`"""
    ready: Any = getattr(model, "ready", None)
    return ready if iscoroutinefunction(ready) else None


def takes(model: Llm, kind: FileKind) -> bool | None:
    """Whether this model can be shown files of this kind; None if that is not known. Every model reads text files."""
    if kind == "text":
        return True
    asked: Any = getattr(model, "takes", None)
    known = asked(kind) if callable(asked) else None
    return known if isinstance(known, bool) else None


def name_of(model: Llm) -> str:
    """The name by which policies and logs refer to this model. `Pure.`"""
    return str(getattr(model, "name", type(model).__name__))


_TEXTS = ("text", "output_text", "refusal")
"""The types of parts that hold text for the user. A part may hold the text under the name of its type."""

THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_text", "thought")
"""The types of parts that hold thinking, and the names of the fields of an answer that do. Some servers fill several
of these fields with the same text."""


class UnreadableContent(ValueError):
    """The content has none of the shapes that are known."""


def read_content(content: object) -> tuple[str, str]:
    """The text and the thinking in the content of an answer: a text, null, a part, or a list of parts and texts.

    Parts of other types, such as references, are left out. Raises `UnreadableContent`. `Pure.`
    """
    if isinstance(content, str):
        return content, ""
    text, thinking = "", ""
    for part in [content] if isinstance(content, Mapping) else _list_of(content):
        if isinstance(part, str):
            text += part
            continue
        if not isinstance(part, Mapping):
            raise UnreadableContent
        kind = part.get("type", "text")
        if kind in _TEXTS:
            text += _text_in(part.get("text", part.get(kind)))
        elif kind in THOUGHTS:
            thinking += _text_in(part.get(kind, part.get("text")))
    return text, thinking


def read_thinking(fields: Mapping[str, object]) -> str:
    """The thinking in the fields of an answer: that of the first one that holds any. A field of such a name that holds
    something else, such as a switch, is left alone. `Pure.`"""
    return next(filter(None, _thoughts_in(fields)), "")


def _thoughts_in(fields: Mapping[str, object]) -> Iterator[str]:
    for value in map(fields.get, THOUGHTS):
        try:
            yield _text_in(value)
        except (UnreadableContent, RecursionError):
            continue


def _text_in(value: object) -> str:
    """The text of a part, which may itself be a list of parts."""
    return "".join(read_content(value))


def _list_of(value: object) -> list[object] | tuple[object, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise UnreadableContent
    return value
