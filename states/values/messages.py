"""Messages, tool calls and results, and references to texts.

A text is stored once, in the event that brought it. Everything else refers to it by `Heard`. Only words that the
machine itself adds ("Cancelled by user") are carried along, as `Made`.

A request holds everything that was said. If one file, one result or one message in it is refused by a provider, the
whole request is, and so is every later one. So what was probably refused is withheld: from then on a note stands in its
place. What was said is not lost by that, since people still see it, and so does a model that takes it.

A model must be able to tell its user's messages from those of other agents. The text of another agent stands between
tags and is escaped, so that nothing in it can end the tag or imitate one. A tag anywhere else is ordinary text, whoever
wrote it: a user, a tool, a document, the model itself. `escape_tags` escapes its first character. Whatever enters a
request and is neither a word of the machine nor the application's system prompt passes through it, so only messages of
agents stand between tags.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape, unescape
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeGuard, cast, get_args

from pydantic import ConfigDict, Field, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from .acts import Act, ActKind, Audience
from .files import FileKind, FileReference, FileReferences, reference_in
from .value import Block, FailureKind, Record, TaggedRecord, Text, Value, json_object

Suspect = Literal[
    "hearing",
    "reading",
    "sight",
    "new_files",
    "files",
    "additions",
    "answers",
    "memory",
    "earlier",
    "words",
    "instructions",
]
"""What of a request may be what was refused.

- `hearing`: its recordings and videos, if the model has never taken one in this conversation. Perhaps it takes none.
- `reading`: its documents, and `sight`: its images, likewise.
- `new_files`: its files that no model has taken yet, apart from text files, which are sent as text.
- `files`: all these files.
- `additions`: what came in since the last request that a model accepted, other than by what people said in this turn:
  results of tools, messages of agents, the messages of a turn that failed, a history that was given, a summary; and all
  files that came in since.
- `answers`: what the model itself wrote in this turn since then, texts and calls. If the turn before this one was
  refused, too, also what it wrote before.
- `memory`: what was recalled for the turn.
- `earlier`: what came in before, and was accepted only by other models. If the turn before this one was refused, too,
  everything that came in before.
- `words`: what people said in this turn.
- `instructions`: the system message, after the turn before this one was refused, too. Nothing can stand in its place.
"""

Matter = FileKind
"""What of a message is withheld: its files of this kind, or its text. With the text the arguments of its calls are, and
its text files."""


@dataclass(frozen=True, kw_only=True)
class Withheld(Record):
    """That a message's text or its files of one kind are withheld from this model, or from every model if the name is
    empty, and the kind of failure because of which they are.

    A provider does not say which part of a request it refuses, so what may be the part is tried in the order of
    suspicion.
    """

    what: Matter
    kind: FailureKind
    model: str = ""

    def concerns(self, model: str) -> bool:
        """Whether it is withheld from this model. `Pure.`"""
        return not self.model or self.model == model


MessageRole = Literal["system", "user", "assistant", "tool"]

CrashContract = Literal["pure", "idempotent", "reconcile", "at_most_once"]
"""What may happen to a call that was running when the process died.

