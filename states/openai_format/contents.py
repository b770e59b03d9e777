"""Repairs the content of a message: a text, or a list of texts and images.

What a model is not sent, such as audio and files, is left out.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from ..values.images import MAX_IMAGES, MAX_TOGETHER, Image, media_type
from .repairs import ReportRepair, quoted

_TEXTS = {"text", "input_text", "output_text"}
_DATA = re.compile(r"data:[^,]{0,100};base64,(.*)", re.DOTALL)
_BEGINNING = 16
"""Characters of base64 that hold the longest signature of an image."""


def repair_content(role: str, content: Any, report: ReportRepair) -> Any:
    """Return the content as a text, a list of parts that is not empty, or None. `content` is a JSON value."""
    if content is None or isinstance(content, str):
        return content
    if role == "tool" and not _are_parts(content):
        report("The content is neither a text nor a list of parts, so it was written as JSON.")
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, dict):
        report("The content is a part and not a list of parts; it was put into a list.")
        content = [content]
    if not isinstance(content, list):
        report("The content is neither a text nor a list of parts, and was left out.")
        return None
    if not content:
        report("The content is an empty list, and was left out.")
    return list(_PartReader(role, report).read_all(content)) or None


def is_blank(content: Any) -> bool:
    """Return whether a repaired content shows nothing. `Pure.`"""
    if isinstance(content, list):
        return not any(part["type"] == "image_url" or str(part[part["type"]]).strip() for part in content)
    return content is None or not content.strip()


def _are_parts(content: Any) -> bool:
    """Whether the content of a result is meant as parts; otherwise it is a value that the tool returned."""
    parts = content if isinstance(content, list) else [content]
    return not parts or any(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)


class _PartReader:
    """Reads the parts of one message."""

    def __init__(self, role: str, report: ReportRepair) -> None:
        self._role = role
        self._report = report
        self._images = 0
        self._size = 0

    def read_all(self, parts: list[Any]) -> Iterator[dict[str, Any]]:
        """Yield the parts that are kept."""
        for part in parts:
            kept = self._read(part)
            if kept is not None:
                yield kept

    def _read(self, part: Any) -> dict[str, Any] | None:
        match part:
            case str():
                self._report("A text in the list of parts was made a part.")
                return {"type": "text", "text": part}
            case {"type": "text", "text": str()}:
                return dict(part)
            case {"type": str(kind), "text": str(text)} if kind in _TEXTS:
                self._report(f"A part of the type {quoted(kind)} was made a text.")
                return {"type": "text", "text": text}
            case {"type": "refusal", "refusal": str()} if self._role == "assistant":
                return dict(part)
            case {"type": "image_url" | "input_image"} if self._role in ("user", "tool"):
                return self._image(part)
            case {"type": str(kind)}:
                self._report(f"A part of the type {quoted(kind)} was left out.")
            case _:
                self._report("A part without a type was left out.")
        return None

    def _image(self, part: dict[str, Any]) -> dict[str, Any] | None:
        given = part.get("image_url")
        address = {"url": given} if isinstance(given, str) else given
        if not isinstance(address, dict) or not isinstance(address.get("url"), str):
            self._report("An image without a URL was left out.")
            return None
        url = self._checked(address["url"])
        if url is None:
            return None
        if isinstance(given, dict) and part["type"] == "image_url":
            return part if url == given["url"] else {**part, "image_url": {**given, "url": url}}
        self._report("An image was written as OpenAI's chat format has it.")
        return {"type": "image_url", "image_url": {**address, "url": url}}

    def _checked(self, url: str) -> str | None:
        """Return the URL of an image that can be sent; None if this is none, or if it is one too many."""
        named = _with_its_media_type(url)
        try:
            Image.model_validate(named)
        except ValidationError as error:
            self._report(f"An image was left out: {error.errors(include_url=False, include_input=False)[0]['msg']}.")
            return None
        if self._images == MAX_IMAGES or self._size + len(named) > MAX_TOGETHER:
            self._report(
                f"An image was left out: at most {MAX_IMAGES} images go together, in {MAX_TOGETHER:,} characters."
            )
            return None
        if named != url:
            self._report("The media type of an image was corrected.")
        self._images += 1
        self._size += len(named)
        return named


def _with_its_media_type(url: str) -> str:
    """Return a data URL with the media type that its bytes have; any other URL unchanged."""
    found = _DATA.fullmatch(url)
    if found is None:
        return url
    try:
        kind = media_type(b64decode(found[1][:_BEGINNING]))
    except ValueError:
        return url
    return url if kind is None else f"data:{kind};base64,{found[1]}"
