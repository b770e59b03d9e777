"""Markdown as trees of allowed nodes, which a page builds as elements without reading any markup."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from ..dependencies import CurrentCaller, CurrentHost
from ..markdown import markdown_tree
from ..problems import problems
from ..schemas.body import BODY_REFUSALS
from ..schemas.markdown import MarkdownTexts, MarkdownTrees

router = APIRouter(tags=["engine"])


@router.post("/markdown", operation_id="renderMarkdown", responses=problems(*BODY_REFUSALS))
async def render_markdown(body: MarkdownTexts, caller: CurrentCaller, host: CurrentHost) -> MarkdownTrees:
    """Return a tree for each text. The server reads one text at a time, and those of several requests in turn."""
    trees = []
    for text in body.texts:
        async with host.reading_markdown:
            trees.append(await asyncio.to_thread(markdown_tree, text))
    return MarkdownTrees(trees=trees)
