"""Which texts of an event are content, and what it is without the secrets in them.

Every text of an event is content, unless it stands in `NAMES`: so a new event is redacted before anybody has thought of
it. Names are left alone, because others refer to them: ids, names of tools and models, what the application notes about
a conversation for itself. So are the rules and the prompts of the application, which it wrote itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
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
    MessageWithdrawn,
    Opened,
    PolicyChanged,
    ProfileSelected,
    ProfileTransferred,
    Request,
    SubAgentAsked,
    ToolApproval,
    ToolInterrupted,
    ToolsChanged,
    UserCancel,
    UserQuestionResponse,
    exact,
)
from ...states.values.acts import AgentMail, SubAgentTask, Transfer
from ...states.values.history import HistoryMessage
from ...states.values.images import Image
from ...states.values.messages import ToolCall, ToolResult
from ...states.values.schedule import Schedule
from ...states.values.value import Value
from .history_redaction import redacted_message
from .redaction import Redaction

E = TypeVar("E", bound=Event)
V = TypeVar("V", bound=BaseModel)

NAMES: Mapping[type[Value], frozenset[str]] = {
    Request: frozenset({"event_id"}),
    Opened: frozenset({"system", "policy", "works_for", "parent", "tools", "owner", "metadata"}),
    PolicyChanged: frozenset({"policy"}),
    AgentMessage: frozenset({"origin"}),
    MessageWithdrawn: frozenset({"message_id"}),
    UserQuestionResponse: frozenset({"call_id"}),
    ToolApproval: frozenset({"call_id", "by"}),
    UserCancel: frozenset({"call_id"}),
    ToolsChanged: frozenset({"tools"}),
    DetailsChanged: frozenset({"metadata"}),
    DoubtResolved: frozenset({"call_id"}),
    ToolInterrupted: frozenset({"call_id"}),
    CallRestricted: frozenset({"call_id"}),
    SubAgentAsked: frozenset({"call_id"}),
    ProfileSelected: frozenset({"profile"}),
    ProfileTransferred: frozenset({"profile"}),
    Schedule: frozenset({"cron", "zone"}),
    Transfer: frozenset({"profile"}),
    LlmResponse: frozenset({"finish_reason", "model", "digest"}),
    ToolCall: frozenset({"call_id", "name", "provider_id"}),
    AgentMail: frozenset({"target"}),
    SubAgentTask: frozenset({"profile", "tools"}),
}
"""The texts that are names, by the class that declares them."""

IMAGE_LEFT_OUT = "An image is left out here, because its address holds a secret."


class SecretInAddress(ValueError):
    """The address of an image holds a secret. Without it the address leads nowhere."""


def redacted_event(event: E, redaction: Redaction) -> E:
    """Return the event without secrets, or the same object if it has none. Raises ValueError if what is left is not
    valid."""
    redacted = _redacted_value(event, redaction)
    return event if redacted is event else exact(redacted)


@cache
def content_fields(kind: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of a class of values that may hold content. `Pure.`"""
    names = {name for parent in kind.__mro__ for name in NAMES.get(parent, ())}
    fields = kind.__pydantic_fields__.items()
    return tuple(name for name, field in fields if name not in names and not _is_closed(field.annotation))


_CLOSED = (int, float, bool, AwareDatetime, type(None), ...)


def _is_closed(annotation: Any) -> bool:
    """Whether a field has one of a few values, or a number."""
    if get_origin(annotation) is Literal:
        return True
    if get_origin(annotation) is Annotated:
        return _is_closed(get_args(annotation)[0])
    members = get_args(annotation)
    return all(map(_is_closed, members)) if members else annotation in _CLOSED


def _redacted_value(value: V, redaction: Redaction) -> V:
    changes = {}
    for name in content_fields(type(value)):
        given = getattr(value, name)
        redact = _SPECIAL.get((type(value), name), _redacted)
        redacted = redact(given, redaction)
        if redacted is not given and redacted != given:
            changes[name] = redacted
    return value.model_copy(update=changes) if changes else value


def _redacted(value: Any, redaction: Redaction) -> Any:
    match value:
        case str():
            return redaction.redact(value)
        case tuple():
            redacted = tuple(_redacted(one, redaction) for one in value)
            return value if all(map(operator.is_, redacted, value)) else redacted
        case dict():
            return redaction.redact_json(value)
        case ToolResult():
            return _redacted_result(value, redaction)
        case BaseModel():
            return _redacted_value(value, redaction)
        case _:
            return value


def _by_question(answers: dict[str, Any], redaction: Redaction) -> dict[str, Any]:
    """Return what is given for each question. The text of a question is redacted as it was when it was asked."""
    return {redaction.redact(question): _redacted(given, redaction) for question, given in answers.items()}


def _opaque(blocks: tuple[dict[str, Any], ...], redaction: Redaction) -> tuple[dict[str, Any], ...]:
    """Return the sealed blocks of a provider, or none of them if there is a secret: they cannot be changed."""
    return blocks if redaction.redact_json(list(blocks)) == list(blocks) else ()


def _address(url: str, redaction: Redaction) -> str:
    if not url.startswith("data:") and redaction.redact(url) != url:
        raise SecretInAddress("the address of an image holds a secret; send the image itself")
    return url


def _redacted_result(result: ToolResult, redaction: Redaction) -> ToolResult:
    """Return the result of a tool. An image whose address holds a secret is left out, and the text says so."""
    images = tuple(image for image in result.images if not _has_secret(image, redaction))
    if len(images) < len(result.images):
        result = result.replace(images=images, text="\n\n".join(filter(None, (result.text, IMAGE_LEFT_OUT))))
    return _redacted_value(result, redaction)


def _has_secret(image: Image, redaction: Redaction) -> bool:
    try:
        _address(image.url, redaction)
    except SecretInAddress:
        return True
    return False


_SPECIAL: Mapping[tuple[type[BaseModel], str], Callable[[Any, Redaction], Any]] = {
    (UserQuestionResponse, "answers"): _by_question,
    (UserQuestionResponse, "annotations"): _by_question,
    (LlmResponse, "opaque"): _opaque,
    (HistoryMessage, "given"): redacted_message,
    (Image, "url"): _address,
}
"""Fields whose secrets are not simply replaced."""
