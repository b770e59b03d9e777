"""Texts in Markdown, and the trees that they are rendered as."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from .body import Answer, Body
from .described import DescribedBy

MOST_TEXTS = 50
LONGEST_TEXT = 200_000
"""How many texts a request may bring, and how many characters each may have. Chosen so that a page renders all that it
shows at once in one request."""


class MarkdownElement(Answer):
    """An element with what is inside. A link has an `href`, a list may have the number of its `start`, a cell of a
    table may be aligned, and a block of code may have a language. Keys that an element does not need are left out."""

    tag: str
    children: list[str | MarkdownElement] = Field(default_factory=list)
    href: str = ""
    start: int = 1
    align: str = ""
    language: str = ""


MarkdownNode = Annotated[Any, DescribedBy(str | MarkdownElement)]
"""A text, or an element."""


class MarkdownTexts(Body):
    """Texts in Markdown."""

    texts: Annotated[list[Annotated[str, Field(max_length=LONGEST_TEXT)]], Field(max_length=MOST_TEXTS)]


class MarkdownTrees(Answer):
    """The nodes of each text, in the order of the texts."""

    trees: list[list[MarkdownNode]]
