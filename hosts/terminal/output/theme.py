"""The styles of Markdown on a terminal.

They set no background, because nothing is known about that of the terminal.
"""

from __future__ import annotations

from rich.theme import Theme

THEME = Theme({
    "markdown.code": "cyan",
    "markdown.code_block": "cyan",
    "markdown.block_quote": "italic",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "bold italic",
    "markdown.h5": "italic",
    "markdown.h6": "italic",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
    "markdown.item.number": "bold",
})  # fmt: skip
