"""Repairs tool calls: their shape, their arguments, and the names of their tools."""

from __future__ import annotations

import json
from typing import Any

from .json_copier import JsonCopier
from .repairs import ReportRepair, quoted
from .writing import is_json_object, legal_name

UNNAMED = "unknown_tool"
"""The name in a call that names no tool."""


def repair_call(call: Any, report: ReportRepair) -> dict[str, Any] | None:
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


def _name(name: object, report: ReportRepair) -> str:
    if not isinstance(name, str) or not name.strip():
        report("A call names no tool.")
        return UNNAMED
    legal = legal_name(name)
    if legal != name:
        report(f"The tool {quoted(name)} has a name that providers refuse; it was replaced by {legal}.")
    return legal


def _arguments(arguments: object, report: ReportRepair) -> str:
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
    return json.dumps(JsonCopier().copy_object(read), ensure_ascii=False) if isinstance(read, dict) else None
