"""Makes text from models, tools and files fit to be displayed: on one line, with a label for images."""

from __future__ import annotations

import re

from ....effects.printable import printable

_DATA_URL = re.compile(r"(data:image/[a-z]+;base64,)[A-Za-z0-9+/]+=*")


def one_line(text: str, width: int | None = None) -> str:
    """Return the text on one line, shortened with an ellipsis to `width` characters if it is given. `Pure.`"""
    line = " ".join(printable(text).split())
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def with_images(text: str, count: int) -> str:
    """Return the text below a label for the `count` images that came with it. `Pure.`"""
    if not count:
        return text
    label = "[image]" if count == 1 else f"[{count} images]"
    return f"{label}\n{text}" if text.strip() else label


def without_payloads(text: str) -> str:
    """Return the text with the content of each image in a `data:` URL replaced by an ellipsis. `Pure.`"""
    return _DATA_URL.sub(r"\1…", text)


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: "1 turn", "2 turns". `Pure.`"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
