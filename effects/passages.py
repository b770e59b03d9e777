"""Writes texts of other people below a title, in limited length, for a model that is to read them and not to obey them.

The title stands at the left margin and the text is indented, so that nothing in the text can pass for another title.
"""

from __future__ import annotations

import textwrap

_MARGIN = "  "

NOTE_SIZE = 60
"""Bytes that are reserved for the note that something was left out."""


def titled(title: str, text: str) -> str:
    """The text below its title, indented, so that nothing in it can pass for a title. `Pure.`"""
    return f"{title}:\n{textwrap.indent(text.strip(), _MARGIN, lambda line: True)}"


def cut_middle(text: str, limit: int) -> str:
    """The text in at most `limit` bytes: if it is longer, its beginning and its end. `Pure.`"""
    data = text.encode()
    if len(data) <= limit:
        return text
    room = max(0, limit - NOTE_SIZE)
    tail = room // 3
    beginning = data[: room - tail].decode(errors="ignore")
    end = data[len(data) - tail :].decode(errors="ignore") if tail else ""
    return f"{beginning} [… {len(text) - len(beginning) - len(end)} characters left out …] {end}"
