"""Markdown as trees of allowed nodes, which a page builds as elements without reading any markup."""

from __future__ import annotations

from fastapi import APIRouter

from ..dependencies import CurrentCaller
from ..markdown import markdown_tree
from ..problems import problems
from ..schemas.body import BODY_REFUSALS
from ..schemas.markdown import MarkdownTexts, MarkdownTrees

router = APIRouter(tags=["engine"])


@router.post("/markdown", operation_id="renderMarkdown", responses=problems(*BODY_REFUSALS))
def render_markdown(body: MarkdownTexts, caller: CurrentCaller) -> MarkdownTrees:
    """Return a tree for each text. It runs in a thread, as a long text takes a while."""
    return MarkdownTrees(trees=[markdown_tree(text) for text in body.texts])
