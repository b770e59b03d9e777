"""Reads a JSON object and keeps the text of each of its members, letter by letter.

A parser gives back what a text means, and a log is known again by how it was written.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn


class Member(NamedTuple):
    """A member of an object: what it is, and how it stands there."""

    value: Any
    text: str


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def members_of(line: str) -> dict[str, Member]:
    """The members of the object in the line, which is written without any space between them. `Pure.`

    Raises ValueError for what is no such object, names a member twice, or is nested too deeply.
    """
    members: dict[str, Member] = {}
    end = len(line) - 1
    try:
        place = _past(line, 0, "{")
        while True:
            name, place = _DECODER.raw_decode(line, place)
            start = _past(line, place, ":")
            value, place = _DECODER.raw_decode(line, start)
            if not isinstance(name, str) or name in members:
                raise ValueError(name)
            members[name] = Member(value, line[start:place])
            if place == end and line[place] == "}":
                return members
            place = _past(line, place, ",")
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _past(line: str, place: int, mark: str) -> int:
    if line[place : place + 1] != mark:
        raise ValueError(mark)
    return place + 1
