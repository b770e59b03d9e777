"""Which texts of an event are content, and what it is without the secrets in them.

Every text of an event is content, unless it stands in `OWN`: so a new event is redacted before anybody has thought of
it. Own texts are left alone, because others refer to them: the ids that the engine made, and what the application
wrote for itself, such as its rules, its prompts and what it notes about a conversation. A name that a model, a
provider or a tool gives is content as well, since a model can invent any name. It is left alone only if it is one of
those that the application gave to its tools, its profiles or its models (`GIVEN`).

A history in OpenAI's chat format holds messages of any JSON, stored as they were given. The ids of calls in it come
from elsewhere, so a secret may stand in them as well; other messages refer to them. So the same id becomes the same
one everywhere, and two that differ stay two.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import AwareDatetime, BaseModel

from ...states.events import (
    AgentMessage,
    CallRestricted,
    DetailsChanged,
    DoubtResolved,
    Event,
    LlmResponse,
    LlmStopped,
    MessageEdited,
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileSelected,
    ProfileTransferred,
    Request,
    Rewound,
    SubAgentAsked,
    ToolApproval,
    ToolInterrupted,
    ToolsChanged,
    UserCancel,
    UserQuestionResponse,
    exact,
)
from ...states.header import ChosenHeader, Header, Setup
from ...states.values.acts import AgentMail, Schedule, SubAgentTask, Transfer
from ...states.values.files import STORED_FILE, FileReference
from ...states.values.messages import HistoryMessage, ProviderFields, ToolCall, ToolResult
from ...states.values.output import ModelOutput, OutputSchema
from ...states.values.value import Value
from .redaction import Redaction

E = TypeVar("E", bound=Event)
V = TypeVar("V", bound=BaseModel)

OWN: Mapping[type[Value], frozenset[str]] = {
    # What a program chooses when it creates a conversation or changes it. A request that is sent again is known by its
    # `event_id`, which its sender chose.
    Request: frozenset({"event_id"}),
    ChosenHeader: frozenset({"owner", "metadata", "works_for"}),
    Header: frozenset({"parent"}),
    Setup: frozenset({"system", "policy", "tools"}),
    Opened: frozenset({"nonce"}),
    PolicyChanged: frozenset({"policy"}),
    ToolsChanged: frozenset({"tools"}),
    DetailsChanged: frozenset({"metadata", "system"}),
    Schedule: frozenset({"cron", "zone"}),
    AgentMessage: frozenset({"origin"}),
    AgentMail: frozenset({"target"}),
    # What a request names must be there already, or the request is refused and never stored.
    ToolApproval: frozenset({"call_id", "by"}),
    MessageWithdrawn: frozenset({"message_id"}),
    UserQuestionResponse: frozenset({"call_id"}),
    UserCancel: frozenset({"call_id"}),
    Rewound: frozenset({"to", "again"}),
    MessageEdited: frozenset({"message_id", "again"}),
    DoubtResolved: frozenset({"call_id"}),
    # Ids that the engine makes.
    ToolCall: frozenset({"call_id"}),
    ToolInterrupted: frozenset({"call_id"}),
    CallRestricted: frozenset({"call_id"}),
    SubAgentAsked: frozenset({"call_id"}),
    LlmResponse: frozenset({"digest"}),
    ProviderFields: frozenset({"family"}),
    # The form of an answer, as an application or its client writes it.
    OutputSchema: frozenset({"name", "json_schema", "description"}),
    ModelOutput: frozenset({"form"}),
    FileReference: frozenset({"sha256", "media_type"}),
}
"""The texts that are left alone, by the class that declares them."""

GivenKind = Literal["tool", "profile", "model"]

GIVEN: Mapping[tuple[type[BaseModel], str], GivenKind] = {
    (ToolCall, "name"): "tool",
    (SubAgentTask, "tools"): "tool",
    (SubAgentTask, "profile"): "profile",
    (ProfileSelected, "profile"): "profile",
    (ProfileTransferred, "profile"): "profile",
    (Transfer, "profile"): "profile",
    (LlmResponse, "model"): "model",
    (LlmStopped, "model"): "model",
}
"""The names that are left alone if the application gave them, and whose names they are."""

NAME_HOLDS_SECRET = "The name of this tool holds a secret, so it cannot be called here."
"""The fault of a call whose tool has another name without its secret: a server of the application gave it that name."""

_IsGiven = Callable[[GivenKind, str], bool]
"""Whether the application gave this name to a tool, a profile or a model."""


def _nothing_given(kind: GivenKind, name: str) -> bool:
    """For events that come without an application. `Pure.`"""
    return False


FILE_LEFT_OUT = "A file is left out here, because its address holds a secret."


class SecretInAddress(ValueError):
    """The address of a file holds a secret. Without it the address leads nowhere."""


def redacted_event(event: E, redaction: Redaction, is_given: _IsGiven = _nothing_given) -> E:
    """Return the event without secrets, or the same object if it has none. Raises ValueError if what is left is not
    valid."""
    redacted = _EventRedaction(redaction, is_given).of(event)
    return event if redacted is event else exact(redacted)


@cache
def content_fields(kind: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of a class of values that may hold content. `Pure.`"""
    own = {name for parent in kind.__mro__ for name in OWN.get(parent, ())}
    fields = kind.model_fields.items()
    return tuple(name for name, field in fields if name not in own and not _is_closed(field.annotation))