pure: it runs again. idempotent: it runs again under the same key. reconcile: its tool is asked whether it ran.
at_most_once: it never runs twice.
"""

CONTRACTS: tuple[CrashContract, ...] = get_args(CrashContract)
"""The contracts, the strictest last: by how little is done without a person. A pure call may run any number of times;
an idempotent one as well, if the outside world knows its key; before a reconcilable one runs its tool is asked; and
nothing is done for one that may run at most once."""

REPEATABLE: frozenset[CrashContract] = frozenset({"pure", "idempotent"})
"""The contracts under which such a call runs again without a question."""

Approver = Literal["user", "operator"]
"""Who may allow a call: whoever uses the conversation, or only somebody who acts for the application."""

Stopped = Literal["cancelled", "denied"]
"""Why a message is not what it would have been, although nothing failed: the turn was cancelled, or nobody allowed the
call."""


@dataclass(frozen=True, kw_only=True)
class Heard(TaggedRecord):
    """A reference to the `index`-th text of the event at the step `seq`. A message has one text, 0. In a model's
    response 0 is its text, and 1 + n the fault of its n-th call. In a tool's result 0 is what the model reads, followed
    by the texts of its acts."""

    type: Literal["heard"] = "heard"
    seq: int
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class Made(TaggedRecord):
    """A text of the machine, worded by `Policy.texts`."""

    type: Literal["made"] = "made"
    text: Text


SaidPart = Annotated[Heard | Made, Field(discriminator="type")]
"""A text that is part of another one."""


@dataclass(frozen=True, kw_only=True)
class Joined(TaggedRecord):
    """Several texts, joined by blank lines."""

    type: Literal["joined"] = "joined"
    parts: tuple[SaidPart, ...]

    @staticmethod
    def text_of(parts: Iterable[str]) -> str:
        """The text that these texts of the parts make. `Pure.`"""
        return "\n\n".join(parts)


@dataclass(frozen=True, kw_only=True)
class Outcomes(TaggedRecord):
    """The outcomes of sub-agents as JSON, in the order of their tasks: how each ended, and its last text. `typed` are
    the places of those whose text is a typed answer."""

    type: Literal["outcomes"] = "outcomes"
    statuses: tuple[Text, ...]
    parts: tuple[SaidPart, ...]
    typed: tuple[int, ...] = ()

    def text_of(self, parts: Iterable[str]) -> str:
        """The JSON that these texts of the parts make, `{"agents": [{"status": …, "result": …}, …]}`. A typed answer
        stands in it as JSON, and not as a text. `Pure.`"""
        pairs = enumerate(zip(self.statuses, parts, strict=True))
        agents = [
            {"status": status, "result": _json_or_text(result) if place in self.typed else result}
            for place, (status, result) in pairs
        ]
        return json.dumps({"agents": agents}, ensure_ascii=False)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # secrets were taken out of it
        return text


Said = Annotated[Heard | Made | Joined | Outcomes, Field(discriminator="type")]

Reminder = Annotated[Heard | Made | Joined, Field(discriminator="type")]
"""What a model is reminded of in one request."""


class Usage(Value):
    """What a request cost: tokens in and out, and money in US dollars where the price is known.

    `cached_tokens` are those of the input that the provider read from its cache, and `reasoning_tokens` those of the
    output that the model spent on thinking; both are 0 where the provider does not say. `estimated` says that the
    provider has not told all of it, as of an answer that broke off, so that a part is what it must have been about.
    """

    # A price that is no number is not known, and the answer that it belongs to counts all the same.
    model_config: ClassVar[ConfigDict] = ConfigDict(ser_json_inf_nan="null")

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int = Field(default=0, ge=0)
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """Tokens in and out together."""
        return self.input_tokens + self.output_tokens

    @property
    def is_anything(self) -> bool:
        """Whether any cost is known."""
        tokens = self.input_tokens or self.output_tokens or self.cached_tokens or self.reasoning_tokens
        return bool(tokens) or self.cost is not None

    def __add__(self, other: Usage) -> Usage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        cost = min(sum(known), sys.float_info.max) if known else None  # a sum beyond all floats stays a number
        return self.replace(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=cost,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            estimated=self.estimated or other.estimated,
        )


NOTHING_SPENT = Usage()


class ProviderFields(Value):
    """What a provider wrote on a message besides what everybody reads. It is never looked into, and goes back
    unchanged to the `family` of models that wrote it.

    `thinking` is the name of the field that held the thinking, where it was not `reasoning_content`, or what was
    written around it, `<think>…</think>`, where it stood in the text. `message` are further fields of the message under
    their names, and `calls` those of its calls by `ToolCall.call_id`; the `id` of a call is among them if it is longer
    than `LONGEST_ID`. An empty family is that of the message's model by its name.
    """

    family: Text = ""
    thinking: Text = ""
    message: Block = Field(default_factory=dict)
    calls: dict[Text, Block] = Field(default_factory=dict)


class Citation(Value):
    """A source that a model names for its answer: a page, a document, a passage of one.

    `quote` is the passage of the source, and `start` and `end` the part of the message's text that rests on it, where
    the provider tells them: the places of its first character and of the one behind its last. `given` is the citation
    as the provider wrote it.
    """

    url: Text = ""
    title: Text = ""
    quote: Text = ""
    start: Annotated[int, Field(ge=0)] | None = None
    end: Annotated[int, Field(ge=0)] | None = None
    given: Block = Field(default_factory=dict)


LONGEST_ID = 64
"""The most characters of an id that a call carries along. A provider may hide a signature of kilobytes in an id."""


class ToolCall(Value):
    """A call in a model's response, with what the tool registry knew of it when the response was recorded.

    `call_id` is unique in the conversation. `provider_id` is the id that the provider gave, which may repeat; it is
    empty if that is longer than `LONGEST_ID` (see `ProviderFields.calls`).
    `raw_arguments` is the JSON text as the model wrote it, which is stored as `arguments`. A call with a `fault` never
    runs: the fault is its result. A call with `approval` runs only if a person allows it, and `approval_by` says who.
    `max_result` is how many characters of its result a request shows, if its tool says so.
    """

    call_id: Text = Field(min_length=1)
    name: Text
    raw_arguments: Text = Field(default="{}", validation_alias="arguments", serialization_alias="arguments")
    provider_id: Text = ""
    fault: Text | None = None
    approval: bool = False
    approval_by: Approver = "user"
    exclusive: bool = False
    crash: CrashContract = "at_most_once"
    acts: tuple[ActKind, ...] = ()
    max_result: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as data; empty if the model did not write a JSON object. `Pure.`"""
        return json_object(self.raw_arguments) or {}


