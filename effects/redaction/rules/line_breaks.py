"""Finds secrets that the end of a line has broken in two, as in a mail or a narrow window."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from ..rule import SecretSpan

_BREAK = re.compile(r"(?<=[\w=+/.-])[ \t]*\r?\n[ \t]*(?=[\w+/.-])")

_HAS_DIGIT = re.compile(r"[0-9]")
_IS_MIXED = re.compile(r"[a-z]+[A-Z]|[A-Z]{2}[a-z]")


def find_across_lines(text: str, find: Callable[[str], Iterable[SecretSpan]]) -> Iterator[SecretSpan]:
    """Yield the secrets that `find` finds in the text without its line breaks, if they go across one.

    What stands on the last line must look like a part of a secret, and not like the first word of the next sentence.
    """
    breaks = list(_BREAK.finditer(text))
    if not breaks:
        return
    joined, places, shifts, done, removed = [], [], [0], 0, 0
    for one in breaks:
        joined.append(text[done : one.start()])
        removed += one.end() - one.start()
        places.append(one.end() - removed)  # where the next line begins in the joined text
        shifts.append(removed)
        done = one.end()
    whole = "".join([*joined, text[done:]])
    for found in find(whole):
        start, end = found.start, found.end
        while (line := bisect_left(places, end) - 1) >= 0 and places[line] > start:
            if _is_part(whole[places[line] : end]):
                before = bisect_right(places, start)
                yield SecretSpan(start + shifts[before], end + shifts[line + 1], found.label)
                break
            end = places[line]


def _is_part(text: str) -> bool:
    return bool(_HAS_DIGIT.search(text) or _IS_MIXED.search(text))