_CLOSED = (int, float, bool, AwareDatetime, type(None), ...)


def _is_closed(annotation: Any) -> bool:
    """Whether a field has one of a few values, or a number."""
    if get_origin(annotation) is Literal:
        return True
    if get_origin(annotation) is Annotated:
        return _is_closed(get_args(annotation)[0])
    members = get_args(annotation)
    return all(map(_is_closed, members)) if members else annotation in _CLOSED


class _EventRedaction:
    """Redacts the values of one event."""

    def __init__(self, redaction: Redaction, is_given: _IsGiven) -> None:
        self._redaction = redaction
        self._is_given = is_given

    def of(self, value: V) -> V:
        """Return the value without secrets, or the same object."""
        changes = {}
        for name in content_fields(type(value)):
            given = getattr(value, name)
            redacted = self._field(type(value), name, given)
            if redacted is not given and redacted != given:
                changes[name] = redacted
        if isinstance(value, ToolCall) and "name" in changes:
            changes.setdefault("fault", value.fault or NAME_HOLDS_SECRET)
        return value.model_copy(update=changes) if changes else value

    def _field(self, kind: type[BaseModel], name: str, given: Any) -> Any:
        if (whose := GIVEN.get((kind, name))) is not None:
            return self._name(whose, given)
        if (special := _SPECIAL.get((kind, name))) is not None:
            return special(given, self._redaction)
        if name in ("answers", "annotations") and kind is UserQuestionResponse:
            return {self._redaction.redact(question): self._any(one) for question, one in given.items()}
        return self._any(given)

    def _name(self, whose: GivenKind, given: Any) -> Any:
        if isinstance(given, tuple):
            return tuple(self._name(whose, one) for one in given)
        return given if given is None or self._is_given(whose, given) else self._redaction.redact(given)

    def _any(self, value: Any) -> Any:
        match value:
            case str():
                return self._redaction.redact(value)
            case tuple():
                redacted = tuple(self._any(one) for one in value)
                return value if all(map(operator.is_, redacted, value)) else redacted
            case dict():
                return self._redaction.redact_json(value)
            case ToolResult():
                return self.of(_with_open_files(value, self._redaction))
            case BaseModel():
                return self.of(value)
            case _:
                return value


def _opaque(blocks: tuple[dict[str, Any], ...], redaction: Redaction) -> tuple[dict[str, Any], ...]:
    """Return the sealed blocks of a provider, or none of them if there is a secret: they cannot be changed."""
    return blocks if redaction.redact_json(list(blocks)) == list(blocks) else ()


def _logprobs(logprobs: dict[str, Any] | None, redaction: Redaction) -> dict[str, Any] | None:
    """Return the probabilities of the tokens of a response, or None if the tokens make a text with a secret."""
    if logprobs is None:
        return None
    kinds = (one for one in logprobs.values() if isinstance(one, list))
    texts = ["".join(str(token.get("token", "")) for token in one if isinstance(token, dict)) for one in kinds]
    is_clean = redaction.redact_json(texts) == texts and redaction.redact_json(logprobs) == logprobs
    return logprobs if is_clean else None


def _message_fields(fields: dict[str, Any], redaction: Redaction) -> dict[str, Any]:
    """Return the fields that a provider wrote for itself, or none of them if there is a secret."""
    return fields if redaction.redact_json(fields) == fields else {}


def _call_fields(calls: dict[str, dict[str, Any]], redaction: Redaction) -> dict[str, dict[str, Any]]:
    """Return the fields of those calls that have no secret in them."""
    kept = {call_id: fields for call_id, fields in calls.items() if redaction.redact_json(fields) == fields}
    return calls if len(kept) == len(calls) else kept


def _provider_id(given: str, redaction: Redaction) -> str:
    """Return the id that a provider gave a call, or none if it holds a secret: it goes back unchanged or not at all."""
    return given if redaction.redact(given) == given else ""