class ToolResult(Value):
    """The outcome of a call: the text that the model reads, whether it is an error, the files that the model is shown
    beside it, and the acts to carry out."""

    text: Text
    error: bool = False
    files: FileReferences = ()
    acts: tuple[Act, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of the result, in the order in which `Heard.index` counts them."""
        acts = self.acts
        return (self.text, *(text for act in acts for text in act.texts)) if acts else (self.text,)


@dataclass(frozen=True, kw_only=True)
class Message(Record):
    """One message of the transcript. `turn` is the turn in which it was said, `seq` the step in which it entered.
    Messages of a history that was given to begin with have the turn 0; only such a history holds system messages.

    A person's message has the `message_id` under which it was sent. A message of another agent has that agent as its
    `origin` and says by `audience` for whom it is. A model's message has the `model` that said it, its `thinking`, and
    `opaque`, the provider's sealed thinking blocks; `provider` is what else only its family of models reads.
    `citations` are the sources that it names, and `logprobs` the probabilities of its tokens, as the provider wrote
    them. If it is `stopped`, it is what the model had written when a person stopped it, and
    `spoken` if a tool was to say it.

    A tool's result has a `tool_call_id`, and `error` if it failed; `stopped` says of an error that it is no fault: a
    person stopped the turn, or did not allow the call. `edited_arguments` are those, as JSON text, by which a person
    has replaced what the model wrote. `files` are those of a person or a tool. `deliveries` are the
    texts of this message that were delivered to the user: its own, or the speeches of a result. `undelivered` says that
    it holds a speech that was not delivered before its turn ended.

    `parts` are the texts of a given message and, as numbers, the places of its files in `files`, in their order. They
    are empty where the files simply follow the text.

    `withheld` says what of it models are not shown, because a provider refused it. `shown` is what people see of a
    typed answer, where that is not the text that the model wrote. A result that is `cleared` is not shown
    to models any more; of any other one they are shown `max_result` characters, or as many as the policy says.

    `heard` is set if the user has interrupted it: what of it they have heard, to which its text, or its deliveries,
    were cut; or, where that is no beginning of them, what was told.
    """

    role: MessageRole
    text: str = ""
    files: tuple[FileReference, ...] = ()
    parts: tuple[str | int, ...] = ()
    thinking: str = ""
    opaque: tuple[dict[str, Any], ...] = ()
    provider: ProviderFields | None = None
    citations: tuple[Citation, ...] = ()
    logprobs: Block | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    message_id: str = ""
    origin: str = ""
    audience: Audience | None = None
    tool_call_id: str | None = None
    error: bool = False
    stopped: Stopped | None = None
    spoken: bool = False
    heard: Text | None = None
    edited_arguments: str = ""
    deliveries: tuple[Text, ...] = ()
    undelivered: bool = False
    withheld: tuple[Withheld, ...] = ()
    max_result: int | None = None
    cleared: bool = False
    shown: str = ""
    turn: int = 0
    seq: int = 0
    model: str = ""


HistoryRole = Literal["system", "developer", "user", "assistant", "tool"]

HISTORY_ROLES = frozenset(get_args(HistoryRole))

_OWN_CALL_ID = re.compile(r"call_([0-9]{1,18})_[0-9]+(?:_[0-9a-f]{12})?", re.ASCII)
"""A call id as this library makes them: the number of the effect that made the call, the place of the call, and what
tells the histories of one conversation apart."""


class HistoryMessage(Value):
    """A message as it was given: `HistoryMessage(role="user", content="Hello")`. As JSON it is this object itself.

    Other programs keep their histories in this format, the chat format of OpenAI. A message is stored exactly as it was
    given, with whatever members it has, so that it can be given back unchanged. `openai_reading` makes sure that a list
    of messages is one that a conversation can continue.
    """

    given: Block

    if TYPE_CHECKING:  # the members of a message are the arguments, whatever they are

        def __init__(self, **message: Any) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        if message.keys() == {"given"} and isinstance(message["given"], dict):
            message = message["given"]
        role = message.get("role")
        if not (isinstance(role, str) and role in HISTORY_ROLES):
            raise PydanticCustomError("history_role", "a message of a history has one of the roles of OpenAI's format")
        return {"given": message}

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return self.given

    @property
    def role(self) -> HistoryRole:
        """Who says it."""
        return cast(HistoryRole, self.given["role"])

    @property
    def is_system(self) -> bool:
        """Whether it is an instruction of the application."""
        return self.role in ("system", "developer")

    @property
    def calls(self) -> tuple[dict[str, Any], ...]:
        """The tool calls of an assistant's message that name their tool and have an id. `Pure.`"""
        calls = self.given.get("tool_calls") if self.role == "assistant" else None
        return tuple(filter(_is_call, calls)) if isinstance(calls, list) else ()

    @property
    def files(self) -> tuple[FileReference, ...]:
        """The files to which its parts refer, in order. `Pure.`"""
        content = self.given.get("content")
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else ()
        found = (reference_in(part) for part in parts)
        return tuple(file for file in found if file is not None and file.sha256)


def _is_call(call: Any) -> TypeGuard[dict[str, Any]]:
    match call:
        case {"id": str(call_id), "function": {"name": str(), "arguments": str()}}:
            return bool(call_id)
        case _:
            return False


def effects_taken(messages: Iterable[HistoryMessage]) -> int:
    """Return the highest number of an effect in the call ids of these messages, or 0. New effects are numbered beyond
    it, so that no new call has the id of a given one. `Pure.`"""
    return max((effect_number(call["id"]) for message in messages for call in message.calls), default=0)


def effect_number(call_id: str) -> int:
    """Return the number of the effect in a call id as this library makes them; 0 for any other id. `Pure.`"""
    own = _OWN_CALL_ID.fullmatch(call_id)
    return 0 if own is None else int(own[1])


_ENVELOPE = re.compile(r'<(message_for_user|system_message) origin="([^"<>]*)">([^<>]*)</\1>')
UNKNOWN_ORIGIN = "unknown"
"""The origin that a model reads of a message whose own one is blank."""

# A model reads more as a tag than a parser does. So what follows a `<`, or a character that looks like one, is compared
# as a reader sees it: in any case and width, without marks, invisible characters and separators.
_NAMES = ("messageforuser", "systemmessage")
"""The names of the tags, by their letters."""

_BRACKETS = "<\uff1c\ufe64\u2039\u2329\u3008\u27e8\u02c2\u276e\u2770\u1438\u226a\u00ab"
"""A `<`, and what looks like one."""

_OPENING = re.compile(f"(?:[{_BRACKETS}]|\\\\u003[cC])(?=[^A-Za-z0-9{_BRACKETS}]*(?:[mMsS]|[^\x00-\x7f]|\\Z))")
"""A bracket, or how JSON may write it, where the letters behind it may be those of a tag. Nothing is looked at behind
the next bracket, so that a text of many brackets costs no more than another one."""

_UNSEEN = f"(?:(?![>{_BRACKETS}])[\\W_\u115f\u1160\u3164\uffa0])*"
"""Whatever a reader does not see, such as the fillers of Hangul, or takes for a separator, up to the next bracket."""

_LETTER = re.compile(f"{_UNSEEN}([^\\W_\u115f\u1160\u3164\uffa0{_BRACKETS}])")
"""The next letter or digit before a bracket."""

_REST = re.compile(f"{_UNSEEN}\\Z")
"""The end of a text, without a bracket in front of it."""

_CONTINUED = re.compile("[^\\W\u115f\u1160\u3164\uffa0]")
"""What makes a longer word of the name in front of it."""

_LOOKALIKES = str.maketrans(
    "аеорсуѕіјһԁԛԝмгеցսοε\u0261\u0131\u0585\u1d0d\u1d07\ua731\u1d00\u0262\ua730\u1d0f\u0280\u1d1c\u028f\u1d1b",
    "aeopcysijhdqwmregu" + "oe" + "gi" + "o" + "mesagforuyt",
)
"""Letters of other scripts, and small capitals, that look like those of the names."""


@dataclass(frozen=True)
class AgentText:
    """What the agent `origin` wrote: to be passed on to the user, or for the agent that reads it alone."""

    audience: Audience
    origin: str
    text: str


def write_message_for_user(text: str, origin: str) -> str:
    """The message as a model reads it. Raises ValueError if the text or the origin is blank. `Pure.`"""
    if not text.strip() or not origin.strip():
        raise ValueError("a message for the user needs a text and an origin")
    return f'<message_for_user origin="{_escaped(origin)}">{_escaped(text)}</message_for_user>'


def write_system_message(text: str, origin: str) -> str:
    """A message for the agent alone, as a model reads it: no request of a user, and not to be shown to one. `Pure.`"""
    return f'<system_message origin="{_escaped(origin)}">{_escaped(text)}</system_message>'


def read_agent_text(written: str) -> AgentText | None:
    """The message of another agent that `text_for_model` wrote, or None if it did not write this. `Pure.`"""
    found = _ENVELOPE.fullmatch(written)
    if found is None:
        return None
    audience: Audience = "user" if found[1] == "message_for_user" else "agent"
    read = AgentText(audience, unescape(found[2]), unescape(found[3]))
    is_whole = audience == "agent" or (read.text.strip() and read.origin.strip())
    return read if is_whole and _WRITERS[audience](read.text, read.origin) == written else None


def escape_tags(text: str) -> str:
    """The text with each tag of an agent's message escaped, and everything else as it is. What was escaped before stays
    as it is, too. `Pure.`"""
    return _OPENING.sub(_escape_opening, text)


def imitates_mail(message: Message) -> bool:
    """Whether a message that is not another agent's holds a tag of such a message. `Pure.`"""
    return message.audience is None and escaped_message(message) is not message


def escaped_message(message: Message) -> Message:
    """The message with all tags in its text, its parts and the arguments of calls escaped; itself if there are none.
    `Pure.`"""
    parts = tuple(escape_tags(part) if isinstance(part, str) else part for part in message.parts)
    calls = tuple(map(_escaped_call, message.tool_calls))
    edited = escape_tags(message.edited_arguments)
    escaped = {"text": escape_tags(message.text), "parts": parts, "tool_calls": calls, "edited_arguments": edited}
    changes = {name: value for name, value in escaped.items() if value != getattr(message, name)}
    return message.replace(**changes) if changes else message


def _escaped_call(call: ToolCall) -> ToolCall:
    arguments = escape_tags(call.raw_arguments)
    return call if arguments == call.raw_arguments else call.replace(raw_arguments=arguments)


def text_for_model(message: Message) -> str:
    """The text of a message as a model reads it. That of another agent stands between tags; in any other such tags are
    escaped. `Pure.`"""
    if message.audience is None:
        return escape_tags(message.text)
    origin = message.origin if message.origin.strip() else UNKNOWN_ORIGIN
    return _WRITERS[message.audience](message.text, origin)


def _escape_opening(opening: re.Match[str]) -> str:
    """The entity of the character that opens a tag, or that character if no tag follows."""
    found = opening[0]
    if not _names_a_tag(opening.string, opening.end()):
        return found
    return "&lt;" if found == "<" else f"&#{ord(found[0])};{found[1:]}"


def _names_a_tag(text: str, start: int) -> bool:
    """Whether a reader sees the name of a tag from here on, or its beginning at the end of the text. Stops at the first
    letter that belongs to none."""
    letters, place = "", start
    while letters not in _NAMES:
        letter = _LETTER.match(text, place)
        if letter is None:  # in a request, another text may stand behind this one
            return _REST.match(text, place) is not None
        letters, place = letters + _as_seen(letter[1]), letter.end()
        if not any(name.startswith(letters) for name in _NAMES):
            return False
    return _CONTINUED.match(text, place) is None


def _as_seen(character: str) -> str:
    """The letters and digits that a reader sees in a character, in one case and without marks."""
    if character.isascii():
        return character.lower()
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", character).casefold())
    return "".join(filter(str.isalnum, plain.translate(_LOOKALIKES)))


def _escaped(text: str) -> str:
    return escape_tags(escape(text, quote=True))


_WRITERS: Mapping[Audience, Callable[[str, str], str]] = {
    "user": write_message_for_user,
    "agent": write_system_message,
}
