"""What models, tools and files say, made fit for its place on a screen: on one line, with signs for images."""

from __future__ import annotations

import re

from ....effects.text import printable

_PAYLOAD = re.compile(r"(data:image/[a-z]+;base64,)[A-Za-z0-9+/]+=*")


def one_line(text: str, width: int | None = None) -> str:
    """The text on one line, cut off with an ellipsis at `width` characters if one is given. `Pure.`"""
    line = " ".join(printable(text).split())
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def with_images(text: str, count: int) -> str:
    """The text, under a line that tells of the images that came with it. `Pure.`"""
    if not count:
        return text
    sign = "[image]" if count == 1 else f"[{count} images]"
    return f"{sign}\n{text}" if text.strip() else sign


def without_payloads(text: str) -> str:
    """The text with the images left out that it holds as `data:` URLs. `Pure.`"""
    return _PAYLOAD.sub(r"\1…", text)


def counted(number: int, noun: str) -> str:
    """So many of them: "1 turn", "2 turns". `Pure.`"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