def _address(url: str, redaction: Redaction) -> str:
    if redaction.redact(url) != url:
        raise SecretInAddress("the address of a file holds a secret; send the file itself")
    return url


def _with_open_files(result: ToolResult, redaction: Redaction) -> ToolResult:
    """Return the result of a tool. A file whose address holds a secret is left out, and the text says so."""
    files = tuple(file for file in result.files if not _has_secret(file, redaction))
    if len(files) < len(result.files):
        return result.replace(files=files, text="\n\n".join(filter(None, (result.text, FILE_LEFT_OUT))))
    return result


def _has_secret(file: FileReference, redaction: Redaction) -> bool:
    try:
        _address(file.url, redaction)
    except SecretInAddress:
        return True
    return False


def _redacted_history(messages: tuple[HistoryMessage, ...], redaction: Redaction) -> tuple[HistoryMessage, ...]:
    """Return the messages without secrets, or the same object if they have none."""
    history = _History(redaction, messages)
    redacted = tuple(history.redacted(message) for message in messages)
    return messages if all(map(operator.is_, redacted, messages)) else redacted


class _History:
    """Redacts the messages of one history."""

    def __init__(self, redaction: Redaction, messages: Iterable[HistoryMessage]) -> None:
        self._redaction = redaction
        self._ids = _redacted_ids(
            [*dict.fromkeys(found for one in messages for found in _ids_in(one.given))], redaction
        )

    def redacted(self, message: HistoryMessage) -> HistoryMessage:
        """Return the message without secrets, or the same object."""
        given: dict[str, Any] = self._of(message.given)
        return message if given == message.given else message.model_copy(update={"given": given})

    def _of(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._of(one) for one in value]
        if not isinstance(value, dict):
            return self._redaction.redact_json(value)
        members = ((name, self._member(name, member)) for name, member in value.items())
        return {self._redaction.redact(name): member for name, member in members if member is not _SEALED}

    def _member(self, name: str, member: Any) -> Any:
        """Return the value of a member, or `_SEALED` if the member is to be left out."""
        if isinstance(member, str):
            if name in _IDS:
                return self._ids[member]
            if name == "url":
                return member if self._redaction.redact(member) == member else _NO_ADDRESS
        if name == STORED_FILE and isinstance(member, dict):
            return self._file(member)
        if name in _SEALED:
            return member if self._redaction.redact_json(member) == member else _SEALED
        if isinstance(member, dict | list):
            return self._of(member)
        (redacted,) = self._redaction.redact_json({name: member}).values()
        return redacted

    def _file(self, reference: dict[str, Any]) -> dict[str, Any]:
        """The reference to a file, with its name without secrets."""
        name = reference.get("name")
        return {**reference, "name": self._redaction.redact(name)} if isinstance(name, str) else reference


def _ids_in(value: Any) -> Iterator[str]:
    """Yield the ids in a message, with repetitions."""
    if isinstance(value, list):
        for one in value:
            yield from _ids_in(one)
    elif isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, str) and name in _IDS:
                yield member
            else:
                yield from _ids_in(member)


def _redacted_ids(ids: Sequence[str], redaction: Redaction) -> dict[str, str]:
    """Return what stands for each id. One that would become like another has a number behind it."""
    redacted = dict(zip(ids, redaction.redact_json(list(ids)), strict=True))
    taken = {one for one, other in redacted.items() if one == other}
    numbers: Counter[str] = Counter()
    for one, other in redacted.items():
        if one != other:
            unused = other
            while unused in taken:
                numbers[other] += 1
                unused = f"{other} {numbers[other] + 1}"
            taken.add(unused)
            redacted[one] = unused
    return redacted


_IDS = frozenset({"id", "call_id", "tool_call_id"})
"""Members that tie messages together, as far as a text is their value."""

_SEALED = frozenset({"thinking_blocks", "reasoning_details", "encrypted_content", "signature"})
"""Members that a provider has signed or encrypted, which cannot be changed."""

_NO_ADDRESS = "[REDACTED]"
"""Stands for the address of a file that holds a secret. It leads nowhere, so the file is passed over."""

_SPECIAL: Mapping[tuple[type[BaseModel], str], Callable[[Any, Redaction], Any]] = {
    (Opened, "messages"): _redacted_history,
    (LlmResponse, "opaque"): _opaque,
    (LlmResponse, "logprobs"): _logprobs,
    (ProviderFields, "message"): _message_fields,
    (ProviderFields, "calls"): _call_fields,
    (ToolCall, "provider_id"): _provider_id,
    (FileReference, "url"): _address,
}
"""Fields whose secrets are not simply replaced."""
