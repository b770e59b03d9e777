"""Reads Markdown into a tree that a page can show without reading any markup.

The text comes from models and people, so the tree holds only what is listed here: it has no HTML, no images and no
address that a browser would run. HTML in the text stays text. An image becomes a link, because a page that loaded it
would tell its server who reads the conversation, and when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode


class MarkdownElement(TypedDict):
    """An element of the tree: its `tag`, one of `TAGS`, and its `children`.

    `href` is the address of a link, `start` the first number of a list, `align` the side that a cell of a table is
    aligned to, and `language` that of a block of code.
    """

    tag: str
    children: NotRequired[list[MarkdownNode]]
    href: NotRequired[str]
    start: NotRequired[int]
    align: NotRequired[str]
    language: NotRequired[str]


MarkdownNode: TypeAlias = str | MarkdownElement
"""A text, or an element with what is inside."""

TAGS = frozenset((
    "a", "blockquote", "br", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
))  # fmt: skip
"""The elements of a tree."""

SCHEMES = frozenset(("http", "https", "mailto"))
"""The schemes of the addresses that a link may have."""

DEEPEST = 40
"""How many elements may lie inside each other. Chosen to be more than people read, and less than what would exhaust the
stack of whoever walks the tree."""

LONGEST = 20_000
"""The most characters that are read as Markdown. Reading takes a time that grows with the square of some texts, such as
one of brackets only; this many take at most some two seconds."""

MOST_TOKENS = 2 * LONGEST
"""The most tokens of a text that are turned into a tree. Chosen because the rows of a wide table are filled up with
empty cells, some hundred for each character."""

LONGEST_LANGUAGE = 40
"""The most characters of the name of a language of code."""


def markdown_tree(text: str) -> list[MarkdownNode]:
    """Return the nodes of a text in Markdown: CommonMark, with tables and strikethrough.

    Any text is valid. One that is longer than `LONGEST`, nested more deeply than `DEEPEST`, or has more than
    `MOST_TOKENS` is returned as it is. `Pure.`
    """
    if len(text) > LONGEST:
        return [text]
    from markdown_it.tree import SyntaxTreeNode

    tokens = _parser().parse(text)
    if len(tokens) > MOST_TOKENS or any(token.level >= DEEPEST - 1 for token in tokens):  # it leaves out what is in it
        return [text]
    return _nodes(SyntaxTreeNode(tokens).children)


@cache
def _parser() -> MarkdownIt:
    """The parser, which is imported when the first text is read. It keeps nothing of a text."""
    from markdown_it import MarkdownIt

    options = {"html": False, "linkify": False, "typographer": False, "maxNesting": DEEPEST}
    return MarkdownIt("commonmark", options).enable(["table", "strikethrough"])


def _nodes(nodes: Sequence[SyntaxTreeNode]) -> list[MarkdownNode]:
    """Return these nodes, with texts that follow one another joined."""
    joined: list[MarkdownNode] = []
    for one in chain.from_iterable(map(_read, nodes)):
        if isinstance(one, str) and joined and isinstance(joined[-1], str):
            joined[-1] += one
        else:
            joined.append(one)
    return joined


def _read(node: SyntaxTreeNode) -> Iterator[MarkdownNode]:
    match node.type:
        case "text" | "text_special":
            yield node.content
        case "softbreak":
            yield "\n"
        case "code_inline":
            yield {"tag": "code", "children": [node.content]}
        case "fence" | "code_block":
            yield _code(node)
        case "image":
            address = node.attrGet("src")
            yield from _link(address, [f"Image: {_text_of(node) or address}"])
        case "link":
            yield from _link(node.attrGet("href"), _nodes(node.children))
        case _:
            yield from _element(node)


def _element(node: SyntaxTreeNode) -> Iterator[MarkdownNode]:
    """An element that has a tag and what is inside; only what is inside, if the tag is not listed or not shown."""
    children = _nodes(node.children)
    if node.tag not in TAGS or node.hidden:  # the paragraphs of a list whose items are not set apart are hidden
        yield from children
        return
    element: MarkdownElement = {"tag": node.tag}
    if children:
        element["children"] = children
    yield _with_attributes(element, node)


def _with_attributes(element: MarkdownElement, node: SyntaxTreeNode) -> MarkdownElement:
    style = node.attrGet("style")
    if node.tag in ("td", "th") and isinstance(style, str):
        element["align"] = style.removeprefix("text-align:")
    start = node.attrGet("start")
    if node.tag == "ol" and isinstance(start, int):
        element["start"] = start
    return element


def _code(node: SyntaxTreeNode) -> MarkdownElement:
    element: MarkdownElement = {"tag": "pre", "children": [{"tag": "code", "children": [node.content]}]}
    if language := " ".join(node.info.split()[:1])[:LONGEST_LANGUAGE]:
        element["language"] = language
    return element


def _link(address: Any, children: list[MarkdownNode]) -> Iterator[MarkdownNode]:
    """A link, or its content alone if a browser might run the address, or ask this server for it."""
    if isinstance(address, str) and _is_safe(address):
        yield {"tag": "a", "href": address, "children": children}
    else:
        yield from children


def _is_safe(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in SCHEMES
    except ValueError:
        return False


def _text_of(node: SyntaxTreeNode) -> str:
    return "".join(child.content or _text_of(child) for child in node.children)
