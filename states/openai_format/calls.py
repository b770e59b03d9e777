"""Repairs tool calls: their shape, their arguments, the names of their tools, and their ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..values.history import effect_number
from .contents import Report
from .json_values import JsonCopy
from .repairs import quoted
from .writing import is_json_object, legal_name

MAX_CALL_ID = 200
"""The most characters of the id of a call. Providers make ids of up to 64 characters, gateways longer ones."""

MAX_EFFECT = 1_000_000_000
"""The largest number of an effect in a given id. Chosen so that the numbers behind it fit every database."""

UNNAMED = "unknown_tool"
"""The name in a call that names no tool."""


def repair_call(call: Any, report: Report) -> dict[str, Any] | None:
    """Return a call of OpenAI's shape with the id that it had, or None if it is no call at all."""
    if not isinstance(call, dict) or not (function := _function_in(call)):
        report("An entry of the calls that is no call was left out.")
        return None
    if call.get("type") != "function" or "function" not in call:
        report("A call had another shape than in OpenAI's chat format, and was rewritten.")
        call = {"id": call.get("id", call.get("call_id"))} if "function" not in call else call
    name, arguments = _name(function.get("name"), report), _arguments(function.get("arguments"), report)
    return {**call, "type": "function", "function": {**function, "name": name, "arguments": arguments}}


def _function_in(call: dict[str, Any]) -> dict[str, Any]:
    """Return what a call says of its tool, in the shape of any of the formats in use; empty if it says nothing."""
    match call:
        case {"function": dict(function)}:
            return function
        case {"custom": {"name": name, **custom}}:
            return {"name": name, "arguments": custom}
        case {"name": name, "args": arguments} | {"name": name, "arguments": arguments}:
            return {"name": name, "arguments": arguments}
        case _:
            return {}


def _name(name: object, report: Report) -> str:
    if not isinstance(name, str) or not name.strip():
        report("A call names no tool.")
        return UNNAMED
    legal = legal_name(name)
    if legal != name:
        report(f"The tool {quoted(name)} has a name that providers refuse; it was replaced by {legal}.")
    return legal


def _arguments(arguments: object, report: Report) -> str:
    """Return the arguments as the text of a JSON object."""
    if isinstance(arguments, str) and is_json_object(arguments):
        return arguments
    if isinstance(arguments, str) and (mended := _mended(arguments)) is not None:
        report("The arguments of a call hold what JSON cannot hold (NaN, half a character); they were mended.")
        return mended
    if isinstance(arguments, dict):
        report("The arguments of a call were written as a JSON text.")
        return json.dumps(arguments, ensure_ascii=False)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        report("A call has no arguments; an empty object stands for them.")
    else:
        report(f"The arguments {quoted(arguments)} are no JSON object and were replaced by an empty one.")
    return "{}"


def _mended(arguments: str) -> str | None:
    """Return arguments that only Python reads as an object in a form that every JSON parser reads."""
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return json.dumps(JsonCopy().of_object(read), ensure_ascii=False) if isinstance(read, dict) else None


class UniqueIds:
    """Gives each call an id that no other call of the history has. An id that can be kept is kept."""

    def __init__(self, given: Iterable[str]) -> None:
        """`given` are all ids in the history: none of them is given to another call."""
        self._given = frozenset(given)
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}

    def assign(self, wanted: str, place: int, report: Report) -> str:
        """Return the id for a call of the message at `place`; `wanted` is the one that it has, or empty."""
        if wanted and wanted not in self._used and len(wanted) <= MAX_CALL_ID and effect_number(wanted) <= MAX_EFFECT:
            assigned = wanted
        else:
            assigned = next(self._free(wanted, place))
            report(f"{_fault(wanted, wanted in self._used)}; it became {quoted(assigned)}.")
        self._used.add(assigned)
        return assigned

    def _free(self, wanted: str, place: int) -> Iterator[str]:
        """Yield ids that no call of the history has, made from the one that it wanted, or from its place. None of them
        reads like an id that this library makes."""
        can_be_extended = wanted and len(wanted) <= MAX_CALL_ID - 12 and effect_number(wanted) <= MAX_EFFECT
        stem = f"{wanted}_r" if can_be_extended else f"history_{place}_"
        while True:
            number = self._numbers[stem] = self._numbers.get(stem, 1) + 1
            made = f"{stem}{number}"
            if made not in self._given and made not in self._used:
                yield made


def _fault(wanted: str, is_repeated: bool) -> str:
    if not wanted:
        return "A call has no id"
    return f"The id {quoted(wanted)} {'is repeated' if is_repeated else 'is too long'}"


def id_in(holder: Mapping[str, Any], name: str, report: Report) -> str:
    """Return the id that a call or a result holds under this name, as a text; empty if it holds none."""
    found = holder.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        report(f"The {name} {found} is a number; it became a text.")
        return str(found)
    return found if isinstance(found, str) else ""
