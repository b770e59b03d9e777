"""Reads a JSON object and keeps the text of each of its members, character by character.

A parser returns only what a text means. The digests of a log cover how it was written.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn


class Member(NamedTuple):
    """A member of an object: its value, and the text that it was read from."""

    value: Any
    text: str


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def members_of(line: str) -> dict[str, Member]:
    """Return the members of the object in the line, which has no spaces between its members. `Pure.`

    Raises ValueError for anything else, for a member that is named twice, and for too deep nesting.
    """
    members: dict[str, Member] = {}
    end = len(line) - 1
    try:
        position = _skip(line, 0, "{")
        while True:
            name, position = _DECODER.raw_decode(line, position)
            start = _skip(line, position, ":")
            value, position = _DECODER.raw_decode(line, start)
            if not isinstance(name, str) or name in members:
                raise ValueError(name)
            members[name] = Member(value, line[start:position])
            if position == end and line[position] == "}":
                return members
            position = _skip(line, position, ",")
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _skip(line: str, position: int, character: str) -> int:
    if line[position : position + 1] != character:
        raise ValueError(character)
    return position + 1
