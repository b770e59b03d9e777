"""The id of an update: the step that it shows, and its position in that step."""

from __future__ import annotations

import re
from typing import TypeAlias

from ....states.errors import InvalidInput

Position: TypeAlias = tuple[int, int]
"""The two numbers of an id. Updates come in their order."""

_ID = re.compile(r"(\d{1,18})\.(\d{1,18})", re.ASCII)


def parse_id(text: object) -> Position:
    """Return the numbers of an id. Raises `InvalidInput`. `Pure.`"""
    match = _ID.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidInput("The id of an update reads like 12.3, the step and the position in it.")
    return int(match[1]), int(match[2])
