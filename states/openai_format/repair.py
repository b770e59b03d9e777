"""Checks the history that a conversation is to begin with, and repairs what is wrong with it.

A history comes from another program: it may end in the middle of a round of tool calls, hold results of calls that were
cut off, repeat ids, or use what only one provider knows. Whatever list of messages is given, a conversation can go on
from the repaired one: every call has exactly one result directly behind its message, ids are unique, arguments are JSON
objects, and no message is empty. A list that is in order is not changed at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from pydantic import BaseModel

from ..errors import InvalidInput
from ..values.history import HISTORY_ROLES, HistoryMessage
from .calls import repair_call
from .contents import is_blank, repair_content
from .json_copier import JsonCopier
from .pairing import Entry, arranged
from .repairs import Repairs, ReportRepair, quoted
from .responses_api import as_messages

MAX_MESSAGES = 100_000
"""The most messages of a history. Chosen so that a conversation of years fits, and that it is read within seconds."""

_ONLY_FOR = {"tool_calls": "assistant", "function_call": "assistant", "refusal": "assistant", "tool_call_id": "tool"}
"""Members that only messages of one role have."""


@dataclass(frozen=True)
class RepairedHistory:
    """A history that a conversation can begin with: what to put into `Opened` as its `system`, `messages` and
    `repairs`."""

    system: str
    messages: tuple[HistoryMessage, ...]
    repairs: tuple[str, ...]


def repair_history(messages: Iterable[Mapping[str, Any] | BaseModel], system: str = "") -> RepairedHistory:
    """Return the history of these messages, which are in OpenAI's chat format, with everything repaired that a provider
    would refuse.

    The system messages at the beginning become the system prompt, unless it is given as `system`; those behind them
    stay where they are. Members that the format does not know are kept, but not sent to a model. Raises `InvalidInput`
    for what is no list of mappings, and for more than `MAX_MESSAGES`. `Pure.`
    """
    repairs = Repairs()
    entries = list(arranged(_read_all(_checked(messages), repairs), repairs))
    leading = list(takewhile(_is_system, entries))
    if system.strip():
        for entry in leading:
            repairs.add(entry.place, "The system message was replaced by the one that was given as `system`.")
        return RepairedHistory(system, _values(entries[len(leading) :]), repairs.sentences)
    prompt = "\n\n".join(map(_text_of, leading))
    is_plain = [entry.fields for entry in leading] == [{"role": "system", "content": prompt}]
    return RepairedHistory(prompt, _values(entries[1:] if is_plain else entries), repairs.sentences)


def _checked(messages: object) -> list[Mapping[str, Any] | BaseModel]:
    if isinstance(messages, str | bytes | Mapping | BaseModel) or not isinstance(messages, Iterable):
        raise InvalidInput("A history is a list of messages, each of which is a mapping.")
    checked: list[Mapping[str, Any] | BaseModel] = []
    for message in messages:
        if not isinstance(message, Mapping | BaseModel):
            kind = type(message).__name__
            raise InvalidInput(
                f"messages[{len(checked)}]: A message is a mapping in OpenAI's chat format, not a {kind}."
            )
        if len(checked) == MAX_MESSAGES:
            raise InvalidInput(f"A history has at most {MAX_MESSAGES:,} messages.")
        checked.append(message)
    return checked


def _values(entries: Iterable[Entry]) -> tuple[HistoryMessage, ...]:
    return tuple(HistoryMessage.model_validate(entry.fields) for entry in entries)


def _is_system(entry: Entry) -> bool:
    return entry.fields["role"] in ("system", "developer")


def _text_of(entry: Entry) -> str:
    content = entry.fields["content"]
    return content if isinstance(content, str) else "\n\n".join(part["text"] for part in content)


# --- each message by itself


def _read_all(messages: Iterable[Mapping[str, Any] | BaseModel], repairs: Repairs) -> Iterator[Entry]:
    copies = ((place, _copied(message, partial(repairs.add, place))) for place, message in enumerate(messages))
    for place, fields in as_messages(copies, repairs):
        repaired = _repaired(fields, partial(repairs.add, place))
        if repaired is not None:
            yield Entry(place, repaired)


def _copied(message: Mapping[str, Any] | BaseModel, report: ReportRepair) -> dict[str, Any]:
    copier = JsonCopier()
    fields = copier.copy_object(message)
    if copier.lost:
        report("What JSON cannot hold (NaN, or objects of Python) was left out.")
    if copier.mended:
        report("Half a character (a lone surrogate) was replaced.")
    return fields


def _repaired(fields: dict[str, Any], report: ReportRepair) -> dict[str, Any] | None:
    """Return the repaired message, whose calls and results still have the ids that they had; None if it is left out."""
    role = _role(fields, report)
    if role is None:
        return None
    _repair_members(role, fields, report)
    if "content" in fields or role != "assistant":
        fields["content"] = repair_content(role, fields.get("content"), report)
    if role == "assistant":
        _repair_calls(fields, report)
    elif role == "tool" and fields["content"] is None:
        report("A result without content got an empty text.")
        fields["content"] = ""
    if _is_empty(role, fields):
        report("An empty message was left out.")
        return None
    return fields


def _role(fields: dict[str, Any], report: ReportRepair) -> str | None:
    """Return the role of the message, or None if no message has such a role."""
    role = fields.get("role")
    if role == "function":
        report("The role 'function' was replaced by 'tool'.")
        role = fields["role"] = "tool"
    if isinstance(role, str) and role in HISTORY_ROLES:
        return role
    what = "without a role" if role is None else f"of the unknown role {quoted(role)}"
    report(f"A message {what} was left out.")
    return None


def _is_empty(role: str, fields: dict[str, Any]) -> bool:
    has_more = role == "tool" or fields.get("tool_calls") or (fields.get("refusal") or "").strip()
    return not has_more and is_blank(fields.get("content"))


def _repair_members(role: str, fields: dict[str, Any], report: ReportRepair) -> None:
    """Remove the members that a message of this role does not have, and texts that are none."""
    for name, owner in _ONLY_FOR.items():
        if role != owner and fields.get(name):
            report(f"A message of the role '{role}' has no {name}; it was left out.")
            del fields[name]
    for name in ("name", "refusal"):
        if not isinstance(fields.get(name), str | None):
            report(f"The {name} is no text and was left out.")
            del fields[name]


def _repair_calls(fields: dict[str, Any], report: ReportRepair) -> None:
    """Repair the shape of an assistant's calls. A call of the older format, `function_call`, becomes one of them."""
    given = fields.get("tool_calls")
    legacy = fields.get("function_call")
    if legacy is not None:
        del fields["function_call"]
        report("The function_call was rewritten as a tool call." if not given else "The function_call was left out.")
        given = given or [{"type": "function", "function": legacy}]
    if not given:
        return
    if not isinstance(given, list):
        report("The tool_calls are no list and were left out.")
    calls = [repair_call(call, report) for call in given] if isinstance(given, list) else []
    fields["tool_calls"] = [call for call in calls if call is not None]
    if not fields["tool_calls"]:
        del fields["tool_calls"]
