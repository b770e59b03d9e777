"""The texts that references refer to, and the images of such a text, looked up in the events that brought them."""

from __future__ import annotations

from collections.abc import Mapping

from ..events import Event, ToolComplete, ToolReconciled
from ..values.images import Image
from ..values.messages import Heard, Joined, Made, Outcomes, Said


def words(said: Said, events: Mapping[int, Event]) -> str:
    """Return the text that `said` refers to, given the events by their steps. Raises LookupError if there is no such
    text. `Pure.`"""
    if isinstance(said, Heard):  # first, because most references are of this type
        return events[said.seq].texts[said.index]
    match said:
        case Made(text=text):
            return text
        case Joined() | Outcomes():
            return said.text_of(words(part, events) for part in said.parts)


def images(said: Said, events: Mapping[int, Event]) -> tuple[Image, ...]:
    """Return the images that belong to the text of a result. `Pure.`"""
    match said:
        case Heard(seq=seq, index=0):
            event = events[seq]
            result = event.result if type(event) is ToolComplete or type(event) is ToolReconciled else None
            return () if result is None else result.images
        case Joined(parts=parts) | Outcomes(parts=parts):
            return tuple(image for part in parts for image in images(part, events))
        case _:
            return ()
