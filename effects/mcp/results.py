"""Turns what a server returned into the result of a call: a text for the model, and the images that it sees beside it.

All of it is data. Whatever a server returns, nothing is carried out because of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import mcp_types
from pydantic import ValidationError

from ...states.values.messages import MAX_IMAGES, MAX_TOGETHER, Image, ToolResult
from ...states.values.value import encodable
from ..tools.results import DONE, text_of

NO_REASON = "The tool failed, and its server does not say why."
"""The result of a call that failed without a word."""

Block = mcp_types.ContentBlock


def result_of(returned: mcp_types.CallToolResult) -> ToolResult:
    """The result for what a server returned.

    Texts stand one below the other, with blank lines between them. Images are shown as far as models take them. Audio,
    other images and binary resources are described. Structured content is written as JSON, unless a text says the same.
    `Pure.`
    """
    images: list[Image] = []
    texts: list[str] = []
    for block in returned.content:
        image = _image_of(block) if _has_room(images) else None
        if image is not None and _fits(image, images):
            images.append(image)
        else:
            texts.append(_written(block))
    if (structured := returned.structured_content) is not None and not _is_told(structured, _plain_texts(returned)):
        texts.append(text_of(structured))
    text = encodable("\n\n".join(texts))
    nothing = NO_REASON if returned.is_error else DONE
    return ToolResult(text=text if text or images else nothing, images=tuple(images), error=returned.is_error)


def _has_room(images: Sequence[Image]) -> bool:
    return len(images) < MAX_IMAGES


def _fits(image: Image, images: Iterable[Image]) -> bool:
    return len(image.url) + sum(len(each.url) for each in images) <= MAX_TOGETHER


def _image_of(block: Block) -> Image | None:
    """The image in the block, or None if there is none that every model can read."""
    if not isinstance(block, mcp_types.ImageContent):
        return None
    try:
        return Image(url=f"data:{block.mime_type};base64,{block.data}")
    except (ValidationError, ValueError):
        return None


def _written(block: Block) -> str:
    """The block as a text: its own, or what it is."""
    match block:
        case mcp_types.TextContent():
            return block.text
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            return f"[{block.type}: {block.mime_type}, {_bytes_in(block.data):,} bytes, not shown]"
        case mcp_types.ResourceLink():
            return f"[resource {block.name}: {block.uri}]" + (f" {block.description}" if block.description else "")
        case mcp_types.EmbeddedResource(resource=resource):
            if isinstance(resource, mcp_types.TextResourceContents):
                return f"[resource {resource.uri}]\n{resource.text}"
            kind = resource.mime_type or "of an unknown type"
            return f"[resource {resource.uri}: {kind}, {_bytes_in(resource.blob):,} bytes, not shown]"


def _bytes_in(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def _plain_texts(returned: mcp_types.CallToolResult) -> list[str]:
    return [block.text for block in returned.content if isinstance(block, mcp_types.TextContent)]


def _is_told(structured: object, texts: Sequence[str]) -> bool:
    """Whether the texts say the same. The SDK for servers writes a value both as a text and as `{"result": value}`, and
    a list as one text for each item."""
    alternatives = [structured]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        alternatives.append(structured["result"])
    text = "\n\n".join(texts)
    told: list[object] = [text, _parsed(text), list(texts), [_parsed(each) for each in texts]]
    return any(each == other for each in alternatives for other in told)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
