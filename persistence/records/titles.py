"""The titles of conversations in lists: given by the application, or made from the first message of a user."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from ...states.values.messages import HistoryMessage
from ...states.values.value import shortened

TITLE = 60
"""The most characters of a title that is made from a message. Chosen so that it fits a line of a list."""

_WORD = re.compile(rf"\S{{1,{TITLE + 1}}}")


def given_title(title: str | None) -> str | None:
    """Return a title on one line, or None if it is blank: then the conversation has the title of its first message.
    `Pure.`"""
    return None if title is None else " ".join(title.split()) or None


def message_title(text: str, images: int) -> str | None:
    """Return the title of a conversation that begins with this message: the message on one line, cut to `TITLE`
    characters. `Pure.`

    A message of images alone is counted, such as `3 images`. None if the message is blank.
    """
    line = " ".join(word[0] for word in islice(_WORD.finditer(text), TITLE))
    if line:
        return shortened(line, TITLE)
    return {0: None, 1: "1 image"}.get(images, f"{images} images")


def first_title(messages: Iterable[HistoryMessage]) -> str | None:
    """Return the title of a conversation that continues this history: that of the first message of a user which is not
    blank, or None. `Pure.`"""
    titles = (_history_title(message) for message in messages if message.role == "user")
    return next((title for title in titles if title is not None), None)


def _history_title(message: HistoryMessage) -> str | None:
    match message.given.get("content"):
        case str(text):
            return message_title(text, 0)
        case list(parts):
            objects = [part for part in parts if isinstance(part, dict)]
            texts = (text for text in (part.get("text") for part in objects) if isinstance(text, str))
            images = sum(part.get("type") == "image_url" for part in objects)
            return message_title("\n".join(texts), images)
        case _:
            return None
