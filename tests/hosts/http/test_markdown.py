"""Markdown as a tree: what it becomes, and that nothing in it can act in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.hosts.http.markdown import DEEPEST, LONGEST, SCHEMES, TAGS, MarkdownElement, MarkdownNode, markdown_tree

from ...support.cases import holds_for

MARKUP = st.lists(
    st.sampled_from(
        [
            *"*_`~[]()<>|!#->+&\\\n\t :/",
            "\n\n",
            "    ",
            "a",
            "1. ",
            "- ",
            "```",
            "javascript:",
            "https://",
            "&lt;",
            "<b>",
        ]
    ),
    max_size=60,
).map("".join)
"""Texts that are made of what has a meaning in Markdown, in any order."""


def elements(nodes: list[MarkdownNode]) -> Iterator[MarkdownElement]:
    """Yield all elements of a tree, however deep."""
    for node in nodes:
        if not isinstance(node, str):
            yield node
            yield from elements(node.get("children", []))


def words(nodes: list[MarkdownNode]) -> str:
    """Return the text of a tree."""
    return "".join(node if isinstance(node, str) else words(node.get("children", [])) for node in nodes)


@holds_for(
    ("text", "tree"),
    [
        ("Hello *you*", [{"tag": "p", "children": ["Hello ", {"tag": "em", "children": ["you"]}]}]),
        ("one\ntwo  \nthree", [{"tag": "p", "children": ["one\ntwo", {"tag": "br"}, "three"]}]),
        ("# Title", [{"tag": "h1", "children": ["Title"]}]),
        ("- a\n- b", [{"tag": "ul", "children": [{"tag": "li", "children": ["a"]}, {"tag": "li", "children": ["b"]}]}]),
        ("3. c", [{"tag": "ol", "start": 3, "children": [{"tag": "li", "children": ["c"]}]}]),
        (
            "```python\nx = 1\n```",
            [{"tag": "pre", "language": "python", "children": [{"tag": "code", "children": ["x = 1\n"]}]}],
        ),
        (
            "[here](https://example.org)",
            [{"tag": "p", "children": [{"tag": "a", "href": "https://example.org", "children": ["here"]}]}],
        ),
        ("~~gone~~", [{"tag": "p", "children": [{"tag": "s", "children": ["gone"]}]}]),
        ("", []),
    ],
)
def test_markdown_becomes_a_tree_of_elements_and_texts(text: str, tree: list[MarkdownNode]) -> None:
    """Emphasis, breaks, headings, lists, code and links are elements; what is inside them are their children."""
    assert markdown_tree(text) == tree


def test_a_table_says_how_its_cells_are_aligned() -> None:
    """Cells of a table carry the side that their column is aligned to."""
    cells = [one for one in elements(markdown_tree("|a|b|\n|:-:|--:|\n|1|2|")) if one["tag"] in ("td", "th")]

    assert [cell.get("align") for cell in cells] == ["center", "right", "center", "right"]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "<div onclick='alert(1)'>\n\nx\n\n</div>",
        "&lt;script&gt;alert(1)&lt;/script&gt;",
    ],
)
def test_html_in_a_text_stays_text(text: str) -> None:
    """HTML makes no element of its own: it is shown as it was written."""
    tree = markdown_tree(text)

    assert {one["tag"] for one in elements(tree)} <= {"p"}
    assert "<" in words(tree)


@holds_for(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "&#106;avascript:alert(1)",
        "java&#10;script:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "vbscript:x",
        "file:///etc/passwd",
        "//example.org/x",
        "/conversations",
    ],
)
def test_an_address_that_is_not_for_people_makes_no_link(address: str) -> None:
    """Only http, https and mailto make links; in a link, an automatic link or the address of an image."""
    for text in (f"[x]({address})", f"[x](<{address}>)", f"<{address}>", f"![x]({address})", f"[x]\n\n[x]: {address}"):
        assert not [one for one in elements(markdown_tree(text)) if one["tag"] == "a"], text


def test_an_image_is_a_link_that_nobody_loads() -> None:
    """An image of another server would tell that server who reads; its description becomes a link to it."""
    [paragraph] = markdown_tree("![A *cat*](https://example.org/cat.png)")

    link: MarkdownElement = {"tag": "a", "href": "https://example.org/cat.png", "children": ["Image: A cat"]}
    assert paragraph == {"tag": "p", "children": [link]}


@pytest.mark.parametrize("text", [">" * (DEEPEST + 5) + " deep", "[" * (LONGEST + 1), "*" * (LONGEST + 1)])
def test_a_text_that_is_too_deep_or_too_long_is_shown_as_it_is(text: str) -> None:
    """Nothing of such a text is lost, and it costs no time."""
    assert markdown_tree(text) == [text]


@pytest.mark.slow
def test_a_table_that_is_mostly_filled_up_is_shown_as_it_is() -> None:
    """Short rows of a wide table are filled up with empty cells, of which there may be hundreds for each character."""
    text = f"{'|a' * 400}|\n{'|-' * 400}|\n" + "|x\n" * 160

    assert markdown_tree(text) == [text]


@given(MARKUP)
def test_any_text_becomes_listed_elements_with_safe_addresses(text: str) -> None:
    """Whatever a text is made of, its tree has only listed elements and addresses, and is no deeper than allowed."""
    for one in elements(markdown_tree(text)):
        assert one["tag"] in TAGS
        assert one.keys() <= {"tag", "children", "href", "start", "align", "language"}
        assert ("href" in one) == (one["tag"] == "a")
        assert one.get("href", "https:").partition(":")[0].lower() in SCHEMES
