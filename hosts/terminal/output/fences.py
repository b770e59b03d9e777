"""The lines that begin and end a block of code in Markdown."""

from __future__ import annotations

import re
from typing import NamedTuple

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})[ \t]*([^\s`]*)")


class Fence(NamedTuple):
    """The line that begins a code block: its indent, the marker that ends the block, and the language, if it names
    one."""

    indent: str
    marker: str
    language: str

    @classmethod
    def opened_by(cls, line: str) -> Fence:
        """Return the fence that this line opens. `Pure.`"""
        match = _FENCE.match(line)
        return cls("", "```", "") if match is None else cls(match[1], match[2], match[3])

    def is_closed_by(self, line: str) -> bool:
        """Return whether this line ends the code block. `Pure.`"""
        bare = line.strip()
        is_marker = len(bare) >= len(self.marker) and not bare.strip(self.marker[0])
        return is_marker and len(line) - len(line.lstrip(" ")) <= 3

    def without_indent(self, line: str) -> str:
        """Return a line of the code block without the indent of its fence. `Pure.`"""
        return line[min(len(self.indent), len(line) - len(line.lstrip(" "))) :]

    def may_be_closed_by(self, begun: str) -> bool:
        """Return whether a line that begins like this may end the code block. `Pure.`"""
        return not begun.strip().strip(self.marker[0])
