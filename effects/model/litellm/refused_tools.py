"""What a refusal says of the tools of a request: of one of them, of their schemas, or of their number.

Tools are written so that every provider takes them, as far as the rules of providers are known. Where one is refused
all the same, it is sent with the plainest schema, and if that does not help it is left out, so that one tool never
fails every turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...wire.schemas import plain_schema
from .request_traits import Arguments, Trait, each_tool

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


def named_tool(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield what may help against a refusal that names a tool of the request: first its plain form, then the request
    without it. `Pure.`"""
    name = _name_in(text, arguments)
    if name is not None:
        yield _plain(name)
        yield without_tool(name)


def refused_schemas(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield what may help against a refusal of schemas that names no tool: all in their plain form. `Pure.`"""
    if arguments.get("tools") and re.search(_UNREADABLE, text):
        yield Trait("plain_schemas", "full schemas of tools", "", each_tool(_with_plain_schema))


def too_many_tools(text: str, arguments: Arguments) -> Iterator[Trait]:
    """Yield what may help against a refusal of the number of tools that tells how many there may be. `Pure.`"""
    count = len(arguments.get("tools") or ())
    if count and re.search(_NUMBERS, text):
        allowed = [
            int(found) for found in re.findall(r"(?<![\w.])[0-9]{1,4}(?![\w.]*\w)", text) if 0 < int(found) < count
        ]
        if allowed:
            yield fewer_tools(max(allowed))


def without_tool(name: str) -> Trait:
    """The trait of a server that does not take the tool of this name. `Pure.`"""
    drop = each_tool(lambda function: None if function["name"] == name else function)
    return Trait(f"tool {name}", f"the tool {name}", "", drop, name)


def fewer_tools(most: int) -> Trait:
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
    names = [tool["function"]["name"] for tool in arguments.get("tools") or ()]
    for pattern in _PLACES:
        if (found := pattern.search(text)) and int(found[1]) < len(names):
            return str(names[int(found[1])])
    if not names or not _OF_SCHEMAS.search(text):
        return None
    return next((name for name in sorted(names, key=len, reverse=True) if _is_named(name.lower(), text)), None)


def _is_named(name: str, text: str) -> bool:
    """Whether a refusal speaks of the tool of this name. A name that may be an ordinary word stands behind a word that
    announces it."""
    word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    if "_" in name or "-" in name or any(character.isdigit() for character in name):
        return re.search(word, text) is not None
    return re.search(rf"\b(?:function|tool|schema for|name|for)s?(?: name)?\W{{1,3}}{word}", text) is not None
